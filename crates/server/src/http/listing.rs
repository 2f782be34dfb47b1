//! Lists of limits, keys and resets, and the state of the policy.

use jiff::Timestamp;
use serde::Serialize;
use tollgate::Quota;
use tollgate::store::{Busy, Rule, Store, Top};
use tollgate_policy::{Condition, Limit, Override, escaped};

use super::query::Query;
use super::refusal::{Place, Refusal};
use crate::engine::{Engine, LoadProblem, Outcome, PolicyStatus, Reset, Tallied};

/// A page of the policy's limits.
#[derive(Serialize)]
pub(super) struct Limits {
    limits: Vec<LimitShown>,
    /// The value of `after` for the next page.
    next: Option<String>,
}

#[derive(Serialize)]
struct LimitShown {
    domain: String,
    name: String,
    mode: &'static str,
    algorithm: &'static str,
    rates: Vec<String>,
    /// The overrides, in the order in which they are looked up.
    overrides: Vec<OverrideShown>,
    r#match: Vec<ConditionShown>,
    when: Vec<String>,
    entries: Vec<String>,
    key: Vec<String>,
    cost: Option<String>,
    on_store_failure: &'static str,
    on_bad_value: &'static str,
    calls: Counters,
    hits: Counters,
    near: u64,
}

#[derive(Serialize)]
struct OverrideShown {
    field: String,
    value: String,
    rates: Vec<String>,
}

/// What a field must be, in words.
#[derive(Serialize)]
struct ConditionShown {
    field: String,
    condition: String,
}

#[derive(Default, Serialize)]
struct Counters {
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
    error_allowed: u64,
    error_denied: u64,
    error_local_allowed: u64,
    error_local_denied: u64,
}

impl Limits {
    /// The parameters of a page.
    pub(super) const PARAMETERS: &[&str] = &["after", "count"];

    /// Returns a page of limits, sorted by domain and name, that starts after the last limit of the previous page.
    pub(super) fn page<S: Store>(engine: &Engine<S>, query: &Query<'_>) -> Result<Self, Refusal> {
        let (after, count) = (query.get("after").map(place).transpose()?, query.count()?);
        let (loaded, tallies) = (engine.loaded(), engine.tallies());
        let names = |limit: &&Limit| (limit.domain().to_owned(), limit.name().to_owned());
        let mut all: Vec<&Limit> = loaded.policy().limits().iter().collect();
        all.sort_by_key(names);
        let start =
            after.map_or(0, |after| all.partition_point(|limit| (limit.domain(), limit.name()) <= after));
        let end = all.len().min(start + count);
        let page = &all[start..end];
        let next =
            page.last().filter(|_| end < all.len()).map(|last| format!("{} {}", last.domain(), last.name()));
        Ok(Self { limits: page.iter().map(|limit| LimitShown::new(limit, &tallies)).collect(), next })
    }
}

/// Parses the start of a page. Neither names nor domains contain spaces.
fn place(after: &str) -> Result<(&str, &str), Refusal> {
    after.split_once(' ').ok_or_else(|| {
        let detail = format!(
            "expected a domain, a space and a name, as in `next` of the previous page, found {after:?}"
        );
        Refusal::bad(detail).at(Place::Parameter("after".to_owned()))
    })
}

impl LimitShown {
    fn new(limit: &Limit, tallies: &[Tallied]) -> Self {
        let names = (limit.domain(), limit.name());
        let tally = tallies.binary_search_by(|tallied| (&*tallied.domain, &*tallied.name).cmp(&names)).ok();
        let tally = tally.map(|at| &tallies[at].tally);
        let count = |number: &dyn Fn(Outcome) -> u64| Counters {
            allowed: number(Outcome::Allowed),
            denied: number(Outcome::Denied),
            shadow_denied: number(Outcome::ShadowDenied),
            error_allowed: number(Outcome::ErrorOpen),
            error_denied: number(Outcome::ErrorClosed),
            error_local_allowed: number(Outcome::ErrorLocalAllowed),
            error_local_denied: number(Outcome::ErrorLocalDenied),
        };
        let shown = |quotas: &[Quota]| -> Vec<String> { quotas.iter().map(ToString::to_string).collect() };
        let of_field = |other: &Override| -> Vec<OverrideShown> {
            let field = &other.field;
            let each = other.rates.iter();
            each.map(|(value, quotas)| OverrideShown {
                field: field.clone(),
                value: value.clone(),
                rates: shown(quotas),
            })
            .collect()
        };
        let condition = |(field, condition): &(String, Condition)| ConditionShown {
            field: field.clone(),
            condition: condition.to_string(),
        };
        Self {
            domain: limit.domain().to_owned(),
            name: limit.name().to_owned(),
            mode: limit.mode().name(),
            algorithm: limit.kind().name(),
            rates: shown(limit.rates()[0].quotas()),
            overrides: limit.overrides().iter().flat_map(of_field).collect(),
            r#match: limit.conditions().iter().map(condition).collect(),
            when: limit.when().iter().map(|expression| expression.text().to_owned()).collect(),
            entries: limit.entries().iter().map(|entry| entry.text.clone()).collect(),
            key: limit.key().iter().map(ToString::to_string).collect(),
            cost: limit.cost_field().map(str::to_owned),
            on_store_failure: limit.on_store_failure().name(),
            on_bad_value: limit.on_bad_value().name(),
            calls: count(&|outcome| tally.map_or(0, |tally| tally.calls(outcome))),
            hits: count(&|outcome| tally.map_or(0, |tally| tally.hits(outcome))),
            near: tally.map_or(0, |tally| tally.near()),
        }
    }
}

/// The keys that come most often.
#[derive(Serialize)]
pub(super) struct TopKeys {
    by: &'static str,
    keys: Vec<KeyShown>,
}

#[derive(Serialize)]
struct KeyShown {
    domain: String,
    limit: String,
    /// As text; what is no text is replaced, and then written as it is in hexadecimal too.
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    count: u64,
    error: u64,
}

impl TopKeys {
    /// The parameters.
    pub(super) const PARAMETERS: &[&str] = &["by", "count"];

    pub(super) async fn of<S: Store>(engine: &Engine<S>, query: &Query<'_>) -> Result<Self, Refusal> {
        let (by, top) = match query.get("by") {
            None | Some("asked") => ("asked", Top::Asked),
            Some("denied") => ("denied", Top::Denied),
            Some(other) => {
                let detail = format!("expected asked or denied, found {other:?}");
                return Err(Refusal::bad(detail).at(Place::Parameter("by".to_owned())));
            }
        };
        let busiest = engine.store().busiest(top, query.count()?).await.map_err(Refusal::store)?;
        Ok(Self { by, keys: busiest.iter().map(KeyShown::new).collect() })
    }
}

impl KeyShown {
    fn new(busy: &Busy) -> Self {
        let is_text = std::str::from_utf8(&busy.key).is_ok();
        Self {
            key: escaped(&busy.key).into_owned(),
            key_hex: (!is_text).then(|| hex(&busy.key)),
            domain: busy.domain.to_string(),
            limit: busy.name.to_string(),
            count: busy.count,
            error: busy.error,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// How the policy came to be.
#[derive(Serialize)]
pub(super) struct PolicyShown {
    origin: String,
    hash: String,
    since: Option<Timestamp>,
    loads: u64,
    failures: u64,
    problem: Option<ProblemShown>,
    limits: usize,
}

#[derive(Serialize)]
struct ProblemShown {
    at: Option<Timestamp>,
    text: String,
}

impl PolicyShown {
    pub(super) fn of<S: Store>(engine: &Engine<S>) -> Self {
        let PolicyStatus { origin, since, loads, failures, problem, .. } = engine.status();
        let shown =
            |LoadProblem { at, text }: LoadProblem| ProblemShown { at: Timestamp::try_from(at).ok(), text };
        Self {
            origin: origin.name,
            hash: origin.hash,
            since: Timestamp::try_from(since).ok(),
            loads,
            failures,
            problem: problem.map(shown),
            limits: engine.loaded().policy().limits().len(),
        }
    }
}

/// What was reset.
#[derive(Serialize)]
pub(super) struct ResetShown {
    reset: Vec<RuleShown>,
}

#[derive(Serialize)]
struct RuleShown {
    domain: String,
    name: String,
    rates: Vec<String>,
    /// Whether there was a counter.
    known: bool,
}

impl ResetShown {
    pub(super) fn of(resets: &[Reset]) -> Self {
        let shown = |Reset { rule, was_known, .. }: &Reset| RuleShown {
            domain: rule.domain().to_owned(),
            name: rule.name().to_owned(),
            rates: rates(rule),
            known: *was_known,
        };
        Self { reset: resets.iter().map(shown).collect() }
    }
}

fn rates(rule: &Rule) -> Vec<String> {
    rule.quotas().iter().map(ToString::to_string).collect()
}
