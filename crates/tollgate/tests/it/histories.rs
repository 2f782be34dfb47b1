//! Recorded histories of many threads on one limiter, judged by tollgate-sim's checker: the excess over
//! burst + rate·T must be zero.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate::{Clock, Kind, Limiter, ManualClock, MonotonicClock, Quota, Tick, TokenBucket};
use tollgate_sim::history::{Operation, fullest_trailing, fullest_window, largest_excess};

const THREADS: [usize; 3] = [2, 8, 64];

fn quotas() -> [Quota; 8] {
    [
        Quota::per_second(1_000_000).burst(1_000),
        Quota::per_second(100_000).burst(100),
        Quota::per_second(1_000).burst(10),
        Quota::per_second(10_000_000).burst(1),
        Quota::per_second(1_000_000_000).burst(100_000),
        Quota::per_second(300_000_000).burst(3),
        Quota::per_minute(7).burst(20),
        Quota::per_second(3).burst(5),
    ]
}

/// Calls `allow` from many threads, and records when each admitted call began and ended.
fn hammer<C: Clock>(limiter: &Limiter<TokenBucket, C>, threads: usize, calls: usize) -> Vec<Operation> {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let one = || {
            barrier.wait();
            let mut admitted = Vec::new();
            for _ in 0..calls {
                let invoke_ns = limiter.clock().now().as_nanos();
                if limiter.allow() {
                    let response_ns = limiter.clock().now().as_nanos();
                    admitted.push(Operation { invoke_ns, response_ns, cost: 1 });
                }
            }
            admitted
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
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
            let limiter = Limiter::builder(quota).clock(MonotonicClock::new()).build();
            let history = hammer(&limiter, threads, 200_000 / threads);
            assert!(history.len() as u64 >= quota.burst_size().min(1_000), "{quota}: the burst was there");
            assert_kept(quota, threads, &history);
        }
    }
}

#[test]
fn the_default_clock_never_exceeds_the_bound() {
    for threads in THREADS {
        let quota = Quota::per_second(1_000_000).burst(1_000);
        let history = hammer(&Limiter::new(quota), threads, 200_000 / threads);
        assert_kept(quota, threads, &history);
    }
}

#[test]
fn drain_then_idle_until_full_then_burst() {
    for quota in quotas() {
        for threads in THREADS {
            let clock = ManualClock::new();
            let limiter = Limiter::builder(quota).clock(clock.clone()).build();
            let mut history = Vec::new();
            let calls = (2 * quota.burst_size() as usize).min(20_000) / threads + 1;
            for _ in 0..4 {
                history.extend(hammer(&limiter, threads, calls));
                let full = limiter.peek_n(0).reset_after().expect("it refills");
                clock.advance(full);
            }
            let drained = quota.burst_size() as usize <= calls * threads;
            assert!(!drained || history.len() == 4 * quota.burst_size() as usize, "{quota}: full every time");
            assert_kept(quota, threads, &history);
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
            let limiter = Limiter::builder(quota).clock(clock.clone()).build();
            let done = AtomicBool::new(false);
            let history = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let step = step_ns(quota);
                    while !done.load(Ordering::SeqCst) {
                        clock.advance(Duration::from_nanos(3 * step + 7));
                        let now = clock.now();
                        clock.set(Tick::from_nanos(now.as_nanos().saturating_sub(step)));
                        clock.advance_to(now);
                    }
                });
                let history = hammer(&limiter, threads, 20_000 / threads);
                done.store(true, Ordering::SeqCst);
                history
            });
            // The clock is never more than one step behind its highest reading, so the reading that decided lies within a
            // step of the two around it.
            let slack = step_ns(quota);
            let widened = |Operation { invoke_ns, response_ns, cost }| Operation {
                invoke_ns: invoke_ns.min(response_ns).saturating_sub(slack),
                response_ns: invoke_ns.max(response_ns) + slack,
                cost,
            };
            let history: Vec<_> = history.into_iter().map(widened).collect();
            assert_kept(quota, threads, &history);
        }
    }
}

#[test]
fn a_quota_that_changes_under_the_callers_keeps_the_greater_bound() {
    // Between 1 000/s and 500/s with bursts of 100 and 40, changed 1 000 times: never more than the larger of both.
    let (high, low) = (Quota::per_second(1_000).burst(100), Quota::per_second(500).burst(40));
    for threads in THREADS {
        let clock = ManualClock::new();
        let limiter = Limiter::builder(high).clock(clock.clone()).build();
        let done = AtomicBool::new(false);
        let history = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    if done.load(Ordering::SeqCst) && round > 1_000 {
                        break;
                    }
                    limiter.set_quota(if round % 2 == 0 { low } else { high });
                    clock.advance(Duration::from_micros(700));
                }
            });
            let history = hammer(&limiter, threads, 40_000 / threads);
            done.store(true, Ordering::SeqCst);
            history
        });
        assert_kept(high, threads, &history);
    }
}

#[test]
fn the_other_algorithms_keep_their_own_bounds() {
    let quota = Quota::per_second(1_000);
    let period_ns = 1_000_000_000;
    for kind in
        [Kind::FixedWindow, Kind::SlidingLog, Kind::SubWindows, Kind::PacedWindow, Kind::SlidingCounter]
    {
        for threads in THREADS {
            let clock = ManualClock::new();
            let limiter = Limiter::builder(quota).kind(kind).clock(clock.clone()).build();
            let mut history = Vec::new();
            for _ in 0..40 {
                let barrier = Barrier::new(threads);
                let now = clock.now().as_nanos();
                let admitted = std::thread::scope(|scope| {
                    let one = || {
                        barrier.wait();
                        (0..=(400 / threads)).filter(|_| limiter.allow()).count()
                    };
                    let handles: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
                    handles.into_iter().map(|handle| handle.join().expect("no panic")).sum::<usize>()
                });
                history.extend((0..admitted).map(|_| Operation::at(now, 1)));
                clock.advance(Duration::from_millis(130));
            }
            let window = fullest_window(period_ns, &history).expect("something was admitted").cost;
            let trailing = fullest_trailing(period_ns, &history).expect("something was admitted").cost;
            assert!(window <= 1_000, "{kind}: {window} in an aligned window");
            match kind {
                Kind::SlidingLog | Kind::SubWindows => assert!(trailing <= 1_000, "{kind}: {trailing}"),
                Kind::SlidingCounter => assert!(trailing <= 1_999, "{kind}: {trailing}"),
                _ => assert!(trailing <= 2_000, "{kind}: {trailing}"),
            }
        }
    }
}
