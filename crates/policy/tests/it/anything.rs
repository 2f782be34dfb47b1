//! Whatever a file contains, it is answered.

use proptest::prelude::*;
use tollgate_policy::{Descriptor, Policy, Problems, Scratch, Source, convert, read};

/// Reads a text; whatever is wrong has a place inside of it.
fn answered(text: &str) -> Result<(), TestCaseError> {
    answered_in("p.toml", text)?;
    answered_in("p.yaml", text)
}

fn answered_in(path: &str, text: &str) -> Result<(), TestCaseError> {
    let problems = match Policy::parse(path, text) {
        Err(problems) => problems,
        Ok(policy) => {
            // Whatever can be read, can be converted, unless there is nothing in it.
            let draft = read(&Source::new(path, text)).unwrap();
            prop_assert!(draft.limits.is_empty() || Policy::parse("p.toml", convert(draft).unwrap()).is_ok());
            policy.matching(&Descriptor::new().with("key", "value"), &mut Scratch::new());
            return Ok(());
        }
    };
    prop_assert!(problems.iter().count() >= 1 && problems.count() >= problems.iter().count());
    for problem in &problems {
        let line = text.split('\n').nth(problem.line - 1);
        let width = line.map_or(0, |line| line.chars().count());
        prop_assert!(problem.column >= 1 && problem.column <= width + 1, "{}", problem);
        prop_assert!(!problem.message.is_empty() && problem.to_string().starts_with(path));
    }
    Ok(())
}

const PIECES: &[&str] = &[
    "[limit.a]",
    "[limit.b]",
    "[limit",
    "]",
    "[[limit]]",
    "\n",
    "\n",
    "\n",
    " = ",
    "rate",
    "key",
    "match",
    "match.path",
    ".",
    "overrides",
    "gold",
    "envoy.replaces",
    "unmatched",
    "mode",
    "domain",
    "\"",
    "\"10/s\"",
    "\"shadow\"",
    "\"a\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "1",
    "-",
    "true",
    "#",
    "\"\"\"",
    "\\",
    "*",
    "{ absent = true }",
    "{ network = \"10.0.0.0/8\" }",
    "é",
    "\t",
    "\r",
    "\u{feff}",
    "\0",
    "2026-01-01",
    "1.5",
    "inf",
    "0x",
    "envoy.entries",
    "when",
    "limitador",
    "envoy.metadata",
    "envoy.label",
    "{ cel = \"1\" }",
    "{ field = \"ip\", ipv6_prefix = 56 }",
    "[{ field = \"a\", rates = { b = \"1/s\" } }]",
    "{ entry = \"a_*\", shared = true }",
];

const YAML_PIECES: &[&str] = &[
    "domain: web\n",
    "descriptors:\n",
    "- ",
    "  ",
    "    ",
    "\n",
    "\n",
    "key: a\n",
    "value: x*\n",
    "rate_limit: {unit: day, requests_per_unit: 5}\n",
    "rate_limit:",
    "unit: ",
    "day",
    "unlimited: true\n",
    "requests_per_unit: ",
    "7",
    "-1",
    "1.5",
    "name: n\n",
    "replaces: [{name: m}]\n",
    "share_threshold: yes\n",
    "metadata: {a: [1, .inf, ~]}\n",
    "namespace: web\n",
    "max_value: 1\n",
    "seconds: 60\n",
    "conditions: [\"descriptors[0].x == 'y'\"]\n",
    "variables:\n",
    "descriptors[0].x",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "!x ",
    "!!str ",
    "---\n",
    "|\n",
    ">-\n",
    "#",
    "'",
    "\"",
    "?",
    "\t",
    "\r",
    "\u{feff}",
    "\0",
    "é",
    "%YAML 1.1\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC{0,60}") {
        answered(&text)?;
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        answered(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn near_misses(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        answered(&pieces.concat())?;
    }

    #[test]
    fn near_misses_in_yaml(pieces in prop::collection::vec(prop::sample::select(YAML_PIECES), 0..40)) {
        answered_in("p.yaml", &pieces.concat())?;
    }

    #[test]
    fn a_good_file_in_yaml_with_a_piece_torn_out(which in 0_usize..3, start in any::<prop::sample::Index>(), length in 0_usize..40, insert in "[\\PC\n]{0,3}") {
        let mut text = [
            include_str!("../../../../testdata/policies/envoy/web.yaml"),
            include_str!("../../../../testdata/policies/envoy/aliases.yaml"),
            include_str!("../../../../testdata/policies/limitador/toystore.yaml"),
        ][which]
            .to_owned();
        let start = start.index(text.len());
        text.replace_range(start..(start + length).min(text.len()), &insert);
        answered_in("p.yaml", &text)?;
    }

    #[test]
    fn a_good_file_with_a_piece_torn_out(start in any::<prop::sample::Index>(), length in 0_usize..40, insert in "[\\PC\n]{0,3}") {
        let mut text = include_str!("../../../../testdata/policies/good/web.toml").to_owned();
        let start = start.index(text.len());
        text.replace_range(start..(start + length).min(text.len()), &insert);
        answered(&text)?;
    }
}

#[test]
fn large_files_of_nothing_but_mistakes_are_answered_soon() {
    let told = |text: String| Policy::parse("p", text).err().map(|problems: Problems| problems.count());
    assert_eq!(told("=".repeat(2_000_000)), Some(1)); // too large to go on after the first
    assert!(told("=\n".repeat(100_000)).is_some_and(|count| count >= 100));
    assert!(told("a=1\n".repeat(60_000)).is_some_and(|count| count >= 100));
    let unknown = (0..50_000)
        .map(|index| format!("[limit.a{index}]\nrate=\"1/s\"\nenvoy.replaces=\"b{index}\"\n"))
        .collect::<Vec<_>>()
        .concat();
    assert_eq!(told(unknown), Some(50_000));
    let keys: Vec<String> = (0..100_000).map(|index| format!("\"k{index}\"")).collect();
    assert_eq!(told(format!("[limit.a]\nrate = \"1/s\"\nkey = [{}]", keys.join(","))), Some(1));
    let rates = "\"1/s\",".repeat(100_000);
    assert_eq!(told(format!("[limit.a]\nrate = [{rates}]")), Some(1));
}

#[test]
fn large_files_in_yaml_are_answered_soon() {
    let told = |text: String| Policy::parse("p.yaml", text).err().map(|problems: Problems| problems.count());
    let limits = |count: usize| {
        let limit = |index| {
            format!("- key: k\n  value: v{index}\n  rate_limit: {{unit: day, requests_per_unit: {index}}}\n")
        };
        "domain: web\ndescriptors:\n".to_owned() + &(0..count).map(limit).collect::<Vec<_>>().concat()
    };
    assert_eq!(told(limits(50_000)), None);
    assert_eq!(told(limits(20_000).replace("unit: day", "unit: dya")), Some(20_000));
    assert_eq!(told(limits(20_000).replace("value:", "valeu:")), Some(20_000 + 19_999)); // and all but one key are there twice
    assert_eq!(told("- x\n".repeat(1_000_000)), Some(1_000_000));
    assert_eq!(told("[".repeat(2_000_000)), Some(1));
    assert_eq!(told("a: ".repeat(500_000)), Some(1));
    assert_eq!(told(format!("domain: {}", "x".repeat(4_000_000))), Some(1));
    assert_eq!(told("a: &a [b]\n".repeat(100_000)), Some(2)); // unknown, and no domain; equal keys are warned of
    let level = |depth: usize| format!("{0}descriptors:\n{0}- key: k\n", "  ".repeat(depth));
    let nested = "domain: web\n".to_owned() + &(0..100).map(level).collect::<Vec<_>>().concat();
    assert_eq!(told(nested), Some(1));
}
