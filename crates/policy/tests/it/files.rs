//! The policy files in testdata: good ones are read, and each bad one says in comments what is wrong with it.

use std::fs;
use std::path::PathBuf;

use tollgate_policy::{Draft, Policy, Problem, Problems, Source, Unmatched, convert, read};

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/policies").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn problems(text: &str) -> Problems {
    problems_of("p.toml", text)
}

fn problems_of(path: &str, text: &str) -> Problems {
    Policy::parse(path, text).err().unwrap_or_default()
}

/// `line:column message`, and the first line of the help.
fn told(problem: &Problem) -> (String, Option<String>) {
    let help = problem.help.as_ref().map(|help| help.lines().next().unwrap_or_default().to_owned());
    (format!("{}:{} {}", problem.line, problem.column, problem.message), help)
}

fn expected(text: &str) -> Vec<(String, Option<String>)> {
    let mut expected: Vec<(String, Option<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(message) = line.strip_prefix("# expect ") {
            expected.push((message.to_owned(), None));
        } else if let Some(help) = line.strip_prefix("# help ") {
            expected.last_mut().unwrap().1 = Some(help.to_owned());
        }
    }
    assert!(!expected.is_empty());
    expected
}

#[test]
fn good_files_are_read() {
    for (path, _) in ["good", "envoy", "limitador"].into_iter().flat_map(files) {
        let policy = Policy::load(&path).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(!policy.limits().is_empty(), "{path:?}");
    }
}

#[test]
fn good_files_are_printed_and_read_again_as_the_same() {
    for (path, text) in ["good", "envoy", "limitador"].into_iter().flat_map(files) {
        let draft = read(&Source::new(path.to_str().unwrap(), text)).unwrap();
        let printed = draft.to_string();
        let again = read(&Source::new("second", printed.clone()))
            .unwrap_or_else(|e| panic!("{path:?}\n{printed}\n{e}"));
        assert_eq!(draft, again, "{printed}");
    }
}

#[test]
fn bad_files_tell_everything_that_is_wrong_with_them() {
    for (path, text) in files("bad") {
        let told: Vec<_> = problems_of(path.to_str().unwrap(), &text).iter().map(told).collect();
        assert_eq!(told, expected(&text), "{}", path.display());
    }
}

/// Answers, item 23: what looks like a mistake is told with its line and a remedy.
#[cfg(feature = "cel")]
#[test]
fn doubtful_files_are_read_with_warnings() {
    for (path, text) in files("doubtful") {
        let policy = Policy::load(&path).unwrap_or_else(|problems| panic!("{problems}"));
        let told: Vec<_> = policy.warnings().iter().map(told).collect();
        assert_eq!(told, expected(&text), "{}", path.display());
    }
}

/// Answers, item 23: nothing is said of files that are as they should be, but of keys that leave calls without a limit.
#[test]
fn good_files_have_few_warnings() {
    let warned = |(path, _): &(PathBuf, String)| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let warnings = Policy::load(path).unwrap().warnings();
        warnings
            .iter()
            .map(|warning| format!("{name}:{} {}", warning.line, warning.message))
            .collect::<Vec<_>>()
    };
    let all: Vec<String> =
        ["good", "envoy", "limitador"].into_iter().flat_map(files).flat_map(|file| warned(&file)).collect();
    let escapes = |place: &str, field: &str, limit: &str| {
        format!(
            "{place} requests without the field {field:?} are not limited by {limit:?} or any other limit"
        )
    };
    assert_eq!(
        all,
        [
            escapes("entries.toml:33", "user", "once"),
            escapes("first.toml:3", "ip", "per-ip"),
            escapes("tenants.toml:3", "tenant", "tenant"),
            escapes("web.toml:9", "ip", "per-ip"),
        ]
    );
}

#[test]
fn a_problem_is_shown_with_its_line_and_a_mark() {
    let text = "[limit.per-ip]\nkey = \"ip\"\nrate = \"10/s\"\nalgoritm = \"fixed-window\"\n";
    assert_eq!(
        problems(text).to_string(),
        "p.toml:4:1: unknown field \"algoritm\" of a limit
  |
4 | algoritm = \"fixed-window\"
  | ^^^^^^^^
  = help: did you mean \"algorithm\"?"
    );
}

#[test]
fn problems_are_data_too() {
    let json = serde_json::to_value(problems("[limit.a]\nrate = 1\n")).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "problems": [{
                "path": "p.toml",
                "line": 2,
                "column": 8,
                "message": "expected a rate such as \"10/s burst 20\", or a list of them, found the number 1",
                "help": "did you mean \"1/s\"?",
            }],
            "more": 0,
        })
    );
}

#[test]
fn an_empty_file_gets_an_example() {
    assert_eq!(
        problems("").to_string(),
        "p.toml:1:1: the file has no limit
  |
1 |\u{20}
  | ^
  = help: a first one could be:
    [limit.per-ip]
    key = \"ip\"
    rate = \"10/s burst 20\""
    );
}

#[test]
fn more_mistakes_than_anybody_reads_are_counted() {
    let text = (0..1000).map(|index| format!("[limit.a{index}]\nrate = 1")).collect::<Vec<_>>().join("\n");
    assert_eq!((problems(&text).iter().count(), problems(&text).count()), (100, 1000));
}

#[test]
fn deep_nesting_is_refused() {
    let deep = [
        (format!("a = {}", "[".repeat(100_000)), "tables or lists are nested too deeply"),
        (format!("{}b = 1", "a.".repeat(100_000)), "tables or lists are nested too deeply"),
        (format!("[{}b]\nc = 1", "a.".repeat(100_000)), "tables or lists are nested too deeply"),
    ];
    for (text, expected) in deep {
        let problems = problems(&text);
        assert!(problems.iter().any(|problem| problem.message == expected), "{problems}");
    }
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let text = "\u{feff}[limit.a]\r\nrate = \"1/s\"\r\nmode = \"on\"\r\n";
    let told: Vec<_> = problems(text).iter().map(told).collect();
    assert_eq!(told, [("3:8 unknown mode \"on\"; expected one of enforce, shadow, off".to_owned(), None)]);
}

mod on_disk {
    use super::*;

    fn written(name: &str, bytes: &[u8]) -> PathBuf {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn what_is_not_utf_8_is_shown_where_it_is() {
        let path = written("latin1.toml", b"[limit.a]\nrate = \"1/s\" # caf\xe9!\n");
        let problems = Policy::load(&path).unwrap_err();
        let expected = format!(
            "{}:2:19: byte 0xe9 is not valid UTF-8\n  |\n2 | rate = \"1/s\" # caf\u{fffd}!\n  |                   ^",
            path.display()
        );
        assert_eq!(problems.to_string(), expected);
    }

    #[test]
    fn what_is_too_large_is_not_read() {
        let path = written("large.toml", &vec![b'#'; 16 * 1024 * 1024 + 1]);
        let problems = Draft::load(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        let expected = format!("{}: larger than 16 MiB", path.display());
        assert_eq!(problems.to_string(), expected);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let problems = Policy::load("no/such.toml").unwrap_err();
        assert_eq!(
            problems.to_string(),
            "no/such.toml: cannot be read: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn several_files_make_one_policy() {
        let first = written("one.toml", b"[limit.a]\nrate = \"1/s\"\n");
        let second = written("two.toml", b"[limit.b]\nrate = \"1/s\"\nenvoy.replaces = \"c\"\n");
        let mut draft = Draft::load(&first).unwrap();
        draft.append(Draft::load(&first).unwrap());
        let problems = Policy::compile(draft).unwrap_err();
        let expected = format!("the limit \"a\" is already defined at {}:1:8", first.display());
        assert_eq!(problems.iter().map(|problem| &*problem.message).collect::<Vec<_>>(), [expected]);
        assert!(Draft::load(&second).is_err()); // nothing refers to another file
    }

    /// Answers, item 16: two files cannot say different things of one domain; one may say nothing.
    #[test]
    fn files_that_disagree_about_a_domain_are_refused() {
        let file = |name: &str, word: &str| {
            written(name, format!("{word}[limit.{name}]\nrate = \"1/s\"\n").as_bytes())
        };
        let (allows, denies) = (file("x", "unmatched = \"allow\"\n"), file("y", "unmatched = \"deny\"\n"));
        let silent = file("z", "");
        let problems = Policy::compile(Draft::load_merged([&allows, &denies]).unwrap()).unwrap_err();
        let expected = format!(
            "the domain \"default\" has unmatched = \"deny\" here and \"allow\" at {}:1:1",
            allows.display()
        );
        assert_eq!(problems.iter().map(|problem| &*problem.message).collect::<Vec<_>>(), [expected]);
        let policy = Policy::compile(Draft::load_merged([&silent, &denies]).unwrap()).unwrap();
        assert_eq!(policy.unmatched("default"), Some(Unmatched::Deny));
    }

    /// Answers, item 23: a file without limits is noticed beside another of its domain.
    #[test]
    fn a_file_without_limits_is_warned_of() {
        let file = |name: &str, rest: &str| written(name, format!("domain: web\n{rest}").as_bytes());
        let empty = file("empty.yaml", "descriptors: []\n");
        let full =
            file("full.yaml", "descriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 1}\n");
        let policy = Policy::compile(Draft::load_merged([&full, &empty]).unwrap()).unwrap();
        let warnings = policy.warnings();
        let told: Vec<(&str, usize, &str)> =
            warnings.iter().map(|warning| (&*warning.path, warning.line, &*warning.message)).collect();
        assert_eq!(told, [(empty.to_str().unwrap(), 1, "the file has no limit")]);
    }

    #[test]
    fn one_file_cannot_say_two_things_of_unmatched() {
        let web =
            written("web2.toml", b"unmatched = \"deny\"\ndomain = \"web\"\n[limit.a]\nrate = \"1/s\"\n");
        let mail = written("mail.toml", b"domain = \"mail\"\n[limit.b]\nrate = \"1/s\"\n");
        let problems = convert(Draft::load_merged([&web, &mail]).unwrap()).unwrap_err();
        assert_eq!(
            problems.iter().next().unwrap().message,
            "domains differ in unmatched: \"web\" has unmatched = \"deny\", others do not"
        );
        assert!(convert(Draft::load(&web).unwrap()).unwrap().starts_with("unmatched = \"deny\"\n"));
    }
}
