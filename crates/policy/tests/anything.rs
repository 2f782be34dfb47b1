//! Whatever a file contains, it is answered.

use proptest::prelude::*;
use tollgate_policy::{Policy, Problems};

/// Reads a text; whatever is wrong has a place inside of it.
fn answered(text: &str) -> Result<(), TestCaseError> {
    let Err(problems) = Policy::parse("p.toml", text) else { return Ok(()) };
    prop_assert!(problems.iter().count() >= 1 && problems.count() >= problems.iter().count());
    for problem in &problems {
        let line = text.split('\n').nth(problem.line - 1);
        let width = line.map_or(0, |line| line.chars().count());
        prop_assert!(problem.column >= 1 && problem.column <= width + 1, "{}", problem);
        prop_assert!(!problem.message.is_empty() && problem.to_string().starts_with("p.toml:"));
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
    "override.plan",
    "gold",
    "replaces",
    "priority",
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
    fn a_good_file_with_a_piece_torn_out(start in any::<prop::sample::Index>(), length in 0_usize..40, insert in "[\\PC\n]{0,3}") {
        let mut text = include_str!("../../../testdata/policies/good/web.toml").to_owned();
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
        .map(|index| format!("[limit.a{index}]\nrate=\"1/s\"\nreplaces=\"b{index}\"\n"))
        .collect::<Vec<_>>()
        .concat();
    assert_eq!(told(unknown), Some(50_000));
    let keys: Vec<String> = (0..100_000).map(|index| format!("\"k{index}\"")).collect();
    assert_eq!(told(format!("[limit.a]\nrate = \"1/s\"\nkey = [{}]", keys.join(","))), Some(1));
    let rates = "\"1/s\",".repeat(100_000);
    assert_eq!(told(format!("[limit.a]\nrate = [{rates}]")), Some(1));
}
