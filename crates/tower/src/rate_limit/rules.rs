//! The limits of a layer, and what a call wants of them.

use std::sync::Arc;

use tollgate::store::{MemoryStore, Store};

use super::builder::{Options, RateLimitBuilder, Unavailable};
use super::denial::Reason;
use super::desk::Desk;
use super::error::LimitError;
use super::wants::{Want, Wants};
use crate::cost::Cost;
use crate::head::Head;
use crate::key::NoKey;
use crate::limit::Limit;
use crate::observe::{Observer, Outcome};

/// The limits of a layer, and where their state lives.
pub(crate) struct Rules<S: Store> {
    limits: Vec<Limit>,
    entries: Vec<Entry>,
    pub(super) desk: Desk<S>,
    /// Who decides while the store cannot.
    pub(super) local: Option<Desk<MemoryStore>>,
    pub(super) options: Options,
    pub(super) observer: Observer,
}

/// What there is to know of a limit that applies.
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    told: Vec<tollgate_http::Limit>,
    pub(super) cost: Cost,
    is_shadow: bool,
    pub(super) unavailable: Unavailable,
}

/// What a call wants.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) enforced: Wants,
    pub(super) shadow: Option<Box<Wants>>,
    /// Why it is refused whatever is left, and by which limit.
    pub(super) refused: Option<(Reason, usize)>,
}

impl<S: Store> Rules<S> {
    pub(super) fn new(builder: RateLimitBuilder<S>) -> Result<Self, LimitError> {
        let RateLimitBuilder { store, limits, options } = builder;
        let mut entries: Vec<Entry> = Vec::with_capacity(limits.len());
        for limit in &limits {
            if entries.iter().any(|entry| *entry.name == limit.name) {
                return Err(LimitError::SameName(limit.name.clone()));
            }
            entries.push(Entry::of(limit, options.unavailable)?);
        }
        let rules: Vec<_> = limits.iter().map(|limit| limit.rule(&options.domain)).collect();
        let has_local = entries.iter().any(|entry| entry.unavailable == Unavailable::Local);
        let local = has_local.then(|| Desk::new(MemoryStore::new(), &rules));
        let observer = Observer::new(Arc::clone(&options.domain));
        Ok(Self { limits, entries, desk: Desk::new(store, &rules), local, options, observer })
    }

    pub(super) fn limits(&self) -> &[Limit] {
        &self.limits
    }

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
    pub(super) fn read(&self, head: &Head<'_>) -> Asked {
        let mut asked = Asked::default();
        if self.is_exempt(head) {
            return asked;
        }
        for (index, limit) in self.limits.iter().enumerate().filter(|(_, limit)| limit.applies_to(head)) {
            let wants = asked.wants(limit.is_shadow);
            let cost = limit.cost.first(head);
            if wants.push(index, cost, |bytes| limit.key.add_to(bytes, head, &self.options.clients)) {
                continue;
            }
            match limit.no_key {
                NoKey::Share => _ = wants.push(index, cost, |_| true), // nobody else's key is empty
                NoKey::Refuse => self.refuse_at_once(&mut asked, Reason::NoKey, index),
                NoKey::Pass => {}
            }
        }
        asked.shadow = asked.shadow.filter(|shadow| !shadow.is_empty());
        asked
    }

    /// A limit refuses, whatever is left of it. One in shadow only says so.
    fn refuse_at_once(&self, asked: &mut Asked, reason: Reason, index: usize) {
        let Entry { name, is_shadow, .. } = &self.entries[index];
        if *is_shadow {
            self.observer.count(name, Outcome::ShadowDenied);
        } else {
            asked.refused.get_or_insert((reason, index));
        }
    }

    fn is_exempt(&self, head: &Head<'_>) -> bool {
        let Options { allowed, clients, .. } = &self.options;
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
