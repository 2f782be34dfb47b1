//! A sharded limiter, one call at a time: the verbs, the oracle from above and below, and the queue.
//!
//! A failure of a random test names its seed; `TOLLGATE_SEED=n cargo test -p tollgate --test it sharded` runs that one alone.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{
    Ask, Clock, Kind, Limiter, ManualClock, Quota, Reservation, Sharded, Tick, Verdict, Wait, WaitError,
};
use tollgate_sim::conformance::{self, Subject};
use tollgate_sim::draw::Caller;
use tollgate_sim::history::{Operation, largest_excess};
use tollgate_sim::{Outcome, oracle};

const LANES: u64 = 2;

type Lanes = Limiter<Sharded, ManualClock>;

fn build(quota: Quota) -> Lanes {
    Limiter::builder(quota).algorithm(|quota| Sharded::new(quota, LANES)).clock(ManualClock::new()).build()
}

/// 1 000/s with a burst of 1 000: leases of 31, and 938 in the bucket.
fn thousand() -> (Lanes, ManualClock) {
    let limiter = build(Quota::per_second(1_000).burst(1_000));
    let clock = limiter.clock().clone();
    (limiter, clock)
}

/// The same with 30 in the lane of this thread and none in the bucket.
fn thirty_in_a_lane() -> (Lanes, ManualClock) {
    let (limiter, clock) = thousand();
    assert!(limiter.allow() && limiter.allow_n_at(938 - 31, Tick::ZERO));
    assert_eq!(limiter.remaining(), 30);
    (limiter, clock)
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("TOLLGATE_SEED") {
        Ok(seed) => vec![seed.parse().expect("TOLLGATE_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

#[test]
fn the_limit_is_the_burst_less_what_the_lanes_may_hold() {
    let (limiter, clock) = thousand();
    assert_eq!((limiter.peek().limit(), limiter.remaining()), (938, 938));
    assert!(limiter.check_n(939).is_never());
    assert!(limiter.allow());
    clock.advance(Duration::from_secs(10));
    assert_eq!(limiter.remaining(), 938 + 30, "the bucket is full, and so is a lane");
    assert!(limiter.check_n(939).is_never(), "the lanes may be empty next time");
    assert!(limiter.allow_n(938));
    assert_eq!((0..100).filter(|_| limiter.allow()).count(), 30);
}

#[test]
fn a_decision_counts_on_the_lanes() {
    let (limiter, _clock) = thirty_in_a_lane();
    let refused = limiter.check_n(50);
    assert_eq!(refused.verdict(), Verdict::Deny);
    assert_eq!((refused.remaining(), refused.retry_after()), (30, Some(millis(20))));
    let swept = limiter.check_n(25);
    assert_eq!((swept.verdict(), swept.remaining()), (Verdict::Allow, 5));
    assert_eq!(limiter.peek_n(6).retry_after(), Some(millis(1)));
    assert!(limiter.allow_n_at(5, Tick::ZERO), "also at a time that is given");
    assert!(!limiter.allow() && !limiter.allow_at(Tick::ZERO));
}

#[test]
fn a_lane_is_not_filled_at_a_time_that_is_given() {
    let (limiter, clock) = thousand();
    assert!(limiter.allow_at(Tick::ZERO) && limiter.allow_n_at(3, Tick::ZERO));
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.remaining(), 938, "what is not used in time is lost, and nothing lies in a lane");
}

#[test]
fn every_lane_is_swept_before_anybody_is_refused() {
    let (limiter, _clock) = thousand();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(limiter.allow()));
        }
    });
    let left = limiter.remaining();
    assert_eq!(left, 938 - 8);
    assert_eq!((0..1_000).filter(|_| limiter.allow()).count() as u64, left, "one by one");

    let (limiter, _clock) = thousand();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(limiter.allow()));
        }
    });
    assert!(limiter.allow_n(938 - 8) && limiter.remaining() == 0, "and all together");
}

#[test]
fn what_came_out_of_the_bucket_comes_back_and_what_came_out_of_lanes_does_not() {
    let (limiter, _clock) = thousand();
    assert!(limiter.allow());
    limiter.reserve_n(100).unwrap().settle(40);
    assert_eq!(limiter.remaining(), 937 - 40);
    let (limiter, clock) = thirty_in_a_lane();
    let swept = limiter.reserve_n(20).unwrap();
    assert_eq!((swept.delay(), limiter.remaining()), (Duration::ZERO, 10));
    swept.settle(0);
    assert_eq!(limiter.remaining(), 10);
    // What is promised for later leaves the lanes alone, so that it can be cancelled.
    let later = limiter.reserve_n(50).unwrap();
    assert_eq!((later.delay(), limiter.remaining()), (millis(50), 10));
    later.cancel();
    assert_eq!(limiter.reserve_n(15).unwrap().delay(), millis(15));
    // Dearer than asked for is charged all the same.
    clock.advance(millis(15));
    let swept = limiter.reserve_n(10).unwrap();
    assert_eq!((swept.delay(), limiter.remaining()), (Duration::ZERO, 0));
    swept.settle(30);
    assert_eq!(limiter.peek().retry_after(), Some(millis(21)));
}

#[test]
fn a_burst_too_small_for_leases_is_all_there() {
    let limiter = build(Quota::per_second(10).burst(255));
    assert_eq!(limiter.peek().limit(), 255);
    assert_eq!((0..1_000).filter(|_| limiter.allow()).count(), 255);
    let unlimited = build(Quota::UNLIMITED);
    assert!(unlimited.allow() && unlimited.allow_n(u64::MAX) && unlimited.remaining() == u64::MAX);
    let nothing = build(Quota::per_second(0).burst(0));
    assert!(!nothing.allow() && nothing.check().is_never());
}

#[test]
fn a_new_quota_is_no_free_burst() {
    let (limiter, clock) = thirty_in_a_lane();
    limiter.set_quota(Quota::per_second(1_000).burst(500)); // leases of 15
    assert_eq!(limiter.remaining(), 15, "no more than the lane may hold now");
    assert!((0..15).all(|_| limiter.allow()) && !limiter.allow());
    clock.advance(Duration::from_secs(60));
    assert!(limiter.allow());
    clock.advance(Duration::from_secs(60));
    assert_eq!(limiter.remaining(), 470 + 14, "and no more than it may ever hold from now on");
    assert!(limiter.allow_n(469));
    limiter.set_quota(Quota::per_second(1_000).burst(2_000)); // leases of 62
    assert_eq!((limiter.remaining(), limiter.peek().limit()), (15, 2_000 - 124));
    clock.advance(Duration::from_secs(60));
    assert_eq!(limiter.remaining(), 2_000 - 124 + 14, "one of them was in the bucket");
    assert!((0..14).all(|_| limiter.allow()) && limiter.allow());
    limiter.set_quota(Quota::UNLIMITED);
    assert!((0..10_000).all(|_| limiter.allow()));
    limiter.set_quota(Quota::per_second(1).burst(2));
    assert_eq!((0..10).filter(|_| limiter.allow()).count(), 2);
}

/// A clock that asks the limiter while it is read for the second time.
#[derive(Clone, Debug, Default)]
struct Nosy {
    limiter: Arc<OnceLock<Limiter<Sharded, Nosy>>>,
    readings: Arc<AtomicU64>,
    /// What there would be an hour later, as it looked in between.
    later: Arc<AtomicU64>,
}

const HOUR: Tick = Tick::from_nanos(3_600_000_000_000);

impl Clock for Nosy {
    fn now(&self) -> Tick {
        if self.readings.fetch_add(1, Ordering::SeqCst) == 1 {
            let limiter = self.limiter.get().expect("it was built");
            assert!(limiter.allow());
            self.later.store(limiter.peek_n_at(0, HOUR).remaining(), Ordering::SeqCst);
        }
        Tick::ZERO
    }
}

/// A reading from before would not do: when the lane comes to hand, the reserve may be in use for what others leased since.
#[test]
fn a_lease_is_made_by_a_reading_with_the_lane_in_hand() {
    let clock = Nosy::default();
    let quota = Quota::per_second(1_000).burst(1_000);
    let builder = Limiter::builder(quota).algorithm(|quota| Sharded::new(quota, LANES));
    let limiter = builder.clock(clock.clone()).build();
    clock.limiter.set(limiter.clone()).expect("only once");
    assert!(limiter.allow());
    assert_eq!(clock.later.load(Ordering::SeqCst), 938, "nobody else could fill the lane");
    assert_eq!(limiter.peek_n_at(0, HOUR).remaining(), 938 + 30, "now it is filled");
}

/// A clock that panics when told to.
#[derive(Clone, Debug, Default)]
struct Fragile {
    breaks: Arc<AtomicBool>,
}

impl Clock for Fragile {
    fn now(&self) -> Tick {
        assert!(!self.breaks.load(Ordering::SeqCst), "the clock breaks");
        Tick::ZERO
    }
}

#[test]
fn a_clock_that_panics_costs_no_lane() {
    let clock = Fragile::default();
    let quota = Quota::per_second(1_000).burst(1_000);
    let limiter =
        Limiter::builder(quota).algorithm(|quota| Sharded::new(quota, 1)).clock(clock.clone()).build();
    clock.breaks.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.allow())).is_err());
    clock.breaks.store(false, Ordering::SeqCst);
    let limit = limiter.peek().limit();
    assert_eq!((0..2_000).filter(|_| limiter.allow()).count() as u64, limit);
}

/// A limiter whose bucket, without the reserve, is as large as the suite asks for. As long as nobody fills a lane it decides
/// like that bucket.
struct Store {
    quota: Quota,
    limiter: Lanes,
    admitted: Vec<Option<Reservation<Sharded, ManualClock>>>,
    /// Whether to spend from lanes where it can be.
    spends: bool,
}

/// The quota of which, without the reserve, `quota` is left. With leases if there is one.
fn with_reserve(quota: Quota) -> Quota {
    // A lease is a 16th of the larger burst, so a 15th of what is left, divided by the lanes; give or take one.
    let lease = quota.burst_size() / 15 / LANES;
    let larger = |lease: &u64| quota.burst(quota.burst_size().saturating_add(LANES * lease));
    let fits = |lease: &u64| Sharded::new(larger(lease), LANES).lease() == *lease;
    [1_024, lease.min(1_024) + 1, lease.min(1_024), 0].iter().find(|lease| fits(lease)).map_or(quota, larger)
}

impl Store {
    fn exact(quota: Quota) -> Self {
        Self { quota, limiter: build(with_reserve(quota)), admitted: Vec::new(), spends: false }
    }

    fn spending(quota: Quota) -> Self {
        Self { quota, limiter: build(quota), admitted: Vec::new(), spends: true }
    }
}

impl Subject for Store {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.limiter.clock().set(now);
        if self.spends && ask.cost() < 10 && self.limiter.allow_n(ask.cost()) {
            self.admitted.push(None);
            return Outcome::Admit { delay_ns: 0 };
        }
        match self.limiter.reserve_within_at(ask.cost(), ask.patience(), now) {
            Ok(reservation) => {
                let outcome = reservation.decision().into();
                self.admitted.push(Some(reservation));
                outcome
            }
            Err(refused) => refused.0.into(),
        }
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.limiter.peek_within_at(ask.cost(), ask.patience(), now).into()
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        if let Some(reservation) = self.admitted.get_mut(admission).and_then(Option::take) {
            reservation.refund_at(amount, now);
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.limiter.charge_at(extra, now);
    }

    fn set_quota(&mut self, now: Tick, quota: Quota) {
        self.limiter.set_quota_at(if self.spends { quota } else { with_reserve(quota) }, now);
    }

    fn reset(&mut self) {
        *self = if self.spends { Self::spending(self.quota) } else { Self::exact(self.quota) };
    }
}

#[test]
fn with_empty_lanes_it_decides_as_its_bucket_does() {
    conformance::run(Kind::TokenBucket, Store::exact, 0..2_000);
}

#[test]
fn returns_and_charges_keep_the_bound_with_tokens_in_lanes() {
    for seed in seeds(400) {
        let mut random = fastrand::Rng::with_seed(seed);
        let quota = Quota::per_second(random.u64(1..2_000)).burst(random.u64(200..2_000));
        let kept = conformance::returns(Kind::TokenBucket, quota, &mut Store::spending(quota), random, 300);
        assert!(kept.is_ok(), "seed {seed}: {}", kept.unwrap_err());
    }
}

/// Somebody to call from another thread, and so from another lane.
struct Worker {
    jobs: mpsc::Sender<Job>,
    answers: mpsc::Receiver<bool>,
}

type Job = Box<dyn FnOnce(&Lanes) -> bool + Send>;

impl Worker {
    fn new(limiter: &Lanes) -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (outbox, answers) = mpsc::channel();
        let limiter = limiter.clone();
        std::thread::spawn(move || {
            for job in inbox {
                if outbox.send(job(&limiter)).is_err() {
                    return;
                }
            }
        });
        Self { jobs, answers }
    }

    fn ask(&self, job: impl FnOnce(&Lanes) -> bool + Send + 'static) -> bool {
        self.jobs.send(Box::new(job)).expect("it listens");
        self.answers.recv().expect("it answers")
    }
}

/// From above and below: what a bucket of the whole burst would refuse is refused, and what a bucket without the reserve
/// would admit is admitted, both given the same admissions; and a refusal is right to the nanosecond.
#[test]
fn decisions_lie_between_two_oracles() {
    for seed in seeds(200) {
        let mut random = fastrand::Rng::with_seed(seed);
        let rate = [3, 1_000, 1_000_000, 1_000_000_000][random.usize(..4)];
        let quota = Quota::per_second(rate).burst(random.u64(256..3_000));
        let limiter = build(quota);
        let limit = limiter.peek().limit();
        assert!(limit < quota.burst_size());
        let [mut whole, mut least] =
            [quota, quota.burst(limit)].map(|quota| oracle::of(Kind::TokenBucket, quota));
        let workers = [(); 3].map(|()| Worker::new(&limiter));
        let mut caller = Caller::new(random.fork(), quota.burst(40)).with_steady_clock().impatient();
        for step in 0..400 {
            let (now, ask) = caller.ask();
            limiter.clock().set(now);
            // The caller counts in a small burst; once in a while something larger.
            let cost = if random.u8(..10) == 0 { random.u64(1..=limit) } else { ask.cost() };
            let verb = random.u8(..8);
            let admitted = workers[random.usize(..workers.len())].ask(move |limiter| match verb {
                0 => limiter.check_n(cost).is_allowed(),
                1 => limiter.allow_n_at(cost, now),
                2 => limiter.reserve_within(cost, Duration::ZERO).is_ok(),
                3 if cost == 1 => limiter.allow_at(now),
                _ if cost == 1 => limiter.allow(),
                _ => limiter.allow_n(cost),
            });
            let now_ns = now.as_nanos();
            let [most, must] = [&whole, &least].map(|oracle| oracle.wait_ns(now_ns, cost) == Some(0));
            let what = format!("seed {seed}, step {step}, {quota}: {cost} at {now}");
            assert!(!admitted || most, "{what}: too much");
            assert!(admitted || !must, "{what}: it was there");
            if admitted {
                whole.take(now_ns, cost);
                // The smaller bucket may be behind, never ahead: then it starts from empty.
                let wait_ns = least.wait_ns(now_ns, cost).expect("within the limit");
                least.take(now_ns + wait_ns, cost);
            } else if let Some(wait) = limiter.peek_n(cost).retry_after() {
                let early = Tick::from_nanos((now + wait).as_nanos() - 1);
                assert!(!limiter.peek_n_at(cost, early).is_allowed(), "{what}: not one nanosecond sooner");
                assert!(limiter.peek_n_at(cost, now + wait).is_allowed(), "{what}: at that very moment");
            }
        }
    }
}

type Pending<'a> = Pin<Box<Wait<'a, Sharded, ManualClock>>>;

fn poll(wait: &mut Pending<'_>) -> Option<Result<Tick, WaitError>> {
    match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome.map(|reservation| reservation.act_time())),
        Poll::Pending => None,
    }
}

#[test]
fn nobody_slips_past_who_waits() {
    let (limiter, clock) = thirty_in_a_lane();
    let mut wait = Box::pin(limiter.wait_n(50));
    assert_eq!(poll(&mut wait), None, "twenty are missing");
    assert!(!limiter.allow() && !limiter.allow_n(3) && !limiter.check().is_allowed());
    clock.advance(millis(20).checked_sub(Duration::from_nanos(1)).unwrap());
    assert_eq!(poll(&mut wait), None);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(poll(&mut wait), Some(Ok(Tick::ZERO + millis(20))), "with what lay in the lane");
    assert_eq!(limiter.remaining(), 0);
    clock.advance(Duration::from_secs(1));
    assert!((0..900).all(|_| limiter.allow()), "the lanes are open again");
}

#[test]
fn a_wait_is_served_from_lanes_at_once() {
    let (limiter, _clock) = thirty_in_a_lane();
    assert!(matches!(poll(&mut Box::pin(limiter.wait_n(30))), Some(Ok(Tick::ZERO))));
    assert_eq!(limiter.remaining(), 0);
}

#[test]
fn a_deadline_counts_on_the_lanes() {
    let (limiter, _clock) = thirty_in_a_lane();
    let late = poll(&mut Box::pin(limiter.wait_n(50).within(millis(19))));
    assert_eq!(late, Some(Err(WaitError::TooLate { would_take: millis(20) })));
    assert_eq!(poll(&mut Box::pin(limiter.wait_n(50).within(millis(20)))), None, "it may line up");
}

#[test]
fn whoever_gives_up_opens_the_lanes_again() {
    let (limiter, _clock) = thirty_in_a_lane();
    let mut wait = Box::pin(limiter.wait_n(50));
    assert_eq!(poll(&mut wait), None);
    assert!(!limiter.allow());
    drop(wait);
    assert_eq!((0..100).filter(|_| limiter.allow()).count(), 30);
}

#[test]
fn closing_opens_the_lanes_again() {
    let (limiter, _clock) = thirty_in_a_lane();
    let mut wait = Box::pin(limiter.wait_n(50));
    assert_eq!(poll(&mut wait), None);
    limiter.close();
    assert_eq!(poll(&mut wait), Some(Err(WaitError::Closed)));
    assert_eq!((0..100).filter(|_| limiter.allow()).count(), 30);
}

/// Waits of all sizes, some of them given up, among callers who do not wait: in order of arrival, and within the bound.
#[test]
fn random_waits_are_served_in_order_and_within_the_bound() {
    for seed in seeds(100) {
        let mut random = fastrand::Rng::with_seed(seed);
        let quota = Quota::per_second(1_000).burst(random.u64(256..1_500));
        let limiter = build(quota);
        let clock = limiter.clock().clone();
        let limit = limiter.peek().limit();
        let (mut line, mut served, mut history) = (Vec::new(), Vec::new(), Vec::new());
        for ticket in 0..300_u32 {
            match random.u8(..8) {
                0..3 => {
                    let cost = random.u64(1..=limit / 2);
                    line.push((ticket, cost, Box::pin(limiter.wait_n(cost))));
                }
                3 if !line.is_empty() => drop(line.remove(random.usize(..line.len()))),
                4 => clock.advance(Duration::from_micros(random.u64(..300_000))),
                _ => {
                    let waited = limiter.waiting() > 0;
                    let admitted = (0..random.u64(1..50)).filter(|_| limiter.allow()).count() as u64;
                    assert!(!waited || admitted == 0, "seed {seed}: nobody slips past");
                    history.push(Operation::at(clock.now().as_nanos(), admitted));
                }
            }
            line.retain_mut(|(ticket, cost, wait)| match poll(wait) {
                Some(outcome) => {
                    let act = outcome.expect("nothing here is refused");
                    served.push((*ticket, act));
                    history.push(Operation::at(act.as_nanos(), *cost));
                    false
                }
                None => true,
            });
        }
        served.sort_unstable();
        assert!(served.len() >= 10, "seed {seed}: {} were served", served.len());
        assert!(served.is_sorted_by_key(|(_, act)| *act), "seed {seed}: out of order");
        let worst = largest_excess(quota, &history).expect("somebody was served");
        assert!(!worst.is_violation(), "seed {seed}: {quota}: {worst:?}");
    }
}
