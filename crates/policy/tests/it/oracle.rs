//! The matcher against trying every limit, and files against printing and reading them again.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tollgate_core::{Kind, Quota};
use tollgate_policy::{
    Condition, Descriptor, Draft, DraftLimit, IfStoreFails, Mode, Outcome, Override, Pattern, Place, Policy,
    Reference, Scratch, Source, Test, read,
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
    let one = (select(&["a", "b"][..]), "[xy]{0,2}", rates()).prop_map(|(field, value, rates)| Override {
        field: field.to_owned(),
        value,
        rates,
    });
    prop::collection::vec(one, 0..4).prop_map(|mut overrides| {
        // In a file no value stands twice, and those of one field stand together.
        overrides.sort_by(|left, right| (&left.field, &left.value).cmp(&(&right.field, &right.value)));
        overrides.dedup_by(|left, right| (&left.field, &left.value) == (&right.field, &right.value));
        overrides
    })
}

/// What changes nothing about which limits apply.
#[derive(Clone, Debug)]
struct Told {
    flags: [bool; 4],
    label: Option<String>,
    id: Option<String>,
    metadata: Option<serde_json::Value>,
}

fn told() -> impl Strategy<Value = Told> {
    let text = || prop::option::of("[xy*\"'\\\\\n é]{0,4}");
    let metadata = prop::option::of(("[xy\"]{0,2}", text(), any::<i64>())).prop_map(|said| {
        said.map(|(name, text, number)| serde_json::json!({ (name): [text, number, null, true] }))
    });
    (any::<[bool; 4]>(), text(), text(), metadata).prop_map(|(flags, label, id, metadata)| Told {
        flags,
        label,
        id,
        metadata,
    })
}

prop_compose! {
    fn limit()(
        conditions in prop::collection::vec(condition(), 5),
        used in subsequence(vec![0, 1, 2, 3], 0..=3),
        key in subsequence(FIELDS.to_vec(), 0..=2),
        rates in rates(),
        mode in select(vec![Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Off]),
        overrides in overrides(),
        (priority, cost, fails) in (-1..2, any::<bool>(), select(&IfStoreFails::ALL[..])),
        domain in select(&["default", "default", "other"][..]),
        told in told(),
        replaced in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) -> (DraftLimit, Vec<prop::sample::Index>) {
        let mut limit = DraftLimit::new("", Quota::UNLIMITED);
        limit.conditions = used.iter().map(|&at| (FIELDS[at].to_owned(), conditions[at].clone())).collect();
        let is_absent = |name: &str| limit.conditions.contains(&(name.to_owned(), Condition::Absent));
        limit.key = key.into_iter().filter(|name| !is_absent(name)).map(str::to_owned).collect();
        (limit.rates, limit.mode, limit.overrides, limit.priority, limit.if_store_fails) =
            (rates, mode, overrides, priority, fails);
        limit.kind = Kind::TokenBucket;
        limit.cost = cost.then(|| "tokens".to_owned());
        domain.clone_into(&mut limit.domain);
        let Told { flags: [once, count_refused, quota_mode, detailed_metric], label, id, metadata } = told;
        (limit.once, limit.count_refused) = (once, count_refused);
        (limit.quota_mode, limit.detailed_metric) = (quota_mode, detailed_metric);
        (limit.label, limit.id, limit.metadata) = (label, id, metadata);
        (limit, replaced)
    }
}

/// Limits that replace only limits before them, so never in a circle.
fn draft(most: usize) -> impl Strategy<Value = Draft> {
    prop::collection::vec(limit(), 1..most).prop_map(|limits| {
        let domains: Vec<String> = limits.iter().map(|(limit, _)| limit.domain.clone()).collect();
        let name = |(at, (mut limit, replaced)): (usize, (DraftLimit, Vec<prop::sample::Index>))| {
            limit.name = format!("limit-{at}");
            let mut others: Vec<usize> = replaced.iter().map(|index| index.index(at + 1)).collect();
            others.retain(|&other| other < at && domains[other] == limit.domain);
            let reference = |other| Reference { name: format!("limit-{other}"), place: Place::default() };
            limit.replaces = others.into_iter().map(reference).collect();
            limit
        };
        Draft { limits: limits.into_iter().enumerate().map(name).collect() }
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
            && limit.key.iter().all(|name| value(name).is_some())
            && limit.conditions.iter().all(|(name, condition)| match (condition, value(name)) {
                (Condition::Absent, value) => value.is_none(),
                (Condition::AnyOf(tests), Some(value)) => tests.iter().any(|test| passes(test, value)),
                (Condition::AnyOf(_), None) => false,
            })
    };
    let met: Vec<&DraftLimit> = draft.limits.iter().filter(applies).collect();
    let is_replaced = |limit: &DraftLimit| {
        met.iter().any(|other| {
            let names_it = other.replaces.iter().any(|reference| reference.name == limit.name);
            names_it && !(other.mode == Mode::Shadow && limit.mode == Mode::Enforce)
        })
    };
    let mut left: Vec<&DraftLimit> = met.iter().copied().filter(|limit| !is_replaced(limit)).collect();
    left.sort_by_key(|limit| -limit.priority);
    let rates = |limit: &DraftLimit| {
        let fits = |other: &&Override| value(&other.field) == Some(other.value.as_bytes());
        limit.overrides.iter().find(fits).map_or(&limit.rates, |other| &other.rates).clone()
    };
    let key = |limit: &DraftLimit| limit.key.iter().map(|name| value(name).unwrap().to_vec()).collect();
    left.into_iter().map(|limit| (limit.name.clone(), key(limit), rates(limit))).collect()
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
                let key = split_key(found.key(), limit.key_fields().len());
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
