//! An explanation for people.

use std::fmt;

use super::{ConditionExplained, Explanation, LimitExplained, Outcome};
use crate::choice::Mode;

/// So many of the limits that do not apply are named.
const MOST_OTHERS: usize = 20;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of =
            |wanted: fn(&Outcome) -> bool| self.limits.iter().filter(move |limit| wanted(&limit.outcome));
        let applying = of(|outcome| *outcome == Outcome::Applies);
        let (count, all) = (applying.clone().count(), self.limits.len());
        writeln!(f, "domain {}: {count} of {all} limits apply", self.domain)?;
        self.hints.iter().try_for_each(|hint| writeln!(f, "hint: {hint}"))?;
        applying.enumerate().try_for_each(|(index, limit)| write_applying(index + 1, limit, f))?;
        let mut others = of(|outcome| *outcome != Outcome::Applies);
        if count < all {
            writeln!(f, "\ndo not apply:")?;
        }
        others.by_ref().take(MOST_OTHERS).try_for_each(|limit| write_other(limit, f))?;
        match others.count() {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

fn write_applying(number: usize, limit: &LimitExplained, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let rates = limit.rates.join(" and ");
    write!(f, "\n{number}. {}: {rates}, {}", limit.name, limit.algorithm)?;
    if limit.mode != Mode::Enforce {
        write!(f, ", {}", limit.mode)?;
    }
    writeln!(f)?;
    limit.conditions.iter().try_for_each(|condition| writeln!(f, "   {condition}"))?;
    let facts = [
        ("key", limit.key.as_ref().map(|key| format!("{key:?}"))),
        ("cost", limit.cost.clone()),
        ("rate overridden by", limit.overridden_by.clone()),
        ("would answer", limit.answer.clone()),
    ];
    let mut known = facts.into_iter().filter_map(|(what, fact)| Some((what, fact?)));
    known.try_for_each(|(what, fact)| writeln!(f, "   {what}: {fact}"))
}

fn write_other(limit: &LimitExplained, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "  {}: ", limit.name)?;
    match (&limit.outcome, limit.conditions.iter().find(|condition| !condition.holds)) {
        (Outcome::ReplacedBy(by), _) => writeln!(f, "replaced by {by}"),
        (Outcome::Off, _) => writeln!(f, "switched off"),
        (Outcome::DeniesBadValue, Some(condition)) => {
            writeln!(f, "denies, because a value is bad: {condition}")
        }
        (Outcome::DeniesBadValue, None) => {
            writeln!(f, "denies, because a value is bad: {}", limit.cost.as_deref().unwrap_or_default())
        }
        (_, Some(condition)) => writeln!(f, "{condition}"),
        (_, None) => writeln!(f, "applies"),
    }
}

/// `path like "/api/*": yes, it is "/api/x"`.
impl fmt::Display for ConditionExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let for_key = if self.for_key { " (for the key)" } else { "" };
        write!(
            f,
            "{} {}{for_key}: {}, it is ",
            self.field,
            self.expected,
            if self.holds { "yes" } else { "no" }
        )?;
        match &self.found {
            Some(value) => write!(f, "{value:?}"),
            None => f.write_str("absent"),
        }
    }
}
