//! Why a limit applies, or does not.

mod call;
mod text;

use std::collections::HashMap;

use serde::Serialize;

use crate::choice::{Mode, OnBadValue, OnStoreFailure};
use crate::compute::Worlds;
use crate::descriptor::Descriptor;
use crate::matcher::Asked;
use crate::matches::replaced_by;
use crate::policy::Policy;
use crate::suggest::did_you_mean;
use call::Call;

/// Why which limits apply to a descriptor. `Display` tells it to people, `Serialize` to programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The descriptor's domain.
    pub domain: String,
    /// What looks like a mistake in the descriptor: a domain without limits, a field that no limit looks at.
    pub hints: Vec<String>,
    /// Every limit of the domain: those that apply in the order of
    /// [`Policy::matching`](crate::Policy::matching), then those that are replaced, then the others.
    pub limits: Vec<LimitExplained>,
}

/// Why a limit applies, or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LimitExplained {
    /// Its name.
    pub name: String,
    /// What came out.
    pub outcome: Outcome,
    /// Each of its conditions.
    pub conditions: Vec<ConditionExplained>,
    /// Whether it decides.
    pub mode: Mode,
    /// Its arithmetic.
    pub algorithm: &'static str,
    /// Its rates, or those of the override that applies.
    pub rates: Vec<String>,
    /// The field whose value gave other rates than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<String>,
    /// Whose state it is, if it applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What the call costs, if a field says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// What it answers when the store cannot.
    pub on_store_failure: OnStoreFailure,
    /// How it treats a bad value.
    pub on_bad_value: OnBadValue,
    /// What it would answer now. Who holds the states fills it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// What comes out for a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It applies.
    Applies,
    /// It denies the call, because a value is bad.
    DeniesBadValue,
    /// Its conditions hold, but the limit of that name, which applies as well, replaces it.
    ReplacedBy(String),
    /// Its conditions hold, but it is switched off.
    Off,
    /// One of its conditions does not hold.
    DoesNotMatch,
}

/// A condition, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConditionExplained {
    /// The field.
    pub field: String,
    /// What was expected of it.
    pub expected: String,
    /// Its value.
    pub found: Option<String>,
    /// Whether the condition holds.
    pub holds: bool,
    /// Whether it is only there because the key needs the field.
    pub for_key: bool,
}

impl Policy {
    /// Tells for every limit of the domain whether it applies, and why. It looks at all of them: for people, not for every
    /// call.
    ///
    /// # Examples
    /// ```
    /// use tollgate_policy::{Descriptor, Policy};
    ///
    /// let policy = Policy::parse("web.toml", "[limit.writes]\nmatch.method = \"POST\"\nkey = \"ip\"\nrate = \"1/s\"")?;
    /// let explanation = policy.explain(&Descriptor::new().with("method", "GET").with("ip", "10.0.0.7"));
    /// assert_eq!(explanation.to_string(), "\
    /// domain default: 0 of 1 limits apply
    ///
    /// do not apply:
    ///   writes: method is \"POST\": no, it is \"GET\"
    /// ");
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn explain(&self, descriptor: &Descriptor<'_>) -> Explanation {
        let known = self.known(descriptor);
        let in_domain = |rank: &u32| self.limits()[*rank as usize].domain() == descriptor.domain();
        let all: Vec<u32> = (0..self.limits().len() as u32).filter(in_domain).collect();
        let call = Call {
            worlds: Worlds::new(std::slice::from_ref(descriptor), 0),
            way: self.way(descriptor),
            asked: Asked { fields: &known, entries: descriptor.fields() },
        };
        let conditions: HashMap<u32, Vec<ConditionExplained>> =
            all.iter().map(|&rank| (rank, call.conditions(&self.limits()[rank as usize]))).collect();
        let holds = |rank: u32| conditions[&rank].iter().all(|condition| condition.holds);
        let is_on = |rank: u32| self.limits()[rank as usize].mode() != Mode::Off;
        let met: Vec<u32> = all.iter().copied().filter(|&rank| is_on(rank) && holds(rank)).collect();
        let denies = |rank: u32| {
            let limit = &self.limits()[rank as usize];
            is_on(rank) && limit.on_bad_value() == OnBadValue::Deny && call.is_bad(limit, &conditions[&rank])
        };
        let outcome = |rank: u32| match replaced_by(self.limits(), met.iter().copied(), rank) {
            None if denies(rank) => Outcome::DeniesBadValue,
            _ if !holds(rank) => Outcome::DoesNotMatch,
            _ if !is_on(rank) => Outcome::Off,
            Some(by) => Outcome::ReplacedBy(self.limits()[by as usize].name().to_owned()),
            None => Outcome::Applies,
        };
        let explain = |rank: &u32| {
            call.explain(&self.limits()[*rank as usize], outcome(*rank), conditions[rank].clone())
        };
        let mut limits: Vec<LimitExplained> = all.iter().map(explain).collect();
        limits.sort_by_key(|limit| match limit.outcome {
            Outcome::Applies => 0,
            Outcome::DeniesBadValue => 1,
            Outcome::ReplacedBy(_) => 2,
            Outcome::Off => 3,
            Outcome::DoesNotMatch => 4,
        });
        Explanation { domain: descriptor.domain().to_owned(), hints: self.hints(descriptor), limits }
    }

    fn hints(&self, descriptor: &Descriptor<'_>) -> Vec<String> {
        let and = |help: Option<String>| help.map(|help| format!("; {help}")).unwrap_or_default();
        let Some(mut fields) = self.fields(descriptor.domain()) else {
            let known = || {
                format!(
                    "there is {}",
                    self.domains().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
                )
            };
            let help = and(did_you_mean(descriptor.domain(), self.domains()).or_else(|| Some(known())));
            return vec![format!("the domain {:?} has no limits{help}", descriptor.domain())];
        };
        if self.has_entries(descriptor.domain()) || self.has_expressions(descriptor.domain()) {
            return Vec::new(); // any field may be looked at
        }
        fields.sort_unstable();
        let unused = descriptor.fields().iter().map(|field| field.0).filter(|name| !fields.contains(name));
        let hint = |name| {
            format!("no limit looks at the field {name:?}{}", and(did_you_mean(name, fields.iter().copied())))
        };
        unused.map(hint).collect()
    }
}
