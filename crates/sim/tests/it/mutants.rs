//! Bugs that rate limiters have really had, each written again on purpose: the checks must catch every one of them, and
//! must pass the right implementation in the same situation.

use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{Algorithm, Ask, Kind, Quota, Step, Tick, TokenBucket};
use tollgate_sim::bound::Bound;
use tollgate_sim::history::Operation;
use tollgate_sim::subject::{Held, Subject};
use tollgate_sim::workload::Adversary;
use tollgate_sim::{Outcome, compare, conformance, laws};

/// Which mistake a [`Mutant`] makes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// No mistake: what the tests must not object to.
    None,
    /// Go's x/time/rate: a reading older than the last one moves the last one back, and the time between is given twice.
    LastMovesBack,
    /// Whatever comes back is subtracted, though time may have restored it.
    PlainRefund,
    /// What time has restored is left out, but two returns that overlap are not noticed.
    ClampedRefund,
    /// A level that equals what a claim left behind is taken to prove that nobody came after, though it may have fallen and
    /// risen again. Found in our own bucket by this suite.
    EqualMarkIsProof,
    /// governor before 0.8: the tolerance is taken for the burst, one cell too many.
    ToleranceIsBurst,
    /// uber-go/ratelimit before 0.3.1: after a long idle time a packed number overflows, and the cap on what was saved is lost.
    PackedIdleOverflows,
    /// A token is taken to need a whole number of nanoseconds, rounded down.
    IntervalTruncated,
}

/// A token bucket of its own: units of one token / period, as an oracle would write it, and one of the bugs.
struct Mutant {
    bug: Bug,
    count: i128,
    period: i128,
    burst: i128,
    level: i128,
    /// The highest moment seen, or for [`Bug::LastMovesBack`] just the last one.
    last: i128,
    /// How often anything was given back.
    returns: u64,
    /// What each admission cost, where it left the level, and how much had been given back by then.
    admitted: Vec<(i128, i128, u64)>,
}

impl Mutant {
    fn new(bug: Bug, quota: Quota) -> Self {
        let (mut count, mut period) = (i128::from(quota.count()), quota.period().as_nanos().cast_signed());
        if bug == Bug::IntervalTruncated && count > 0 {
            (count, period) = (1, (period / count).max(1));
        }
        let burst = i128::from(quota.burst_size());
        Self { bug, count, period, burst, level: 0, last: 0, returns: 0, admitted: Vec::new() }
    }

    fn floor(&self, now: Tick) -> i128 {
        self.count * i128::from(now.as_nanos())
    }

    /// Where a call at `now` starts from.
    fn start(&self, now: Tick) -> i128 {
        let floor = self.floor(now);
        let idle_ns = (floor - self.level).max(0) / self.count.max(1);
        // The true mistake in small: 32 bits of nanoseconds, whose sign is believed.
        let looks_busy = self.bug == Bug::PackedIdleOverflows && (idle_ns as i32) < 0;
        if looks_busy { self.level } else { self.level.max(floor) }
    }

    /// The first moment at which `cost` fits.
    fn opening(&self, now: Tick, cost: u64) -> Option<i128> {
        let (cost, now_ns) = (i128::from(cost), i128::from(now.as_nanos()));
        let extra = i128::from(self.bug == Bug::ToleranceIsBurst && now_ns > 0);
        if cost == 0 || self.period == 0 {
            return Some(now_ns); // nothing is always to be had, and of an unlimited quota everything
        }
        if cost > self.burst {
            return None;
        }
        let need = self.start(now) + (cost - self.burst - extra) * self.period;
        if need <= self.floor(now) {
            return Some(now_ns);
        }
        (self.count > 0).then(|| (need + self.count - 1) / self.count)
    }

    /// Go's bucket keeps tokens and the time they were counted at; in terms of a level, moving `last` back lowers the level
    /// along with the line.
    fn read_clock(&mut self, now: Tick) {
        let now_ns = i128::from(now.as_nanos());
        if self.bug == Bug::LastMovesBack && now_ns < self.last {
            self.level -= self.count * (self.last - now_ns);
            self.last = now_ns;
        }
        self.last = self.last.max(now_ns);
    }
}

impl Subject for Mutant {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.read_clock(now);
        let answer = self.peek(now, ask);
        if answer.is_admitted() {
            if ask.cost() > 0 {
                self.level = self.start(now) + i128::from(ask.cost()) * self.period;
            }
            self.admitted.push((i128::from(ask.cost()), self.level, self.returns));
        }
        answer
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        let wait = self.opening(now, ask.cost()).map(|moment| moment - i128::from(now.as_nanos()));
        let wait = wait.and_then(|wait| u64::try_from(wait).ok());
        let in_time =
            wait.filter(|wait| now.as_nanos().saturating_add(*wait) < tollgate_sim::oracle::HORIZON_NS);
        Outcome::of(in_time, u64::try_from(ask.patience().as_nanos()).unwrap_or(u64::MAX))
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        let (cost, mark, returns) = std::mem::take(&mut self.admitted[admission]);
        let amount = i128::from(amount).min(cost) * self.period;
        match self.bug {
            Bug::PlainRefund => self.level -= amount,
            Bug::EqualMarkIsProof if self.level == mark => {
                self.level -= amount;
                self.returns += 1;
            }
            Bug::EqualMarkIsProof if self.returns == returns => {
                self.level -= amount.min((mark - self.floor(now)).max(0));
                self.returns += 1;
            }
            Bug::ClampedRefund => self.level -= amount.min((mark - self.floor(now)).max(0)),
            // Keeping what comes back is always right.
            _ => {}
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.level = self.start(now) + i128::from(extra) * self.period;
    }

    fn set_quota(&mut self, _now: Tick, _quota: Quota) {
        unreachable!("no test here changes a quota");
    }

    fn reset(&mut self) {
        self.level = 0;
    }
}

/// Whether random questions find a difference to the oracle.
fn oracle_objects(bug: Bug) -> bool {
    (0..5_000)
        .any(|seed| compare::sequence(Kind::TokenBucket, |quota| Mutant::new(bug, quota), seed).is_err())
}

/// Whether random returns break the bound. Ten at once and short histories over and over: this is where overlapping returns
/// show.
fn returns_object(make: impl Fn(Quota) -> Box<dyn Subject>) -> bool {
    let quota = Quota::per_second(10).burst(10);
    (0..400).any(|seed| {
        conformance::returns(Kind::TokenBucket, quota, &mut *make(quota), Rng::with_seed(seed), 400).is_err()
    })
}

fn boxed(bug: Bug) -> impl Fn(Quota) -> Box<dyn Subject> {
    move |quota| Box::new(Mutant::new(bug, quota))
}

fn right(quota: Quota) -> Box<dyn Subject> {
    Box::new(Held::new(TokenBucket::new(quota)))
}

#[test]
fn nobody_objects_to_a_bucket_without_a_bug() {
    let quotas_that_round = |seed| compare::sequence(Kind::TokenBucket, |q| Mutant::new(Bug::None, q), seed);
    for seed in 0..5_000 {
        let run = quotas_that_round(seed);
        assert!(run.is_ok(), "{}", run.unwrap_err());
    }
    assert!(!returns_object(boxed(Bug::None)));
    assert!(!returns_object(right));
}

/// Callers read the clock, and some of them come to the limiter only after others with a later reading.
fn stale_readings_object(subject: &mut dyn Subject) -> bool {
    let quota = Quota::per_second(1_000).burst(10);
    let mut operations = Vec::new();
    for round in 0..2_000_u64 {
        let true_ns = round * 1_000_000;
        for behind_ns in [0, 900_000, 0, 500_000] {
            let invoke_ns = true_ns.saturating_sub(behind_ns);
            if subject.decide(Tick::from_nanos(invoke_ns), Ask::now(1)).is_admitted() {
                operations.push(Operation { invoke_ns, response_ns: true_ns, cost: 1 });
            }
        }
    }
    Bound::of(Kind::TokenBucket, quota).check(&operations).is_err()
}

#[test]
fn a_last_moment_that_moves_back_is_caught() {
    let quota = Quota::per_second(1_000).burst(10);
    assert!(stale_readings_object(&mut Mutant::new(Bug::LastMovesBack, quota)));
    assert!(!stale_readings_object(&mut Mutant::new(Bug::None, quota)));
    assert!(!stale_readings_object(&mut *right(quota)));
    assert!(oracle_objects(Bug::LastMovesBack));
}

#[test]
fn a_plain_refund_is_caught() {
    assert!(returns_object(boxed(Bug::PlainRefund)));
}

#[test]
fn a_clamped_refund_with_overlapping_returns_is_caught() {
    assert!(returns_object(boxed(Bug::ClampedRefund)));
}

#[test]
fn a_mark_met_again_by_chance_is_caught() {
    assert!(returns_object(boxed(Bug::EqualMarkIsProof)));
    assert!(met_again(&mut Mutant::new(Bug::EqualMarkIsProof, Quota::per_second(10).burst(10))) > 10);
    assert_eq!(met_again(&mut *right(Quota::per_second(10).burst(10))), 10);
}

/// Three take one token each at the start. The second gives it back when half a token has come in; a fourth caller takes it
/// a token later, which brings the level back to where the third left it; then the third gives its own back. Answers how
/// much is had within the twentieth of a second from the fourth caller on, in which ten and a half is the most.
fn met_again(bucket: &mut dyn Subject) -> u64 {
    let at = |ms: u64| Tick::ZERO + Duration::from_millis(ms);
    let one = Ask::now(1);
    assert!((0..3).all(|_| bucket.decide(at(0), one).is_admitted()));
    bucket.give_back(at(50), 1, 1);
    assert!(bucket.decide(at(150), one).is_admitted());
    bucket.give_back(at(150), 2, 1);
    let more = [150; 20].into_iter().chain([200; 20]).filter(|ms| bucket.decide(at(*ms), one).is_admitted());
    1 + more.count() as u64
}

#[test]
fn a_tolerance_taken_for_the_burst_is_caught() {
    assert!(oracle_objects(Bug::ToleranceIsBurst));
    let quota = Quota::per_second(10).burst(5);
    assert!(adversary_objects(&mut Mutant::new(Bug::ToleranceIsBurst, quota), quota));
    assert!(!adversary_objects(&mut *right(quota), quota));
}

/// Drain, idle until full, burst: the bound at its tightest.
fn adversary_objects(subject: &mut dyn Subject, quota: Quota) -> bool {
    let calls = Adversary::new(quota, Duration::from_secs(3)).take(2_000);
    let admitted = calls.filter(|call| {
        let now = Tick::from_nanos(call.at_ns);
        subject.decide(now, Ask::now(call.cost)).is_admitted()
    });
    let operations: Vec<_> = admitted.map(|call| Operation::at(call.at_ns, call.cost)).collect();
    Bound::of(Kind::TokenBucket, quota).check(&operations).is_err()
}

#[test]
fn a_limit_lost_after_a_long_idle_time_is_caught() {
    assert!(oracle_objects(Bug::PackedIdleOverflows));
    let quota = Quota::per_second(10).burst(5);
    assert!(adversary_objects(&mut Mutant::new(Bug::PackedIdleOverflows, quota), quota));
    assert!(!adversary_objects(&mut Mutant::new(Bug::None, quota), quota));
}

#[test]
fn an_interval_of_whole_nanoseconds_is_caught() {
    let quota = Quota::per_second(300_000_000).burst(1_000);
    let truncated = &mut Mutant::new(Bug::IntervalTruncated, quota);
    assert!(laws::no_drift(truncated, quota, 1_000_000, 1).is_err());
    assert!(laws::no_drift(&mut Mutant::new(Bug::None, quota), quota, 1_000_000, 1).is_ok());
    let bucket = &mut Held::new(TokenBucket::new(quota));
    assert!(laws::no_drift(bucket, quota, 1_000_000, 1).is_ok());
}

/// How a caller puts its change into the shared state.
#[derive(Clone, Copy, PartialEq)]
enum Write {
    /// Only if the state is still the one it decided on; else it decides again.
    CompareAndSwap,
    /// In any case.
    Store,
}

/// Two callers whose loads and stores interleave in every way that a seed draws.
fn interleaved(write: Write, seed: u64) -> Vec<Operation> {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(3));
    let (mut rng, mut shared) = (Rng::with_seed(seed), 0);
    let mut pending: [Option<(u64, Step<u64>)>; 2] = [None, None];
    let mut operations = Vec::new();
    for at_ns in 0..60 {
        let caller = rng.usize(..2);
        match pending[caller].take() {
            None => {
                pending[caller] =
                    Some((shared, bucket.decide(&shared, Tick::from_nanos(at_ns), Ask::now(1))));
            }
            Some((seen, _)) if write == Write::CompareAndSwap && seen != shared => {}
            Some((_, step)) => {
                if let Some(next) = step.change {
                    shared = next;
                    operations.push(Operation { invoke_ns: 0, response_ns: at_ns, cost: 1 });
                }
            }
        }
    }
    operations
}

#[test]
fn a_store_where_a_compare_and_swap_belongs_is_caught() {
    let bound = Bound::of(Kind::TokenBucket, Quota::per_second(1).burst(3));
    let broken = |write| (0..200).filter(|seed| bound.check(&interleaved(write, *seed)).is_err()).count();
    assert!(broken(Write::Store) > 0);
    assert_eq!(broken(Write::CompareAndSwap), 0);
}
