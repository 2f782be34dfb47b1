//! The suite that every algorithm runs, and every store that runs one.
//!
//! Three kinds of random sequences, each drawn from one seed:
//!
//! * questions only, each answer compared with the [oracle];
//! * questions, returns and charges: what was kept must stay within the [bound](crate::bound);
//! * questions and changes of quota: under each quota its bound, and for a token bucket also across changes.
//!
//! A failure names its seed. Set `TOLLGATE_SEED` to it to run that seed alone.

use std::ops::Range;

use fastrand::Rng;
use tollgate_core::{Kind, Quota, Tick};

use crate::Outcome;
use crate::bound::{Bound, Violation};
use crate::compare;
use crate::draw::{self, Caller};
use crate::history::Operation;
use crate::oracle;
use crate::outcome::nanos;
pub use crate::subject::{Held, Subject};

/// Runs the suite on what `make` makes, once for each seed, or for `TOLLGATE_SEED` alone if that is set.
///
/// # Panics
/// At the first seed that shows something wrong, saying which and what.
///
/// # Examples
/// ```
/// use tollgate_core::{Kind, TokenBucket};
/// use tollgate_sim::conformance::{self, Held};
///
/// conformance::run(Kind::TokenBucket, |quota| Held::new(TokenBucket::new(quota)), 0..50);
/// ```
pub fn run<S: Subject>(kind: Kind, mut make: impl FnMut(Quota) -> S, seeds: Range<u64>) {
    for seed in seeds_to_run(seeds) {
        if let Err(what) = run_one(kind, &mut make, seed) {
            panic!("{kind} does not conform: {what}\nrun it again with TOLLGATE_SEED={seed}");
        }
    }
}

/// The seed in the environment, or all of these.
fn seeds_to_run(seeds: Range<u64>) -> Range<u64> {
    match std::env::var("TOLLGATE_SEED") {
        Ok(text) => {
            let seed =
                text.parse().unwrap_or_else(|_| panic!("TOLLGATE_SEED is {text:?}, not a whole number"));
            seed..seed + 1
        }
        Err(_) => seeds,
    }
}

fn run_one<S: Subject>(kind: Kind, make: &mut impl FnMut(Quota) -> S, seed: u64) -> Result<(), String> {
    compare::sequence(kind, &mut *make, seed).map_err(|difference| difference.to_string())?;
    let mut rng = Rng::with_seed(seed);
    let quota = if rng.bool() { draw::quota(&mut rng) } else { small_quota(&mut rng) };
    returns(kind, quota, &mut make(quota), rng.fork(), 60)
        .map_err(|violation| format!("seed {seed}, {quota} with returns: {violation}"))?;
    if make(quota).can_change() {
        changes(kind, make, rng.fork())
            .map_err(|what| format!("seed {seed}, with changes of quota: {what}"))?;
    }
    reset_is_fresh(quota, make, rng).map_err(|what| format!("seed {seed}, after a reset: {what}"))
}

/// A quota at which a few dozen calls matter.
pub fn small_quota(rng: &mut Rng) -> Quota {
    Quota::per_second(rng.u64(1..20)).burst(rng.u64(1..15))
}

/// A random sequence of `steps` questions, some of whose admissions are later given back, in part or in full, or charged
/// more. What was kept counts at the moment it acts.
///
/// # Errors
/// The span that holds more than the bound allows.
pub fn returns(
    kind: Kind,
    quota: Quota,
    subject: &mut dyn Subject,
    rng: Rng,
    steps: u32,
) -> Result<(), Violation> {
    let mut caller = Caller::new(rng, quota).with_steady_clock().of(subject);
    let (tolerance_ns, mut kept) = (oracle::tolerance_ns(kind, quota), Vec::new());
    for _ in 0..steps {
        let (now, ask) = caller.ask();
        if caller.rng().u8(0..3) == 0 {
            give_some_back(subject, &mut kept, now, caller.rng());
        } else if caller.rng().u8(0..40) == 0 {
            subject.charge(now, caller.rng().u64(0..3));
        } else {
            let answer = subject.decide(now, ask);
            kept.extend(operation(kind, tolerance_ns, now, ask.cost(), answer));
            caller.hear(answer, ask);
        }
    }
    Bound::of(kind, quota).check(&kept)
}

/// Gives back one admission, a recent one more often than an old one.
fn give_some_back(subject: &mut dyn Subject, kept: &mut [Operation], now: Tick, rng: &mut Rng) {
    if kept.is_empty() {
        return;
    }
    let reach = kept.len().min(1 << rng.u32(0..6));
    let recent = rng.usize(..reach);
    let admission = kept.len() - 1 - recent;
    let cost = kept[admission].cost;
    let amount = if rng.u8(0..4) == 0 { rng.u64(..=cost) } else { cost };
    subject.give_back(now, admission, amount);
    kept[admission].cost -= amount;
}

/// What an answer adds to a history: an operation at the moment it acts. A bucket's promise is rounded up to a whole nanosecond,
/// and what the algorithm may be off by comes on top. A window's is for a moment at which one begins, or a part of it.
pub(crate) fn operation(
    kind: Kind,
    tolerance_ns: u64,
    now: Tick,
    cost: u64,
    answer: Outcome,
) -> Option<Operation> {
    let Outcome::Admit { delay_ns } = answer else { return None };
    let act_ns = now.as_nanos().saturating_add(delay_ns);
    let is_rounded =
        matches!(kind, Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue | Kind::PacedWindow);
    let is_exact = delay_ns == 0 || !is_rounded;
    let exact = if is_exact { Operation::at(act_ns, cost) } else { Operation::promised(act_ns, cost) };
    Some(Operation { invoke_ns: exact.invoke_ns.saturating_sub(tolerance_ns), ..exact })
}

/// A quota, and when it came into force.
struct Reign {
    quota: Quota,
    from_ns: u64,
    /// How much had been admitted before.
    first: usize,
}

/// Everything that happened under several quotas in turn.
struct Story {
    kind: Kind,
    reigns: Vec<Reign>,
    kept: Vec<Operation>,
}

/// Questions and returns under four quotas in turn. Nobody is patient here: a promise outlives the quota it was made
/// under, so it would be counted against the wrong one.
fn changes<S: Subject>(kind: Kind, make: &mut impl FnMut(Quota) -> S, mut rng: Rng) -> Result<(), String> {
    let mut quota = small_quota(&mut rng);
    let (mut subject, mut now) = (make(quota), Tick::ZERO);
    let mut all = Story { kind, reigns: Vec::new(), kept: Vec::new() };
    for _ in 0..4 {
        all.reigns.push(Reign { quota, from_ns: now.as_nanos(), first: all.kept.len() });
        let caller = Caller::new(rng.fork(), quota).with_steady_clock().impatient().from(now);
        now = all.live(&mut subject, quota, caller);
        quota = if rng.u8(0..4) == 0 { draw::quota(&mut rng) } else { small_quota(&mut rng) };
        subject.set_quota(now, quota);
    }
    all.check_each()?;
    if kind == Kind::TokenBucket { all.check_across() } else { Ok(()) }
}

impl Story {
    /// A dozen questions and returns under one quota; answers when they ended.
    fn live(&mut self, subject: &mut dyn Subject, quota: Quota, mut caller: Caller) -> Tick {
        let tolerance_ns = oracle::tolerance_ns(self.kind, quota);
        let mut latest = Tick::ZERO;
        for _ in 0..12 {
            let (now, ask) = caller.ask();
            latest = now;
            if caller.rng().u8(0..6) == 0 {
                give_some_back(subject, &mut self.kept, now, caller.rng());
                continue;
            }
            let answer = subject.decide(now, ask);
            caller.hear(answer, ask);
            self.kept.extend(operation(self.kind, tolerance_ns, now, ask.cost(), answer));
        }
        latest
    }

    fn under(&self, index: usize) -> &[Operation] {
        let end = self.reigns.get(index + 1).map_or(self.kept.len(), |next| next.first);
        &self.kept[self.reigns[index].first..end]
    }

    /// Under each quota, its own bound.
    fn check_each(&self) -> Result<(), String> {
        for (index, Reign { quota, .. }) in self.reigns.iter().enumerate() {
            let kept = Bound::of(self.kind, *quota).check(self.under(index));
            kept.map_err(|violation| format!("{quota}: {violation}"))?;
        }
        Ok(())
    }

    /// Across changes a bucket may admit what it held at the start, and what each quota gives in its time.
    fn check_across(&self) -> Result<(), String> {
        for index in 0..self.reigns.len() {
            for first in self.under(index) {
                self.check_from(first.invoke_ns, index)?;
            }
        }
        Ok(())
    }

    /// What is admitted from `start_ns` on, a moment under the quota with this index.
    fn check_from(&self, start_ns: u64, index: usize) -> Result<(), String> {
        let mut most = MILLIONTHS * i128::from(self.reigns[index].quota.burst_size());
        let mut cost = 0;
        for index in index..self.reigns.len() {
            let Reign { quota, from_ns, .. } = self.reigns[index];
            if quota.is_unlimited() {
                return Ok(());
            }
            let from_ns = from_ns.max(start_ns);
            for operation in self.under(index).iter().filter(|operation| operation.invoke_ns >= start_ns) {
                cost += MILLIONTHS * i128::from(operation.cost);
                let end_ns = operation.response_ns;
                if cost > most + given(quota, end_ns - from_ns) {
                    return Err(format!(
                        "too much from {start_ns} ns to {end_ns} ns, the last under {quota}"
                    ));
                }
            }
            if let Some(next) = self.reigns.get(index + 1) {
                most += given(quota, next.from_ns - from_ns);
            }
        }
        Ok(())
    }
}

/// Quotas with different periods have no handy common denominator, so what they give is rounded up to this part of a token.
const MILLIONTHS: i128 = 1_000_000;

/// What a quota gives in a span, in millionths, rounded up.
fn given(quota: Quota, span_ns: u64) -> i128 {
    let product = MILLIONTHS * i128::from(quota.count()) * i128::from(span_ns);
    let period = i128::from(nanos(quota.period()));
    (product + period - 1) / period
}

/// After a reset a subject answers like a new one.
fn reset_is_fresh<S: Subject>(
    quota: Quota,
    make: &mut impl FnMut(Quota) -> S,
    rng: Rng,
) -> Result<(), String> {
    let (mut used, mut fresh) = (make(quota), make(quota));
    let mut caller = Caller::new(rng, quota).of(&used);
    for _ in 0..8 {
        let (now, ask) = caller.ask();
        used.decide(now, ask);
    }
    used.reset();
    for step in 0..8 {
        let (now, ask) = caller.ask();
        let (got, want) = (used.decide(now, ask), fresh.decide(now, ask));
        if got != want {
            return Err(format!("step {step}, {ask:?} at {now}: {got:?}, a new one says {want:?}"));
        }
    }
    Ok(())
}
