//! Deciding about some asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tollgate::store::{Hit, Mode, Store, StoreError};

use super::Engine;
use super::ask::{Ask, AskError, Subject};
use super::loaded::{Loaded, Opened};
use super::notes::{Notes, Want, count_bad_values};
use super::permits::Held;
use super::ruling::{About, Basis, Finding, Findings, Ruling, findings, is_refused};
use super::settle::Costs;
use super::statistics::Statistics;

/// A hit, and what there is to tell of its limit.
pub(super) type Hits<'a, L> = SmallVec<[Hit<'a, L>; 4]>;

/// Some asks, and what they want.
pub(super) struct Case<'a, S: Store> {
    engine: &'a Engine<S>,
    loaded: &'a Loaded<S>,
    notes: &'a Notes,
    asks: &'a [Ask<'a, S>],
    /// The store, which has one time-out for all that is asked of it here.
    store: OnceLock<S>,
    /// Why the store could not tell. It is then not asked again for this case, so that nobody waits for it twice.
    failed: OnceLock<StoreError>,
    /// Whether the store has done something for this case.
    has_effect: AtomicBool,
}

impl<'a, S: Store> Case<'a, S> {
    pub(super) fn new(
        engine: &'a Engine<S>,
        loaded: &'a Loaded<S>,
        notes: &'a mut Notes,
        mode: impl Fn(usize) -> Mode,
        asks: &'a [Ask<'a, S>],
    ) -> Result<Self, AskError> {
        notes.read(loaded, mode, asks)?;
        let (store, failed, has_effect) = (OnceLock::new(), OnceLock::new(), AtomicBool::new(false));
        Ok(Self { engine, loaded, notes, asks, store, failed, has_effect })
    }

    pub(super) fn engine(&self) -> &'a Engine<S> {
        self.engine
    }

    fn store(&self) -> &S {
        self.store.get_or_init(|| self.engine.store().for_request())
    }

    /// What is to be taken all together or not at all.
    pub(super) fn enforced(&self) -> &'a [Want] {
        &self.notes.wants.enforced
    }

    /// All that is wanted.
    pub(super) fn wants(&self) -> impl Iterator<Item = &'a Want> {
        self.notes.wants.iter()
    }

    /// The field that says what a call costs a limit.
    pub(super) fn cost_field(&self, want: &Want) -> Option<&'a Arc<str>> {
        self.opened(want).told().cost_field.as_ref()
    }

    fn opened(&self, want: &Want) -> &'a Opened<S> {
        match (want.number, &self.asks[want.ask].subject) {
            (Some(number), _) => &self.loaded.opened()[number],
            (None, Subject::Limit(opened, _)) => opened,
            (None, Subject::Policy(..) | Subject::Nothing(_)) => {
                unreachable!("what a policy wants has a number")
            }
        }
    }

    fn hit(&self, want: &Want) -> Hit<'a, S::Limit> {
        Hit { limit: self.opened(want).limit(), key: self.notes.key(want), cost: want.cost }
    }

    /// The key of the limit that a finding is about.
    pub(super) fn key_of(&self, finding: &Finding<'_>) -> Option<&[u8]> {
        let is_it =
            |want: &&Want| want.ask == finding.ask && std::ptr::eq(self.opened(want).told(), finding.limit);
        self.notes.wants.iter().find(is_it).map(|want| self.notes.key(want))
    }

    fn hits(&self, wants: &[Want]) -> Hits<'a, S::Limit> {
        wants.iter().map(|want| self.hit(want)).collect()
    }

    fn about(&self, want: &Want, is_shadow: bool) -> About<'a> {
        let limit = self.opened(want).told();
        let Want { ask, mode, is_quota, is_probe, .. } = *want;
        About { ask, limit, mode, is_shadow, is_quota, is_probe }
    }

    /// The ruling, where all that is wanted is to be done together and the store can tell at once. Most calls are such.
    #[inline]
    pub(super) fn decide_at_once(&self) -> Option<Ruling<'a>> {
        let (mode, wants) = self.notes.wants.together()?;
        let hits = self.hits(wants);
        let answer = self.engine.store().decide_now(mode, &hits)?.ok()?; // an error has taken nothing
        let of = |hit: usize| self.about(&wants[hit], false);
        let found = findings(&answer, mode, Basis::Store, &hits, of).collect();
        let ruling = Ruling::new(found, self.notes.has_free_quota);
        self.count(&ruling);
        Some(ruling)
    }

    /// The domain of the policy that was asked.
    pub(super) fn domain(&self) -> Option<&str> {
        self.asks.first().and_then(|ask| ask.subject.domain())
    }

    /// Counts a call once it is decided.
    #[inline]
    fn count(&self, ruling: &Ruling<'_>) {
        ruling.count();
        count_bad_values(&self.notes.bad_values, self.loaded);
        if let (Some(no_match), Some(domain)) = (self.notes.unmatched, self.domain()) {
            self.engine.shared.unmatched.count(domain, no_match.is_known, no_match.is_denied);
        }
        if let Some(statistics) = &self.engine.shared.statistics {
            self.count_in(statistics, ruling);
        }
    }

    #[cold]
    fn count_in(&self, statistics: &Statistics, ruling: &Ruling<'_>) {
        statistics.count(self.asks, ruling, self.notes.has_free_quota);
        let no_match = self.notes.unmatched.filter(|no_match| !no_match.is_known);
        if let (Some(_), Some(domain)) = (no_match, self.domain()) {
            statistics.count_domain_not_found(domain, self.asks.len());
        }
    }

    /// What the limits of `wants` say, whoever decides.
    ///
    /// # Errors
    /// If the store cannot tell, and is to charge or to give back.
    pub(super) async fn decide(&self, mode: Mode, wants: &[Want]) -> Result<Findings<'a>, AskError> {
        self.decide_as(mode, wants, false, false).await
    }

    async fn decide_as(
        &self,
        mode: Mode,
        wants: &[Want],
        is_shadow: bool,
        needs_store: bool,
    ) -> Result<Findings<'a>, AskError> {
        let hits = self.hits(wants);
        if hits.is_empty() {
            return Ok(Findings::new());
        }
        let of = |hit: usize| self.about(&wants[hit], is_shadow);
        let needs_store = needs_store || matches!(mode, Mode::Charge | Mode::Refund);
        if let Some(error) = self.failed.get() {
            return if needs_store {
                Err(self.unavailable(error))
            } else {
                Ok(self.fall_back(mode, &hits, error, of))
            };
        }
        let started = self.engine.time().now();
        match self.store().decide(mode, &hits).await {
            Ok(answer) => {
                self.engine.note_latency(started);
                self.has_effect.fetch_or(mode != Mode::Peek, Ordering::Relaxed);
                Ok(findings(&answer, mode, Basis::Store, &hits, of).collect())
            }
            Err(error) if needs_store => Err(self.unavailable(&error)),
            Err(error) => Ok(self.note_failure(error, |error| self.fall_back(mode, &hits, error, of))),
        }
    }

    /// Whether the store could tell so far.
    ///
    /// # Errors
    /// If it could not.
    pub(super) fn require_store(&self) -> Result<(), AskError> {
        self.failed.get().map_or(Ok(()), |error| Err(self.unavailable(error)))
    }

    /// Returns the error for an operation that needs the store while it is unavailable.
    fn unavailable(&self, error: &StoreError) -> AskError {
        self.engine.shared.fallback.tell(error, "refusing operations that need it");
        let is_without_effect = error.is_without_effect() && !self.has_effect.load(Ordering::Relaxed);
        AskError::Unavailable { is_without_effect }
    }

    /// Remembers that the store is away. What it can never do says nothing about what it can.
    fn note_failure(
        &self,
        error: StoreError,
        fall_back: impl FnOnce(&StoreError) -> Findings<'a>,
    ) -> Findings<'a> {
        let found = fall_back(&error);
        if error.is_transient() {
            let _ = self.failed.set(error);
        }
        found
    }

    fn fall_back(
        &self,
        mode: Mode,
        hits: &[Hit<'a, S::Limit>],
        error: &StoreError,
        of: impl Fn(usize) -> About<'a> + Copy,
    ) -> Findings<'a> {
        let nodes = self.engine.store().nodes();
        self.engine.shared.fallback.decide(mode, hits, nodes, error, of)
    }

    /// Takes of the limits of `wants`, to be settled.
    ///
    /// # Errors
    /// If the store cannot tell, now or before.
    pub(super) async fn acquire(&self, wants: &[Want]) -> Result<(Findings<'a>, Held<S>), AskError> {
        self.require_store()?;
        let (hits, costs) = (self.hits(wants), Costs::of(self));
        if hits.is_empty() {
            return Ok((Findings::new(), Held { permit: None, costs }));
        }
        let of = |hit: usize| self.about(&wants[hit], false);
        let started = self.engine.time().now();
        match self.store().acquire(&hits).await {
            Ok((answer, permit)) => {
                self.engine.note_latency(started);
                let found = findings(&answer, Mode::Take, Basis::Store, &hits, of).collect();
                Ok((found, Held { permit, costs }))
            }
            Err(error) => Err(self.unavailable(&error)),
        }
    }

    /// Does what does not depend on the others, and looks whether there is a quota left.
    ///
    /// # Errors
    /// If the store cannot tell, and is to charge or to give back.
    pub(super) async fn begin(&self) -> Result<SoFar<'a>, AskError> {
        self.begin_as(false).await
    }

    /// [`begin`](Self::begin) for a hold, which never falls back.
    ///
    /// # Errors
    /// If the store is unavailable.
    pub(super) async fn begin_in_store(&self) -> Result<SoFar<'a>, AskError> {
        self.begin_as(true).await
    }

    async fn begin_as(&self, needs_store: bool) -> Result<SoFar<'a>, AskError> {
        let mut so_far = SoFar { has_free_quota: self.notes.has_free_quota, ..SoFar::default() };
        for alike in self.notes.wants.apart.chunk_by(|one, next| one.mode == next.mode) {
            so_far.add(self.decide_as(alike[0].mode, alike, false, needs_store).await?);
        }
        so_far.quotas = self.decide_as(Mode::Peek, &self.notes.wants.quotas, false, needs_store).await?;
        Ok(so_far)
    }

    /// Takes of quotas, adds what limits in shadow say, and counts all of it. Each of those decides for itself: none is enforced,
    /// so none keeps another from counting. They do not see what is refused anyway, unless that counts too.
    pub(super) async fn conclude(&self, mut so_far: SoFar<'a>) -> Result<Ruling<'a>, AskError> {
        if so_far.is_refused() {
            so_far.take_in_quotas();
        } else {
            for want in &self.notes.wants.quotas {
                so_far.add(self.decide(Mode::Take, std::slice::from_ref(want)).await?);
            }
        }
        let mut ruling = so_far.ruling();
        if !self.notes.wants.shadow.is_empty() {
            let is_allowed = ruling.is_allowed();
            let mut all = ruling.into_findings();
            for want in self.notes.wants.shadow.iter().filter(|want| is_allowed || want.mode == Mode::Count) {
                all.extend(self.decide_as(want.mode, std::slice::from_ref(want), true, false).await?);
            }
            ruling = Ruling::new(all, self.notes.has_free_quota);
        }
        if self.notes.unmatched.is_some_and(|no_match| no_match.is_denied) {
            ruling = Ruling::unmatched();
        }
        self.count(&ruling);
        Ok(ruling)
    }
}

/// What was found, before all is done.
#[derive(Default)]
pub(super) struct SoFar<'a> {
    all: Findings<'a>,
    /// What those say of which one is enough, before any was taken.
    quotas: Findings<'a>,
    has_free_quota: bool,
    parts: usize,
}

impl<'a> SoFar<'a> {
    pub(super) fn add(&mut self, found: Findings<'a>) {
        self.parts += usize::from(!found.is_empty());
        if self.all.is_empty() { self.all = found } else { self.all.extend(found) }
    }

    fn is_refused(&self) -> bool {
        is_refused(self.all.iter().chain(&self.quotas), self.has_free_quota)
    }

    /// What to do with those that are to be taken together.
    pub(super) fn mode(&self) -> Mode {
        if self.is_refused() { Mode::Peek } else { Mode::Take }
    }

    fn take_in_quotas(&mut self) {
        let quotas = std::mem::take(&mut self.quotas);
        self.add(quotas);
    }

    fn ruling(mut self) -> Ruling<'a> {
        if self.parts > 1 {
            self.all.sort_by_key(|finding| finding.ask); // which leaves those of one ask as they are
        }
        Ruling::new(self.all, self.has_free_quota)
    }
}
