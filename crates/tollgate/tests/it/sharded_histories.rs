//! Recorded histories of many threads on one sharded limiter: the excess over burst + rate·T must be zero, and nothing may be
//! lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{Clock, Limiter, ManualClock, MonotonicClock, Quota, Sharded, Tick, TokenBucket};
use tollgate_sim::history::{Excess, Operation, largest_excess};

const THREADS: [usize; 3] = [2, 8, 64];

/// Fewer lanes than threads, so that lanes are shared; the burst that leases begin at is 256.
const LANES: u64 = 2;

fn quotas() -> [Quota; 7] {
    [
        Quota::per_second(1_000_000).burst(1_000),
        Quota::per_second(100_000_000).burst(2_000),
        Quota::per_second(1_000_000_000).burst(100_000),
        Quota::per_second(100_000).burst(256),
        Quota::per_second(100_000).burst(255), // no leases
        Quota::per_minute(7).burst(600),
        Quota::per_second(3).burst(20_000),
    ]
}

fn sharded<C: Clock>(quota: Quota, clock: C) -> Limiter<Sharded, C> {
    Limiter::builder(quota).algorithm(|quota| Sharded::new(quota, LANES)).clock(clock).build()
}

/// What cannot be relied on, and what can.
fn reserve_and_limit(quota: Quota) -> (u64, u64) {
    let reserve = LANES * Sharded::new(quota, LANES).lease();
    (reserve, quota.burst_size() - reserve)
}

/// Calls `allow` from many threads, and records when each admitted call began and ended. It is told which thread calls.
fn hammer(
    clock: &impl Clock,
    threads: usize,
    calls: usize,
    allow: impl Fn(usize) -> bool + Sync,
) -> Vec<Operation> {
    let (barrier, allow) = (Barrier::new(threads), &allow);
    std::thread::scope(|scope| {
        let one = |thread| {
            let barrier = &barrier;
            move || {
                barrier.wait();
                let mut admitted = Vec::new();
                for _ in 0..calls {
                    let invoke_ns = clock.now().as_nanos();
                    if allow(thread) {
                        let response_ns = clock.now().as_nanos();
                        admitted.push(Operation { invoke_ns, response_ns, cost: 1 });
                    }
                }
                admitted
            }
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(one(thread))).collect();
        handles.into_iter().flat_map(|handle| handle.join().expect("no panic")).collect()
    })
}

fn assert_kept(quota: Quota, threads: usize, history: &[Operation]) {
    let worst = largest_excess(quota, history).expect("something was admitted");
    assert!(!worst.is_violation(), "{quota} with {threads} threads: {worst:?}");
}

#[test]
fn real_threads_and_a_real_clock_never_exceed_the_bound() {
    for quota in quotas() {
        for threads in THREADS {
            let limiter = sharded(quota, MonotonicClock::new());
            let history = hammer(limiter.clock(), threads, 200_000 / threads, |_| limiter.allow());
            let (_, limit) = reserve_and_limit(quota);
            assert!(history.len() as u64 >= limit.min(1_000), "{quota}: the burst was there");
            assert_kept(quota, threads, &history);
        }
    }
}

#[test]
fn as_many_lanes_as_the_machine_likes_and_the_default_clock() {
    for threads in THREADS {
        let quota = Quota::per_second(50_000_000).burst(100_000);
        let limiter = Limiter::builder(quota).sharded().build();
        let history = hammer(limiter.clock(), threads, 200_000 / threads, |_| limiter.allow());
        assert_kept(quota, threads, &history);
    }
}

#[test]
fn costs_of_all_sizes_through_lanes_and_bucket_together() {
    let quota = Quota::per_second(10_000_000).burst(4_000); // leases of 125
    for threads in THREADS {
        let limiter = sharded(quota, MonotonicClock::new());
        let barrier = Barrier::new(threads);
        let history: Vec<_> = std::thread::scope(|scope| {
            let one = |seed| {
                let (limiter, barrier) = (&limiter, &barrier);
                move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    barrier.wait();
                    let mut admitted = Vec::new();
                    for _ in 0..100_000 / threads {
                        let cost = if random.u8(..8) == 0 { random.u64(1..600) } else { random.u64(1..4) };
                        let invoke_ns = limiter.clock().now().as_nanos();
                        let is_admitted = match random.u8(..4) {
                            0 => limiter.check_n(cost).is_allowed(),
                            1 => limiter.reserve_within(cost, Duration::ZERO).is_ok(),
                            _ => limiter.allow_n(cost),
                        };
                        if is_admitted {
                            let response_ns = limiter.clock().now().as_nanos();
                            admitted.push(Operation { invoke_ns, response_ns, cost });
                        }
                    }
                    admitted
                }
            };
            let handles: Vec<_> = (0..threads as u64).map(|seed| scope.spawn(one(seed))).collect();
            handles.into_iter().flat_map(|handle| handle.join().expect("no panic")).collect()
        });
        assert_kept(quota, threads, &history);
    }
}

/// The adversary: lets every lane be filled, idles until the bucket is full again, and takes whatever it can get. Answers the
/// worst of what it got, over several rounds.
fn fill_idle_burst(
    quota: Quota,
    clock: &ManualClock,
    threads: usize,
    allow: impl Fn(usize) -> bool + Sync,
) -> Excess {
    let full = quota.period() * quota.burst_size() as u32 / quota.count() as u32;
    let enough = 2 * quota.burst_size() as usize / threads;
    let mut history = Vec::new();
    for _ in 0..4 {
        history.extend(hammer(clock, 3, 1, &allow)); // fewer than the smallest lease, wherever they sit
        clock.advance(full + Duration::from_secs(1));
        history.extend(hammer(clock, threads, enough, &allow));
        clock.advance(full + Duration::from_secs(1));
    }
    largest_excess(quota, &history).expect("something was admitted")
}

#[test]
fn fill_the_leases_then_idle_until_full_then_burst() {
    for quota in quotas() {
        for threads in THREADS {
            let clock = ManualClock::new();
            let limiter = sharded(quota, clock.clone());
            let worst = fill_idle_burst(quota, &clock, threads, |_| limiter.allow());
            assert!(!worst.is_violation(), "{quota} with {threads} threads: {worst:?}");
            let (reserve, limit) = reserve_and_limit(quota);
            assert!(worst.cost.unsigned_abs() >= u128::from(limit), "{quota}: the burst was there");
            // Otherwise the adversary never met a full bucket beside a filled lane.
            assert!(reserve == 0 || worst.cost.unsigned_abs() > u128::from(limit), "{quota}");
        }
    }
}

/// What a sharded limiter would be without the reserve: the bucket keeps the whole burst. A test of the test.
struct Unreserved {
    bucket: Limiter<TokenBucket, ManualClock>,
    lanes: [AtomicU64; LANES as usize],
    lease: u64,
}

impl Unreserved {
    fn allow(&self, thread: usize) -> bool {
        let lane = &self.lanes[thread % self.lanes.len()];
        let spend = |tokens: u64| tokens.checked_sub(1);
        if lane.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend).is_ok() {
            return true;
        }
        if self.bucket.allow_n(self.lease) {
            lane.fetch_add(self.lease - 1, Ordering::SeqCst);
            return true;
        }
        self.bucket.allow()
    }
}

#[test]
fn leases_without_a_reserve_are_caught() {
    for quota in quotas() {
        let lease = Sharded::new(quota, LANES).lease();
        for threads in THREADS.into_iter().filter(|_| lease > 0) {
            let clock = ManualClock::new();
            let bucket = Limiter::builder(quota).clock(clock.clone()).build();
            let mutant = Unreserved { bucket, lanes: Default::default(), lease };
            let worst = fill_idle_burst(quota, &clock, threads, |thread| mutant.allow(thread));
            assert!(worst.is_violation(), "{quota} with {threads} threads");
        }
    }
}

/// The time between two tokens.
fn step_ns(quota: Quota) -> u64 {
    quota.period().as_nanos() as u64 / quota.count()
}

#[test]
fn a_clock_that_moves_and_steps_back_under_the_callers() {
    for quota in quotas() {
        for threads in THREADS {
            let clock = ManualClock::new();
            let limiter = sharded(quota, clock.clone());
            let done = AtomicBool::new(false);
            let step = step_ns(quota);
            let history = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        clock.advance(Duration::from_nanos(3 * step + 7));
                        let now = clock.now();
                        clock.set(Tick::from_nanos(now.as_nanos().saturating_sub(step)));
                        clock.advance_to(now);
                    }
                });
                let history = hammer(&clock, threads, 20_000 / threads, |_| limiter.allow());
                done.store(true, Ordering::SeqCst);
                history
            });
            // The clock is never more than one step behind its highest reading.
            let widened = |Operation { invoke_ns, response_ns, cost }| Operation {
                invoke_ns: invoke_ns.min(response_ns).saturating_sub(step),
                response_ns: invoke_ns.max(response_ns) + step,
                cost,
            };
            let history: Vec<_> = history.into_iter().map(widened).collect();
            assert_kept(quota, threads, &history);
        }
    }
}

#[test]
fn a_quota_that_changes_under_the_callers_keeps_the_greater_bound() {
    // Leases of 31, of 12 and none at all.
    let high = Quota::per_second(1_000).burst(1_000);
    let others = [Quota::per_second(500).burst(400), high, Quota::per_second(100).burst(90), high];
    for threads in THREADS {
        let clock = ManualClock::new();
        let limiter = sharded(high, clock.clone());
        let done = AtomicBool::new(false);
        let history = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    if done.load(Ordering::SeqCst) && round > 1_000 {
                        break;
                    }
                    limiter.set_quota(others[round % others.len()]);
                    clock.advance(Duration::from_millis(7));
                }
            });
            let history = hammer(&clock, threads, 40_000 / threads, |_| limiter.allow());
            done.store(true, Ordering::SeqCst);
            history
        });
        assert_kept(high, threads, &history);
        // Nothing of the old leases is left: under the smallest quota there are none.
        limiter.set_quota(others[2]);
        clock.advance(Duration::from_secs(3_600));
        assert_eq!((0..1_000).filter(|_| limiter.allow()).count(), 90);
    }
}

#[test]
fn nothing_is_lost_and_nothing_made_up() {
    let quota = Quota::per_second(0).burst(20_000); // leases of 625, which never come back
    let (_, limit) = reserve_and_limit(quota);
    for threads in THREADS {
        let limiter = sharded(quota, ManualClock::new());
        let (barrier, admitted) = (Barrier::new(threads), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (limiter, barrier, admitted) = (&limiter, &barrier, &admitted);
                scope.spawn(move || {
                    barrier.wait();
                    for call in 0..30_000 / threads {
                        let (cost, is_admitted) = match (thread + call) % 5 {
                            0 => (7, limiter.check_n(7).is_allowed()),
                            1 => (300, call % 64 == 0 && limiter.allow_n(300)),
                            2 => (3, limiter.allow_n(3)),
                            _ => (1, limiter.allow()),
                        };
                        admitted.fetch_add(if is_admitted { cost } else { 0 }, Ordering::Relaxed);
                    }
                });
            }
        });
        let admitted = admitted.into_inner();
        assert_eq!(admitted + limiter.remaining(), limit, "{threads} threads");
        let rest = (0..limit).filter(|_| limiter.allow()).count() as u64;
        assert_eq!((admitted + rest, limiter.remaining()), (limit, 0), "{threads} threads");
    }
}
