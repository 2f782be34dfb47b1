//! A policy whose limits are open in a store.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate_policy::{Limit, OnStoreFailure, Policy, Rates};

use super::Tallies;
use super::statistics::{Counted, Statistics};
use super::tally::Tally;

/// A policy whose limits are open in a store.
pub struct Loaded<S: Store> {
    policy: Policy,
    /// By the number of the rates.
    opened: Vec<Opened<S>>,
}

/// A limit that is open in a store, and what there is to tell of it.
pub struct Opened<S: Store> {
    pub(super) limit: S::Limit,
    pub(super) told: Told,
    /// Why the store does not open it.
    pub(super) refusal: Option<Box<str>>,
}

/// What there is to tell of a limit.
#[derive(Debug)]
pub struct Told {
    /// Which limit it is.
    pub rule: Rule,
    /// What callers are told it is called.
    pub label: Option<Arc<str>>,
    /// Whatever else belongs to it.
    pub metadata: Option<Json>,
    /// Who looks when the store cannot tell.
    pub on_store_failure: OnStoreFailure,
    /// As callers are told of it in fields, for each quota; none if its name cannot be said there.
    pub fields: Vec<tollgate_http::Limit>,
    /// The field that says what a call costs.
    pub(super) cost_field: Option<Arc<str>>,
    /// Whether the policy puts it in shadow mode.
    pub(crate) is_shadow: bool,
    pub(super) tally: Arc<Tally>,
    /// How it is counted in the statistics; `None` if it is not.
    pub(super) counted: Option<Counted>,
}

impl<S: Store> Loaded<S> {
    pub(super) fn new(
        policy: Policy,
        store: &S,
        tallies: &mut Tallies,
        statistics: Option<&Statistics>,
    ) -> Self {
        let opened = policy.rates().map(|(limit, rates)| {
            let rule = rule(limit, rates);
            let names = (rule.domain().into(), rule.name().into());
            let tally = Arc::clone(tallies.entry(names).or_default());
            let mut opened = Opened::new(store, rule, limit.on_store_failure(), tally);
            opened.told.label = limit.label().map(Arc::from);
            opened.told.metadata = limit.metadata().cloned();
            opened.told.cost_field = limit.cost_field().map(Arc::from);
            opened.told.is_shadow = limit.mode() == tollgate_policy::Mode::Shadow;
            opened.told.counted = statistics.and_then(|statistics| statistics.counted(limit, rates));
            opened
        });
        let opened = opened.collect();
        Self { policy, opened }
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Its limits as they are open, by the [number](Rates::number) of their rates.
    pub fn opened(&self) -> &[Opened<S>] {
        &self.opened
    }
}

/// The rule of some rates of a limit.
fn rule(limit: &Limit, rates: &Rates) -> Rule {
    let (first, more) = rates.quotas().split_first().expect("a policy has no limit without a rate");
    let rule = Rule::new(limit.domain(), limit.name(), *first).with_kind(limit.kind());
    let rule = more.iter().fold(rule, |rule, quota| rule.with_quota(*quota));
    if limit.is_counter() { rule.counting() } else { rule }
}

impl Told {
    /// What was counted of it.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl<S: Store> Opened<S> {
    pub(super) fn new(store: &S, rule: Rule, on_store_failure: OnStoreFailure, tally: Arc<Tally>) -> Self {
        let limit = store.open(&rule);
        let fields = fields(&rule).unwrap_or_default();
        let told = Told {
            rule,
            label: None,
            metadata: None,
            on_store_failure,
            fields,
            cost_field: None,
            is_shadow: false,
            tally,
            counted: None,
        };
        Self { limit, told, refusal: None }
    }

    /// A limit that a caller supplies. A store in this process says at once whether there is room for it.
    pub(super) fn supplied(store: &S, rule: Rule, tally: Arc<Tally>) -> Self {
        let mut opened = Self::new(store, rule, OnStoreFailure::default(), tally);
        let looked = store.decide_now(Mode::Peek, &[Hit::new(&opened.limit, b"").costing(0)]);
        if let Some(Err(error)) = looked {
            opened.refusal = (!error.is_transient()).then(|| error.to_string().into());
        }
        opened
    }

    /// The limit in the store.
    pub fn limit(&self) -> &S::Limit {
        &self.limit
    }

    /// What there is to tell of it.
    pub fn told(&self) -> &Told {
        &self.told
    }
}

fn fields(rule: &Rule) -> Result<Vec<tollgate_http::Limit>, tollgate_http::NameError> {
    let field = |quota: &tollgate::Quota| {
        let name = match rule.quotas().len() {
            1 => rule.name().to_owned(),
            _ => format!("{} {quota}", rule.name()),
        };
        tollgate_http::Limit::new(&name, rule.kind(), *quota)
    };
    rule.quotas().iter().map(field).collect()
}

impl<S: Store> fmt::Debug for Loaded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("opened", &self.opened).finish_non_exhaustive()
    }
}

impl<S: Store> fmt::Debug for Opened<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told.rule.fmt(f)
    }
}
