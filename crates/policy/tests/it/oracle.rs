//! The matcher against trying every limit, and files against printing and reading them again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tollgate_core::{Kind, Quota};
use tollgate_policy::{
    Condition, Descriptor, Draft, DraftDomain, DraftLimit, KeyPart, Mode, OnBadValue, OnStoreFailure,
    Outcome, Override, Pattern, Place, Policy, Reference, Scratch, Source, Test, Unmatched, read,
};

const FIELDS: [&str; 5] = ["a", "b", "c", "ip", "tokens"];

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[xy]{0,4}",
        1 => "10\\.[01]\\.[01]\\.[0-3]",
        1 => "::ffff:10\\.0\\.0\\.[01]|::[01]|1::[01]",
        1 => "[0-9,\\\\*\"\n ]{0,3}",
    ]
}

fn network() -> impl Strategy<Value = Test> {
    let networks = select(vec![
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.0.0.0/15",
        "10.1.0.0/16",
        "10.0.1.0/24",
        "10.0.0.1/32",
        "::/0",
        "::/127",
        "1::/16",
        "::1/128",
    ]);
    networks.prop_map(|text| Test::In(text.parse().unwrap()))
}

fn test() -> impl Strategy<Value = Test> {
    prop_oneof![
        3 => value().prop_map(Test::Is),
        3 => "[xy]{0,2}\\*[xy*]{0,3}".prop_map(|text| Test::Like(Pattern::new(text))),
        1 => "\\*[xy]{0,2}".prop_map(|text| Test::Like(Pattern::new(text))),
        2 => network(),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        1 => Just(Condition::Absent),
        8 => prop::collection::vec(test(), 1..4).prop_map(Condition::AnyOf),
        1 => prop::collection::vec(test(), 9..12).prop_map(Condition::AnyOf),
    ]
}

fn rates() -> impl Strategy<Value = Vec<Quota>> {
    let rates = vec![Quota::per_second(1), Quota::per_minute(2), Quota::per_hour(3).burst(7)];
    prop_oneof![8 => subsequence(rates, 1..=3), 1 => Just(vec![Quota::UNLIMITED])]
}

fn overrides() -> impl Strategy<Value = Vec<Override>> {
    let values = || prop::collection::btree_map("[xy]{0,2}", rates(), 1..4);
    let fields = prop::sample::subsequence(vec!["a", "b"], 0..=2).prop_shuffle();
    (fields, values(), values()).prop_map(|(fields, first, second)| {
        let one = |(field, values): (&str, BTreeMap<String, Vec<Quota>>)| Override {
            field: field.to_owned(),
            rates: values.into_iter().collect(),
        };
        fields.into_iter().zip([first, second]).map(one).collect()
    })
}

/// What changes nothing about which limits apply.
#[derive(Clone, Debug)]
struct Told {
    flags: [bool; 4],
    label: Option<String>,
    name: Option<String>,
    id: Option<String>,
    metadata: Option<serde_json::Value>,
}

fn told() -> impl Strategy<Value = Told> {
    let text = || prop::option::of("[xy*\"'\\\\\n é]{0,4}");
    let metadata = prop::option::of(("[xy\"]{0,2}", text(), any::<i64>())).prop_map(|said| {
        said.map(|(name, text, number)| serde_json::json!({ (name): [text, number, null, true] }))
    });
    (any::<[bool; 4]>(), text(), any::<bool>(), text(), metadata).prop_map(
        |(flags, called, by_label, id, metadata)| {
            let (label, name) = if by_label { (called, None) } else { (None, called) };
            Told { flags, label, name, id, metadata }
        },
    )
}

prop_compose! {
    fn limit()(
        conditions in prop::collection::vec(condition(), 5),
        used in subsequence(vec![0, 1, 2, 3], 0..=3),
        key in subsequence(FIELDS.to_vec(), 0..=2).prop_shuffle(),
        prefix in select(vec![None, None, Some(64), Some(16), Some(128)]),
        rates in rates(),
        mode in select(vec![Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Off]),
        overrides in overrides(),
        (cost, fails, bad) in (any::<bool>(), select(&OnStoreFailure::ALL[..]), select(&OnBadValue::ALL[..])),
        domain in select(&["default", "default", "other"][..]),
        told in told(),
        replaced in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) -> (DraftLimit, Vec<prop::sample::Index>) {
        let mut limit = DraftLimit::new("", Quota::UNLIMITED);
        limit.conditions = used.iter().map(|&at| (FIELDS[at].to_owned(), conditions[at].clone())).collect();
        let is_absent = |name: &str| limit.conditions.contains(&(name.to_owned(), Condition::Absent));
        let part = |name: &str| KeyPart::Field { name: name.to_owned(), ipv6_prefix: prefix };
        limit.key = key.into_iter().filter(|name| !is_absent(name)).map(part).collect();
        (limit.rates, limit.mode, limit.overrides) = (rates, mode, overrides);
        (limit.on_store_failure, limit.on_bad_value) = (fails, bad);
        limit.kind = Kind::TokenBucket;
        limit.cost = cost.then(|| "tokens".to_owned());
        domain.clone_into(&mut limit.domain);
        let Told { flags: [once, count_denied, any_of, detailed_metric], label, name, id, metadata } = told;
        (limit.limitador.once, limit.count_denied) = (once, count_denied);
        (limit.envoy.any_of, limit.envoy.detailed_metric) = (any_of, detailed_metric);
        (limit.envoy.label, limit.envoy.metadata) = (label, metadata);
        (limit.limitador.name, limit.limitador.id) = (name, id);
        (limit, replaced)
    }
}

/// Limits that replace only limits before them, so never in a circle.
fn draft(most: usize) -> impl Strategy<Value = Draft> {
    let unmatched = prop::option::of(select(&Unmatched::ALL[..]));
    (prop::collection::vec(limit(), 1..most), unmatched).prop_map(|(limits, unmatched)| {
        let domains: Vec<String> = limits.iter().map(|(limit, _)| limit.domain.clone()).collect();
        let name = |(at, (mut limit, replaced)): (usize, (DraftLimit, Vec<prop::sample::Index>))| {
            limit.name = format!("limit-{at}");
            let mut others: Vec<usize> = replaced.iter().map(|index| index.index(at + 1)).collect();
            others.retain(|&other| other < at && domains[other] == limit.domain);
            let reference = |other| Reference { name: format!("limit-{other}"), place: Place::default() };
            limit.envoy.replaces = others.into_iter().map(reference).collect();
            limit
        };
        let mut draft = Draft::new(limits.into_iter().enumerate().map(name).collect());
        if let Some(unmatched) = unmatched {
            let names: BTreeSet<&String> = domains.iter().collect();
            let said = |name: &String| DraftDomain { name: name.clone(), unmatched, place: Place::default() };
            draft.domains = names.into_iter().map(said).collect();
        }
        draft
    })
}

type Fields = Vec<(&'static str, Vec<u8>)>;

fn fields() -> impl Strategy<Value = Fields> {
    let value =
        prop_oneof![9 => value().prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..4)];
    (subsequence(FIELDS.to_vec(), 0..=5), prop::collection::vec(value, 5))
        .prop_map(|(names, values)| names.into_iter().zip(values).collect())
}

/// What is found: the name, the key's parts, and the rates.
type Met = (String, Vec<Vec<u8>>, Vec<Quota>);

/// Every limit, one after the other, straight from the words of the documentation.
fn oracle(draft: &Draft, domain: &str, fields: &Fields) -> Vec<Met> {
    let value = |name: &str| fields.iter().find(|field| field.0 == name).map(|field| field.1.as_slice());
    let applies = |limit: &&DraftLimit| {
        limit.domain == domain
            && limit.mode != Mode::Off
            && limit.key.iter().all(|part| value(part.field_name().unwrap()).is_some())
            && limit.conditions.iter().all(|(name, condition)| match (condition, value(name)) {
                (Condition::Absent, value) => value.is_none(),
                (Condition::AnyOf(tests), Some(value)) => tests.iter().any(|test| passes(test, value)),
                (Condition::AnyOf(_), None) => false,
            })
    };
    let met: Vec<&DraftLimit> = draft.limits.iter().filter(applies).collect();
    let is_replaced = |limit: &DraftLimit| {
        met.iter().any(|other| {
            let names_it = other.envoy.replaces.iter().any(|reference| reference.name == limit.name);
            names_it && !(other.mode == Mode::Shadow && limit.mode == Mode::Enforce)
        })
    };
    let is_bad = |limit: &DraftLimit| {
        let cost = limit.cost.as_deref().and_then(value);
        cost.is_some_and(|cost| cost.is_empty() || !cost.iter().all(u8::is_ascii_digit))
    };
    let denies = |limit: &DraftLimit| limit.on_bad_value == OnBadValue::Deny && is_bad(limit);
    let left = met.iter().copied().filter(|limit| !is_replaced(limit) && !denies(limit));
    let rates = |limit: &DraftLimit| {
        let by_value = |other: &Override| {
            let fits = |(name, _): &&(String, Vec<Quota>)| value(&other.field) == Some(name.as_bytes());
            other.rates.iter().find(fits).map(|(_, rates)| rates.clone())
        };
        limit.overrides.iter().find_map(by_value).unwrap_or_else(|| limit.rates.clone())
    };
    let key = |limit: &DraftLimit| limit.key.iter().map(|part| counted(part, &value)).collect();
    left.map(|limit| (limit.name.clone(), key(limit), rates(limit))).collect()
}

/// What is counted of a field: an IPv6 address up to its prefix, one that is IPv4 as that, and all else as it is.
fn counted<'v>(part: &KeyPart, value: &impl Fn(&str) -> Option<&'v [u8]>) -> Vec<u8> {
    let KeyPart::Field { name, ipv6_prefix } = part else { panic!("the test makes no expressions") };
    let value = value(name).unwrap();
    let address = std::str::from_utf8(value).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
    match (address, *ipv6_prefix) {
        (Some(address), Some(_)) if address.to_ipv4_mapped().is_some() => {
            address.to_ipv4_mapped().unwrap().to_string().into_bytes()
        }
        (Some(address), Some(128)) => address.to_string().into_bytes(),
        (Some(address), Some(bits)) => {
            let kept = u128::from(address) >> (128 - bits) << (128 - bits);
            format!("{}/{bits}", Ipv6Addr::from(kept)).into_bytes()
        }
        _ => value.to_vec(),
    }
}

fn passes(test: &Test, value: &[u8]) -> bool {
    match test {
        Test::Is(text) => text.as_bytes() == value,
        Test::Like(pattern) => like(pattern.as_str().as_bytes(), value),
        Test::In(net) => {
            let address =
                std::str::from_utf8(value).ok().and_then(|text| text.parse::<std::net::IpAddr>().ok());
            address.is_some_and(|address| net.contains(&address.to_canonical()))
        }
    }
}

fn like(pattern: &[u8], value: &[u8]) -> bool {
    match pattern.split_first() {
        None => value.is_empty(),
        Some((b'*', rest)) => (0..=value.len()).any(|skip| like(rest, &value[skip..])),
        Some((byte, rest)) => {
            value.split_first().is_some_and(|(first, left)| first == byte && like(rest, left))
        }
    }
}

/// The parts of a key, by reading it backwards from how it is documented.
fn split_key(key: &[u8], parts: usize) -> Vec<Vec<u8>> {
    if parts < 2 {
        return vec![key.to_vec(); parts];
    }
    let (mut values, mut bytes) = (vec![Vec::new()], key.iter());
    while let Some(&byte) = bytes.next() {
        match byte {
            b',' => values.push(Vec::new()),
            b'\\' => values.last_mut().unwrap().push(*bytes.next().unwrap()),
            byte => values.last_mut().unwrap().push(byte),
        }
    }
    values
}

fn compare(draft: &Draft, all: &[Fields]) -> Result<(), TestCaseError> {
    let policy =
        Policy::compile(draft.clone()).map_err(|problems| TestCaseError::fail(problems.to_string()))?;
    let mut scratch = Scratch::new();
    for fields in all {
        for domain in ["default", "other", "none"] {
            let mut descriptor = Descriptor::in_domain(domain);
            for (name, value) in fields {
                descriptor.push(name, value);
            }
            let expected = oracle(draft, domain, fields);
            let show = |found: tollgate_policy::Match| {
                let limit = found.limit();
                let key = split_key(found.key(), limit.key().len());
                (limit.name().to_owned(), key, found.rates().quotas().to_vec())
            };
            let met: Vec<Met> = policy.matching(&descriptor, &mut scratch).iter().map(show).collect();
            prop_assert_eq!(&met, &expected, "{:?} in {}\n{}", fields, domain, draft);
            let explained = policy.explain(&descriptor);
            let applying = explained.limits.iter().filter(|limit| limit.outcome == Outcome::Applies);
            let names: Vec<&str> = applying.map(|limit| limit.name.as_str()).collect();
            prop_assert_eq!(names, expected.iter().map(|met| met.0.as_str()).collect::<Vec<_>>());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn finds_what_trying_every_limit_finds(draft in draft(40), all in prop::collection::vec(fields(), 20)) {
        compare(&draft, &all)?;
    }

    #[test]
    fn a_draft_is_printed_and_read_again_as_the_same(draft in draft(8)) {
        let printed = draft.to_string();
        let again = read(&Source::new("printed", printed.clone()));
        let again = again.map_err(|problems| TestCaseError::fail(format!("{problems}\n{printed}")))?;
        prop_assert_eq!(again.to_string(), printed);
        prop_assert_eq!(sorted(again), sorted(draft));
    }
}

/// Alternatives are printed by their kind; their order means nothing.
fn sorted(mut draft: Draft) -> Draft {
    for (_, condition) in draft.limits.iter_mut().flat_map(|limit| &mut limit.conditions) {
        if let Condition::AnyOf(tests) = condition {
            tests.sort_by_key(|test| format!("{test:?}"));
        }
    }
    draft
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 15, ..ProptestConfig::default() })]

    #[test]
    fn finds_it_among_hundreds_too(draft in draft(600), all in prop::collection::vec(fields(), 30)) {
        compare(&draft, &all)?;
    }
}
