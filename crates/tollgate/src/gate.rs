//! Several limits that admit together or not at all.

mod compose;
mod limits;
mod line;
mod member;
mod one_of;
mod permit;
mod tally;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Decision, Tick};

use crate::clock::{Clock, MonotonicClock};
use crate::name::Which;
use crate::sync::give_way;
use crate::timer::ThreadTimer;
pub(crate) use compose::pass_on;
use line::{Line, LineHandle};
use member::Repeated;
pub(crate) use member::{AnyClock, Call, Id, Part, Reading, Settling, Share};
pub(crate) use one_of::OneOf;
pub(crate) use tally::{Tally, postponed, would_refuse};

pub use compose::{And, Costing};
pub use member::Member;
pub use permit::{OnDrop, Permit};
pub use tally::{GateDecision, GateRefused};
pub use wait::GateWait;

/// Several limits that admit together or not at all.
///
/// A call takes its cost of every limit, or nothing of any: no other caller, of this gate, of another one, or of one of
/// the limits alone, ever sees a part of it. A refused call writes nothing.
///
/// `n` (one, for the verbs without it) is taken of every limit, except of those with a fixed cost
/// ([`Limiter::costing`](crate::Limiter::costing)). A limit that occurs twice is taken twice. All that limits can do alone goes
/// on: they may be in any number of gates, and used directly, too.
///
/// Most callers want [`allow`](Self::allow) or [`check`](Self::check); [`acquire`](Self::acquire) where something is held (a
/// [`ConcurrencyLimit`](crate::ConcurrencyLimit)) or the cost is known only afterwards; [`wait`](Self::wait) to slow down. Limits
/// may have different clocks; limits with one clock cost one reading.
///
/// A leaky bucket used as a queue decides in a gate as a meter does: it delays nobody unless asked to
/// [`reserve_n`](Self::reserve_n) or [`wait`](Self::wait).
///
/// # Examples
/// Tiers of one thing:
/// ```
/// use tollgate::{Gate, Limiter, Quota};
///
/// let tiers = [Quota::per_second(2), Quota::per_minute(10), Quota::per_day(1_000)];
/// let gate = Gate::new(tiers.map(Limiter::new));
/// assert!(gate.allow() && gate.allow());
/// assert_eq!(gate.check().decided_by().name(), "limit 1");
/// ```
/// Resources, each with its own cost:
/// ```
/// use tollgate::{ConcurrencyLimit, GateRefused, Limiter, Quota};
///
/// let requests = Limiter::builder(Quota::per_minute(60)).name("requests").build();
/// let tokens = Limiter::builder(Quota::per_minute(90_000)).name("tokens").build();
/// let at_once = ConcurrencyLimit::named("at once", 8);
///
/// let gate = requests.costing(1).and(at_once.costing(1)).and(&tokens);
/// let permit = gate.acquire_n(2_000)?; // an estimate
/// // ... the answer used 1 234 of them:
/// permit.settle(1_234);
/// assert_eq!((requests.remaining(), tokens.remaining(), at_once.in_use()), (59, 90_000 - 1_234, 0));
/// # Ok::<(), GateRefused>(())
/// ```
pub struct Gate<M> {
    members: M,
    line: LineHandle,
    on_drop: OnDrop,
}

impl<M: Member> Gate<M> {
    /// A gate of one member, or of an array or a vector of them.
    #[inline]
    pub fn new(members: M) -> Self {
        Self { members, line: LineHandle::default(), on_drop: OnDrop::Keep }
    }

    /// This gate and another limit. Those who wait at the new gate do not line up with those who wait at this one.
    #[inline]
    pub fn and<N: Member>(self, other: N) -> Gate<And<M, N>> {
        Gate { members: And::new(self.members, other), line: LineHandle::default(), on_drop: self.on_drop }
    }

    /// What becomes of a [`Permit`] that is dropped.
    #[inline]
    #[must_use]
    pub fn on_drop(self, on_drop: OnDrop) -> Self {
        Self { on_drop, ..self }
    }

    /// Whether one may happen now. Nothing is held: a slot of a [`ConcurrencyLimit`](crate::ConcurrencyLimit) must be free, and stays
    /// so. To hold it, [`acquire`](Self::acquire).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow(&self) -> bool {
        self.check().is_allowed()
    }

    /// Whether `n` may happen now, all of them or none.
    #[inline]
    #[must_use = "what is not allowed should not be done"]
    pub fn allow_n(&self, n: u64) -> bool {
        self.check_the_long_way(self.call(n)).is_allowed()
    }

    /// Whether one may happen now, and everything a caller may want to know with that. Nothing is held, as by
    /// [`allow`](Self::allow).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub fn check(&self) -> GateDecision {
        let call = self.call(1);
        match self.quick_check(&call) {
            Some(decision) => decision,
            None => self.check_the_long_way(call),
        }
    }

    /// [`check`](Self::check) for `n`, all of them or none.
    #[inline]
    pub fn check_n(&self, n: u64) -> GateDecision {
        let call = self.call(n);
        match self.quick_check(&call) {
            Some(decision) => decision,
            None => self.check_the_long_way(call),
        }
    }

    /// [`acquire_n`](Self::acquire_n), and what each of the limits says, whether it was the one to decide or not. A limit that
    /// occurs several times is noted once. What admits tells what is left after this call, if the call is admitted.
    ///
    /// # Errors
    /// The refusal.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{GateRefused, Limiter, Quota};
    ///
    /// let second = Limiter::builder(Quota::per_second(5)).name("second").build();
    /// let hour = Limiter::builder(Quota::per_hour(100)).name("hour").build();
    /// let mut each = Vec::new();
    /// second.and(&hour).acquire_noting(1, &mut each)?;
    /// let left: Vec<_> = each.iter().map(|(which, decision)| (which.name(), decision.remaining())).collect();
    /// assert_eq!(left, [("second", 4), ("hour", 99)]);
    /// # Ok::<(), GateRefused>(())
    /// ```
    pub fn acquire_noting(
        &self,
        n: u64,
        each: &mut Vec<(Which, Decision)>,
    ) -> Result<Permit<M>, GateRefused> {
        let call = self.call(n);
        // Where nothing is taken, nobody would notice that a limit occurs twice.
        let is_repeated = Repeated::is_any(&self.members);
        let taken = if is_repeated { None } else { self.try_to_take(&call, Tally::noting(each)) };
        let (decision, receipt) = taken.unwrap_or_else(|| self.take_again(call, Some(each)));
        receipt
            .map(|receipt| self.permit(decision, receipt, self.time_of(&call)))
            .ok_or(GateRefused(decision))
    }

    /// [`check_n`](Self::check_n), and what each of the limits says, which must be keys that nobody watches, no two of them the same: see
    /// [`acquire_noting`](Self::acquire_noting).
    pub(crate) fn check_noting(&self, n: u64, each: &mut Vec<(Which, Decision)>) {
        let call = self.call(n);
        let taken = self.try_to_take(&call, Tally::noting(each));
        if taken.is_none() {
            let _ = self.take_again(call, Some(each)); // what it says is noted
        }
    }

    /// What [`check`](Self::check) would answer, taking nothing.
    pub fn peek(&self) -> GateDecision {
        self.peek_n(1)
    }

    /// What [`check_n`](Self::check_n) would answer, taking nothing.
    pub fn peek_n(&self, n: u64) -> GateDecision {
        self.peek_within(n, Duration::ZERO)
    }

    /// What [`reserve_within`](Self::reserve_within) would answer, taking nothing.
    pub fn peek_within(&self, n: u64, longest_wait: Duration) -> GateDecision {
        let repeated = Repeated::of(&self.members);
        let is_promise = longest_wait > Duration::ZERO;
        let call = Call { repeated: repeated.as_ref(), is_promise, ..self.call(n) };
        match self.first_moment(call, longest_wait) {
            Ok((decision, ..)) | Err(GateRefused(decision)) => decision,
        }
    }

    /// Takes one now, to be settled, released or cancelled later.
    ///
    /// # Errors
    /// The refusal.
    pub fn acquire(&self) -> Result<Permit<M>, GateRefused> {
        self.acquire_n(1)
    }

    /// Takes `n` now, to be settled, released or cancelled later.
    ///
    /// # Errors
    /// The refusal.
    pub fn acquire_n(&self, n: u64) -> Result<Permit<M>, GateRefused> {
        self.acquire_by(self.call(n))
    }

    /// Takes one, now or for the first moment all limits can give it: [`reserve_n`](Self::reserve_n) of one.
    ///
    /// # Errors
    /// The refusal, if it can never be had.
    pub fn reserve(&self) -> Result<Permit<M>, GateRefused> {
        self.reserve_n(1)
    }

    /// Takes `n`, now or for the first moment all limits can give them; act at [`Permit::act_time`], not before.
    ///
    /// Each limit is taken as of that moment, so that all of them keep their bounds. For a limit that could have given
    /// earlier this means that what it would have given until then is spoken for: others wait until that moment, too. Where
    /// that is too much, [`wait`](Self::wait). Slots of a concurrency limit are taken at once, and held until the permit ends; if
    /// there are none, nobody knows when there will be, and nothing can be promised.
    ///
    /// A reservation does not queue: it is made ahead of those who wait.
    ///
    /// # Errors
    /// The refusal, if they can never be had.
    pub fn reserve_n(&self, n: u64) -> Result<Permit<M>, GateRefused> {
        self.reserve_within(n, Duration::MAX)
    }

    /// Takes `n` if all limits can give them within `longest_wait`.
    ///
    /// # Errors
    /// The refusal; its `retry_after` says when the same question will be answered better.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{GateRefused, Limiter, ManualClock, Quota};
    ///
    /// let clock = ManualClock::new();
    /// let [second, minute] = [Quota::per_second(1), Quota::per_minute(2)]
    ///     .map(|quota| Limiter::builder(quota).clock(clock.clone()).build());
    /// let gate = second.and(&minute);
    /// assert_eq!(gate.reserve()?.delay(), Duration::ZERO);
    /// assert_eq!(gate.reserve()?.delay(), Duration::from_secs(1));
    /// let refused = gate.reserve_within(1, Duration::from_secs(10)).unwrap_err();
    /// assert_eq!(refused.0.retry_after(), Some(Duration::from_secs(20))); // 30 seconds less 10
    /// # Ok::<(), GateRefused>(())
    /// ```
    pub fn reserve_within(&self, n: u64, longest_wait: Duration) -> Result<Permit<M>, GateRefused> {
        let repeated = Repeated::of(&self.members);
        for times in 0.. {
            let is_promise = longest_wait > Duration::ZERO;
            let call = Call { repeated: repeated.as_ref(), is_promise, ..self.call(n) };
            let (decision, plan, delay) = self
                .first_moment(call, longest_wait)
                .inspect_err(|_| self.count_refusal(&call, longest_wait))?;
            if self.members.hold(&plan) {
                let receipt = self.members.commit(plan);
                self.members.promised();
                return Ok(self.permit(decision, receipt, self.time_of(&call) + delay));
            }
            give_way(times);
        }
        unreachable!("it is tried for as long as it takes")
    }

    /// Waits for one.
    ///
    /// First come, first served among those who wait at this gate and its clones. A gate that is composed for each call,
    /// as in `api.and(&disk).wait()`, has a line of its own: keep one and share it where the order matters. Nobody who
    /// waits has been promised anything, so those who do not wait may be served in between. Whoever is in line without a deadline
    /// stays while a rate is zero.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota};
    ///
    /// let second = Limiter::new(Quota::per_second(1_000).burst(1));
    /// let minute = Limiter::new(Quota::per_minute(100));
    /// let gate = second.and(&minute);
    /// gate.wait().block()?.release();
    /// gate.wait().within(Duration::from_secs(1)).block()?.release(); // a millisecond later
    /// # Ok::<(), tollgate::WaitError>(())
    /// ```
    pub fn wait(&self) -> GateWait<'_, M> {
        self.wait_n(1)
    }

    /// Waits for `n`, all of them together. Whoever waits behind at this gate is not let past.
    pub fn wait_n(&self, n: u64) -> GateWait<'_, M> {
        GateWait::new(self, n)
    }

    /// How many wait at this gate.
    pub fn waiting(&self) -> usize {
        self.line.get().map_or(0, |line| line.len())
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn call(&self, n: u64) -> Call<'_> {
        let reading = self.members.reading();
        let (share, delay) = (Share::WHOLE, Duration::ZERO);
        Call { reading, n, share, delay, is_promise: false, waits: false, repeated: None }
    }

    /// The time of a call, by the first clock there is.
    fn time_of(&self, call: &Call<'_>) -> Tick {
        call.reading.map_or_else(|| self.now(), |reading| reading.now())
    }

    /// Those who wait at this gate and its clones.
    fn line(&self) -> &Arc<Line> {
        self.line.get_or_make(|| line_by(&self.members))
    }

    /// The time, by the first clock there is.
    fn now(&self) -> Tick {
        time_by(&self.members)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_check(&self, call: &Call<'_>) -> Option<GateDecision> {
        let mut tally = Tally::default();
        let quick = self.members.quick(call, 0, &mut tally)?;
        if !tally.admits() {
            return (!Repeated::is_any(&self.members)).then(|| tally.decision());
        }
        self.members.quick_take(&quick).then(|| tally.admission())
    }

    #[inline(never)]
    fn check_the_long_way(&self, call: Call<'_>) -> GateDecision {
        let (decision, receipt) = self.take(call);
        match receipt {
            // A permit ends even if whoever is told of it panics.
            Some(receipt) if self.members.is_watched() => {
                Permit::new(&self.members, decision, receipt, Tick::ZERO, OnDrop::Keep).release();
            }
            Some(receipt) => self.members.settle(receipt, &mut Settling::Used),
            None => {}
        }
        decision
    }

    /// [`acquire_n`](Self::acquire_n) for whoever goes on waiting if it is refused.
    fn acquire_waiting(&self, n: u64) -> Result<Permit<M>, GateRefused> {
        self.acquire_by(Call { waits: true, ..self.call(n) })
    }

    /// Counts a refusal for those who would not have admitted it by themselves within `patience`.
    fn count_refusal(&self, call: &Call<'_>, patience: Duration) {
        let plan = self.members.prepare(call, 0, &mut Tally::default());
        self.members.refused(&plan, patience);
    }

    /// The same, of somebody who waited for `n`.
    fn count_turned_away(&self, n: u64, patience: Duration) {
        let repeated = Repeated::of(&self.members);
        self.count_refusal(&Call { repeated: repeated.as_ref(), ..self.call(n) }, patience);
    }

    fn acquire_by(&self, call: Call<'_>) -> Result<Permit<M>, GateRefused> {
        match self.take(call) {
            (decision, Some(receipt)) => Ok(self.permit(decision, receipt, self.time_of(&call))),
            (decision, None) => Err(GateRefused(decision)),
        }
    }

    /// Decides, and takes if admitted.
    #[inline]
    fn take(&self, call: Call<'_>) -> (GateDecision, Option<M::Receipt>) {
        match self.try_to_take(&call, Tally::default()) {
            Some(taken) => taken,
            None => self.take_again(call, None),
        }
    }

    /// Decides, and takes if admitted; `None` if somebody came in between, or if it is refused and a limit was only asked for
    /// a part of what is taken of it.
    #[inline]
    fn try_to_take(
        &self,
        call: &Call<'_>,
        mut tally: Tally<'_>,
    ) -> Option<(GateDecision, Option<M::Receipt>)> {
        let plan = self.members.prepare(call, 0, &mut tally);
        if !tally.admits() {
            let is_whole = call.repeated.is_some() || !Repeated::is_any(&self.members);
            if is_whole && !call.waits {
                self.members.refused(&plan, Duration::ZERO);
            }
            return is_whole.then(|| (tally.decision(), None));
        }
        self.members.hold(&plan).then(|| (tally.decision(), Some(self.members.commit(plan))))
    }

    /// Somebody came in between, or a limit occurs twice.
    #[cold]
    fn take_again(
        &self,
        call: Call<'_>,
        mut each: Option<&mut Vec<(Which, Decision)>>,
    ) -> (GateDecision, Option<M::Receipt>) {
        let repeated = Repeated::of(&self.members);
        let call = Call { repeated: repeated.as_ref(), ..call };
        for times in 0.. {
            give_way(times);
            let tally = each.as_deref_mut().map_or_else(Tally::default, Tally::noting);
            if let Some(taken) = self.try_to_take(&call, tally) {
                return taken;
            }
        }
        unreachable!("it is tried for as long as it takes")
    }

    /// The first moment at which all limits admit, if that is soon enough: the decision, what to hold, and the delay.
    ///
    /// Each limit that refuses says when it would admit; the latest of those is the next moment to try. With limits that
    /// once they admit go on to do so, that is at most one round for each; others (paced windows) may need more, and get so many.
    /// The moment grows with each round; if that is not enough, the refusal tells how far it got.
    fn first_moment(
        &self,
        mut call: Call<'_>,
        longest_wait: Duration,
    ) -> Result<(GateDecision, M::Plan, Duration), GateRefused> {
        let mut refusal: Option<(GateDecision, Duration)> = None;
        for _ in 0..self.members.len() + MORE_ROUNDS {
            let mut tally = Tally::default();
            let plan = self.members.prepare(&call, 0, &mut tally);
            let decision = tally.decision();
            if tally.admits() {
                if call.delay <= longest_wait {
                    return Ok((decision, plan, call.delay));
                }
                break;
            }
            match decision.retry_after() {
                // Too late anyway, and whoever refused until then knows for how long.
                Some(Duration::ZERO) if call.delay > longest_wait => break,
                None | Some(Duration::ZERO) => return Err(GateRefused(decision)),
                // It had its own wait already, and is still not mended by it: time as such does not help.
                Some(_)
                    if refusal.is_some_and(|(before, _)| before.decided_by() == decision.decided_by()) =>
                {
                    return Err(GateRefused(refusal.expect("just seen").0));
                }
                // Nobody waits: the first answer is that of a check.
                Some(_) if longest_wait.is_zero() => return Err(GateRefused(decision)),
                Some(wait) => {
                    refusal = Some((decision, call.delay));
                    call.delay = call.delay.saturating_add(wait);
                }
            }
        }
        let (refusal, delay) = refusal.expect("one round refused");
        let missing = call.delay.saturating_sub(longest_wait);
        // After so many rounds without an answer: who comes back then knows more.
        let missing = if missing.is_zero() { call.delay } else { missing };
        Err(GateRefused(refusal.refused_for(missing, delay)))
    }

    /// When `n` could be had after all of `ahead`, in this order, if nobody else comes; not later than that if it takes too
    /// many rounds to say. `None` if never.
    fn foreseen(&self, ahead: &[u64], n: u64) -> Option<Duration> {
        let (mut sketch, mut delay) = (self.members.sketch(), Duration::ZERO);
        let repeated = Repeated::of(&self.members);
        for n in ahead.iter().copied().chain([n]) {
            let mut call = Call { delay, repeated: repeated.as_ref(), ..self.call(n) };
            for _ in 0..self.members.len() + MORE_ROUNDS_IN_LINE {
                let mut tally = Tally::default();
                self.members.foresee(&mut sketch, &call, 0, false, &mut tally);
                match tally.decision().retry_after()? {
                    Duration::ZERO => break,
                    wait => call.delay = call.delay.saturating_add(wait),
                }
            }
            self.members.foresee(&mut sketch, &call, 0, true, &mut Tally::default());
            delay = call.delay;
        }
        Some(delay)
    }

    /// What asking for `n` takes of one of the limits, wherever it occurs.
    fn cost_for(&self, which: Which, n: u64) -> u64 {
        let mut costs = Vec::new();
        self.members.visit(Share::WHOLE, &mut |id, share| costs.push((id, share.of(n))));
        let id = costs.get(which.position()).map(|(id, _)| *id);
        let of_it = costs.iter().filter(|(other, _)| Some(*other) == id);
        of_it.fold(0, |sum, (_, cost)| sum.saturating_add(*cost))
    }

    fn permit(&self, decision: GateDecision, receipt: M::Receipt, act: Tick) -> Permit<M> {
        Permit::new(self.members.clone(), decision, receipt, act, self.on_drop)
    }
}

/// How many rounds more than there are limits it may take to find a moment at which all admit.
const MORE_ROUNDS: usize = 256;
/// The same for each of those in line, of whom there may be many.
const MORE_ROUNDS_IN_LINE: usize = 8;

/// The time, by the first clock there is; by the system's if there is none.
fn time_by<M: Part>(members: &M) -> Tick {
    members.reading().map_or_else(|| MonotonicClock::new().now(), |reading| reading.now())
}

/// A line by the first clock there is, and the first timer; by the system's if there is none.
fn line_by<M: Part>(members: &M) -> Line {
    let clock = members.clock().unwrap_or_else(|| Box::new(MonotonicClock::new()));
    Line::new(clock, members.timer().unwrap_or_else(ThreadTimer::shared))
}

impl<M: Part> Clone for Gate<M> {
    /// Another handle on the same limits. Those who wait at it line up with those who wait at this one.
    fn clone(&self) -> Self {
        Self { members: self.members.clone(), line: LineHandle::on(self.line()), on_drop: self.on_drop }
    }
}

impl<M: Member> fmt::Debug for Gate<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limits, waiting) = (self.members.len(), self.waiting());
        f.debug_struct("Gate").field("limits", &limits).field("waiting", &waiting).finish_non_exhaustive()
    }
}
