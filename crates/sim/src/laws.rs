//! The laws, each as a check that any algorithm can be put to; the last one is for several together.
//!
//! | law | check |
//! | --- | --- |
//! | 1 same inputs, same output | [`walk`] |
//! | 2 a refusal writes nothing | [`walk`] |
//! | 3 the default state is fresh, and an idle one decides like it | [`walk`] |
//! | 4 what is admitted stays within the bound | [`walk`] |
//! | 5 `retry_after` is true to the nanosecond | [`walk`] |
//! | 6 a clock that steps back never admits more | [`walk`] |
//! | 7 giving back creates nothing that time has restored | [`give_back`] |
//! | 8 no input overflows, panics or drifts | [`extremes`], [`no_drift`] |
//! | 9 several limits together admit all or nothing | [`all_or_nothing`] |

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{Algorithm, Ask, Kind, Quota, Step, Tick};

use crate::Outcome;
use crate::bound::Bound;
use crate::conformance::{self, operation};
use crate::draw::{self, Caller};
use crate::oracle::{self, HORIZON_NS, Rate};
use crate::subject::{Held, Subject};

/// A law that was broken, and how to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub law: u8,
    /// The seed of the sequence.
    pub seed: u64,
    /// The step of the sequence, from zero.
    pub step: u32,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { law, seed, step, what } = self;
        write!(f, "law {law} is broken with seed {seed} at step {step}: {what}")
    }
}

impl std::error::Error for Broken {}

/// Puts one random walk of forty questions to laws 1 to 6.
///
/// # Errors
/// The first law that was broken.
///
/// # Examples
/// ```
/// use tollgate_core::{Kind, SlidingCounter};
/// use tollgate_sim::laws;
///
/// assert_eq!(laws::walk(Kind::SlidingCounter, SlidingCounter::new, 3), Ok(()));
/// ```
pub fn walk<A: Algorithm>(kind: Kind, make: impl FnOnce(Quota) -> A, seed: u64) -> Result<(), Broken> {
    let mut rng = Rng::with_seed(seed);
    let quota = draw::quota(&mut rng);
    let (algorithm, mut state) = (make(quota), A::State::default());
    let mut caller = Caller::new(rng, quota);
    let (tolerance_ns, mut operations) = (oracle::tolerance_ns(kind, quota), Vec::new());
    let mut latest = Tick::ZERO;
    for step in 0..40 {
        let (now, ask) = caller.ask();
        latest = latest.max(now);
        let broken = |(law, what)| Broken {
            law,
            seed,
            step,
            what: format!("{kind} {quota}, {ask:?} at {now}: {what}"),
        };
        let moment = Moment { algorithm: &algorithm, state: &state, now, ask };
        moment.check(kind, latest).map_err(broken)?;
        let answer = algorithm.step(&mut state, now, ask).into();
        operations.extend(operation(kind, tolerance_ns, now, ask.cost(), answer));
        Bound::of(kind, quota).check(&operations).map_err(|violation| broken((4, violation.to_string())))?;
        caller.hear(answer, ask);
    }
    Ok(())
}

/// Puts one random sequence of `steps` claims and returns to law 7, and to law 3: forgetting what is idle changes nothing.
///
/// # Errors
/// The span in which more was kept than the bound allows.
pub fn give_back<A: Algorithm>(
    kind: Kind,
    make: impl FnOnce(Quota) -> A,
    seed: u64,
    steps: u32,
) -> Result<(), Broken> {
    let mut rng = Rng::with_seed(seed);
    let quota = conformance::small_quota(&mut rng);
    let held = Held::new(make(quota));
    let broken =
        |law, violation| Broken { law, seed, step: steps, what: format!("{kind} {quota}: {violation}") };
    let plain = conformance::returns(kind, quota, &mut held.clone(), rng.clone(), steps);
    plain.map_err(|violation| broken(7, violation))?;
    let forgetful = conformance::returns(kind, quota, &mut Forgetful(held), rng, steps);
    forgetful.map_err(|violation| broken(3, violation))
}

/// Forgets its state whenever that is idle, as a store does.
struct Forgetful<A: Algorithm>(Held<A>);

impl<A: Algorithm> Subject for Forgetful<A> {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.0.forget_if_idle(now);
        self.0.decide(now, ask)
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.0.peek(now, ask)
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        self.0.forget_if_idle(now);
        self.0.give_back(now, admission, amount);
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.0.charge(now, extra);
    }

    fn set_quota(&mut self, now: Tick, quota: Quota) {
        self.0.set_quota(now, quota);
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Puts one sequence of absurd quotas, moments, costs and waits to law 8: nothing panics, and no more than the limit is
/// admitted at once.
///
/// # Errors
/// What panicked, or admitted too much.
pub fn extremes<A: Algorithm>(kind: Kind, make: impl Fn(Quota) -> A, seed: u64) -> Result<(), Broken> {
    let mut rng = Rng::with_seed(seed);
    let quota = absurd_quota(&mut rng);
    let mut subject = Held::new(make(quota));
    for step in 0..24 {
        let before = format!("{subject:?}");
        let mut again = rng.clone();
        let done = catch_unwind(AssertUnwindSafe(|| absurd_step(&mut subject, &mut again)));
        rng = again;
        let broken = |what| Broken { law: 8, seed, step, what: format!("{kind} {quota}, {before}: {what}") };
        match done {
            Err(_) => return Err(broken("panicked".to_string())),
            Ok(Err(what)) => return Err(broken(what)),
            Ok(Ok(())) => {}
        }
    }
    Ok(())
}

/// Puts one random sequence to law 9: `together` takes so many of each of the `members`, or of none, and says whether it did. It
/// must do so if each by itself would admit it, and only then; and after a refusal each answers as before.
///
/// # Errors
/// The first call that took of some, or was refused though all had it.
///
/// # Examples
/// ```
/// use tollgate_core::{Ask, Quota, TokenBucket};
/// use tollgate_sim::laws;
/// use tollgate_sim::subject::{Held, Subject};
///
/// let mut each = [5, 3].map(|burst| Held::new(TokenBucket::new(Quota::per_second(1).burst(burst))));
/// let careful = |each: &mut [Held<TokenBucket>; 2], now, cost| {
///     let ask = Ask::now(cost);
///     let all = each.iter_mut().all(|one| one.peek(now, ask).is_admitted());
///     all && each.iter_mut().all(|one| one.decide(now, ask).is_admitted())
/// };
/// assert_eq!(laws::all_or_nothing(&mut each, careful, 7), Ok(()));
///
/// let hasty = |each: &mut [Held<TokenBucket>; 2], now, cost| {
///     each.iter_mut().all(|one| one.decide(now, Ask::now(cost)).is_admitted()) // the second may refuse what the first took
/// };
/// assert_eq!(laws::all_or_nothing(&mut each, hasty, 7).unwrap_err().law, 9);
/// ```
pub fn all_or_nothing<S: Subject, const N: usize>(
    members: &mut [S; N],
    mut together: impl FnMut(&mut [S; N], Tick, u64) -> bool,
    seed: u64,
) -> Result<(), Broken> {
    let mut rng = Rng::with_seed(seed);
    let mut now = Tick::ZERO;
    for step in 0..200 {
        now = now.plus_nanos(rng.u64(..700_000_000));
        let cost = rng.u64(1..5);
        let looks = |members: &mut [S; N]| {
            let asks = [Ask::now(cost), Ask::now(1), Ask::whenever(1)];
            members.iter_mut().map(|member| asks.map(|ask| member.peek(now, ask))).collect::<Vec<_>>()
        };
        let before = looks(members);
        let all = before.iter().all(|[answer, ..]| answer.is_admitted());
        let taken = together(members, now, cost);
        let broken = |what: String| Err(Broken { law: 9, seed, step, what });
        if taken != all {
            return broken(format!("{cost} at {now}: taken {taken}, where each says {before:?}"));
        }
        let after = looks(members);
        if !taken && before != after {
            return broken(format!("{cost} at {now} were refused, and {before:?} became {after:?}"));
        }
    }
    Ok(())
}

/// Takes everything that is due at each of many moments, and nothing more, up to `admissions` in all or the end of time, and
/// answers how much was admitted. Admissions must equal `burst + floor(rate · t)` (law 8): exactly at round rates, and at
/// others to within one, never above.
///
/// # Errors
/// The first moment at which what is due is refused, or more than is due admitted.
///
/// # Panics
/// If the burst is below two: there would be no room to fall behind in.
///
/// # Examples
/// ```
/// use tollgate_core::{Quota, TokenBucket};
/// use tollgate_sim::{laws, subject::Held};
///
/// let quota = Quota::per_second(3).burst(1_000);
/// assert!(laws::no_drift(&mut Held::new(TokenBucket::new(quota)), quota, 1_000_000, 7).unwrap() >= 1_000_000);
/// ```
pub fn no_drift(
    subject: &mut dyn Subject,
    quota: Quota,
    admissions: u128,
    seed: u64,
) -> Result<u128, Broken> {
    assert!(quota.burst_size() >= 2, "a burst of two or more is needed");
    let (rate, mut rng) = (Rate::of(quota), Rng::with_seed(seed));
    // So long that the bucket is never full again, or what is above would be lost.
    let longest = i128::from(quota.burst_size() - 1) * rate.period / rate.count;
    let longest = u64::try_from(longest).unwrap_or(u64::MAX).clamp(1, 1 << 50);
    let (mut now, mut admitted, mut step) = (Tick::ZERO, 0_u128, 0);
    while admitted < admissions && now.as_nanos() + longest < HORIZON_NS {
        let broken = |what: &str| Broken { law: 8, seed, step, what: format!("{quota} at {now}: {what}") };
        let given = rate.count * i128::from(now.as_nanos()) / rate.period;
        let due = i128::from(quota.burst_size()) + given - i128::try_from(admitted).unwrap_or(i128::MAX);
        let due = u64::try_from(due).map_err(|_| broken("more was admitted than is due"))?;
        admitted += u128::from(take_due(subject, quota, now, due).map_err(broken)?);
        now = now.plus_nanos(rng.u64(longest / 2..=longest));
        step += 1;
    }
    Ok(admitted)
}

/// Takes all that is due and tries for one more.
fn take_due(subject: &mut dyn Subject, quota: Quota, now: Tick, due: u64) -> Result<u64, &'static str> {
    if subject.decide(now, Ask::now(due)).is_admitted() {
        let more = subject.decide(now, Ask::now(1)).is_admitted();
        return if more { Err("one more than is due was admitted") } else { Ok(due) };
    }
    // A rounded rate may be a moment late with the last token.
    let rounds = oracle::tolerance_ns(Kind::TokenBucket, quota) > 0;
    if rounds && subject.decide(now, Ask::now(due - 1)).is_admitted() {
        return Ok(due - 1);
    }
    Err("what is due was refused")
}

/// One question put to one state.
struct Moment<'a, A: Algorithm> {
    algorithm: &'a A,
    state: &'a A::State,
    now: Tick,
    ask: Ask,
}

type Verdict = Result<(), (u8, String)>;

impl<A: Algorithm> Moment<'_, A> {
    fn check(&self, kind: Kind, latest: Tick) -> Verdict {
        self.same_inputs_same_output()?;
        self.refusal_writes_nothing()?;
        self.idle_is_fresh()?;
        self.retry_after_is_true()?;
        self.stepping_back_admits_no_more(kind, latest)
    }

    fn at(&self, now: Tick) -> Step<A::Change> {
        self.algorithm.decide(self.state, now, self.ask)
    }

    fn admits(&self, now: Tick) -> bool {
        self.at(now).decision.is_admitted()
    }

    fn same_inputs_same_output(&self) -> Verdict {
        let (first, second) = (self.at(self.now), self.at(self.now));
        let write = |step: &Step<A::Change>| {
            let mut state = self.state.clone();
            if let Some(change) = step.change.clone() {
                self.algorithm.apply(&mut state, change);
            }
            state
        };
        hold(1, first.decision == second.decision && write(&first) == write(&second), || {
            format!("{first:?}, and again {second:?}")
        })
    }

    fn refusal_writes_nothing(&self) -> Verdict {
        let step = self.at(self.now);
        hold(2, step.decision.is_admitted() || step.change.is_none(), || format!("{step:?}"))
    }

    /// An idle state answers like a fresh one, now and later; and a state is idle when it said it would be.
    fn idle_is_fresh(&self) -> Verdict {
        let fresh = A::State::default();
        hold(3, self.algorithm.is_idle(&fresh, self.now), || "the default state is not idle".to_string())?;
        let step = self.at(self.now);
        if self.algorithm.is_idle(self.state, self.now) {
            for later in [self.now, self.now.plus_nanos(1), self.now + Duration::from_secs(1)] {
                let (used, new) =
                    (self.at(later).decision, self.algorithm.decide(&fresh, later, self.ask).decision);
                hold(3, used == new, || format!("idle, but at {later} {used:?}, a fresh one {new:?}"))?;
            }
        }
        let Some(reset) = step.decision.reset_after().filter(|_| step.change.is_none()) else {
            return Ok(());
        };
        // A rounded rate may be a nanosecond late; see `oracle::tolerance_ns`.
        let at = self.now + reset + Duration::from_nanos(1);
        let idle = at.as_nanos() >= HORIZON_NS || self.algorithm.is_idle(self.state, at);
        hold(3, idle, || format!("not idle at {at}, when it was to be fresh: {step:?}"))
    }

    fn retry_after_is_true(&self) -> Verdict {
        let decision = self.at(self.now).decision;
        if decision.is_admitted() {
            return Ok(());
        }
        let Some(retry) = decision.retry_after() else {
            let later = self.now + Duration::from_secs(40_000_000);
            return hold(5, !self.admits(later), || format!("never, but admitted at {later}"));
        };
        let at = self.now + retry;
        hold(5, self.admits(at), || format!("refused again at {at}: {decision:?}"))?;
        let sooner = Tick::from_nanos(at.as_nanos() - 1);
        hold(5, !self.admits(sooner), || format!("admitted already at {sooner}: {decision:?}"))
    }

    /// What is refused at the latest moment so far is refused at every earlier one. A paced window may admit a larger cost
    /// at the end of a window than at the start of the next, so there only the cost of one is compared; what it admits in
    /// total is held to its bound all the same.
    fn stepping_back_admits_no_more(&self, kind: Kind, latest: Tick) -> Verdict {
        let ask = if kind == Kind::PacedWindow { Ask::now(1) } else { Ask::now(self.ask.cost()) };
        let admits = |now| self.algorithm.decide(self.state, now, ask).decision.is_admitted();
        let earlier = Tick::from_nanos(self.now.as_nanos() / 2);
        let more = !admits(latest) && (admits(self.now) || admits(earlier));
        hold(6, !more, || format!("refused at {latest}, admitted at {earlier} or {}", self.now))
    }
}

fn hold(law: u8, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err((law, what())) }
}

/// Numbers at which arithmetic likes to go wrong.
const ABSURD: [u64; 16] = [
    0,
    1,
    2,
    15,
    16,
    17,
    1_000_000_007,
    (1 << 59) - 1,
    1 << 59,
    (1 << 62) - 1,
    1 << 62,
    (1 << 62) + 1,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

fn absurd(rng: &mut Rng) -> u64 {
    if rng.u8(0..4) == 0 { rng.u64(..) >> rng.u32(0..64) } else { ABSURD[rng.usize(..ABSURD.len())] }
}

fn absurd_quota(rng: &mut Rng) -> Quota {
    Quota::per(absurd(rng), Duration::from_nanos(absurd(rng))).burst(absurd(rng))
}

/// One step of [`extremes`].
fn absurd_step<A: Algorithm>(subject: &mut Held<A>, rng: &mut Rng) -> Result<(), String> {
    let now = Tick::from_nanos(absurd(rng));
    match rng.u8(0..10) {
        0 => subject.set_quota(now, absurd_quota(rng)),
        1 => subject.charge(now, absurd(rng)),
        2 => subject.give_back(now, rng.usize(0..4), absurd(rng)),
        _ => {
            let ask = Ask::within(absurd(rng), Duration::from_nanos(absurd(rng)));
            let limit = subject.algorithm().decide(subject.state(), now, ask).decision.limit();
            let admitted = subject.decide(now, ask).is_admitted();
            if admitted && ask.cost() > limit {
                return Err(format!("{ask:?} was admitted at {now} with a limit of {limit}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tollgate_core::TokenBucket;

    use super::*;

    #[test]
    fn a_broken_law_names_seed_and_step() {
        let wrong_quota = |_| TokenBucket::new(Quota::per_second(1_000_000).burst(1_000_000));
        let broken = (0..100).find_map(|seed| walk(Kind::TokenBucket, wrong_quota, seed).err()).unwrap();
        assert_eq!(broken.law, 4);
        let text = broken.to_string();
        assert!(text.contains(&format!("seed {} at step {}", broken.seed, broken.step)), "{text}");
    }
}
