//! The JSON schema accepts the good files and refuses what a schema can see.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};
use tollgate_core::{Kind, Quota};
use tollgate_policy::{Mode, OnBadValue, OnStoreFailure, Unmatched, schema};
use toml::de::{DeTable, DeValue};

fn validator() -> jsonschema::Validator {
    jsonschema::draft7::new(&schema()).unwrap()
}

fn json_of(table: &DeTable<'_>) -> Json {
    fn convert(value: &DeValue<'_>) -> Json {
        match value {
            DeValue::String(text) => text.as_ref().into(),
            DeValue::Integer(number) => number.as_str().parse::<i64>().unwrap().into(),
            DeValue::Float(number) => number.as_str().parse::<f64>().unwrap().into(),
            DeValue::Boolean(truth) => (*truth).into(),
            DeValue::Datetime(date) => json!({ "date": date.to_string() }),
            DeValue::Array(values) => values.iter().map(|value| convert(value.get_ref())).collect(),
            DeValue::Table(table) => json_of(table),
        }
    }
    let entries = table.iter().map(|(name, value)| (name.get_ref().to_string(), convert(value.get_ref())));
    entries.collect::<Map<_, _>>().into()
}

fn files(folder: &str) -> Vec<(String, Option<Json>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/policies").join(folder);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, DeTable::parse(&text).ok().map(|table| json_of(table.get_ref())))
    };
    fs::read_dir(path).unwrap().map(|entry| read(entry.unwrap().path())).collect()
}

#[test]
fn accepts_the_good_files() {
    for (name, json) in files("good") {
        let problems: Vec<String> =
            validator().iter_errors(&json.unwrap()).map(|error| error.to_string()).collect();
        assert_eq!(problems, [""; 0], "{name}");
    }
}

#[test]
fn refuses_the_bad_files() {
    let mut seen = Vec::new();
    for (name, json) in files("bad") {
        if let Some(json) = json {
            assert!(!validator().is_valid(&json), "{name}");
            seen.push(name);
        }
    }
    seen.sort();
    // The others are not TOML.
    assert_eq!(
        seen,
        [
            "conditions",
            "empty",
            "entries",
            "keys",
            "list",
            "names",
            "old-words",
            "outside",
            "rates",
            "reserved",
            "types",
            "words"
        ]
    );
}

/// One limit with one field.
fn with(field: &str, value: impl Into<Json>) -> bool {
    let mut limit = json!({ "rate": "1/s" });
    limit[field] = value.into();
    validator().is_valid(&json!({ "limit": { "a": limit } }))
}

#[test]
fn refuses_each_mistake_alone() {
    assert!(with("key", "ip") && with("rate", "Unlimited") && with("rate", "1 per .5s"));
    assert!(!validator().is_valid(&json!({ "limit": { "a": { "key": "ip" } } })), "no rate");
    assert!(!validator().is_valid(&json!({ "limit": {} })), "no limit");
    assert!(!validator().is_valid(&json!({ "limit": { "a b": { "rate": "1/s" } } })), "a name with a space");
    for (field, value) in [
        ("colour", json!("red")),
        ("rate", json!(10)),
        ("rate", json!("ten/s")),
        ("rate", json!("10")),
        ("rate", json!("1.5/s")),
        ("rate", json!([])),
        ("key", json!(["ip", 1])),
        ("algorithm", json!("tokenbucket")),
        ("mode", json!("on")),
        ("on_store_failure", json!("open")),
        ("key", json!({ "field": "ip", "ipv6_prefix": 0 })),
        ("key", json!({ "field": "ip", "ipv6_prefix": 129 })),
        ("key", json!({ "field": "ip", "ipv6_prefix": true })),
        ("key", json!({ "field": "ip", "cel": "1" })),
        ("on_bad_value", json!("allow")),
        ("envoy", json!({ "any_off": true })),
        ("limitador", json!({ "once": "yes" })),
        ("match", json!({ "path": 1 })),
        ("match", json!({ "path": {} })),
        ("match", json!({ "path": { "absent": true, "is": "x" } })),
        ("match", json!({ "path": { "netwrok": "::/0" } })),
        ("overrides", json!({ "plan": "1/s" })),
        ("overrides", json!([{ "field": "plan", "rates": {} }])),
        ("overrides", json!([{ "field": "plan", "rates": { "a*": "1/s" } }])),
    ] {
        assert!(!with(field, value.clone()), "{field} {value}");
    }
}

#[test]
fn knows_every_word_that_the_reader_knows() {
    for kind in Kind::ALL {
        assert!(with("algorithm", kind.name()));
    }
    for mode in Mode::ALL {
        assert!(with("mode", mode.name()));
    }
    for choice in OnStoreFailure::ALL {
        assert!(with("on_store_failure", choice.name()));
    }
    for choice in OnBadValue::ALL {
        assert!(with("on_bad_value", choice.name()));
    }
    for choice in Unmatched::ALL {
        let file = json!({ "unmatched": choice.name(), "limit": { "a": { "rate": "1/s" } } });
        assert!(validator().is_valid(&file));
    }
    let described = schema()["properties"]["limit"]["additionalProperties"]["properties"].clone();
    for (name, field) in described.as_object().unwrap() {
        assert!(field["description"].as_str().is_some_and(|text| text.len() > 20), "{name}");
    }
}

#[test]
fn a_limit_has_twelve_fields_and_two_tables() {
    let described = schema()["properties"]["limit"]["additionalProperties"]["properties"].clone();
    let names = |table: &Json| -> BTreeSet<String> { table.as_object().unwrap().keys().cloned().collect() };
    let set = |words: &[&str]| -> BTreeSet<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let fields = [
        "domain",
        "match",
        "when",
        "key",
        "rate",
        "overrides",
        "algorithm",
        "mode",
        "cost",
        "on_store_failure",
        "on_bad_value",
        "count_denied",
    ];
    assert_eq!(names(&described), set(&[&fields[..], &["envoy", "limitador"]].concat()));
    let envoy = ["entries", "label", "replaces", "any_of", "detailed_metric", "metadata"];
    assert_eq!(names(&described["envoy"]["properties"]), set(&envoy));
    assert_eq!(names(&described["limitador"]["properties"]), set(&["name", "id", "once"]));
}

proptest! {
    #[test]
    fn accepts_every_rate_that_the_reader_accepts(
        text in "( ?[0-9_]{1,4} ?(/| per |  per )[0-9_]{0,3}(\\.[0-9]{1,2})? ?(s|sec|min|hour|ms|µs|weeks)( burst [0-9]{1,3})? ?)"
    ) {
        if text.parse::<Quota>().is_ok() {
            prop_assert!(with("rate", text));
        }
    }

    #[test]
    fn accepts_every_rate_as_printed(count: u64, period in 1_u64.., burst: u64) {
        let quota = Quota::per(count, std::time::Duration::from_nanos(period)).burst(burst);
        prop_assert!(with("rate", quota.to_string()));
    }
}
