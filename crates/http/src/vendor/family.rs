//! Families of fields that differ in their prefix only.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderMap;

use crate::budget::{Budget, Refill, Unit};
use crate::field::{count, field};
use crate::ratelimit_fields::{Policy, policies_in, unit_of};
use crate::reset::Reckoning;

/// A prefix, and whether the budget's name stands last or first after it.
struct Family {
    prefix: &'static str,
    name_last: bool,
}

/// What describes the same budget better comes first.
const FAMILIES: [Family; 4] = [
    Family { prefix: "ratelimit-", name_last: true },
    Family { prefix: "x-ratelimit-", name_last: true },
    Family { prefix: "x-rate-limit-", name_last: true },
    Family { prefix: "anthropic-ratelimit-", name_last: false },
];

/// What a field tells; longer words first where one begins with another.
const FACTS: [(&str, Fact); 5] = [
    ("limit", Fact::Limit),
    ("remaining", Fact::Remaining),
    ("used", Fact::Used),
    ("reset-after", Fact::ResetAfter),
    ("reset", Fact::Reset),
];

#[derive(Clone, Copy, Debug)]
enum Fact {
    Limit,
    Remaining,
    Used,
    Reset,
    /// Discord's; it is finer than its reset, and the same on every clock.
    ResetAfter,
}

/// A budget while its fields are being collected.
#[derive(Debug, Default)]
struct Found {
    budget: Budget,
    used: Option<u64>,
    has_span: bool,
    others: Vec<Policy>,
}

/// The budgets of all families. Those without a name say the same in every generation, so only the first is taken, and
/// none if `is_known` already.
pub(crate) fn families(headers: &HeaderMap, is_known: bool, reckoning: &Reckoning) -> Vec<Budget> {
    let mut found: BTreeMap<(usize, String), Found> = BTreeMap::new();
    for header in headers.keys() {
        let Some((family, fact, name)) = place(header.as_str()) else {
            continue;
        };
        if let Some(text) = field(headers, header.as_str()) {
            found.entry((family, name.to_owned())).or_default().add(fact, &text, reckoning);
        }
    }
    let (mut budgets, mut is_known) = (Vec::new(), is_known);
    for ((family, name), found) in found {
        if name.is_empty() && is_known || found.says_nothing() {
            continue;
        }
        is_known |= name.is_empty();
        let name = if name.is_empty() { own_name(headers, FAMILIES[family].prefix) } else { name };
        budgets.extend(found.finish(name, reckoning.cap));
    }
    budgets
}

/// Which family a field is of, what it tells, and of which budget.
fn place(header: &str) -> Option<(usize, Fact, &str)> {
    let (family, rest) = FAMILIES
        .iter()
        .enumerate()
        .find_map(|(index, family)| Some((index, header.strip_prefix(family.prefix)?)))?;
    FACTS.iter().find_map(|(word, fact)| {
        let name = if FAMILIES[family].name_last { rest.strip_prefix(word) } else { rest.strip_suffix(word) };
        let name = name?;
        let dashed = if FAMILIES[family].name_last { name.strip_prefix('-') } else { name.strip_suffix('-') };
        let name = if name.is_empty() { name } else { dashed? };
        Some((family, *fact, name))
    })
}

/// What GitHub calls the resource, and Discord the bucket.
fn own_name(headers: &HeaderMap, prefix: &str) -> String {
    let named = ["resource", "bucket"].iter().find_map(|what| field(headers, &format!("{prefix}{what}")));
    named.map_or_else(String::new, std::borrow::Cow::into_owned)
}

impl Found {
    fn add(&mut self, fact: Fact, text: &str, reckoning: &Reckoning) {
        match fact {
            Fact::Limit => self.set_limit(text, reckoning.cap),
            Fact::Remaining => self.budget.remaining = count(text),
            Fact::Used => self.used = count(text),
            Fact::Reset if self.has_span => {}
            Fact::Reset => self.set_reset(reckoning.reset(text)),
            Fact::ResetAfter => {
                self.set_reset(reckoning.reset(text));
                self.has_span = self.budget.resets_in.is_some();
            }
        }
    }

    /// A number; Envoy adds the policies: `10, 10;w=1;name="per-ip", 1000;w=3600`.
    fn set_limit(&mut self, text: &str, cap: Duration) {
        self.budget.limit = count(text);
        if self.budget.limit.is_some() {
            return;
        }
        let mut policies = policies_in(text, cap).into_iter().peekable();
        self.budget.limit = policies.peek().map(Policy::limit);
        self.others = policies.filter(|policy| !policy.is_bare()).collect();
    }

    fn set_reset(&mut self, reset: Option<(Duration, Refill)>) {
        if let Some((span, refill)) = reset {
            (self.budget.resets_in, self.budget.refill) = (Some(span), refill);
        }
    }

    fn says_nothing(&self) -> bool {
        self.budget == Budget::default() && self.used.is_none()
    }

    /// The budget of that name, and those that its policies tell of.
    fn finish(self, name: String, cap: Duration) -> Vec<Budget> {
        let Self { mut budget, used, others, .. } = self;
        if budget.remaining.is_none() {
            budget.remaining = budget.limit.zip(used).map(|(limit, used)| limit.saturating_sub(used));
        }
        budget.window = window_of(&name).map(|window| window.min(cap));
        if matches!(unit_of(&name), Unit::Tokens) {
            budget.unit = Unit::Tokens;
        }
        budget.name = name;
        let mut budgets = vec![budget];
        for policy in others {
            policy.join(&mut budgets);
        }
        budgets
    }
}

/// The window that Kong names a budget after.
fn window_of(name: &str) -> Option<Duration> {
    const DAY: u64 = 86_400;
    let seconds = match name {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => DAY,
        "month" => 30 * DAY,
        "year" => 365 * DAY,
        _ => return None,
    };
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_find_their_place() {
        let cases = [
            ("x-ratelimit-limit", Some((1, "limit", ""))),
            ("x-ratelimit-limit-minute", Some((1, "limit", "minute"))),
            ("x-ratelimit-reset-after", Some((1, "reset-after", ""))),
            ("x-ratelimit-reset-tokens_usage_based", Some((1, "reset", "tokens_usage_based"))),
            ("x-rate-limit-remaining", Some((2, "remaining", ""))),
            ("ratelimit-used", Some((0, "used", ""))),
            ("anthropic-ratelimit-input-tokens-limit", Some((3, "limit", "input-tokens"))),
            ("anthropic-ratelimit-unified-reset", Some((3, "reset", "unified"))),
            ("ratelimit-policy", None),
            ("x-ratelimit-limitless", None),
            ("x-ratelimit-", None),
            ("x-ratelimit-scope", None),
            ("retry-after", None),
        ];
        for (header, expected) in cases {
            let found = place(header).map(|(family, fact, name)| (family, word_of(fact), name));
            assert_eq!(found, expected, "{header}");
        }
    }

    fn word_of(fact: Fact) -> &'static str {
        match fact {
            Fact::Limit => "limit",
            Fact::Remaining => "remaining",
            Fact::Used => "used",
            Fact::Reset => "reset",
            Fact::ResetAfter => "reset-after",
        }
    }
}
