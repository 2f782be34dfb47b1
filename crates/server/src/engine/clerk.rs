//! Who decides for one connection.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use smallvec::SmallVec;
use tollgate::store::{Hit, Mode, Rule, Store, StoreError};
use tollgate::{Kind, Quota};
use tollgate_policy::{Cost, Descriptor, IfStoreFails, Scratch};

use super::Engine;
use super::ask::{Ask, AskError, Subject};
use super::loaded::{Loaded, Opened, Told};
use super::permits::{Held, PermitId};
use super::ruling::{Basis, Finding, Ruling, findings};

/// How many limits of its caller's own a clerk remembers.
const REMEMBERED: usize = 8;

/// Decides for one connection. It keeps what it needs again: after a few calls, deciding in process allocates nothing.
pub struct Clerk<S: Store> {
    engine: Engine<S>,
    current: Cache<Arc<ArcSwap<Loaded<S>>>, Arc<Loaded<S>>>,
    notes: Notes,
    /// The caller's own limits, the one opened last in the last place.
    opened: Vec<Arc<Opened<S>>>,
}

/// What is written down while a call is looked at.
#[derive(Default)]
struct Notes {
    scratch: Scratch,
    enforced: Vec<Want>,
    shadow: Vec<Want>,
    keys: Vec<u8>,
}

/// What an ask wants of one limit.
struct Want {
    ask: usize,
    /// The number of the rates in the policy; none if the ask names its limit itself.
    number: Option<usize>,
    key: Range<usize>,
    cost: u64,
}

/// What all limits together say of a call.
pub(super) type Findings<'a> = SmallVec<[Finding<'a>; 2]>;

/// A hit, and what there is to tell of its limit.
pub(super) type Hits<'a, L> = SmallVec<[Hit<'a, L>; 4]>;

impl<S: Store> Clerk<S> {
    pub(super) fn new(engine: &Engine<S>) -> Self {
        let current = Cache::new(Arc::clone(&engine.shared.current));
        Self { engine: engine.clone(), current, notes: Notes::default(), opened: Vec::new() }
    }

    /// Whom it works for.
    pub fn engine(&self) -> &Engine<S> {
        &self.engine
    }

    /// Decides about several asks together, and does with them what `mode` says.
    ///
    /// # Errors
    /// If an ask makes no sense. That the store cannot tell is not an error: every limit says what to do then.
    ///
    /// # Cancel safety
    /// What had been taken by then stays taken.
    pub async fn decide<'a>(
        &'a mut self,
        mode: Mode,
        asks: &'a [Ask<'a, S>],
    ) -> Result<Ruling<'a>, AskError> {
        let Self { engine, current, notes, .. } = self;
        let case = Case::new(engine, current.load(), notes, asks)?;
        let enforced = case.decide(mode, &case.notes.enforced, false).await;
        case.conclude(mode, enforced).await
    }

    /// Decides as [`Mode::Take`] does; what was allowed is held for `span`, in which it can be
    /// [settled](Engine::settle) with what it really cost.
    ///
    /// # Errors
    /// As [`decide`](Self::decide), or if too much is held already.
    ///
    /// # Cancel safety
    /// What had been taken by then stays taken.
    pub async fn hold<'a>(
        &'a mut self,
        asks: &'a [Ask<'a, S>],
        span: Duration,
    ) -> Result<(Ruling<'a>, Option<PermitId>), AskError> {
        let Self { engine, current, notes, .. } = self;
        let case = Case::new(engine, current.load(), notes, asks)?;
        engine.shared.permits.has_room()?;
        let (enforced, held) = case.acquire(&case.notes.enforced).await;
        let ruling = case.conclude(Mode::Take, enforced).await?;
        let id = if ruling.is_allowed() { Some(engine.shared.permits.insert(held, span)) } else { None };
        Ok((ruling, id))
    }

    /// A limit of the caller's own, which no policy has. `family` says who opens such limits: it is their domain, and they are
    /// counted under this name alone, since strangers may choose the other.
    pub fn open(&mut self, family: &'static str, name: &str, kind: Kind, quota: Quota) -> Arc<Opened<S>> {
        let is_it = |rule: &Rule| {
            rule.quotas() == [quota] && rule.domain() == family && rule.name() == name && rule.kind() == kind
        };
        self.known(is_it)
            .unwrap_or_else(|| self.open_new(family, Rule::new(family, name, quota).with_kind(kind)))
    }

    /// A limit of the caller's own whose quota may be [another](Rule::floating) for every call. `family` is its name, too.
    #[inline]
    pub fn open_floating(&mut self, family: &'static str, quota: Quota) -> Arc<Opened<S>> {
        self.known(|rule| rule.quotas() == [quota] && rule.is_floating() && rule.domain() == family)
            .unwrap_or_else(|| self.open_new(family, Rule::floating(family, family, quota)))
    }

    #[inline]
    fn known(&self, is_it: impl Fn(&Rule) -> bool) -> Option<Arc<Opened<S>>> {
        self.opened.iter().rev().find(|opened| is_it(&opened.told().rule)).cloned()
    }

    #[cold]
    fn open_new(&mut self, family: &'static str, rule: Rule) -> Arc<Opened<S>> {
        let tally = self.engine.tally(family, "");
        let opened = Opened::new(self.engine.store(), rule, IfStoreFails::default(), tally);
        if self.opened.len() == REMEMBERED {
            self.opened.remove(0);
        }
        self.opened.push(Arc::new(opened));
        Arc::clone(&self.opened[self.opened.len() - 1])
    }
}

/// Some asks, and what they want.
struct Case<'a, S: Store> {
    engine: &'a Engine<S>,
    loaded: &'a Loaded<S>,
    notes: &'a Notes,
    asks: &'a [Ask<'a, S>],
}

impl<'a, S: Store> Case<'a, S> {
    fn new(
        engine: &'a Engine<S>,
        loaded: &'a Loaded<S>,
        notes: &'a mut Notes,
        asks: &'a [Ask<'a, S>],
    ) -> Result<Self, AskError> {
        notes.read(loaded, asks)?;
        Ok(Self { engine, loaded, notes, asks })
    }

    fn opened(&self, want: &Want) -> &'a Opened<S> {
        match (want.number, &self.asks[want.ask].subject) {
            (Some(number), _) => &self.loaded.opened()[number],
            (None, Subject::Limit(opened, _)) => opened,
            (None, Subject::Policy(..)) => unreachable!("what a policy wants has a number"),
        }
    }

    fn hit(&self, want: &Want) -> Hit<'a, S::Limit> {
        Hit { limit: self.opened(want).limit(), key: &self.notes.keys[want.key.clone()], cost: want.cost }
    }

    fn hits(&self, wants: &[Want]) -> Hits<'a, S::Limit> {
        wants.iter().map(|want| self.hit(want)).collect()
    }

    /// What the limits of `wants` say, whoever decides.
    async fn decide(&self, mode: Mode, wants: &[Want], is_shadow: bool) -> Findings<'a> {
        let hits = self.hits(wants);
        if hits.is_empty() {
            return Findings::new();
        }
        let of = |hit: usize| (wants[hit].ask, self.opened(&wants[hit]).told(), is_shadow);
        match self.engine.store().decide(mode, &hits).await {
            Ok(answer) => findings(&answer, mode, Basis::Store, of).collect(),
            Err(error) => self.fall_back(mode, &hits, &error, of),
        }
    }

    fn fall_back(
        &self,
        mode: Mode,
        hits: &[Hit<'a, S::Limit>],
        error: &StoreError,
        of: impl Fn(usize) -> (usize, &'a Told, bool) + Copy,
    ) -> Findings<'a> {
        let nodes = self.engine.store().nodes();
        self.engine.shared.fallback.decide(mode, hits, nodes, error, of)
    }

    async fn acquire(&self, wants: &[Want]) -> (Findings<'a>, Held<S>) {
        let hits = self.hits(wants);
        let asks = wants.iter().map(|want| (want.ask, want.cost)).collect();
        if hits.is_empty() {
            return (Findings::new(), Held::nothing());
        }
        let of = |hit: usize| (wants[hit].ask, self.opened(&wants[hit]).told(), false);
        match self.engine.store().acquire(&hits).await {
            Ok((answer, permit)) => {
                (findings(&answer, Mode::Take, Basis::Store, of).collect(), Held::new(permit, asks))
            }
            Err(error) => (self.fall_back(Mode::Take, &hits, &error, of), Held::nothing()),
        }
    }

    /// Adds what limits in shadow say, and counts all of it. Each of those decides for itself: none is enforced, so none keeps
    /// another from counting. They do not see what is refused anyway, unless that counts too.
    async fn conclude(&self, mode: Mode, enforced: Findings<'a>) -> Result<Ruling<'a>, AskError> {
        let mut ruling = Ruling::new(enforced);
        if !self.notes.shadow.is_empty() && (ruling.is_allowed() || mode == Mode::Count) {
            let mut all = ruling.into_findings();
            for want in &self.notes.shadow {
                all.extend(self.decide(mode, std::slice::from_ref(want), true).await);
            }
            ruling = Ruling::new(all);
        }
        if matches!(mode, Mode::Take | Mode::Count) {
            ruling.count();
        }
        Ok(ruling)
    }
}

impl Notes {
    /// Notes what the asks want.
    fn read<S: Store>(&mut self, loaded: &Loaded<S>, asks: &[Ask<'_, S>]) -> Result<(), AskError> {
        self.enforced.clear();
        self.shadow.clear();
        self.keys.clear();
        for (place, ask) in asks.iter().enumerate() {
            match &ask.subject {
                &Subject::Policy(domain, fields) => {
                    let mut descriptor = Descriptor::in_domain(domain);
                    for (name, value) in fields {
                        descriptor.push(name, value);
                    }
                    self.read_policy(loaded, place, &descriptor, ask.cost)?;
                }
                Subject::Limit(_, key) => {
                    let key = note_key(&mut self.keys, key);
                    self.enforced.push(Want { ask: place, number: None, key, cost: ask.cost });
                }
            }
        }
        Ok(())
    }

    fn read_policy<S: Store>(
        &mut self,
        loaded: &Loaded<S>,
        ask: usize,
        descriptor: &Descriptor<'_>,
        asked: u64,
    ) -> Result<(), AskError> {
        for found in loaded.policy().matching(descriptor, &mut self.scratch).iter() {
            let cost = match found.cost() {
                Cost::Asked => asked,
                Cost::Said(cost) => cost,
                Cost::Unreadable => return Err(AskError::cost(ask, found.limit())),
            };
            let key = note_key(&mut self.keys, found.key());
            let want = Want { ask, number: Some(found.rates().number()), key, cost };
            if found.is_shadow() { self.shadow.push(want) } else { self.enforced.push(want) }
        }
        Ok(())
    }
}

fn note_key(keys: &mut Vec<u8>, key: &[u8]) -> Range<usize> {
    let start = keys.len();
    keys.extend_from_slice(key);
    start..keys.len()
}

impl<S: Store> fmt::Debug for Clerk<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clerk").field("engine", &self.engine).finish_non_exhaustive()
    }
}
