//! How the limits look to one call.

use super::{ConditionExplained, LimitExplained, Outcome};
use crate::compute::Worlds;
use crate::condition::Condition;
use crate::descriptor::{Field, escaped};
use crate::entries::write_entry;
use crate::expression;
use crate::limit::{Cost, Limit};
use crate::matcher::Asked;
use crate::pattern::Pattern;

/// A call that is explained.
pub(super) struct Call<'a, 'd> {
    pub(super) asked: Asked<'a>,
    pub(super) worlds: Worlds<'a, 'd>,
    /// Where its entries lead.
    pub(super) way: Vec<&'a str>,
}

impl Call<'_, '_> {
    pub(super) fn explain(
        &self,
        limit: &Limit,
        outcome: Outcome,
        conditions: Vec<ConditionExplained>,
    ) -> LimitExplained {
        let (rates, overridden) = limit.rates_for(&self.asked);
        let cost = match limit.cost_of(&self.asked) {
            Ok(Cost::Asked) => None,
            Ok(Cost::Said(cost)) => Some(cost.to_string()),
            Err(why) => Some(format!("{why}; on_bad_value is {}", limit.on_bad_value())),
        };
        LimitExplained {
            name: limit.name().to_owned(),
            conditions,
            mode: limit.mode(),
            algorithm: limit.kind().name(),
            rates: limit.rates()[rates].quotas().iter().map(ToString::to_string).collect(),
            overridden_by: overridden.map(|at| limit.overridden_field(at).to_owned()),
            key: (outcome == Outcome::Applies).then(|| self.key(limit)).flatten(),
            cost,
            on_store_failure: limit.on_store_failure(),
            on_bad_value: limit.on_bad_value(),
            answer: None,
            outcome,
        }
    }

    /// Whether a value of the call is bad for a limit that applies but for that.
    pub(super) fn is_bad(&self, limit: &Limit, conditions: &[ConditionExplained]) -> bool {
        let draft = limit.draft();
        let others = conditions.len() - draft.when.len() - draft.key_expressions().count();
        conditions[..others].iter().all(|condition| condition.holds)
            && match self.worlds.compute(draft) {
                expression::Outcome::Is(_) => limit.cost_of(&self.asked).is_err(),
                expression::Outcome::Missing => false,
                expression::Outcome::Failed(_) => true,
            }
    }

    fn key(&self, limit: &Limit) -> Option<String> {
        let draft = limit.draft();
        if draft.key.is_empty() && draft.envoy.entries.is_empty() {
            return None;
        }
        let expression::Outcome::Is(computed) = self.worlds.compute(draft) else { return None };
        let mut key = Vec::new();
        limit.write_key(&self.asked, &computed, &mut key);
        Some(shown(&key))
    }

    pub(super) fn conditions(&self, limit: &Limit) -> Vec<ConditionExplained> {
        let mut all = self.fields(limit);
        all.extend(self.entries(limit));
        all.extend(self.expressions(limit));
        all
    }

    fn fields(&self, limit: &Limit) -> Vec<ConditionExplained> {
        let draft = limit.draft();
        let explain = |(at, (id, condition)): (usize, &(_, Condition))| {
            let value = self.asked.value(*id);
            let of_match = draft.conditions.get(at).map(|(name, _)| name.as_str());
            // What follows the conditions of the file are the fields of the key that none of them is about.
            let field = of_match.or_else(|| limit.key_field(*id)).unwrap_or_default().to_owned();
            ConditionExplained {
                field,
                expected: condition.to_string(),
                found: value.map(shown),
                holds: condition.holds(value),
                for_key: of_match.is_none(),
            }
        };
        limit.clauses().iter().enumerate().map(explain).collect()
    }

    /// An entry holds as far as the way of the descriptor goes by the same texts.
    fn entries(&self, limit: &Limit) -> Vec<ConditionExplained> {
        let wanted: Vec<&str> = limit.entries().iter().map(|entry| entry.text.as_str()).collect();
        let most = if wanted.is_empty() { 0 } else { wanted.len().max(self.asked.entries.len()) };
        let explain = |at: usize| {
            let found = self.asked.entries.get(at);
            let is_on_the_way = self.way.get(..at) == wanted.get(..at);
            let expected = match (wanted.get(at), self.way.get(at), found) {
                (None, ..) => "absent".to_owned(),
                (Some(text), Some(taken), Some(found))
                    if is_on_the_way && text != taken && fits(text, found) =>
                {
                    format!("{text:?}, unless it is {taken:?}")
                }
                (Some(text), ..) => format!("{text:?}"),
            };
            ConditionExplained {
                field: format!("entry {}", at + 1),
                expected,
                found: found.map(|found| shown(&whole(found))),
                holds: is_on_the_way && wanted.get(at).is_some() && wanted.get(at) == self.way.get(at),
                for_key: false,
            }
        };
        (0..most).map(explain).collect()
    }

    fn expressions(&self, limit: &Limit) -> Vec<ConditionExplained> {
        use expression::Outcome::{Failed, Is, Missing};
        let draft = limit.draft();
        let explain = |word: &str, text: &str, for_key: bool, (holds, found)| ConditionExplained {
            field: word.to_owned(),
            expected: text.to_owned(),
            found,
            holds,
            for_key,
        };
        let conditions = draft.when.iter().map(|condition| {
            let outcome = match self.worlds.of(draft).holds(condition, draft) {
                Is(truth) => (truth, Some(truth.to_string())),
                Missing => (false, None),
                Failed(why) => (false, Some(why)),
            };
            explain("when", condition.text(), false, outcome)
        });
        let values = draft.key_expressions().map(|expression| {
            let outcome = match self.worlds.of(draft).value(expression, draft) {
                Is(value) => (true, Some(value)),
                Missing => (false, None),
                Failed(why) => (false, Some(why)),
            };
            explain("key", expression.text(), true, outcome)
        });
        conditions.chain(values).collect()
    }
}

/// An entry as `key_value`.
fn whole(entry: &Field<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    write_entry(entry, &mut text);
    text
}

/// Whether a text would do for an entry, if there were no other.
fn fits(text: &str, entry: &Field<'_>) -> bool {
    text == entry.0 || Pattern::new(text).matches(&whole(entry))
}

fn shown(value: &[u8]) -> String {
    escaped(value).into_owned()
}
