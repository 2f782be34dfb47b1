//! The limits of a layer, and what a call wants of them.

use std::sync::Arc;

use tollgate::store::{MemoryStore, Rule, Store};
#[cfg(feature = "policy")]
use tollgate_policy::Policy;

use super::builder::{Options, RateLimitBuilder, Unavailable};
#[cfg(feature = "policy")]
use super::by_policy::Book;
use super::denial::Reason;
use super::desk::Desk;
use super::error::LimitError;
use super::local::Local;
use super::wants::{Want, Wants};
use crate::cost::Cost;
use crate::head::Head;
use crate::key::NoKey;
use crate::limit::Limit;
use crate::observe::{Observer, Outcome, Watch};

/// The limits of a layer, and where their state lives.
pub(crate) struct Rules<S: Store> {
    pub(super) plan: Arc<Plan<S>>,
    entries: Vec<Entry>,
    /// Whether there is one limit, and nothing else to be looked at.
    pub(super) is_alone: bool,
    pub(super) desk: Desk<S>,
    local: Local,
    #[cfg(feature = "policy")]
    book: Option<Book>,
}

/// What stays when a policy is replaced.
pub(super) struct Plan<S: Store> {
    store: S,
    /// For as long as the other cannot tell.
    local: MemoryStore,
    pub(super) limits: Vec<Limit>,
    pub(super) options: Options,
    pub(super) observer: Observer,
}

/// What there is to know of a limit that applies.
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) told: Vec<tollgate_http::Limit>,
    pub(super) cost: Cost,
    pub(super) is_shadow: bool,
    pub(super) unavailable: Unavailable,
}

/// What a call wants.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) enforced: Wants,
    pub(super) shadow: Option<Box<Wants>>,
    /// Since when it is looked at.
    pub(super) watch: Watch,
    /// Why it is refused whatever is left, and by which limit if by one.
    pub(super) refused: Option<(Reason, Option<usize>)>,
}

impl<S: Store> Rules<S> {
    pub(super) fn new(builder: RateLimitBuilder<S>) -> Result<Self, LimitError> {
        let RateLimitBuilder { store, limits, options, .. } = builder;
        let observer = Observer::new(Arc::clone(&options.domain));
        let plan = Plan { store, local: MemoryStore::new(), limits, options, observer };
        let rules = Self::without_policy(Arc::new(plan))?;
        #[cfg(feature = "policy")]
        if let Some(policy) = builder.policy {
            return rules.with_policy(policy);
        }
        if rules.entries.is_empty() { Err(LimitError::NoLimits) } else { Ok(rules) }
    }

    fn without_policy(plan: Arc<Plan<S>>) -> Result<Self, LimitError> {
        let mut entries: Vec<Entry> = Vec::with_capacity(plan.limits.len());
        for limit in &plan.limits {
            if entries.iter().any(|entry| *entry.name == limit.name) {
                return Err(LimitError::SameName(limit.name.clone()));
            }
            entries.push(Entry::of(limit, plan.options.unavailable)?);
        }
        let rules: Vec<Rule> = plan.limits.iter().map(|limit| limit.rule(&plan.options.domain)).collect();
        Ok(Self::open(plan, entries, &rules))
    }

    /// The same limits, and those of a policy.
    #[cfg(feature = "policy")]
    pub(super) fn with_policy(&self, policy: Policy) -> Result<Self, LimitError> {
        let Plan { limits, options, .. } = &*self.plan;
        let Options { domain, vocabulary, .. } = options;
        let book = vocabulary.book(policy, domain, limits.len())?;
        let Self { mut entries, .. } = Self::without_policy(Arc::clone(&self.plan))?;
        for (limit, rates) in book.rates() {
            if limit.domain() == &**domain && limits.iter().any(|other| other.name == limit.name()) {
                return Err(LimitError::SameName(limit.name().to_owned()));
            }
            entries.push(vocabulary.entry(limit, rates)?);
        }
        let rules: Vec<Rule> = limits.iter().map(|limit| limit.rule(domain)).chain(book.rules()).collect();
        Ok(Self { book: Some(book), ..Self::open(Arc::clone(&self.plan), entries, &rules) })
    }

    /// Opens what the entries are about.
    fn open(plan: Arc<Plan<S>>, entries: Vec<Entry>, rules: &[Rule]) -> Self {
        Self {
            is_alone: entries.len() == 1 && plan.is_plain(),
            desk: Desk::new(plan.store.clone(), rules),
            plan,
            entries,
            local: Local::default(),
            #[cfg(feature = "policy")]
            book: None,
        }
    }

    /// Who decides while the store cannot.
    pub(super) fn local(&self) -> Arc<Desk<MemoryStore>> {
        let Plan { store, local, options, .. } = &*self.plan;
        let processes = options.processes.unwrap_or_else(|| store.nodes());
        self.local.desk(processes, local, self.desk.rules())
    }

    pub(super) fn limits(&self) -> &[Limit] {
        &self.plan.limits
    }

    #[inline]
    pub(super) fn entry(&self, want: &Want) -> &Entry {
        &self.entries[want.limit()]
    }

    /// A limit as callers are told of it, for each quota.
    pub(super) fn told(&self, entry: usize) -> &[tollgate_http::Limit] {
        &self.entries[entry].told
    }

    pub(super) fn name(&self, entry: usize) -> &Arc<str> {
        &self.entries[entry].name
    }

    /// What a call wants of which limits.
    #[inline]
    pub(super) fn read(&self, head: &Head<'_>) -> Asked {
        let mut asked = Asked::default();
        if self.is_exempt(head) {
            return asked;
        }
        for (index, limit) in self.plan.limits.iter().enumerate().filter(|(_, limit)| limit.applies_to(head))
        {
            let wants = asked.wants(limit.is_shadow);
            let cost = limit.cost.first(head);
            match (limit.key.value(head, &self.plan.options.clients), limit.no_key) {
                (Some(key), _) => wants.push(index, cost, &key),
                (None, NoKey::Share) => wants.push(index, cost, b""), // nobody else's key is empty
                (None, NoKey::Refuse) => self.refuse_at_once(&mut asked, Reason::NoKey, index),
                (None, NoKey::Pass) => {}
            }
        }
        #[cfg(feature = "policy")]
        self.read_policy(head, &mut asked);
        asked.shadow = asked.shadow.filter(|shadow| !shadow.is_empty());
        asked
    }

    /// What it wants of the policy's limits.
    #[cfg(feature = "policy")]
    fn read_policy(&self, head: &Head<'_>, asked: &mut Asked) {
        let Some(book) = &self.book else { return };
        let cost = |entry: usize| self.entries[entry].cost.first(head);
        book.read(head, &self.plan.options.clients, cost, |found| match found {
            Ok(found) => asked.wants(found.is_shadow).push(found.entry, found.cost, found.key),
            Err((reason, Some(entry))) => self.refuse_at_once(asked, reason, entry),
            Err((reason, None)) => _ = asked.refused.get_or_insert((reason, None)),
        });
    }

    /// A limit refuses, whatever is left of it. One in shadow only says so.
    fn refuse_at_once(&self, asked: &mut Asked, reason: Reason, index: usize) {
        let Entry { name, is_shadow, .. } = &self.entries[index];
        if *is_shadow {
            self.plan.observer.count(name, Outcome::ShadowDenied);
        } else {
            asked.refused.get_or_insert((reason, Some(index)));
        }
    }

    fn is_exempt(&self, head: &Head<'_>) -> bool {
        let Options { allowed, clients, .. } = &self.plan.options;
        !allowed.is_empty()
            && clients
                .address(head)
                .is_some_and(|address| allowed.iter().any(|network| network.contains(&address)))
    }
}

impl Entry {
    fn of(limit: &Limit, unavailable: Unavailable) -> Result<Self, LimitError> {
        Ok(Self {
            name: limit.name.as_str().into(),
            told: limit.told()?,
            cost: limit.cost.clone(),
            is_shadow: limit.is_shadow,
            unavailable,
        })
    }
}

impl Asked {
    /// Where to put what is wanted.
    #[inline]
    fn wants(&mut self, is_shadow: bool) -> &mut Wants {
        if is_shadow { self.shadow.get_or_insert_default() } else { &mut self.enforced }
    }
}
