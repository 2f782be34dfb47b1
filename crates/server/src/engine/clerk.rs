//! Who decides for one connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Decision, Kind, Quota};

use super::Engine;
use super::ask::{Ask, AskError};
use super::case::Case;
use super::loaded::{Loaded, Opened};
use super::notes::Notes;
use super::permits::PermitId;
use super::ruling::{Ruling, count_alone, is_counted};
use super::tally::{CallCounts, CallOutcome};
use crate::access::Caller;

/// How many limits of its caller's own a clerk remembers.
const REMEMBERED: usize = 8;

/// Decides for one connection. It keeps what it needs again: after a few calls, deciding in process allocates nothing.
pub struct Clerk<S: Store> {
    engine: Engine<S>,
    current: Cache<Arc<ArcSwap<Loaded<S>>>, Arc<Loaded<S>>>,
    notes: Notes,
    caller: Caller,
    protocol: &'static str,
    calls: CallCounts,
    /// The caller's own limits, the one opened last in the last place.
    opened: Vec<Arc<Opened<S>>>,
}

impl<S: Store> Clerk<S> {
    pub(super) fn new(engine: &Engine<S>) -> Self {
        let current = Cache::new(Arc::clone(&engine.shared.current));
        let (engine, notes, caller) = (engine.clone(), Notes::default(), Caller::UNKNOWN);
        let (protocol, calls, opened) = ("", CallCounts::default(), Vec::new());
        Self { engine, current, notes, caller, protocol, calls, opened }
    }

    /// The same, with the name of the protocol that its calls come over, for the decision log.
    #[must_use]
    pub fn for_protocol(self, protocol: &'static str) -> Self {
        Self { protocol, ..self }
    }

    /// Returns the calls that it has decided since this was last asked.
    #[inline]
    pub fn take_calls(&mut self) -> CallCounts {
        std::mem::take(&mut self.calls)
    }

    /// Counts and logs a call that is denied although its message was not read.
    pub(crate) fn note_denied(&mut self) {
        self.calls.note(CallOutcome::Denied);
        self.engine.decision_log().denied(self.protocol, None);
    }

    /// Who it works for: what one caller holds, and the limits that it supplies, are bounded.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Works for this caller from now on.
    #[inline]
    pub fn set_caller(&mut self, caller: Caller) {
        self.caller = caller;
    }

    /// Whom it works for.
    pub fn engine(&self) -> &Engine<S> {
        &self.engine
    }

    /// Decides about several asks together, and does with them what `mode` says.
    ///
    /// # Errors
    /// If an ask makes no sense, or the store cannot tell and is to charge or to give back. Where it is to take, count or look,
    /// every limit says what to do then.
    ///
    /// # Cancel safety
    /// What had been taken by then stays taken.
    pub async fn decide<'a>(
        &'a mut self,
        mode: Mode,
        asks: &'a [Ask<'a, S>],
    ) -> Result<Ruling<'a>, AskError> {
        self.decide_by(|_| mode, asks).await
    }

    /// Decides about several asks together, and does with each what its own mode says; those without one are taken. What is to
    /// be taken is taken if nothing of all that is asked refuses.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    ///
    /// # Cancel safety
    /// What had been taken by then stays taken.
    pub async fn decide_each<'a>(
        &'a mut self,
        modes: &[Mode],
        asks: &'a [Ask<'a, S>],
    ) -> Result<Ruling<'a>, AskError> {
        self.decide_by(by_place(modes), asks).await
    }

    /// What [`decide_each`](Self::decide_each) would say, if the store can tell at once: for whoever would otherwise have to keep
    /// all that it takes until it is decided. `None` says nothing and did nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn decide_each_at_once<'a>(
        &'a mut self,
        modes: &[Mode],
        asks: &'a [Ask<'a, S>],
    ) -> Result<Option<Ruling<'a>>, AskError> {
        let Self { engine, current, notes, protocol, calls, .. } = self;
        let is_call = is_call(by_place(modes), asks);
        let case = Case::new(engine, current.load(), notes, by_place(modes), asks)
            .inspect_err(|error| note_error(error, engine, asks, is_call, protocol, calls))?;
        let Some(ruling) = case.decide_at_once() else { return Ok(None) };
        if is_call {
            note(&case, &ruling, protocol, calls);
        }
        Ok(Some(ruling))
    }

    async fn decide_by<'a>(
        &'a mut self,
        mode: impl Fn(usize) -> Mode,
        asks: &'a [Ask<'a, S>],
    ) -> Result<Ruling<'a>, AskError> {
        let Self { engine, current, notes, protocol, calls, .. } = self;
        let is_call = is_call(&mode, asks);
        let case = Case::new(engine, current.load(), notes, mode, asks)
            .inspect_err(|error| note_error(error, engine, asks, is_call, protocol, calls))?;
        let ruling = match case.decide_at_once() {
            Some(ruling) => ruling,
            // Boxed, because all who wait for a decision would carry around what few of them need.
            None => {
                Box::pin(async {
                    let mut so_far = case.begin().await?;
                    let mode = so_far.mode();
                    so_far.add(case.decide(mode, case.enforced()).await?);
                    case.conclude(so_far).await
                })
                .await?
            }
        };
        if is_call {
            note(&case, &ruling, protocol, calls);
        }
        Ok(ruling)
    }

    /// Decides as [`Mode::Take`] does; what was allowed is held for `span`, in which it can be
    /// [settled](Engine::settle) with what it really cost. Limits that count what they refuse, and those of which one is
    /// enough, keep what they have counted.
    ///
    /// # Errors
    /// As [`decide`](Self::decide), if the store cannot tell, or if too much is held already.
    ///
    /// # Cancel safety
    /// What had been taken by then stays taken.
    pub async fn hold<'a>(
        &'a mut self,
        asks: &'a [Ask<'a, S>],
        span: Duration,
    ) -> Result<(Ruling<'a>, Option<PermitId>), AskError> {
        let Self { engine, current, notes, caller, protocol, calls, .. } = self;
        let case = Case::new(engine, current.load(), notes, |_| Mode::Take, asks)
            .inspect_err(|error| note_error(error, engine, asks, true, protocol, calls))?;
        let room = engine.shared.permits.reserve(*caller, case.enforced().len())?;
        let mut so_far = case.begin_in_store().await?;
        let (enforced, held) = match so_far.mode() {
            Mode::Take => {
                let (enforced, held) = case.acquire(case.enforced()).await?;
                (enforced, Some(held))
            }
            mode => (case.decide(mode, case.enforced()).await?, None),
        };
        case.require_store()?;
        so_far.add(enforced);
        let ruling = case.conclude(so_far).await?;
        note(&case, &ruling, protocol, calls);
        let id = held.filter(|_| ruling.is_allowed()).map(|held| room.fill(held, span));
        Ok((ruling, id))
    }

    /// Opens a limit that the caller supplies, which no policy has. Such limits are counted by their family alone, since callers
    /// choose the names.
    pub fn open(&mut self, family: Family, name: &str, kind: Kind, quota: Quota) -> Arc<Opened<S>> {
        let domain = family.domain();
        let is_it = |rule: &Rule| {
            rule.quotas() == [quota] && rule.domain() == domain && rule.name() == name && rule.kind() == kind
        };
        let place = self
            .known(is_it)
            .unwrap_or_else(|| self.open_new(family, Rule::new(domain, name, quota).with_kind(kind)));
        Arc::clone(&self.opened[place])
    }

    /// Opens a counter for a limit that a descriptor supplies, which may be the counter of a limit of the policy. It is measured
    /// with its family.
    pub(crate) fn open_counter(&mut self, family: Family, rule: Rule) -> Arc<Opened<S>> {
        let place = self.known(|known| *known == rule).unwrap_or_else(|| self.open_as(family, rule));
        Arc::clone(&self.opened[place])
    }

    /// [`open`](Self::open) of a token bucket.
    pub fn open_own(&mut self, own: Own) -> Arc<Opened<S>> {
        let place = self.own(own);
        Arc::clone(&self.opened[place])
    }

    /// Decides about a key of a limit that the caller supplies.
    ///
    /// # Errors
    /// If the store does not open the limit, because the caller supplies too many of them.
    ///
    /// # Cancel safety
    /// What had been taken by then stays taken.
    #[inline]
    pub async fn decide_own(
        &mut self,
        mode: Mode,
        own: Own,
        key: &[u8],
        cost: u64,
    ) -> Result<Decision, AskError> {
        if let Some(decision) = self.decide_own_now(mode, own, key, cost) {
            return Ok(decision);
        }
        let opened = self.open_own(own);
        let asks = [Ask::limit(&opened, key).costing(cost)];
        Ok(Box::pin(self.decide(mode, &asks)).await?.findings()[0].decision)
    }

    /// What [`decide_own`](Self::decide_own) would answer, if the store can tell at once. `None` says nothing and did nothing.
    #[inline]
    pub fn decide_own_now(&mut self, mode: Mode, own: Own, key: &[u8], cost: u64) -> Option<Decision> {
        let place = self.own(own);
        let opened = &self.opened[place];
        let hit = Hit { limit: opened.limit(), key, cost };
        let decision = self.engine.store().decide_one_now(mode, hit)?;
        if is_counted(mode) {
            count_alone(opened.told(), cost, &decision);
            self.calls.note(CallOutcome::of(decision.is_admitted(), false));
            self.engine.decision_log().alone(self.protocol, opened.told(), key, cost, &decision);
        }
        Some(decision)
    }

    /// Where a limit of the caller's own is.
    #[inline]
    fn own(&mut self, own: Own) -> usize {
        let is_it = |rule: &Rule| rule.quotas() == [own.quota] && own.is_kin_of(rule);
        self.known(is_it).unwrap_or_else(|| self.open_new(own.family, own.rule()))
    }

    /// Tells that [`decide_own`](Self::decide_own) will be asked about a key soon, so that the store may have what it takes by
    /// then. Changes nothing.
    #[inline]
    pub fn prepare_own(&self, own: Own, key: &[u8]) {
        // All floating ones of a family share the states of their keys, whatever their quotas.
        let is_it = |rule: &Rule| own.is_kin_of(rule) && (own.is_floating || rule.quotas() == [own.quota]);
        if let Some(place) = self.known(is_it) {
            self.engine.store().prepare(&Hit::new(self.opened[place].limit(), key));
        }
    }

    /// Where such a limit is among those that were opened.
    #[inline]
    fn known(&self, is_it: impl Fn(&Rule) -> bool) -> Option<usize> {
        // One that was refused is opened anew: there may be room for it by now.
        self.opened.iter().rposition(|opened| is_it(&opened.told().rule) && opened.refusal.is_none())
    }

    #[cold]
    fn open_new(&mut self, family: Family, rule: Rule) -> usize {
        self.open_as(family, rule.brought_by(self.caller.number()))
    }

    #[cold]
    fn open_as(&mut self, family: Family, rule: Rule) -> usize {
        let tally = self.engine.tally(family.domain(), "");
        let opened = Opened::supplied(self.engine.store(), rule, tally);
        if self.opened.len() == REMEMBERED {
            self.opened.remove(0);
        }
        self.opened.push(Arc::new(opened));
        self.opened.len() - 1
    }
}

/// Which protocol or command a limit is supplied by. It is the domain of the limit, and begins with `@`: no policy can have a
/// domain that does, so a limit that a caller supplies never shares a state with one of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family(&'static str);

impl Family {
    /// The family with this domain.
    ///
    /// # Panics
    /// If the domain does not begin with `@`; in a constant, that is an error of the compiler.
    ///
    /// # Examples
    /// ```
    /// use tollgate_server::Family;
    ///
    /// const UPLOADS: Family = Family::new("@uploads");
    /// assert_eq!(UPLOADS.domain(), "@uploads");
    /// ```
    pub const fn new(domain: &'static str) -> Self {
        assert!(matches!(domain.as_bytes(), [b'@', ..]), "the domain of supplied limits begins with @");
        Self(domain)
    }

    /// The domain of its limits.
    pub const fn domain(self) -> &'static str {
        self.0
    }
}

/// A token bucket that a caller supplies, which no policy has. One with a fixed quota is called by that, such as `10/s`; one
/// without by the domain of its family.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::store::{MemoryStore, Mode};
/// use tollgate_policy::Policy;
/// use tollgate_server::{Engine, Family, Origin, Own};
///
/// let policy = Policy::parse("limits.toml", "[limit.all]\nrate = \"1/s\"\n")?;
/// let mut clerk = Engine::new(MemoryStore::new(), policy, Origin::default()).clerk();
/// let twice = Own::fixed(Family::new("@mine"), Quota::per_hour(2));
/// for expected in [true, true, false] {
///     let decision = clerk.decide_own_now(Mode::Take, twice, b"ann", 1).expect("memory can tell at once");
///     assert_eq!(decision.is_admitted(), expected);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Own {
    family: Family,
    quota: Quota,
    is_floating: bool,
}

impl Own {
    /// A key has a state for each quota.
    pub const fn fixed(family: Family, quota: Quota) -> Self {
        Self { family, quota, is_floating: false }
    }

    /// A key has one state for all quotas, which may be [another](Rule::floating) for every call.
    pub const fn floating(family: Family, quota: Quota) -> Self {
        Self { family, quota, is_floating: true }
    }

    fn rule(self) -> Rule {
        let Self { family, quota, is_floating } = self;
        let domain = family.domain();
        if is_floating {
            Rule::floating(domain, domain, quota)
        } else {
            Rule::new(domain, quota.to_string(), quota)
        }
    }

    /// Whether a rule is one of this family, with whichever quota.
    #[inline]
    fn is_kin_of(&self, rule: &Rule) -> bool {
        rule.is_floating() == self.is_floating && rule.domain() == self.family.domain()
    }
}

/// Counts a call for its protocol, and logs it if that is wanted.
#[inline]
fn note<S: Store>(case: &Case<'_, S>, ruling: &Ruling<'_>, protocol: &str, calls: &mut CallCounts) {
    calls.note(CallOutcome::of(ruling.is_allowed(), ruling.is_degraded()));
    let key_of = || ruling.decided_by().and_then(|finding| case.key_of(finding));
    case.engine().decision_log().ruling(protocol, case.domain(), ruling, key_of);
}

/// Counts and logs a call that is denied because a limit cannot use one of its values.
#[cold]
fn note_error<S: Store>(
    error: &AskError,
    engine: &Engine<S>,
    asks: &[Ask<'_, S>],
    is_call: bool,
    protocol: &str,
    calls: &mut CallCounts,
) {
    if is_call && matches!(error, AskError::BadValue { .. }) {
        calls.note(CallOutcome::Denied);
        let domain = asks.first().and_then(|ask| ask.subject.domain());
        engine.decision_log().denied(protocol, domain);
    }
}

/// Whether something is asked for, and not only looked at, charged or given back.
#[inline]
fn is_call<S: Store>(mode: impl Fn(usize) -> Mode, asks: &[Ask<'_, S>]) -> bool {
    (0..asks.len()).any(|ask| is_counted(mode(ask)))
}

/// The mode of each ask.
fn by_place(modes: &[Mode]) -> impl Fn(usize) -> Mode {
    |ask| modes.get(ask).copied().unwrap_or(Mode::Take)
}

impl<S: Store> fmt::Debug for Clerk<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clerk").field("engine", &self.engine).finish_non_exhaustive()
    }
}
