//! Files of limitador: what they mean, against conditions that are evaluated by hand.

use std::path::PathBuf;

use tollgate_core::Kind;
use tollgate_policy::{Condition, Descriptor, Draft, KeyPart, Policy, Scratch, Source, Test, convert, read};

fn example() -> Draft {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/policies/limitador/toystore.yaml");
    Draft::load(path).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn comparisons_are_ordinary_conditions() {
    let draft = example();
    let toys = &draft.limits[0];
    let is = |value: &str| Condition::AnyOf(vec![Test::Is(value.to_owned())]);
    assert_eq!(toys.conditions, [("req.method".to_owned(), is("GET")), ("path".to_owned(), is("/toys"))]);
    assert_eq!((&toys.key[..], toys.when.len()), (&[KeyPart::text("user_id")][..], 0));
    let theirs = &toys.limitador;
    assert_eq!((toys.kind, theirs.once, toys.count_denied), (Kind::FixedWindow, true, false));
    assert_eq!((theirs.name.as_deref(), theirs.id.as_deref()), (Some("Toys per user"), Some("toys")));
    let rates: Vec<String> = draft.limits.iter().map(|limit| limit.rates[0].to_string()).collect();
    assert_eq!(rates, ["10/min", "5 per 10s", "0/d", "18446744073709551615/s"]);
}

#[test]
fn a_limit_applies_where_its_conditions_hold_and_its_variables_are_there() {
    let policy = Policy::compile(example()).unwrap();
    let found = |descriptor: Descriptor<'_>| {
        let mut scratch = Scratch::new();
        let matches = policy.matching(&descriptor, &mut scratch);
        matches
            .iter()
            .map(|found| (found.rates().quotas()[0].to_string(), found.key().to_vec()))
            .collect::<Vec<_>>()
    };
    let toys = || Descriptor::in_domain("toystore").with("req.method", "GET").with("path", "/toys");
    assert_eq!(found(toys().with("user_id", "ann")), [("10/min".to_owned(), b"ann".to_vec())]);
    assert_eq!(found(toys()), []);
    let banned = toys().with("user_id", "ann").with("banned", "yes");
    assert_eq!(found(banned), [("10/min".to_owned(), b"ann".to_vec()), ("0/d".to_owned(), Vec::new())]);
    assert_eq!(found(Descriptor::in_domain("other")), []);
}

#[test]
fn a_call_is_counted_once_by_its_first_descriptor() {
    let policy = Policy::compile(example()).unwrap();
    let post = Descriptor::in_domain("toystore").with("req.method", "POST");
    let none = Descriptor::in_domain("toystore");
    let count = |all: &[Descriptor<'_>]| policy.matching_all(all, &mut Scratch::new()).len();
    assert_eq!(count(&[post.clone(), post.clone()]), 1);
    assert_eq!(count(&[none, post]), 0);
    assert_eq!(count(&[]), 0);
}

#[test]
fn more_may_be_allowed_without_another_name() {
    let text = |most: u32, name: &str| {
        format!(
            "- namespace: a\n  max_value: {most}\n  seconds: 1\n  conditions: [\"descriptors[0].x == '1'\"]\n{name}"
        )
    };
    let name = |text: String| read(&Source::new("a.yaml", text)).unwrap().limits[0].name.clone();
    assert_eq!(name(text(1, "")), name(text(2, "")));
    assert_eq!(name(text(1, "  name: some thing")), name(text(2, "")));
    assert_eq!(name(text(1, "  name: x")), "x");
}

#[test]
fn what_is_converted_reads_like_this() {
    let toml = convert(example()).unwrap();
    let start = "\
algorithm = \"fixed-window\"

[limit.";
    assert!(toml.starts_with(start), "{toml}");
    let toys = "
domain = \"toystore\"
match.\"req.method\" = \"GET\"
match.path = \"/toys\"
key = \"user_id\"
rate = \"10/min\"
limitador.name = \"Toys per user\"
limitador.id = \"toys\"
limitador.once = true
";
    assert!(toml.contains(toys), "{toml}");
    assert_eq!(read(&Source::new("converted.toml", toml)).unwrap(), example());
}

/// Item 26.10: files as Kuadrant's operator writes them into a `ConfigMap` are read.
#[test]
fn files_of_kuadrants_operator_are_read() {
    let text = r#"---
- conditions:
  - descriptors[0]["limit.get_toys__3fe1a2"] == "1"
  max_value: 5
  namespace: kuadrant-system/toystore
  seconds: 10
  variables:
  - descriptors[0]["auth.identity.userid"]
  name: toystore/get-toys
- namespace: kuadrant-system/toystore
  max_value: 1000
  seconds: 60
  conditions:
  variables:
"#;
    let draft = read(&Source::new("limitador-config.yaml", text)).unwrap();
    assert_eq!(draft.limits[0].key, [KeyPart::text("auth.identity.userid")]);
    assert_eq!(draft.limits[0].conditions[0].0, "limit.get_toys__3fe1a2");
    assert!(Policy::compile(draft).unwrap().is_limitador());
}

/// Item 26.10: conditions and variables as of before limitador 2 are refused with those to write.
#[test]
fn old_conditions_and_variables_are_refused_with_what_to_write() {
    let text = r#"
- namespace: toystore-app
  max_value: 2
  seconds: 30
  conditions:
  - "get_toy == 'yes'"
  - req.method != "GET"
  - "'1' == limit.get_toys__3fe1a2"
  variables: [user_id, auth.identity.userid]
"#;
    let problems = Policy::parse("limits.yaml", text).unwrap_err();
    let helps: Vec<&str> = problems.iter().filter_map(|problem| problem.help.as_deref()).collect();
    assert_eq!(
        helps,
        [
            "write descriptors[0]['get_toy'] == 'yes'",
            "write descriptors[0]['req.method'] != 'GET'",
            "write descriptors[0]['limit.get_toys__3fe1a2'] == '1'",
            "write descriptors[0]['user_id']",
            "write descriptors[0]['auth.identity.userid']",
        ]
    );
}

/// Item 26.10: an object of Kubernetes is refused with where its limits are.
#[test]
fn objects_of_kubernetes_are_refused_with_where_the_limits_are() {
    for (kind, data, help) in [
        ("ConfigMap", "data:\n  limits.yaml: |\n    - namespace: a\n", "under data into a file"),
        ("Limitador", "spec:\n  limits: []\n", "under spec.limits into a file"),
        ("RateLimitPolicy", "spec:\n  limits: {}\n", "writes it into a ConfigMap"),
    ] {
        let text = format!("---\napiVersion: v1\nkind: {kind}\nmetadata:\n  name: limits\n{data}");
        let problems = Policy::parse("limits.yaml", text).unwrap_err();
        let problem = problems.iter().next().unwrap();
        assert_eq!(problems.count(), 1, "{problems}");
        assert_eq!(problem.message, format!("this is a Kubernetes object of kind {kind:?}, not a policy"));
        assert!(problem.help.as_ref().unwrap().contains(help), "{problems}");
    }
}

#[cfg(not(feature = "cel"))]
#[test]
fn without_cel_other_expressions_are_refused_where_they_are() {
    let text = "- namespace: a\n  max_value: 1\n  seconds: 1\n  conditions: [\"descriptors[0].x != '1'\"]\n";
    let problems = Policy::parse("a.yaml", text).unwrap_err();
    let first = problems.iter().next().unwrap();
    assert_eq!((first.line, first.column, problems.count()), (4, 16, 1));
    assert!(first.message.starts_with("this program was built without CEL"), "{problems}");
}

#[cfg(feature = "cel")]
mod with_expressions {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;
    use tollgate_policy::Outcome;

    #[test]
    fn what_is_wrong_with_an_expression_is_told_where_it_is() {
        let text = "- namespace: a
  max_value: 1
  seconds: 1
  conditions:
  - descriptors[0].x +
  - user.startsWith('x')
  - descriptors.exists(d, d.x == y)
  variables:
  - \"size(nobody)\"
";
        let problems = Policy::parse("a.yaml", text).unwrap_err();
        let told: Vec<(usize, usize, &str)> =
            problems.iter().map(|problem| (problem.line, problem.column, &*problem.message)).collect();
        assert_eq!(told.len(), 4, "{problems}");
        assert_eq!((told[0].0, told[0].1), (5, 5));
        assert!(told[0].2.starts_with("invalid CEL expression, at character "), "{problems}");
        let unknown = |name: &str| {
            format!(
                "unknown variable {name:?}; expressions can read descriptors and limit; for a field write descriptors[0][{name:?}]"
            )
        };
        assert_eq!(told[1], (6, 5, &*unknown("user")));
        assert_eq!(told[2], (7, 5, &*unknown("y")));
        assert_eq!(told[3], (9, 5, &*unknown("nobody")));
    }

    #[test]
    fn a_native_file_says_it_with_when_and_key() {
        let text = r#"
            [limit.a]
            when = ["descriptors[0].path.startsWith('/api/')", "size(descriptors) == 1"]
            key = [{ cel = "descriptors[0].user + '@' + descriptors[0].host" }, "tenant"]
            rate = "1/s"
        "#;
        let policy = Policy::parse("a.toml", text).unwrap();
        let mut scratch = Scratch::new();
        let call = Descriptor::new()
            .with("path", "/api/x")
            .with("user", "ann,b")
            .with("host", "h")
            .with("tenant", "t");
        assert_eq!(policy.matching(&call, &mut scratch).get(0).unwrap().key(), b"ann\\,b@h,t");
        // Each descriptor is a call of its own for it.
        assert_eq!(policy.matching_all(&[call.clone(), call.clone()], &mut scratch).len(), 2);
        let other =
            Descriptor::new().with("path", "/x").with("user", "ann").with("host", "h").with("tenant", "t");
        assert!(policy.matching(&other, &mut scratch).is_empty());
        let explanation = policy.explain(&other).to_string();
        assert!(
            explanation.contains("when descriptors[0].path.startsWith('/api/'): no, it is \"false\""),
            "{explanation}"
        );
    }

    /// Answers, item 13: an expression that fails on a value of the call is no error of the call.
    #[test]
    fn an_expression_that_fails_counts_as_absent_or_denies() {
        let text = "[limit.a]\nwhen = \"int(descriptors[0].x) > 5\"\nrate = \"1/s\"\n[limit.b]\nwhen = \"descriptors[0].x\"\nrate = \"1/s\"\n";
        let policy = Policy::parse("a.toml", text).unwrap();
        let mut scratch = Scratch::new();
        let mut bad = |call: &Descriptor<'_>| {
            let matches = policy.matching(call, &mut scratch);
            let bad: Vec<(String, String)> = matches
                .bad_values()
                .map(|bad| (bad.limit().name().to_owned(), bad.why().to_owned()))
                .collect();
            (matches.len(), bad)
        };
        let (count, of_seven) = bad(&Descriptor::new().with("x", "7"));
        assert_eq!(
            (count, &of_seven[..]),
            (1, &[("b".to_owned(), "it is not true or false".to_owned())][..])
        );
        let (count, of_text) = bad(&Descriptor::new().with("x", "seven"));
        let names: Vec<&str> = of_text.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((count, &names[..]), (0, &["a", "b"][..]));
        assert_eq!(bad(&Descriptor::new()), (0, Vec::new())); // a field that is missing is no bad value
        let call = Descriptor::new().with("x", "seven");
        let outcome = |policy: &Policy| policy.explain(&call).limits[0].outcome.clone();
        assert_eq!(outcome(&policy), Outcome::DoesNotMatch);
        let denying = Policy::parse("a.toml", format!("on_bad_value = \"deny\"\n{text}")).unwrap();
        let mut scratch = Scratch::new();
        assert!(denying.matching(&call, &mut scratch).bad_values().all(|bad| bad.denies()));
        assert_eq!(outcome(&denying), Outcome::DeniesBadValue);
        let beyond = "[limit.a]\nwhen = \"descriptors[1].x == 'y'\"\nrate = \"1/s\"\n";
        let beyond = Policy::parse("a.toml", beyond).unwrap();
        let matches = beyond.matching(&call, &mut scratch);
        assert_eq!((matches.len(), matches.bad_values().len()), (0, 1));
    }

    /// Answers, item 13: whether a bad value denies does not depend on the order of the conditions.
    #[test]
    fn a_bad_value_of_a_limit_whose_other_condition_is_false_is_not_reported() {
        let (fails, is_false) = ("int(descriptors[0].x) > 5", "descriptors[0].x == 'y'");
        for (first, second) in [(fails, is_false), (is_false, fails)] {
            let text = format!(
                "[limit.a]\nwhen = [\"{first}\", \"{second}\"]\nrate = \"1/s\"\non_bad_value = \"deny\"\n"
            );
            let policy = Policy::parse("a.toml", text).unwrap();
            let mut scratch = Scratch::new();
            let call = Descriptor::new().with("x", "many");
            let matches = policy.matching(&call, &mut scratch);
            assert_eq!((matches.len(), matches.bad_values().len()), (0, 0), "{first}, {second}");
        }
    }

    /// Item 26.10: a condition that cannot be evaluated is false, also where bad values deny.
    #[test]
    fn conditions_on_missing_keys_and_of_mixed_types_are_false() {
        let call = Descriptor::in_domain("a").with("x", "many").with("n", "7");
        for condition in [
            "descriptors[0].missing == 'y'",
            "descriptors[0].missing != 'y'",
            "descriptors[0].missing.below == 'y'",
            "descriptors[0].n > 5",
            "descriptors[0].n + 1 == 8",
            "descriptors[0].n == 7",
            "descriptors[0].x",
            "size(descriptors)",
            "int(descriptors[0].x) > 5",
            "descriptors[1].x == 'many'",
        ] {
            let limit = serde_json::json!([
                { "namespace": "a", "max_value": 1, "seconds": 1, "conditions": [condition], "variables": [] }
            ]);
            let draft = read(&Source::new("a.yaml", limit.to_string())).unwrap();
            let toml = format!("on_bad_value = \"deny\"\n{}", convert(draft.clone()).unwrap());
            for policy in [Policy::compile(draft).unwrap(), Policy::parse("a.toml", toml).unwrap()] {
                let mut scratch = Scratch::new();
                let matches = policy.matching(&call, &mut scratch);
                assert_eq!((matches.len(), matches.bad_values().len()), (0, 0), "{condition}");
                assert_eq!(policy.explain(&call).limits[0].outcome, Outcome::DoesNotMatch, "{condition}");
            }
        }
    }

    #[test]
    fn a_limit_knows_what_it_is_called() {
        let text = "- {namespace: a, max_value: 1, seconds: 1, conditions: [\"limit.name == 'x' && limit.id == 'y'\"], name: x, id: y}
- {namespace: a, max_value: 1, seconds: 2, conditions: [\"limit.name == null\"]}
- {namespace: a, max_value: 1, seconds: 3, conditions: [\"limit.name == 'x'\"], name: z}
";
        let policy = Policy::parse("a.yaml", text).unwrap();
        let mut scratch = Scratch::new();
        let call = Descriptor::in_domain("a");
        let found: Vec<u64> = policy
            .matching(&call, &mut scratch)
            .iter()
            .map(|found| found.rates().quotas()[0].period().as_secs())
            .collect();
        assert_eq!(found, [1, 2]);
    }

    /// Reads an expression and, if that succeeds, evaluates it.
    fn answered(expression: &str) -> Result<(), String> {
        let json = serde_json::json!([
            { "namespace": "a", "max_value": 1, "seconds": 1, "conditions": [expression], "variables": [expression] }
        ]);
        let policy = Policy::parse("a.json", json.to_string()).map_err(|problems| problems.to_string())?;
        let call = Descriptor::in_domain("a").with("x", "y");
        let mut scratch = Scratch::new();
        assert!(policy.matching(&call, &mut scratch).len() <= 1);
        policy.explain(&call);
        Ok(())
    }

    #[test]
    fn long_and_deep_expressions_are_answered() {
        let long = |count: usize, one: &str, join: &str| vec![one; count].join(join);
        assert!(answered(&long(40, "descriptors[0].x == 'y'", " && ")).is_ok());
        for text in [
            long(800, "1", " + "),
            long(1300, "1", "+"),
            long(150, "descriptors[0].x == 'y'", " || "),
            long(1300, "x", "."),
            format!("{}1{}", "(".repeat(1500), ")".repeat(1500)),
            "(".repeat(4000),
            "[".repeat(4000),
            format!("{}true", "!".repeat(4000)),
            format!("{}1", "-".repeat(4000)),
            long(600, "true ? 1 ", ": "),
            format!("descriptors{}", "[0]".repeat(1000)),
            "'".repeat(3999),
            "x".repeat(5000),
        ] {
            let _ = answered(&text); // whatever it says, it comes back
        }
        let told = answered(&format!("true || '{}' == ''", "x".repeat(5000))).unwrap_err();
        assert!(told.contains("an expression has at most 4096 bytes"), "{told}");
    }

    const PIECES: &[&str] = &[
        "descriptors",
        "[0]",
        "[1]",
        "[-1]",
        "['x']",
        ".x",
        ".",
        "limit",
        ".name",
        " == ",
        " != ",
        " && ",
        " || ",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "?",
        "'y'",
        "\"y\"",
        "'",
        "\"",
        "r'x'",
        "b'x'",
        "'''",
        "\\",
        "\\x",
        "1",
        "0",
        "1u",
        "0x",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "1e999",
        "true",
        "null",
        "has(",
        "size(",
        "int(",
        "string(",
        ".exists(d, ",
        ".map(d, ",
        ".all(d, ",
        "d",
        ".startsWith(",
        ".matches(",
        "'('",
        " in ",
        "é",
        "\u{0}",
        "\n",
        " ",
        "@",
        "#",
        "`",
        "type(",
        "dyn(",
        "duration('1s')",
        "timestamp(",
        "google.",
        "x{y: 1}",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn any_expression_is_answered(pieces in prop::collection::vec(select(PIECES), 0..14)) {
            let _ = answered(&pieces.concat());
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,30}") {
            let _ = answered(&text);
        }
    }

    /// What a condition says, to be written and to be evaluated by hand.
    #[derive(Clone, Debug)]
    enum Says {
        Is(&'static str, &'static str),
        Not(&'static str, &'static str),
        In(&'static str, [&'static str; 2]),
        Starts(&'static str, &'static str),
        Has(&'static str),
        HasNot(&'static str),
        Count(usize),
        Both(&'static str, &'static str, &'static str),
        Any(&'static str, &'static str),
        Named(&'static str),
    }

    type Map = Vec<(&'static str, &'static str)>;

    fn value(map: &Map, field: &str) -> Option<&'static str> {
        map.iter().find(|entry| entry.0 == field).map(|entry| entry.1)
    }

    impl Says {
        fn text(&self, quote: char) -> String {
            let q = |text: &str| format!("{quote}{text}{quote}");
            match self {
                Self::Is(field, value) if quote == '"' => {
                    format!("descriptors[0][{}] == {}", q(field), q(value))
                }
                Self::Is(field, value) => format!("descriptors[0].{field} == {}", q(value)),
                Self::Not(field, value) => format!("descriptors[0].{field} != {}", q(value)),
                Self::In(field, [one, other]) => {
                    format!("descriptors[0].{field} in [{}, {}]", q(one), q(other))
                }
                Self::Starts(field, value) => format!("descriptors[0].{field}.startsWith({})", q(value)),
                Self::Has(field) => format!("has(descriptors[0].{field})"),
                Self::HasNot(field) => format!("!has(descriptors[0].{field})"),
                Self::Count(count) => format!("size(descriptors) == {count}"),
                Self::Both(one, other, value) => {
                    format!("descriptors[0].{one} == {} && descriptors[0].{other} == {}", q(value), q(value))
                }
                Self::Any(field, value) => {
                    format!("descriptors.exists(d, has(d.{field}) && d.{field} == {})", q(value))
                }
                Self::Named(name) => format!("limit.name == {}", q(name)),
            }
        }

        fn holds(&self, call: &[Map], name: &str) -> bool {
            let first = |field: &str| value(&call[0], field);
            match self {
                Self::Is(field, value) => first(field) == Some(value),
                Self::Not(field, value) => first(field).is_some_and(|found| found != *value),
                Self::In(field, values) => first(field).is_some_and(|found| values.contains(&found)),
                Self::Starts(field, value) => first(field).is_some_and(|found| found.starts_with(value)),
                Self::Has(field) => first(field).is_some(),
                Self::HasNot(field) => first(field).is_none(),
                Self::Count(count) => call.len() == *count,
                Self::Both(one, other, value) => first(one) == Some(value) && first(other) == Some(value),
                Self::Any(field, wanted) => call.iter().any(|map| value(map, field) == Some(wanted)),
                Self::Named(wanted) => name == *wanted,
            }
        }
    }

    /// What a limit counts by.
    #[derive(Clone, Debug)]
    enum By {
        Field(&'static str),
        Joined(&'static str, &'static str),
        Size(&'static str),
        Or(&'static str),
    }

    impl By {
        fn text(&self) -> String {
            match self {
                Self::Field(field) => format!("descriptors[0].{field}"),
                Self::Joined(one, other) => format!("descriptors[0].{one} + '-' + descriptors[0].{other}"),
                Self::Size(field) => format!("size(descriptors[0].{field})"),
                Self::Or(field) => format!("has(descriptors[0].{field}) ? descriptors[0].{field} : 'none'"),
            }
        }

        fn value(&self, first: &Map) -> Option<String> {
            match self {
                Self::Field(field) => value(first, field).map(str::to_owned),
                Self::Joined(one, other) => Some(format!("{}-{}", value(first, one)?, value(first, other)?)),
                Self::Size(field) => Some(value(first, field)?.len().to_string()),
                Self::Or(field) => Some(value(first, field).unwrap_or("none").to_owned()),
            }
        }
    }

    const FIELDS: [&str; 3] = ["a", "b", "c"];
    const VALUES: [&str; 4] = ["", "x", "xy", "y,z"];

    fn says() -> impl Strategy<Value = Says> {
        let (field, text) = (|| select(&FIELDS[..]), || select(&VALUES[..]));
        prop_oneof![
            4 => (field(), text()).prop_map(|(field, value)| Says::Is(field, value)),
            1 => (field(), text()).prop_map(|(field, value)| Says::Not(field, value)),
            1 => (field(), text(), text()).prop_map(|(field, one, other)| Says::In(field, [one, other])),
            1 => (field(), text()).prop_map(|(field, value)| Says::Starts(field, value)),
            1 => field().prop_map(Says::Has),
            1 => field().prop_map(Says::HasNot),
            1 => (1..3_usize).prop_map(Says::Count),
            1 => (field(), field(), text()).prop_map(|(one, other, value)| Says::Both(one, other, value)),
            1 => (field(), text()).prop_map(|(field, value)| Says::Any(field, value)),
            1 => select(&["n", "o p"][..]).prop_map(Says::Named),
        ]
    }

    fn by() -> impl Strategy<Value = By> {
        let field = || select(&FIELDS[..]);
        prop_oneof![
            3 => field().prop_map(By::Field),
            1 => (field(), field()).prop_map(|(one, other)| By::Joined(one, other)),
            1 => field().prop_map(By::Size),
            1 => field().prop_map(By::Or),
        ]
    }

    /// A limit: its conditions, with what quotes they are written, what it counts by, and its name.
    type Written = (Vec<(Says, char)>, Vec<By>, &'static str);

    fn limits() -> impl Strategy<Value = Vec<Written>> {
        let limit = (
            prop::collection::vec((says(), select(&['\'', '"'][..])), 0..3),
            prop::collection::vec(by(), 0..3),
            select(&["", "n", "o p"][..]),
        );
        prop::collection::vec(limit, 1..8)
    }

    fn call() -> impl Strategy<Value = Vec<Map>> {
        let map = (
            prop::collection::vec(select(&VALUES[..]), 3),
            prop::sample::subsequence(FIELDS.to_vec(), 0..=3),
        )
            .prop_map(|(values, fields)| fields.into_iter().zip(values).collect());
        prop::collection::vec(map, 1..3)
    }

    /// Seconds tell the limits apart.
    fn file(limits: &[Written]) -> String {
        let mut lines = Vec::new();
        for (at, (conditions, variables, name)) in limits.iter().enumerate() {
            lines.push(format!("- namespace: web\n  max_value: {at}\n  seconds: {}", at + 1));
            if !name.is_empty() {
                lines.push(format!("  name: {name:?}"));
            }
            lines.push("  conditions:".to_owned());
            lines.extend(conditions.iter().map(|(says, quote)| format!("  - >-\n    {}", says.text(*quote))));
            lines.push("  variables:".to_owned());
            lines.extend(variables.iter().map(|by| format!("  - >-\n    {}", by.text())));
        }
        lines.join("\n")
    }

    fn descriptor(map: &Map) -> Descriptor<'static> {
        let web = Descriptor::in_domain("web");
        map.iter().fold(web, |descriptor, &(field, value)| descriptor.with(field, value))
    }

    /// Which limits apply, and by what they count: fields first, each once, then all else.
    fn oracle(limits: &[Written], call: &[Map]) -> Vec<(u64, Vec<String>)> {
        let mut found = Vec::new();
        for (at, (conditions, variables, name)) in limits.iter().enumerate() {
            let mut texts: Vec<String> = Vec::new();
            let mut once: Vec<&By> = variables.iter().collect();
            once.retain(|by| {
                let is_new = !texts.contains(&by.text());
                texts.push(by.text());
                is_new
            });
            let (fields, others): (Vec<&By>, Vec<&By>) =
                once.into_iter().partition(|by| matches!(by, By::Field(_)));
            let values: Option<Vec<String>> =
                fields.into_iter().chain(others).map(|by| by.value(&call[0])).collect();
            if conditions.iter().all(|(says, _)| says.holds(call, name)) && values.is_some() {
                found.extend(values.map(|values| (at as u64 + 1, values)));
            }
        }
        found
    }

    fn split(key: &[u8], parts: usize) -> Vec<String> {
        let text = String::from_utf8(key.to_vec()).unwrap();
        if parts < 2 {
            return vec![text; parts];
        }
        let (mut values, mut letters) = (vec![String::new()], text.chars());
        while let Some(letter) = letters.next() {
            match letter {
                ',' => values.push(String::new()),
                '\\' => values.last_mut().unwrap().push(letters.next().unwrap()),
                letter => values.last_mut().unwrap().push(letter),
            }
        }
        values
    }

    fn decided(
        policy: &Policy,
        call: &[Map],
        expected: &[(u64, Vec<String>)],
        scratch: &mut Scratch,
    ) -> Vec<(u64, Vec<String>)> {
        let descriptors: Vec<Descriptor<'_>> = call.iter().map(descriptor).collect();
        let parts = |seconds: u64| expected.iter().find(|one| one.0 == seconds).map_or(0, |one| one.1.len());
        let matches = policy.matching_all(&descriptors, scratch);
        assert_eq!(matches.bad_values().len(), 0, "{:?}", matches.bad_values().next());
        let show = |found: tollgate_policy::Match<'_>| {
            assert_eq!(found.descriptor(), 0);
            let seconds = found.rates().quotas()[0].period().as_secs();
            (seconds, split(found.key(), parts(seconds)))
        };
        matches.iter().map(show).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// 300 files with 250 calls of one or two descriptors: some 110 000 descriptors.
        #[test]
        fn a_file_and_what_it_is_converted_to_decide_as_its_conditions_say(
            limits in limits(),
            calls in prop::collection::vec(call(), 250),
        ) {
            let text = file(&limits);
            let failed = |problems: tollgate_policy::Problems| TestCaseError::fail(format!("{problems}\n{text}"));
            let original = Policy::parse("web.yaml", text.clone()).map_err(failed)?;
            let toml = convert(read(&Source::new("web.yaml", text.clone())).unwrap()).unwrap();
            let converted = Policy::parse("web.toml", toml.clone()).map_err(failed)?;
            let mut scratch = Scratch::new();
            for call in calls {
                let expected = oracle(&limits, &call);
                prop_assert_eq!(&decided(&original, &call, &expected, &mut scratch), &expected, "{:?}\n{}", &call, &text);
                prop_assert_eq!(&decided(&converted, &call, &expected, &mut scratch), &expected, "{:?}\n{}", &call, &toml);
                if let [map] = &call[..] {
                    let explained = original.explain(&descriptor(map));
                    let applying = explained.limits.iter().filter(|limit| limit.outcome == Outcome::Applies);
                    prop_assert_eq!(applying.count(), expected.len());
                }
            }
        }
    }
}
