//! The policy reference explains every property of the schema and names every enum value.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value as Json;
use tollgate_policy::schema;

/// The names of properties and the words of enums, at any depth.
#[derive(Default)]
struct Words {
    properties: BTreeSet<String>,
    choices: BTreeSet<String>,
}

impl Words {
    fn collect(&mut self, schema: &Json) {
        match schema {
            Json::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("properties", Json::Object(all)) => self.properties.extend(all.keys().cloned()),
                        ("enum", Json::Array(all)) => self.choices.extend(all.iter().map(word)),
                        ("const", choice) => drop(self.choices.insert(word(choice))),
                        _ => {}
                    }
                    self.collect(value);
                }
            }
            Json::Array(values) => values.iter().for_each(|value| self.collect(value)),
            _ => {}
        }
    }
}

fn word(choice: &Json) -> String {
    choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)
}

/// Returns the lines of a Markdown page outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    page.split("\n```").step_by(2).flat_map(str::lines)
}

/// Returns the words in the code spans of lines.
fn words_in_code_spans<'p>(lines: impl Iterator<Item = &'p str>) -> BTreeSet<&'p str> {
    let spans = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.flat_map(|span| span.split(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c))).collect()
}

/// Returns headings, and the first cells of table rows: the places that explain what they name.
fn definitions(page: &str) -> impl Iterator<Item = &str> {
    prose(page).filter_map(|line| match line.strip_prefix("| ") {
        Some(row) => row.split(" | ").next(),
        None => line.starts_with('#').then_some(line),
    })
}

#[test]
fn policy_reference_names_every_word_of_the_schema() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md");
    let page = fs::read_to_string(path).unwrap();
    let (named, explained) = (words_in_code_spans(prose(&page)), words_in_code_spans(definitions(&page)));
    let mut words = Words::default();
    words.collect(&schema());
    assert!(words.properties.contains("ipv6_prefix"));
    assert!(words.choices.contains("token-bucket") && words.choices.contains("false"));
    let missing = |words: &BTreeSet<String>, known: &BTreeSet<&str>| {
        words.iter().filter(|word| !known.contains(word.as_str())).cloned().collect::<Vec<_>>()
    };
    let properties = missing(&words.properties, &explained);
    assert!(
        properties.is_empty(),
        "docs/policy.md has no heading or table row for these fields: {properties:?}"
    );
    let choices = missing(&words.choices, &named);
    assert!(choices.is_empty(), "docs/policy.md does not name these words in backticks: {choices:?}");
}

#[test]
fn code_blocks_do_not_count_as_explained() {
    let page =
        "The field `a_b` or `c = \"d-e\"`.\n\n```toml\nf = `g`\n```\n\n# And `h`\n| [`i`](#i) | `j` |\n";
    let is_word = |word: &&str| !word.is_empty();
    let named: Vec<&str> = words_in_code_spans(prose(page)).into_iter().filter(is_word).collect();
    assert_eq!(named, ["a_b", "c", "d-e", "h", "i", "j"]);
    let explained: Vec<&str> = words_in_code_spans(definitions(page)).into_iter().filter(is_word).collect();
    assert_eq!(explained, ["h", "i"]);
}
