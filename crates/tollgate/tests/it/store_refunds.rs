//! Giving back without a receipt, through a store: believed, but never beyond the bound and what was given back.

use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Hit, MemoryLimit, MemoryStore, Mode, Rule, Store};
use tollgate::{Decision, Kind, ManualClock, Quota};
use tollgate_sim::bound::Bound;
use tollgate_sim::conformance::small_quota;

const SECOND: u64 = 1_000_000_000;

struct One {
    store: MemoryStore<ManualClock>,
    clock: ManualClock,
    limit: MemoryLimit<ManualClock>,
    now_ns: u64,
}

impl One {
    fn new(kind: Kind, quota: Quota) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limit = store.open(&Rule::new("laws", "refunds", quota).with_kind(kind));
        Self { store, clock, limit, now_ns: 0 }
    }

    fn advance(&mut self, nanos: u64) {
        self.now_ns += nanos;
        self.clock.advance(Duration::from_nanos(nanos));
    }

    fn act(&self, mode: Mode, cost: u64) -> Decision {
        let hit = Hit::new(&self.limit, b"somebody").costing(cost);
        self.store.decide(mode, &[hit]).into_inner().unwrap().decision()
    }

    fn left(&self) -> u64 {
        self.act(Mode::Peek, 0).remaining()
    }
}

/// What was written down: when, and how much.
type Events = Vec<(u64, u64)>;

/// In any span no more is admitted than the bound allows, and what came back in that span or shortly before.
fn check(
    kind: Kind,
    quota: Quota,
    admitted: &Events,
    refunds: &Events,
    before_ns: u64,
) -> Result<(), String> {
    let within = |events: &Events, start: u64, end: u64| -> u128 {
        let inside = events.iter().filter(|(at, _)| (start..=end).contains(at));
        inside.map(|(_, cost)| u128::from(*cost)).sum()
    };
    let bound = Bound::of(kind, quota);
    for &(start, _) in admitted {
        for &(end, _) in admitted.iter().filter(|(end, _)| *end >= start) {
            let (cost, back) =
                (within(admitted, start, end), within(refunds, start.saturating_sub(before_ns), end));
            // The moments that a queue promises are rounded up to whole nanoseconds.
            let span = end - start + u64::from(kind == Kind::LeakyQueue);
            let most = bound.most_in(span).expect("a quota that limits");
            if cost > most + back {
                return Err(format!("{cost} from {start} to {end} ns: {most} and {back} that came back"));
            }
        }
    }
    Ok(())
}

#[test]
fn no_span_admits_more_than_its_bound_and_what_came_back_in_it() {
    random_histories(false);
}

/// Where there are permits too, the same thing may come back both ways, and then counts for as long as its window does.
#[test]
fn what_comes_back_both_ways_counts_no_longer_than_its_window() {
    random_histories(true);
}

fn random_histories(with_permits: bool) {
    let before_ns = if with_permits { 2 * SECOND } else { 0 };
    for kind in Kind::ALL {
        for seed in 0..300 {
            let mut rng = Rng::with_seed(seed);
            let quota = small_quota(&mut rng);
            let mut one = One::new(kind, quota);
            let (mut admitted, mut refunds, mut permits) = (Events::new(), Events::new(), Vec::new());
            for _ in 0..80 {
                one.advance(rng.u64(..SECOND / 4) * u64::from(rng.bool()));
                let cost = rng.u64(1..4);
                match rng.u8(..6) {
                    0 => {
                        let before = one.left();
                        let after = one.act(Mode::Refund, cost).remaining();
                        assert!(after >= before, "{kind} {quota}, seed {seed}");
                        refunds.push((one.now_ns, cost));
                    }
                    1 if with_permits && !permits.is_empty() => {
                        let (index, mut permit) = permits.swap_remove(rng.usize(..permits.len()));
                        one.store.settle(&mut permit, &[0]).into_inner().unwrap();
                        let (_, cost): &mut (u64, u64) = &mut admitted[index];
                        *cost = 0;
                    }
                    2 if with_permits => {
                        let hit = Hit::new(&one.limit, b"somebody").costing(cost);
                        let (answer, permit) = one.store.acquire(&[hit]).into_inner().unwrap();
                        if let Some(permit) = permit {
                            permits.push((admitted.len(), permit));
                            admitted.push((one.now_ns + answer.delay().as_nanos() as u64, cost));
                        }
                    }
                    _ => {
                        let decision = one.act(Mode::Take, cost);
                        if decision.is_admitted() {
                            admitted.push((one.now_ns + decision.delay().as_nanos() as u64, cost));
                        }
                    }
                }
            }
            let kept = check(kind, quota, &admitted, &refunds, before_ns);
            assert_eq!(kept, Ok(()), "{kind} {quota}, seed {seed}");
        }
    }
}

/// A bucket in whole units, to which a refund adds, and which never overflows.
struct Bucket {
    rate: i128,
    depth: i128,
    /// In tokens times a second in nanoseconds; below zero if something is owed.
    held: i128,
}

impl Bucket {
    fn new(rate: u64, burst: u64) -> Self {
        let depth = i128::from(burst) * i128::from(SECOND);
        Self { rate: rate.into(), depth, held: depth }
    }

    fn pass(&mut self, nanos: u64) {
        self.add(self.rate * i128::from(nanos));
    }

    fn add(&mut self, units: i128) {
        self.held = (self.held + units).min(self.depth);
    }

    fn take(&mut self, cost: u64) -> bool {
        let units = i128::from(cost) * i128::from(SECOND);
        let fits = units <= self.held;
        self.held -= if fits { units } else { 0 };
        fits
    }
}

#[test]
fn a_token_bucket_takes_a_refund_as_tokens_and_never_overflows() {
    for seed in 0..500 {
        let mut rng = Rng::with_seed(seed);
        let (rate, burst) = (rng.u64(1..20), rng.u64(1..20));
        let mut one = One::new(Kind::TokenBucket, Quota::per_second(rate).burst(burst));
        let mut bucket = Bucket::new(rate, burst);
        for step in 0..200 {
            let nanos = rng.u64(..SECOND / 3) * u64::from(rng.bool());
            one.advance(nanos);
            bucket.pass(nanos);
            let cost = rng.u64(1..4);
            match rng.u8(..8) {
                0 | 1 => {
                    let _ = one.act(Mode::Refund, cost);
                    bucket.add(i128::from(cost) * i128::from(SECOND));
                }
                2 if rng.u8(..4) == 0 => {
                    let _ = one.act(Mode::Charge, cost);
                    bucket.held -= i128::from(cost) * i128::from(SECOND);
                }
                _ => {
                    let allowed = one.act(Mode::Take, cost).is_allowed();
                    assert_eq!(
                        allowed,
                        bucket.take(cost),
                        "{rate}/s burst {burst}, seed {seed}, step {step}"
                    );
                }
            }
            let left = u64::try_from(bucket.held.max(0) / i128::from(SECOND)).unwrap();
            assert_eq!(one.left(), left, "{rate}/s burst {burst}, seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_fixed_window_and_a_log_count_a_refund_of_what_is_oldest() {
    for kind in [Kind::FixedWindow, Kind::SlidingLog] {
        for seed in 0..300 {
            let mut rng = Rng::with_seed(seed);
            let count = rng.u64(1..20);
            let mut one = One::new(kind, Quota::per_second(count));
            let mut entries: Vec<u64> = Vec::new(); // when each was admitted
            for step in 0..200 {
                one.advance(rng.u64(..SECOND / 5) * u64::from(rng.bool()));
                let now = one.now_ns;
                entries.retain(|at| match kind {
                    Kind::FixedWindow => at / SECOND == now / SECOND,
                    _ => now - at < SECOND,
                });
                let cost = rng.u64(1..4);
                if rng.u8(..4) == 0 {
                    let _ = one.act(Mode::Refund, cost);
                    entries.drain(..entries.len().min(cost as usize));
                } else {
                    let fits = entries.len() as u64 + cost <= count;
                    entries.extend(std::iter::repeat_n(now, if fits { cost as usize } else { 0 }));
                    let allowed = one.act(Mode::Take, cost).is_allowed();
                    assert_eq!(allowed, fits, "{kind} {count}/s, seed {seed}, step {step}");
                }
                assert_eq!(
                    one.left(),
                    count - entries.len() as u64,
                    "{kind} {count}/s, seed {seed}, step {step}"
                );
            }
        }
    }
}

#[test]
fn a_receipt_is_worth_less_by_what_was_refunded_without_one() {
    let one = One::new(Kind::TokenBucket, Quota::per_hour(1).burst(10));
    let hit = Hit::new(&one.limit, b"somebody").costing(4);
    let (_, permit) = one.store.acquire(&[hit]).into_inner().unwrap();
    assert!(one.act(Mode::Take, 2).is_allowed());
    assert_eq!(one.act(Mode::Refund, 4).remaining(), 8, "somebody says that the four were not used");
    assert!(one.act(Mode::Take, 3).is_allowed());
    one.store.settle(&mut permit.unwrap(), &[0]).into_inner().unwrap();
    assert_eq!(one.left(), 5, "and they do not come back a second time");
}

#[test]
fn a_key_that_took_nothing_gets_nothing_and_is_not_remembered() {
    for kind in Kind::ALL {
        let one = One::new(kind, Quota::per_second(5));
        let fresh = one.left();
        assert_eq!(one.act(Mode::Refund, u64::MAX).remaining(), fresh, "{kind}");
        assert_eq!(one.store.usage().into_inner().unwrap().keys, Some(0), "{kind}");
    }
}
