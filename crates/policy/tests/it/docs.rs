//! The policy reference names every property and every enum value of the schema.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value as Json;
use tollgate_policy::schema;

/// Collects the names of properties and the words of enums, at any depth.
fn collect_words(schema: &Json, words: &mut BTreeSet<String>) {
    match schema {
        Json::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("properties", Json::Object(properties)) => words.extend(properties.keys().cloned()),
                    ("enum", Json::Array(choices)) => words.extend(choices.iter().map(word)),
                    ("const", choice) => drop(words.insert(word(choice))),
                    _ => {}
                }
                collect_words(value, words);
            }
        }
        Json::Array(values) => values.iter().for_each(|value| collect_words(value, words)),
        _ => {}
    }
}

fn word(choice: &Json) -> String {
    choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)
}

/// Returns the words in the code spans of a Markdown page. Code blocks do not count.
fn words_in_code_spans(page: &str) -> BTreeSet<&str> {
    let prose = page.split("\n```").step_by(2);
    let spans = prose.flat_map(str::lines).flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.flat_map(|span| span.split(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c))).collect()
}

#[test]
fn policy_reference_names_every_word_of_the_schema() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md");
    let page = fs::read_to_string(path).unwrap();
    let explained = words_in_code_spans(&page);
    let mut words = BTreeSet::new();
    collect_words(&schema(), &mut words);
    assert!(words.contains("ipv6_prefix") && words.contains("token-bucket") && words.contains("false"));
    let missing: Vec<&String> = words.iter().filter(|word| !explained.contains(word.as_str())).collect();
    assert!(missing.is_empty(), "docs/policy.md does not name these words in backticks: {missing:?}");
}

#[test]
fn code_blocks_do_not_count_as_explained() {
    let page = "The field `a_b` or `c = \"d-e\"`.\n\n```toml\nf = `g`\n```\n\nAnd `h`.\n";
    let expected = ["a_b", "c", "d-e", "h"];
    let found: Vec<&str> = words_in_code_spans(page).into_iter().filter(|word| !word.is_empty()).collect();
    assert_eq!(found, expected);
}
