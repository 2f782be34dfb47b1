//! Files of Envoy's rate limit service: what they mean, against a walk through the file as its documentation has it.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;
use tollgate_core::Kind;
use tollgate_policy::{
    Descriptor, Draft, Match, Mode, Outcome, Policy, Scratch, Source, Unit, convert, read,
};

fn example() -> Policy {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/policies/envoy/web.yaml");
    Policy::load(path).unwrap_or_else(|problems| panic!("{problems}"))
}

fn web(entries: &[(&'static str, &'static str)]) -> Descriptor<'static> {
    entries.iter().fold(Descriptor::in_domain("web"), |descriptor, &(key, value)| descriptor.with(key, value))
}

/// Mode, rate and key of what applies.
fn met(policy: &Policy, entries: &[(&'static str, &'static str)]) -> Option<(Mode, String, String)> {
    let mut scratch = Scratch::new();
    let descriptor = web(entries);
    let matches = policy.matching(&descriptor, &mut scratch);
    assert!(matches.len() <= 1);
    let show = |found: Match<'_>| {
        let key = String::from_utf8(found.key().to_vec()).unwrap();
        (found.limit().mode(), found.rates().quotas()[0].to_string(), key)
    };
    matches.get(0).map(show)
}

#[allow(clippy::unnecessary_wraps, reason = "it is compared with what may be none")]
fn enforced(rate: &str, key: &str) -> Option<(Mode, String, String)> {
    Some((Mode::Enforce, rate.to_owned(), key.to_owned()))
}

#[test]
fn the_most_specific_limit_applies() {
    let policy = example();
    assert_eq!(met(&policy, &[("remote_address", "1.1.1.1")]), enforced("1000/s", "remote_address_1.1.1.1"));
    assert_eq!(met(&policy, &[("remote_address", "10.0.0.7")]), None);
    assert_eq!(met(&policy, &[("remote_address", "10.0.0.66")]), enforced("0/d", "remote_address_10.0.0.66"));
    assert_eq!(met(&policy, &[("path", "/api/1/export.csv")]), enforced("7/w", "path_/api/1/export.csv"));
    assert_eq!(met(&policy, &[("path", "/api/1")]), enforced("30 per 30d", "path_/api/1"));
    assert_eq!(met(&policy, &[("path", "/")]), None);
    let shadow = (Mode::Shadow, "365 per 365d".to_owned(), "user_ann".to_owned());
    assert_eq!(met(&policy, &[("user", "ann")]), Some(shadow));
    assert_eq!(met(&policy, &[("plan", "gold")]), enforced("unlimited", "plan_gold"));
}

#[test]
fn entries_must_be_all_that_there_is_in_this_order() {
    let policy = example();
    let (login, address) = (("path", "/login"), ("remote_address", "1.1.1.1"));
    assert_eq!(met(&policy, &[login]), enforced("100/min", "path_/login"));
    assert_eq!(met(&policy, &[login, address]), enforced("5/min", "path_/login,remote_address_1.1.1.1"));
    assert_eq!(met(&policy, &[address, login]), None);
    assert_eq!(met(&policy, &[login, address, ("user", "ann")]), None);
    assert_eq!(met(&policy, &[]), None);
}

#[test]
fn what_is_shared_is_counted_by_its_stars() {
    let shared = enforced("50/h", "path_/login,remote_address_10.0.0.*");
    for address in ["10.0.0.1", "10.0.0.2"] {
        assert_eq!(met(&example(), &[("path", "/login"), ("remote_address", address)]), shared);
    }
}

#[test]
fn what_a_limit_replaces_does_not_apply_to_any_descriptor_of_a_call() {
    let policy = example();
    let (address, user, gold) =
        (web(&[("remote_address", "1.1.1.1")]), web(&[("user", "ann")]), web(&[("plan", "gold")]));
    let found = |all: &[Descriptor<'_>]| {
        let mut scratch = Scratch::new();
        let matches = policy.matching_all(all, &mut scratch);
        matches
            .iter()
            .map(|found| (found.descriptor(), found.limit().label().map(str::to_owned)))
            .collect::<Vec<_>>()
    };
    let label = |at: usize, label: &str| (at, Some(label.to_owned()));
    assert_eq!(found(&[address.clone(), user.clone()]), [label(0, "per-address"), label(1, "per-user")]);
    assert_eq!(found(&[address.clone(), gold, user]), [label(1, "gold")]);
    let login = web(&[("path", "/login")]);
    assert_eq!(found(&[login.clone(), address, login]), [(0, None), label(1, "per-address"), (2, None)]);
}

#[test]
fn what_callers_and_dashboards_want_to_know_is_there() {
    let policy = example();
    let mut scratch = Scratch::new();
    let mut of = |entries: &[(&'static str, &'static str)], ask: &dyn Fn(&Match<'_>, &Descriptor<'_>)| {
        let descriptor = web(entries);
        ask(&policy.matching(&descriptor, &mut scratch).get(0).unwrap(), &descriptor);
    };
    of(&[("path", "/api/1")], &|found, descriptor| {
        let limit = found.limit();
        assert_eq!(limit.metadata(), Some(&json!({ "team": "api", "owners": ["ann", 7, 1.5, true, null] })));
        assert!(limit.is_any_of() && limit.counts_denied() && limit.kind() == Kind::FixedWindow);
        assert_eq!(Unit::of(found.rates().quotas()[0].period()), Some(Unit::Month));
        assert_eq!(limit.metric_name().of(descriptor.fields()), "web.path_/api/*");
    });
    of(&[("path", "/login"), ("remote_address", "1.1.1.1")], &|found, descriptor| {
        assert_eq!(
            found.limit().metric_name().of(descriptor.fields()),
            "web.path_/login.remote_address_1.1.1.1"
        );
    });
    of(&[("path", "/login"), ("remote_address", "10.0.0.1")], &|found, descriptor| {
        assert_eq!(
            found.limit().metric_name().of(descriptor.fields()),
            "web.path_/login.remote_address_10.0.0.*"
        );
    });
    of(&[("path", "/login")], &|found, descriptor| {
        assert!(!found.limit().is_any_of() && found.limit().label().is_none());
        assert_eq!(found.limit().metric_name().of(descriptor.fields()), "web.path_/login");
    });
}

#[test]
fn words_that_look_like_something_else_are_text() {
    let text = include_str!("../../../../testdata/policies/envoy/aliases.yaml");
    let draft = read(&Source::new("aliases.yaml", text)).unwrap();
    let entries: Vec<(String, String)> = draft
        .limits
        .iter()
        .map(|limit| (limit.envoy.entries[0].text.clone(), limit.rates[0].to_string()))
        .collect();
    let pair = |entry: &str, rate: &str| (entry.to_owned(), rate.to_owned());
    assert_eq!(
        entries,
        [
            pair("yes_12", "16/min"),
            pair("true_no", "16/min"),
            pair("yes_0.0.0.0", "16/min"),
            pair("null value", "1000/min")
        ]
    );
    assert!(draft.limits.iter().all(|limit| limit.domain == "on"));
}

#[test]
fn an_explanation_tells_what_goes_before() {
    let explanation =
        example().explain(&web(&[("path", "/login"), ("remote_address", "10.0.0.1")])).to_string();
    assert!(
        explanation.contains("1. path_/login>remote_address_10.0.0.*: 50/h, fixed-window"),
        "{explanation}"
    );
    assert!(
        explanation
            .contains("   entry 2 \"remote_address_10.0.0.*\": yes, it is \"remote_address_10.0.0.1\""),
        "{explanation}"
    );
    let other = "entry 2 \"remote_address\", unless it is \"remote_address_10.0.0.*\": no, it is \"remote_address_10.0.0.1\"";
    assert!(explanation.contains(other), "{explanation}");
    assert!(explanation.contains("entry 2 absent: no"), "{explanation}");
    assert!(
        explanation.contains("  gold: entry 1 \"plan_gold\": no, it is \"path_/login\""),
        "{explanation}"
    );
    let off = example().explain(&web(&[("remote_address", "10.0.0.7")])).to_string();
    assert!(off.contains("remote_address_10.0.0.7: switched off"), "{off}");
}

mod directories {
    use super::*;

    fn written(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("below.yaml")).unwrap();
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
        path
    }

    const A: &str = "domain: a\ndescriptors:\n- key: x\n  rate_limit: {unit: day, requests_per_unit: 1}\n";
    const B: &str = "domain: b\ndescriptors:\n- key: x\n  rate_limit: {unit: day, requests_per_unit: 2}\n";

    #[test]
    fn all_files_are_read_but_hidden_and_foreign_ones() {
        let files = [
            ("1.yaml", A),
            ("2.yml", B),
            (".3.yaml", "broken: ["),
            ("notes.md", "# x"),
            ("4.toml", "[limit.x]\nrate = \"3/d\""),
        ];
        let path = written("all", &files);
        let policy = Policy::load(&path).unwrap();
        assert_eq!(policy.domains().collect::<Vec<_>>(), ["a", "b", "default"]);
        let toml = convert(Draft::load(&path).unwrap()).unwrap();
        assert!(
            toml.contains("[limit.x]")
                && toml.contains("[limit.\"b:x\"]")
                && toml.contains("[limit.\"default:x\"]"),
            "{toml}"
        );
        assert_eq!(
            Policy::parse("converted.toml", toml).unwrap().domains().collect::<Vec<_>>(),
            ["a", "b", "default"]
        );
    }

    #[test]
    fn one_bad_file_is_enough_to_refuse_all_and_all_bad_files_are_told() {
        let path = written("bad", &[("1.yaml", A), ("2.yaml", "domain: b\nrate: 3\n"), ("3.yaml", "- {}\n")]);
        let problems = Policy::load(&path).unwrap_err();
        let told: Vec<(String, usize)> = problems
            .iter()
            .map(|problem| {
                (PathBuf::from(&problem.path).file_name().unwrap().to_str().unwrap().to_owned(), problem.line)
            })
            .collect();
        let file = |name: &str, line: usize| (name.to_owned(), line);
        assert_eq!(told, [file("2.yaml", 2), file("3.yaml", 1), file("3.yaml", 1), file("3.yaml", 1)]);
    }

    /// Item 26.5: also if one of them has no limits.
    #[test]
    fn two_files_of_one_domain_are_refused_even_if_one_has_no_limits() {
        for empty in ["domain: a\n", "domain: a\ndescriptors: []\n", "domain: a\ndescriptors:\n- key: z\n"] {
            for files in [[("1.yaml", A), ("2.yaml", empty)], [("1.yaml", empty), ("2.yaml", A)]] {
                let path = written("twice-empty", &files);
                let problems = Policy::load(&path).unwrap_err();
                let told: Vec<_> = problems.iter().map(|problem| &*problem.message).collect();
                let first = path.join("1.yaml");
                assert_eq!(
                    told,
                    [format!("the domain \"a\" is already defined in {}", first.display())],
                    "{files:?}"
                );
            }
        }
        let both = written("twice-empty", &[("1.yaml", "domain: a\n"), ("2.yaml", A)]);
        assert_eq!(Policy::compile(Draft::load_merged([&both]).unwrap()).unwrap().limits().len(), 1);
    }

    /// Item 26.5: the problem is shown at the domain, not at a comment with the same word.
    #[test]
    fn a_second_file_of_a_domain_is_marked_where_it_names_the_domain() {
        let second = format!("# this domain is another domain\n{A}");
        let path = written("marked", &[("1.yaml", A), ("2.yaml", &second)]);
        let problems = Policy::load(&path).unwrap_err();
        let first = problems.iter().next().unwrap();
        assert_eq!((first.line, first.column), (2, 9));
        assert!(first.to_string().contains("2 | domain: a\n  |         ^"), "{first}");
    }

    /// Item 26.5: without files of ours, all files are read, those below too, as Envoy's own service reads them.
    #[test]
    fn files_are_read_whatever_their_extension() {
        let c = A.replace("domain: a", "domain: c");
        let files = [("limits", A), ("web.conf", B), (".hidden", "broken: ["), ("below.yaml/deep.txt", &c)];
        let path = written("any", &files);
        assert_eq!(Policy::load(&path).unwrap().domains().collect::<Vec<_>>(), ["a", "b", "c"]);
        let readme = written("readme", &[("web.yaml", A), ("README", "# only words\n")]);
        let problems = Policy::load(&readme).unwrap_err();
        let told: Vec<_> = problems.iter().map(|problem| &*problem.message).collect();
        assert_eq!(told, ["expected a domain and its descriptors, or a list of limits, found nothing"]);
    }

    /// Item 26.5: a second document and all but the last of equal keys count for nothing, and are warned of.
    #[test]
    fn second_documents_and_equal_keys_are_warned_of() {
        let text = "domain: b\ndomain: a\ndescriptors:\n- key: x\n  rate_limit:\n    unit: day\n    requests_per_unit: 1\n    requests_per_unit: 2\n---\ndomain: z\n";
        let policy = Policy::load(written("documents", &[("1.yaml", text)])).unwrap();
        assert_eq!(policy.domains().collect::<Vec<_>>(), ["a"]);
        assert_eq!(policy.limits()[0].rates()[0].quotas()[0].to_string(), "2/d");
        let warnings = policy.warnings();
        let told: Vec<_> = warnings.iter().map(|warning| (warning.line, &*warning.message)).collect();
        assert_eq!(
            told,
            [
                (2, "\"domain\" is already defined in line 1; only this one counts"),
                (8, "\"requests_per_unit\" is already defined in line 7; only this one counts"),
                (9, "a second document begins here; only the first one counts"),
            ]
        );
    }

    #[test]
    fn two_files_of_one_domain_are_refused() {
        let path = written("twice", &[("1.yaml", A), ("2.yaml", &A.replace("key: x", "key: y"))]);
        let problems = Policy::load(&path).unwrap_err();
        let first = problems.iter().next().unwrap();
        assert_eq!((first.line, first.column, problems.count()), (1, 9, 1));
        assert_eq!(
            first.message,
            format!("the domain \"a\" is already defined in {}", path.join("1.yaml").display())
        );
    }

    #[test]
    fn two_files_of_one_domain_are_put_together_by_whoever_says_so() {
        let other = A.replace("key: x", "key: y").replace("unit: 1", "unit: 7");
        let path = written("merged", &[("1.yaml", A), ("2.yaml", &other)]);
        let policy = Policy::compile(Draft::load_merged([&path]).unwrap()).unwrap();
        let mut scratch = Scratch::new();
        for (key, rate) in [("x", "1/d"), ("y", "7/d")] {
            let descriptor = Descriptor::in_domain("a").with(key, "z");
            let found = policy.matching(&descriptor, &mut scratch).get(0).unwrap();
            assert_eq!(found.rates().quotas()[0].to_string(), rate);
        }
        let by_name = Draft::load_merged(["1.yaml", "2.yaml"].map(|file| path.join(file))).unwrap();
        assert_eq!(by_name, Draft::load_merged([&path]).unwrap());
        let twice = Draft::load_merged([path.join("1.yaml"), path.join("1.yaml")]).unwrap_err();
        let told: Vec<String> = twice.iter().map(|problem| problem.message.clone()).collect();
        let expected =
            format!("the descriptor \"x\" is already defined at {}:3:8", path.join("1.yaml").display());
        assert_eq!(told, [expected]);
    }

    #[test]
    fn limits_of_merged_files_replace_each_other_and_may_share_a_label() {
        let limit = |key: &str, rest: &str| {
            format!(
                "domain: a\ndescriptors:\n  - key: {key}\n    rate_limit: {{unit: day, requests_per_unit: 1, {rest}}}\n"
            )
        };
        let files = [
            ("1.yaml", limit("x", "name: same")),
            ("2.yaml", limit("y", "name: same")),
            ("3.yaml", limit("z", "name: other, replaces: [{name: same}, {name: nobody}]")),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let path = written("labels", &files);
        let policy = Policy::compile(Draft::load_merged([&path]).unwrap()).unwrap();
        let names: Vec<&str> = policy.limits().iter().map(tollgate_policy::Limit::name).collect();
        assert_eq!(names, ["same", "y", "other"]);
        let descriptors = ["x", "y", "z"].map(|key| Descriptor::in_domain("a").with(key, "1"));
        let mut scratch = Scratch::new();
        let found = policy.matching_all(&descriptors, &mut scratch);
        let left: Vec<&str> = found.iter().map(|found| found.limit().name()).collect();
        assert_eq!(left, ["other"], "both of that label are replaced");
    }

    #[test]
    fn an_empty_directory_is_no_policy() {
        let path = written("none", &[]);
        let expected = format!(
            "{}: no policy in this folder; expected files such as web.toml or web.yaml",
            path.display()
        );
        assert_eq!(Policy::load(&path).unwrap_err().to_string(), expected);
    }
}

#[test]
fn limits_may_replace_each_other_in_a_circle() {
    let text = "domain: d
descriptors:
- key: a
  rate_limit: {unit: day, requests_per_unit: 1, name: x, replaces: [{name: y}]}
- key: b
  rate_limit: {unit: day, requests_per_unit: 1, name: y, replaces: [{name: x}]}
- key: c
  rate_limit: {unit: day, requests_per_unit: 1, name: x}
";
    let original = Policy::parse("a.yaml", text).unwrap();
    let converted =
        Policy::parse("a.toml", convert(read(&Source::new("a.yaml", text)).unwrap()).unwrap()).unwrap();
    for policy in [original, converted] {
        let (a, b, c) = (
            Descriptor::in_domain("d").with("a", "1"),
            Descriptor::in_domain("d").with("b", "1"),
            Descriptor::in_domain("d").with("c", "1"),
        );
        let count = |all: &[Descriptor<'_>]| policy.matching_all(all, &mut Scratch::new()).len();
        assert_eq!(
            (count(&[a.clone(), b.clone()]), count(&[a.clone(), c.clone()]), count(&[b, c])),
            (0, 2, 1)
        );
    }
}

/// A descriptor of a file.
#[derive(Clone, Debug)]
struct Node {
    key: String,
    value: String,
    limit: Option<Rate>,
    shadow: bool,
    share: bool,
    below: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Rate {
    count: u32,
    unit: &'static str,
    unlimited: bool,
    name: String,
    replaces: Vec<String>,
}

/// Each composite key once in a level: the first counts.
fn unique(mut nodes: Vec<Node>) -> Vec<Node> {
    let mut seen = Vec::new();
    nodes.retain(|node| {
        let text = composite(&node.key, &node.value);
        let is_new = !seen.contains(&text);
        seen.push(text);
        is_new
    });
    nodes
}

/// The key of a descriptor in a file.
fn composite(key: &str, value: &str) -> String {
    if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") }
}

fn rate() -> impl Strategy<Value = Rate> {
    let names = select(&["", "", "n", "m", "o p"][..]);
    let units = select(&["second", "MINUTE", "Hour", "day", "week", "month", "year"][..]);
    let replaces = prop::collection::vec(select(&["n", "m", "o p", "nobody"][..]), 0..2);
    (any::<u32>(), units, prop::bool::weighted(0.1), names, replaces).prop_map(
        |(count, unit, unlimited, name, replaces)| {
            let replaces = replaces.into_iter().filter(|other| *other != name).map(str::to_owned).collect();
            Rate { count, unit, unlimited, name: name.to_owned(), replaces }
        },
    )
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let value = prop_oneof![2 => Just(String::new()), 3 => "[ab]{1,2}", 2 => "[ab*_]{0,3}\\*[ab_]{0,2}", 1 => "[ab_]{1,3}"];
    let node = ("[ab]_?[ab]?", value, prop::option::weighted(0.7, rate()), any::<bool>(), any::<bool>());
    let leaf = node
        .prop_map(|(key, value, limit, shadow, share)| {
            let share = share && value.contains('*');
            Node { key, value, limit, shadow, share, below: Vec::new() }
        })
        .boxed();
    let level = |node: BoxedStrategy<Node>| prop::collection::vec(node, 0..5).prop_map(unique);
    let with_below = leaf.clone();
    let deepest = (with_below.clone(), level(leaf)).prop_map(|(node, below)| Node { below, ..node }).boxed();
    let middle = (with_below, level(deepest)).prop_map(|(node, below)| Node { below, ..node });
    prop::collection::vec(middle, 1..8).prop_map(unique)
}

/// The file, by hand.
fn write(nodes: &[Node], depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for node in nodes {
        lines.push(format!("{indent}- key: {:?}\n", node.key));
        if !node.value.is_empty() {
            lines.push(format!("{indent}  value: {:?}\n", node.value));
        }
        if node.shadow {
            lines.push(format!("{indent}  shadow_mode: true\n"));
        }
        if node.share {
            lines.push(format!("{indent}  share_threshold: true\n"));
        }
        if let Some(rate) = &node.limit {
            lines.push(format!("{indent}  rate_limit:\n"));
            if rate.unlimited {
                lines.push(format!("{indent}    unlimited: true\n"));
            } else {
                lines.push(format!(
                    "{indent}    unit: {}\n{indent}    requests_per_unit: {}\n",
                    rate.unit, rate.count
                ));
            }
            if !rate.name.is_empty() {
                lines.push(format!("{indent}    name: {:?}\n", rate.name));
            }
            if !rate.replaces.is_empty() {
                let names: Vec<String> =
                    rate.replaces.iter().map(|name| format!("{{name: {name:?}}}")).collect();
                lines.push(format!("{indent}    replaces: [{}]\n", names.join(", ")));
            }
        }
        if !node.below.is_empty() {
            lines.push(format!("{indent}  descriptors:\n"));
            write(&node.below, depth + 1, lines);
        }
    }
}

/// `*` is any characters.
fn like(pattern: &[u8], value: &[u8]) -> bool {
    match pattern.split_first() {
        None => value.is_empty(),
        Some((b'*', rest)) => (0..=value.len()).any(|skip| like(rest, &value[skip..])),
        Some((byte, rest)) => {
            value.split_first().is_some_and(|(first, left)| first == byte && like(rest, left))
        }
    }
}

/// The walk through the file, and the counter that it comes to.
fn walk<'n>(nodes: &'n [Node], entries: &[(String, String)]) -> Option<(&'n Node, Vec<String>)> {
    let ((key, value), rest) = entries.split_first()?;
    let whole = format!("{key}_{value}");
    let text = |node: &Node| composite(&node.key, &node.value);
    let exact = nodes.iter().find(|node| text(node) == whole);
    let wild = || {
        nodes.iter().find(|node| text(node).contains('*') && like(text(node).as_bytes(), whole.as_bytes()))
    };
    let bare = || nodes.iter().find(|node| text(node) == *key);
    let (node, by_stars) = match (exact, wild()) {
        (Some(node), _) => (node, false),
        (None, Some(node)) => (node, true),
        (None, None) => (bare()?, false),
    };
    let counter = if by_stars && node.share { text(node) } else { whole };
    if rest.is_empty() {
        return Some((node, vec![counter]));
    }
    let (found, mut counters) = walk(&node.below, rest)?;
    counters.insert(0, counter);
    Some((found, counters))
}

/// What applies to one descriptor: whether it decides, how much per second, and the counter.
type Applying = (bool, Option<(u64, u64)>, Vec<String>);

/// What applies to each descriptor of a call.
fn oracle(nodes: &[Node], call: &[Vec<(String, String)>]) -> Vec<Option<Applying>> {
    let found: Vec<Option<(&Node, Vec<String>)>> =
        call.iter().map(|entries| walk(nodes, entries).filter(|(node, _)| node.limit.is_some())).collect();
    let rates = found.iter().flatten().filter_map(|(node, _)| node.limit.as_ref());
    let replaced: Vec<&String> = rates.flat_map(|rate| &rate.replaces).collect();
    let seconds = |unit: &str| match unit.to_lowercase().as_str() {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 7 * 86_400,
        "month" => 30 * 86_400,
        _ => 365 * 86_400,
    };
    let apply = |found: Option<(&Node, Vec<String>)>| {
        let (node, counters) = found?;
        let rate = node.limit.as_ref()?;
        let is_replaced = !rate.name.is_empty() && replaced.contains(&&rate.name) && !rate.unlimited;
        let numbers = (!rate.unlimited).then(|| (u64::from(rate.count), seconds(rate.unit)));
        (!is_replaced).then_some((!node.shadow, numbers, counters))
    };
    found.into_iter().map(apply).collect()
}

/// What the policy says about each descriptor. The counter's parts are told apart as its documentation says.
fn decided(policy: &Policy, call: &[Vec<(String, String)>], scratch: &mut Scratch) -> Vec<Option<Applying>> {
    let descriptors: Vec<Descriptor<'_>> = call.iter().map(|entries| descriptor(entries)).collect();
    let mut answers = vec![None; call.len()];
    for found in policy.matching_all(&descriptors, scratch).iter() {
        let quota = found.rates().quotas()[0];
        let numbers = (!quota.is_unlimited()).then(|| (quota.count(), quota.period().as_secs()));
        let key = String::from_utf8(found.key().to_vec()).unwrap();
        let parts = key.split(',').map(str::to_owned).collect(); // no comma stands in any value here
        assert!(answers[found.descriptor()].is_none());
        answers[found.descriptor()] = Some((!found.is_shadow(), numbers, parts));
    }
    answers
}

type Call = Vec<Vec<(String, String)>>;

fn descriptor(entries: &[(String, String)]) -> Descriptor<'_> {
    let web = Descriptor::in_domain("web");
    entries.iter().fold(web, |descriptor, (key, value)| descriptor.with(key, value))
}

/// Entries as the nodes of a file would have them, or near misses.
fn call() -> impl Strategy<Value = Vec<Vec<(Index, u8, String, String)>>> {
    let entry = (any::<Index>(), any::<u8>(), "[ab]_?[ab]?", "[ab_*]{0,3}");
    prop::collection::vec(prop::collection::vec(entry, 1..4), 1..4)
}

fn aimed(nodes: &[Node], call: &[Vec<(Index, u8, String, String)>]) -> Call {
    let aim = |entries: &Vec<(Index, u8, String, String)>| {
        let mut level = nodes;
        let mut aimed = Vec::new();
        for (index, chance, key, value) in entries {
            let node = (!level.is_empty()).then(|| &level[index.index(level.len())]);
            aimed.push(match node {
                Some(node) if chance % 8 > 0 => {
                    let filled = node.value.replace('*', if chance % 2 == 0 { "" } else { value });
                    (node.key.clone(), if node.value.is_empty() { value.clone() } else { filled })
                }
                _ => (key.clone(), value.clone()),
            });
            level = node.map_or(&[], |node| &node.below);
        }
        aimed
    };
    call.iter().map(aim).collect()
}

fn file(nodes: &[Node]) -> String {
    let mut lines = vec!["domain: web\ndescriptors:\n".to_owned()];
    write(nodes, 0, &mut lines);
    lines.concat()
}

fn parsed(path: &str, text: &str) -> Result<Policy, TestCaseError> {
    Policy::parse(path, text).map_err(|problems| TestCaseError::fail(format!("{problems}\n{text}")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// 500 files with 100 calls of about two descriptors: some 100 000 descriptors.
    #[test]
    fn a_file_and_what_it_is_converted_to_decide_as_the_walk_through_the_file(
        nodes in nodes(),
        calls in prop::collection::vec(call(), 100),
    ) {
        let text = file(&nodes);
        let original = parsed("web.yaml", &text)?;
        let toml = convert(read(&Source::new("web.yaml", text.clone())).unwrap()).unwrap();
        let converted = parsed("web.toml", &toml)?;
        let mut scratch = Scratch::new();
        for call in calls {
            let call = aimed(&nodes, &call);
            let expected = oracle(&nodes, &call);
            prop_assert_eq!(&decided(&original, &call, &mut scratch), &expected, "{:?}\n{}", &call, &text);
            prop_assert_eq!(&decided(&converted, &call, &mut scratch), &expected, "{:?}\n{}", &call, &toml);
        }
    }

    /// Two calls share a state exactly where the file's own counters are one.
    #[test]
    fn counters_are_told_apart(nodes in nodes(), calls in prop::collection::vec(call(), 30)) {
        let policy = parsed("web.yaml", &file(&nodes))?;
        let (mut scratch, mut states) = (Scratch::new(), HashMap::new());
        for call in calls {
            for entries in aimed(&nodes, &call) {
                let Some((node, counters)) = walk(&nodes, &entries) else { continue };
                if let Some(found) = policy.matching(&descriptor(&entries), &mut scratch).get(0) {
                    let state = (found.limit().name().to_owned(), found.key().to_vec());
                    let counter = (std::ptr::from_ref(node) as usize, counters);
                    prop_assert_eq!(states.entry(state).or_insert_with(|| counter.clone()), &counter);
                }
            }
        }
    }

    #[test]
    fn an_explanation_agrees(nodes in nodes(), calls in prop::collection::vec(call(), 20)) {
        let policy = parsed("web.yaml", &file(&nodes))?;
        for entries in calls.iter().flat_map(|call| aimed(&nodes, call)) {
            let explanation = policy.explain(&descriptor(&entries));
            let applying: Vec<&str> = explanation
                .limits
                .iter()
                .filter(|limit| limit.outcome == Outcome::Applies)
                .map(|limit| limit.name.as_str())
                .collect();
            let mut scratch = Scratch::new();
            let matches = policy.matching(&descriptor(&entries), &mut scratch);
            prop_assert_eq!(applying, matches.iter().map(|found| found.limit().name()).collect::<Vec<_>>());
        }
    }
}
