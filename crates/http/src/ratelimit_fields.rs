//! `RateLimit` and `RateLimit-Policy`, in the forms that the IETF's drafts gave them.
//!
//! | drafts | form |
//! | --- | --- |
//! | 00-06 | `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`, `RateLimit-Reset: 5`, `RateLimit-Policy: 100;w=60` |
//! | 07 | `RateLimit: limit=100, remaining=50, reset=5`, `RateLimit-Policy: 100;w=60` |
//! | 08-11 | `RateLimit: "name";r=50;t=5`, `RateLimit-Policy: "name";q=100;w=60` |
//! | proposed | `RateLimit: name;a=50;w=5` |
//!
//! The three fields of the first form are those of the older `X-RateLimit-*`, and are read with them: see `vendor`.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};

use crate::budget::{Budget, Unit};
use crate::field::field;

/// The budgets that `RateLimit` tells of, with their policies. Empty if there is no such field, or it is malformed.
pub(crate) fn ratelimit(headers: &HeaderMap, prefix: &str, cap: Duration) -> Vec<Budget> {
    let Some(text) = field(headers, &format!("{prefix}ratelimit")) else {
        return Vec::new();
    };
    let mut budgets = as_list(&text, cap);
    if budgets.is_empty() {
        budgets.extend(as_dictionary(&text, cap));
    }
    budgets
}

/// Since draft 08. An item without a name, or without what is left, is ignored.
fn as_list(text: &str, cap: Duration) -> Vec<Budget> {
    items(text).iter().filter_map(|item| available(item, cap)).collect()
}

fn available(item: &Item, cap: Duration) -> Option<Budget> {
    let remaining = integer(&item.params, "r").or_else(|| integer(&item.params, "a"))?;
    let span = integer(&item.params, "t").or_else(|| integer(&item.params, "w"));
    let resets_in = span.map(|seconds| seconds_of(seconds, cap));
    Some(Budget {
        name: name_of(&item.bare_item)?,
        remaining: Some(remaining),
        resets_in,
        ..Budget::default()
    })
}

/// Draft 07.
fn as_dictionary(text: &str, cap: Duration) -> Option<Budget> {
    let fields: Dictionary = Parser::new(text).parse().ok()?;
    let value = |key| match fields.get(key) {
        Some(ListEntry::Item(item)) => as_count(&item.bare_item),
        _ => None,
    };
    let resets_in = value("reset").map(|seconds| seconds_of(seconds, cap));
    let budget =
        Budget { limit: value("limit"), remaining: value("remaining"), resets_in, ..Budget::default() };
    (budget != Budget::default()).then_some(budget)
}

/// What a policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Empty in the older form.
    name: String,
    limit: u64,
    window: Option<Duration>,
    unit: Unit,
}

/// The policies of `RateLimit-Policy`.
pub(crate) fn policies(headers: &HeaderMap, prefix: &str, cap: Duration) -> Vec<Policy> {
    field(headers, &format!("{prefix}ratelimit-policy")).map_or_else(Vec::new, |text| policies_in(&text, cap))
}

/// The policies of a list, in either form: `"name";q=100;w=60` or `100;w=60;name="name"`.
pub(crate) fn policies_in(text: &str, cap: Duration) -> Vec<Policy> {
    items(text).iter().filter_map(|item| policy(item, cap)).collect()
}

fn policy(item: &Item, cap: Duration) -> Option<Policy> {
    let (name, limit) = match as_count(&item.bare_item) {
        Some(limit) => (item.params.get("name").and_then(name_of).unwrap_or_default(), limit),
        None => (name_of(&item.bare_item)?, integer(&item.params, "q")?),
    };
    let window = integer(&item.params, "w").filter(|seconds| *seconds > 0);
    let unit = item.params.get("qu").and_then(name_of).map_or(Unit::Requests, |unit| unit_of(&unit));
    Some(Policy { name, limit, window: window.map(|seconds| seconds_of(seconds, cap)), unit })
}

impl Policy {
    /// Completes the budget that this is the policy of; if there is none, it is one of its own.
    pub(crate) fn join(self, budgets: &mut Vec<Budget>) {
        match budgets.iter_mut().find(|budget| self.is_of(budget)) {
            Some(budget) => {
                budget.limit = Some(self.limit);
                budget.window = self.window;
                budget.unit = self.unit;
                if budget.name.is_empty() {
                    budget.name = self.name;
                }
            }
            None => budgets.push(self.into()),
        }
    }

    /// By its name and whatever the budget says of its limit; where only one of them has a name, by the limit alone.
    fn is_of(&self, budget: &Budget) -> bool {
        let is_same = match budget.limit {
            Some(limit) => limit == self.limit,
            None => budget.name == self.name,
        };
        let is_nameless = budget.name.is_empty() || self.name.is_empty();
        budget.window.is_none() && is_same && (is_nameless || budget.name == self.name)
    }

    /// The plain number that opens a list of older policies: `10, 10;w=1` says that the limit in force is 10.
    pub(crate) fn is_bare(&self) -> bool {
        self.name.is_empty() && self.window.is_none()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

impl From<Policy> for Budget {
    fn from(policy: Policy) -> Self {
        let Policy { name, limit, window, unit } = policy;
        Self { name, unit, limit: Some(limit), window, ..Self::default() }
    }
}

/// What the drafts' names of units, and other people's, stand for.
pub(crate) fn unit_of(name: &str) -> Unit {
    match name {
        "requests" | "request" => Unit::Requests,
        "concurrent-requests" => Unit::Concurrent,
        "content-bytes" => Unit::Bytes,
        name if name.contains("token") => Unit::Tokens,
        _ => Unit::Other,
    }
}

/// The items of a list; inner lists are none of ours.
fn items(text: &str) -> Vec<Item> {
    let list: List = Parser::new(text).parse().unwrap_or_default();
    let items = list.into_iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    });
    items.collect()
}

/// A name is a String; a Token, as proposed, will do too.
fn name_of(item: &BareItem) -> Option<String> {
    match item {
        BareItem::String(name) => Some(name.as_str().to_owned()),
        BareItem::Token(name) => Some(name.as_str().to_owned()),
        _ => None,
    }
}

fn integer(parameters: &Parameters, key: &str) -> Option<u64> {
    as_count(parameters.get(key)?)
}

fn as_count(item: &BareItem) -> Option<u64> {
    match item {
        BareItem::Integer(value) => u64::try_from(i64::from(*value)).ok(),
        _ => None,
    }
}

fn seconds_of(seconds: u64, cap: Duration) -> Duration {
    Duration::from_secs(seconds).min(cap)
}
