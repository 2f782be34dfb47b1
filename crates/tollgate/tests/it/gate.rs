//! Gates: all limits or none, decided as by several exact limiters, under contention too.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{
    AnyAlgorithm, Ask, Clock, ConcurrencyLimit, Gate, GateDecision, Kind, Limiter, ManualClock,
    MonotonicClock, OnDrop, Permit, Quota, Tick, TokenBucket, Verdict, WaitError,
};
use tollgate_sim::conformance::{self, Subject};
use tollgate_sim::history::{Operation, largest_excess};
use tollgate_sim::oracle::{self, Oracle};
use tollgate_sim::{Outcome, draw, laws};

type Any = Limiter<AnyAlgorithm, ManualClock>;
type Bucket = Limiter<TokenBucket, ManualClock>;

fn build(clock: &ManualClock, kind: Kind, quota: Quota) -> Any {
    Limiter::builder(quota).kind(kind).clock(clock.clone()).build()
}

fn bucket(clock: &ManualClock, quota: Quota) -> Bucket {
    Limiter::builder(quota).clock(clock.clone()).build()
}

/// A bucket that never refills.
fn dry(clock: &ManualClock, burst: u64) -> Bucket {
    bucket(clock, Quota::per_second(0).burst(burst))
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The conformance suite's view of a gate; the first limit is the one that is compared.
struct Store {
    kind: Kind,
    quota: Quota,
    others: usize,
    clock: ManualClock,
    limits: Vec<Any>,
    gate: Gate<Vec<Any>>,
    admitted: Vec<Option<(Permit<Vec<Any>>, u64)>>,
}

impl Store {
    fn new(kind: Kind, quota: Quota, others: usize) -> Self {
        Self::on(ManualClock::new(), kind, quota, others)
    }

    fn on(clock: ManualClock, kind: Kind, quota: Quota, others: usize) -> Self {
        let mut limits = vec![build(&clock, kind, quota)];
        limits.extend(Kind::ALL.iter().take(others).map(|kind| build(&clock, *kind, Quota::UNLIMITED)));
        let gate = Gate::new(limits.clone());
        Self { kind, quota, others, clock, limits, gate, admitted: Vec::new() }
    }
}

impl Subject for Store {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.clock.set(now);
        match self.gate.reserve_within(ask.cost(), ask.patience()) {
            Ok(permit) => {
                let outcome = permit.decision().decision().into();
                // Only the first limit says something about the moment to act.
                let outcome = match outcome {
                    Outcome::Admit { .. } => Outcome::Admit {
                        delay_ns: permit.act_time().as_nanos().saturating_sub(now.as_nanos()),
                    },
                    refused @ Outcome::Deny { .. } => refused,
                };
                self.admitted.push(Some((permit, ask.cost())));
                outcome
            }
            Err(refused) => refused.0.decision().into(),
        }
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.clock.set(now);
        self.gate.peek_within(ask.cost(), ask.patience()).decision().into()
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        self.clock.set(now);
        if let Some((permit, cost)) = self.admitted.get_mut(admission).and_then(Option::take) {
            permit.settle(cost - amount);
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.limits[0].charge_at(extra, now);
    }

    fn set_quota(&mut self, now: Tick, quota: Quota) {
        self.limits[0].set_quota_at(quota, now);
    }

    fn reset(&mut self) {
        *self = Self::new(self.kind, self.quota, self.others);
    }
}

#[test]
fn limits_of_any_two_kinds_admit_all_or_nothing() {
    for (one, two) in Kind::ALL.into_iter().flat_map(|one| Kind::ALL.map(|two| (one, two))) {
        for seed in 0..30 {
            let clock = ManualClock::new();
            let quotas = [Quota::per_second(3).burst(4), Quota::per_second(4).burst(6)];
            let mut members = [(one, quotas[0]), (two, quotas[1])]
                .map(|(kind, quota)| Store::on(clock.clone(), kind, quota, 0));
            let together = |members: &mut [Store; 2], now, cost| {
                clock.set(now);
                members[0].limits[0].and(&members[1].limits[0]).allow_n(cost)
            };
            laws::all_or_nothing(&mut members, together, seed)
                .unwrap_or_else(|broken| panic!("{one}, {two}: {broken}"));
        }
    }
}

#[test]
fn a_gate_of_one_decides_as_its_limit_does() {
    for kind in Kind::ALL {
        conformance::run(kind, |quota| Store::new(kind, quota, 0), 0..1_000);
    }
}

#[test]
fn a_limit_decides_the_same_beside_unlimited_ones() {
    for kind in Kind::ALL {
        conformance::run(kind, |quota| Store::new(kind, quota, 2), 0..500);
    }
}

/// Several exact limiters side by side, which admit together.
struct Tiers(Vec<Box<dyn Oracle>>);

impl Tiers {
    /// Nanoseconds until all admit at one and the same moment; `None` if they never do.
    fn wait_ns(&self, now_ns: u64, cost: u64) -> Option<u64> {
        let mut at_ns = now_ns;
        loop {
            let waits: Option<Vec<u64>> = self.0.iter().map(|tier| tier.wait_ns(at_ns, cost)).collect();
            match waits?.into_iter().max()? {
                0 => return Some(at_ns - now_ns),
                wait_ns => at_ns += wait_ns,
            }
        }
    }

    fn take(&mut self, at_ns: u64, cost: u64) {
        for tier in &mut self.0 {
            tier.take(at_ns, cost);
        }
    }
}

/// Quotas at which nothing is rounded, tight and loose ones, in random order.
fn tiers(random: &mut fastrand::Rng) -> Vec<(Kind, Quota)> {
    let exact = |(kind, quota): &(Kind, Quota)| oracle::tolerance_ns(*kind, *quota) == 0;
    let kinds = [Kind::TokenBucket, Kind::FixedWindow, Kind::SlidingLog, Kind::SubWindows, Kind::LeakyBucket];
    let mut draw = || {
        let kind = kinds[random.usize(..kinds.len())];
        let quota = if random.bool() { conformance::small_quota(random) } else { draw::quota(random) };
        (kind, quota)
    };
    std::iter::repeat_with(&mut draw).filter(exact).take(3).collect()
}

#[test]
fn tiers_decide_as_exact_limiters_side_by_side() {
    for seed in 0..3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let tiers = tiers(&mut random);
        let clock = ManualClock::new();
        let limits: Vec<_> = tiers.iter().map(|(kind, quota)| build(&clock, *kind, *quota)).collect();
        let gate = limits[0].and(&limits[1]).and(&limits[2]);
        let mut exact = Tiers(tiers.iter().map(|(kind, quota)| oracle::of(*kind, *quota)).collect());
        for step in 0..60 {
            clock.advance(Duration::from_nanos(
                [0, 1, 1_000_000, random.u64(..2_000_000_000)][random.usize(..4)],
            ));
            let (now_ns, cost) = (clock.now().as_nanos(), random.u64(1..=3));
            let wait_ns = exact.0.iter().map(|tier| tier.wait_ns(now_ns, cost)).collect::<Option<Vec<_>>>();
            let want = Outcome::of(wait_ns.map(|waits| waits.into_iter().max().unwrap()), 0);
            let before: Vec<_> = limits.iter().map(|limit| (limit.peek_n(1), limit.peek_n(cost))).collect();
            let got = gate.check_n(cost);
            assert_eq!(Outcome::from(got.decision()), want, "seed {seed}, step {step}: {tiers:?}");
            if want.is_admitted() {
                exact.take(now_ns, cost);
            } else {
                let after: Vec<_> =
                    limits.iter().map(|limit| (limit.peek_n(1), limit.peek_n(cost))).collect();
                assert_eq!(before, after, "seed {seed}, step {step}: a refusal touches nothing");
                let decider = &before[got.decided_by().position()].1;
                assert_eq!(decider.retry_after(), got.retry_after(), "seed {seed}: it names who refused");
            }
            for (limit, exact) in limits.iter().zip(&exact.0) {
                let want = Outcome::of(exact.wait_ns(now_ns, 1), 0);
                assert_eq!(Outcome::from(limit.peek()), want, "seed {seed}, step {step}: all or none");
            }
        }
    }
}

#[test]
fn reservations_of_tiers_are_for_the_first_moment_of_all() {
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = ManualClock::new();
        let quotas: Vec<_> = (0..3)
            .map(|_| Quota::per_second([1, 2, 4, 5, 10][random.usize(..5)]).burst(random.u64(2..9)))
            .collect();
        let limits: [Bucket; 3] = std::array::from_fn(|index| bucket(&clock, quotas[index]));
        let gate = Gate::new(limits.each_ref());
        let mut exact = Tiers(quotas.iter().map(|quota| oracle::of(Kind::TokenBucket, *quota)).collect());
        let mut history = Vec::new();
        for step in 0..30 {
            clock.advance(millis(random.u64(..400)));
            let (now, cost) = (clock.now(), random.u64(1..=2));
            let wait_ns = exact.wait_ns(now.as_nanos(), cost).expect("they refill");
            let patience_ns = random.u64(..3_000_000_000);
            match gate.reserve_within(cost, Duration::from_nanos(patience_ns)) {
                Ok(permit) => {
                    let delay_ns = permit.act_time().as_nanos() - now.as_nanos();
                    assert_eq!(Some(delay_ns), Some(wait_ns), "seed {seed}, step {step}: {quotas:?}");
                    assert!(delay_ns <= patience_ns);
                    assert_eq!(permit.decision().delay(), Duration::from_nanos(delay_ns));
                    exact.take(now.as_nanos() + wait_ns, cost);
                    history.push(Operation::at(permit.act_time().as_nanos(), cost));
                }
                Err(refused) => {
                    let retry = refused.0.retry_after().expect("they refill").as_nanos();
                    assert_eq!(retry, u128::from(wait_ns - patience_ns), "seed {seed}, step {step}");
                }
            }
        }
        for quota in quotas {
            let worst = largest_excess(quota, &history).expect("something was admitted");
            assert!(!worst.is_violation(), "seed {seed}: {quota}: {worst:?}");
        }
    }
}

const THREADS: [usize; 3] = [2, 8, 64];

/// Runs `one` on so many threads at once; what they all return.
fn together<T: Send>(threads: usize, one: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(threads);
    let (one, barrier) = (&one, &barrier);
    std::thread::scope(|scope| {
        let start = |thread| {
            move || {
                barrier.wait();
                one(thread)
            }
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(start(thread))).collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
    })
}

#[test]
fn every_tier_keeps_its_bound_under_contention() {
    let quotas = [
        Quota::per_second(100_000).burst(100),
        Quota::per_minute(3_000_000).burst(2_000),
        Quota::per_second(1_000_000).burst(10),
    ];
    for threads in THREADS {
        let clock = MonotonicClock::new();
        let [first, second, third] = quotas.map(|quota| Limiter::builder(quota).clock(clock).build());
        let history: Vec<Operation> = together(threads, |thread| {
            let mut admitted = Vec::new();
            for _ in 0..100_000 / threads {
                let invoke_ns = clock.now().as_nanos();
                let allowed = match thread % 3 {
                    0 => first.and(&second).and(&third).allow(),
                    1 => third.and(&first).and(&second).check().is_allowed(),
                    _ => second.and(third.and(&first)).acquire().is_ok(),
                };
                if allowed {
                    admitted.push(Operation { invoke_ns, response_ns: clock.now().as_nanos(), cost: 1 });
                }
            }
            admitted
        })
        .concat();
        assert!(history.len() >= 10, "the burst was there");
        for quota in quotas {
            let worst = largest_excess(quota, &history).expect("something was admitted");
            assert!(!worst.is_violation(), "{quota} with {threads} threads: {worst:?}");
        }
    }
}

/// Rate zero: what is gone is gone, so every unit can be counted.
#[test]
fn all_or_nothing_under_contention_to_the_unit() {
    for threads in THREADS {
        for round in 0..20 {
            let clock = ManualClock::new();
            let (a, b) = (dry(&clock, 500), dry(&clock, 700 + round));
            let window = build(&clock, Kind::SlidingLog, Quota::per_day(600));
            let slots = ConcurrencyLimit::new(3);
            let spent = [(); 3].map(|()| AtomicU64::new(0));
            let count = |costs: [u64; 3], admitted: bool| {
                for (spent, cost) in spent.iter().zip(costs) {
                    spent.fetch_add(if admitted { cost } else { 0 }, Ordering::SeqCst);
                }
            };
            together(threads, |thread| {
                let mut random = fastrand::Rng::with_seed(thread as u64 + 1_000 * round);
                for _ in 0..3_000 / threads {
                    let n = random.u64(1..=3);
                    match random.u8(..6) {
                        0 => count([n, n, 0], a.and(&b).allow_n(n)),
                        1 => count([n, n, n], window.and(&b).and(&a).check_n(n).is_allowed()),
                        2 => count([1, n, 0], b.and(a.costing(1)).allow_n(n)),
                        3 => count([n, 0, 0], a.allow_n(n)),
                        4 => count([n, 0, n], slots.costing(1).and(&a).and(&window).acquire_n(n).is_ok()),
                        _ => count([2 * n, n, 0], a.and(&b).and(&a).allow_n(n)),
                    }
                }
            });
            let [used_a, used_b, used_window] = spent.map(AtomicU64::into_inner);
            assert_eq!(500 - a.remaining(), used_a, "{threads} threads");
            assert_eq!(700 + round - b.remaining(), used_b, "{threads} threads");
            assert_eq!(600 - window.remaining(), used_window, "{threads} threads");
            assert_eq!(slots.in_use(), 0);
            assert!(used_a >= 498, "no call of one or two was turned away for nothing: {used_a}");
        }
    }
}

/// There is just enough for everybody. A call that took of one limit and then gave back, because it was too late for the other,
/// would turn somebody away for nothing.
#[test]
fn nobody_is_refused_for_the_sake_of_a_call_that_fails() {
    for threads in THREADS {
        for _ in 0..20 {
            let clock = ManualClock::new();
            let calls = 2_000 / threads as u64;
            let enough = calls * threads as u64;
            let (a, b, c) = (dry(&clock, enough), dry(&clock, enough), dry(&clock, enough));
            let empty = dry(&clock, 0);
            let refused: u64 = together(threads, |thread| {
                let one = |call: u64| {
                    assert!(!a.and(&b).and(&empty).allow());
                    !match (thread as u64 + call) % 3 {
                        0 => a.and(&b).and(&c).allow(),
                        1 => c.and(&b).and(&a).allow(),
                        _ => b.and(&c).and(&a).allow(),
                    }
                };
                (0..calls).filter(|call| one(*call)).count() as u64
            })
            .into_iter()
            .sum();
            assert_eq!(refused, 0, "{threads} threads");
            assert_eq!([a, b, c].map(|limit| limit.remaining()), [0, 0, 0]);
        }
    }
}

#[test]
fn the_decision_names_the_limit_that_decided_and_the_tightest() {
    let clock = ManualClock::new();
    let named = |name, quota| Limiter::builder(quota).clock(clock.clone()).name(name).build();
    let disk = named("disk", Quota::per_second(1).burst(10));
    let network = named("network", Quota::per_second(10).burst(4));
    let gate = disk.costing(5).and(&network);
    let first = gate.check_n(1);
    assert_eq!((first.tightest().name(), first.remaining(), first.limit()), ("disk", 5, 10));
    assert_eq!(first.decided_by(), first.tightest());
    assert!(gate.allow_n(3));
    let refused = gate.check_n(2);
    assert_eq!((refused.decided_by().name(), refused.decided_by().position()), ("disk", 0));
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(5)), "the longest of 5 s and 0.2 s");
    assert_eq!(refused.verdict(), Verdict::Deny);
    let never = gate.acquire_n(5).unwrap_err();
    assert_eq!(never.0.decided_by().to_string(), "network");
    assert!(never.0.is_never(), "one that never admits outweighs any wait");
    assert_eq!(never.to_string(), "denied by network: the cost exceeds its limit of 4, or its rate is zero");
    let (plain, other) = (dry(&clock, 0), dry(&clock, 1));
    assert_eq!(other.and(&plain).check().decided_by().name(), "limit 2");
}

#[test]
fn a_concurrency_limit_in_a_gate() {
    let clock = ManualClock::new();
    let rate = dry(&clock, 10);
    let slots = ConcurrencyLimit::named("at once", 2);
    let gate = rate.and(slots.costing(1));
    let (first, second) = (gate.acquire_n(3).unwrap(), gate.acquire().unwrap());
    let refused = gate.acquire().unwrap_err();
    assert_eq!(refused.0.decided_by().name(), "at once");
    assert_eq!(refused.0.retry_after(), Some(Duration::ZERO), "it may be had at any moment");
    assert_eq!(refused.to_string(), "denied by at once: all 2 slots are in use");
    assert_eq!((rate.remaining(), slots.in_use()), (6, 2));
    first.release();
    second.cancel();
    assert_eq!((rate.remaining(), slots.in_use()), (7, 0));
    assert!(gate.reserve().is_ok_and(|permit| permit.delay() == Duration::ZERO));
    assert_eq!(slots.in_use(), 0);
    assert!(rate.and(slots.costing(3)).check().is_never());
}

#[test]
fn a_refusal_for_want_of_slots_says_how_many_there_are() {
    let slots = ConcurrencyLimit::named("slots", 8);
    let gate = Gate::new(&slots);
    let told = |n| gate.acquire_n(n).unwrap_err().to_string();
    let some = slots.try_acquire_n(6).unwrap();
    assert_eq!(told(3), "denied by slots: 2 of 8 slots are free, too few or reserved for waiting requests");
    let rest = slots.try_acquire_n(2).unwrap();
    assert_eq!(told(3), "denied by slots: all 8 slots are in use");
    slots.set_limit(0);
    assert_eq!(told(3), "denied by slots: its limit is zero");
    drop((some, rest));
    assert_eq!(told(3), "denied by slots: its limit is zero");
}

#[test]
fn a_permit_is_settled_released_cancelled_or_dropped() {
    let clock = ManualClock::new();
    let (requests, tokens) = (dry(&clock, 100), dry(&clock, 1_000));
    let left = || (requests.remaining(), tokens.remaining());
    let gate = requests.costing(1).and(&tokens);
    gate.acquire_n(300).unwrap().settle(120);
    assert_eq!(left(), (99, 880), "what was too much comes back");
    gate.acquire_n(100).unwrap().settle(180);
    assert_eq!(left(), (98, 700), "what was too little is charged");
    gate.acquire_n(0).unwrap().settle(100);
    assert_eq!(left(), (97, 600), "an estimate of nothing can be settled, too");
    gate.acquire_n(50).unwrap().release();
    assert_eq!(left(), (96, 550));
    gate.acquire_n(50).unwrap().cancel();
    assert_eq!(left(), (96, 550), "nothing happened");
    drop(gate.acquire_n(50).unwrap());
    assert_eq!(left(), (95, 500), "dropped: kept");
    let gate = gate.on_drop(OnDrop::GiveBack);
    drop(gate.acquire_n(50).unwrap());
    assert_eq!(left(), (95, 500), "dropped: given back");
    gate.acquire_n(50).unwrap().release();
    assert_eq!(left(), (94, 450), "released is not dropped");
    let unlimited = bucket(&clock, Quota::UNLIMITED);
    unlimited.and(&tokens).acquire_n(10).unwrap().settle(5);
    assert_eq!(left(), (94, 445));
}

#[test]
fn a_limit_that_occurs_twice_is_taken_twice() {
    let clock = ManualClock::new();
    let (a, b) = (dry(&clock, 10), dry(&clock, 10));
    let inner = a.and(&b);
    let gate = inner.clone().and(&inner).and(a.costing(1));
    gate.acquire_n(2).unwrap().settle(1);
    assert_eq!((a.remaining(), b.remaining()), (7, 8));
    assert!(!gate.allow_n(4), "8 and 1 of 7");
    assert_eq!(gate.peek_n(4).decided_by().position(), 0);
    assert!(gate.allow_n(3));
    assert_eq!((a.remaining(), b.remaining()), (0, 2));
    let slots = ConcurrencyLimit::new(3);
    let twice = slots.and(&slots);
    let permit = twice.acquire().unwrap();
    assert!(slots.in_use() == 2 && twice.acquire().is_err());
    drop(permit);
    assert_eq!(slots.in_use(), 0);
}

#[test]
fn a_limit_that_occurs_twice_refuses_for_as_long_as_both_take() {
    let clock = ManualClock::new();
    let (two, one) =
        (bucket(&clock, Quota::per_second(1).burst(2)), bucket(&clock, Quota::per_second(1).burst(1)));
    assert!(two.allow_n(2) && one.allow());
    let gate = two.and(&two);
    assert_eq!(gate.check(), gate.peek());
    assert_eq!(gate.check().retry_after(), Some(Duration::from_secs(2)));
    assert_eq!(gate.check_n(1), gate.acquire().unwrap_err().0);
    let mut each = Vec::new();
    assert!(gate.acquire_noting(1, &mut each).is_err());
    assert_eq!((each.len(), each[0].1.retry_after()), (1, Some(Duration::from_secs(2))));
    let never = one.and(&one);
    assert!(never.check().is_never() && never.peek().is_never());
    let late = never.wait().within(Duration::from_secs(10)).block();
    assert_eq!(late.unwrap_err(), WaitError::Never { cost: 2, limit: 1 }, "it does not line up in vain");
    let many = Gate::new(vec![two.clone(); 9]).and(&one);
    assert!(many.check().is_never() && many.peek().is_never());
    clock.advance(Duration::from_secs(2));
    assert!(gate.allow());
}

#[test]
fn the_longest_wait_is_told_though_a_slot_is_taken_too() {
    let clock = ManualClock::new();
    let rate = Limiter::builder(Quota::per_second(1)).clock(clock.clone()).name("rate").build();
    let slots = ConcurrencyLimit::named("slots", 1);
    let gate = rate.costing(1).and(slots.costing(1));
    let _held = gate.acquire().unwrap();
    let told = |refused: GateDecision| (refused.decided_by().name(), refused.retry_after());
    assert_eq!(told(gate.check()), ("rate", Some(millis(1_000))));
    assert_eq!(gate.peek(), gate.check());
    let reserve_within = |ms| told(gate.reserve_within(1, millis(ms)).unwrap_err().0);
    assert_eq!(reserve_within(0), ("rate", Some(millis(1_000))));
    assert_eq!(reserve_within(400), ("rate", Some(millis(600))));
    assert_eq!(reserve_within(1_000), ("slots", Some(Duration::ZERO)), "only a slot is wanting");
}

#[test]
fn gates_of_any_number_and_none() {
    let clock = ManualClock::new();
    let tiers: Vec<Bucket> = (1..=5).map(|burst| dry(&clock, burst)).collect();
    let gate = Gate::new(tiers.clone());
    assert!(gate.allow());
    assert_eq!(gate.check().decided_by().name(), "limit 1");
    assert_eq!(tiers.iter().map(Limiter::remaining).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let none: Gate<Vec<Bucket>> = Gate::new(Vec::new());
    assert!(none.allow_n(u64::MAX) && none.check().remaining() == u64::MAX);
    assert!(none.reserve().is_ok());
}

/// A clock that counts how often it is read.
#[derive(Clone, Debug, Default)]
struct Counted(std::sync::Arc<AtomicU64>);

impl Clock for Counted {
    fn now(&self) -> Tick {
        self.0.fetch_add(1, Ordering::SeqCst);
        Tick::ZERO
    }

    fn is_same(&self, other: &Self) -> bool {
        std::sync::Arc::ptr_eq(&self.0, &other.0)
    }
}

#[test]
fn one_reading_serves_all_limits_with_one_clock() {
    let (clock, other) = (Counted::default(), Counted::default());
    let on = |clock: &Counted| Limiter::builder(Quota::per_second(10)).clock(clock.clone()).build();
    let gate = Gate::new([on(&clock), on(&clock), on(&other), on(&clock)]);
    assert!(gate.allow());
    assert_eq!((clock.0.load(Ordering::SeqCst), other.0.load(Ordering::SeqCst)), (1, 1));
    assert!(MonotonicClock::new().is_same(&MonotonicClock::new()));
    assert!(!ManualClock::new().is_same(&ManualClock::new()));
}

#[test]
fn limits_with_clocks_of_their_own() {
    let (here, there) = (ManualClock::new(), ManualClock::new());
    there.advance(Duration::from_secs(1_000));
    let (near, far) = (bucket(&here, Quota::per_second(1)), bucket(&there, Quota::per_second(2).burst(1)));
    let gate = near.and(&far);
    assert!(gate.allow());
    assert_eq!(gate.check().retry_after(), Some(Duration::from_secs(1)));
    let promised = gate.reserve().unwrap();
    assert_eq!(promised.delay(), Duration::from_secs(1));
    there.advance(Duration::from_secs(1));
    assert!(!far.allow(), "taken as of the moment it is for");
    there.advance(millis(500));
    assert!(far.allow());
}

#[test]
fn a_cancelled_reservation_leaves_everything_as_it_was() {
    let clock = ManualClock::new();
    for kind in Kind::ALL {
        let (tight, loose) = (
            bucket(&clock, Quota::per_second(1)),
            build(&clock, kind, Quota::per(30, millis(1_500)).burst(20)),
        );
        let gate = tight.and(&loose);
        assert!(gate.allow());
        let state =
            || (tight.peek(), [1, 7, 19].map(|n| loose.peek_n(n)), loose.peek_within(19, Duration::MAX));
        let before = state();
        let permits: Vec<_> = (0..3).map(|_| gate.reserve().unwrap()).collect();
        let delays: Vec<_> = permits.iter().map(Permit::delay).collect();
        assert_eq!(delays, [1, 2, 3].map(Duration::from_secs), "{kind}");
        for permit in permits.into_iter().rev() {
            permit.cancel();
        }
        if [Kind::SlidingLog, Kind::SlidingCounter, Kind::SubWindows].contains(&kind) {
            // These forget what is over by the moment of a promise. What they promised stays promised until then.
            assert!(!loose.allow(), "{kind}");
            clock.advance(Duration::from_secs(10));
            assert!(loose.allow_n(30) && !loose.allow(), "{kind}");
            continue;
        }
        assert_eq!(state(), before, "{kind}");
        assert!(gate.reserve_within(1, millis(999)).is_err());
        assert_eq!(state(), before, "{kind}: a refused one took nothing");
    }
}

#[test]
fn every_limit_is_noted_and_not_only_the_one_that_decides() {
    let clock = ManualClock::new();
    let limiter = |quota: Quota, name| Limiter::builder(quota).clock(clock.clone()).name(name).build();
    let (small, large) = (limiter(Quota::per_second(1), "small"), limiter(Quota::per_second(9), "large"));
    let gate = small.and(&large).and(&small);
    let mut each = vec![];
    let refused = gate.acquire_noting(1, &mut each).expect_err("two of one");
    assert_eq!(refused.0.decided_by().name(), "small");
    assert_eq!(noted(&each), [("small", 1, false), ("large", 8, true)], "and nothing was taken");
    assert_eq!((small.remaining(), large.remaining()), (1, 9));

    let gate = small.and(&large);
    gate.acquire_noting(1, &mut each).expect("there is one of each").release();
    assert_eq!(noted(&each), [("small", 0, true), ("large", 8, true)]);
}

/// The name of each limit, what it says is left, and whether it admits.
#[test]
fn a_limit_that_occurs_twice_is_noted_once() {
    let clock = ManualClock::new();
    for (quota, n) in [(Quota::per_second(5), 1), (Quota::per_second(5), 0), (Quota::UNLIMITED, 1)] {
        let (limit, mut each) = (bucket(&clock, quota), Vec::new());
        assert!(limit.and(&limit).acquire_noting(n, &mut each).is_ok());
        assert_eq!(each.len(), 1, "{n} of {quota:?}");
    }
}

fn noted(each: &[(tollgate::Which, tollgate::Decision)]) -> Vec<(&'static str, u64, bool)> {
    each.iter().map(|(which, said)| (which.name(), said.remaining(), said.is_admitted())).collect()
}
