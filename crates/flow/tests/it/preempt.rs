//! Long computations that give way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{Clock, ManualClock, Tick};
use tollgate_flow::{Ended, Scope, Time};

const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(10);

fn manual() -> (ManualClock, Scope) {
    let clock = ManualClock::new();
    let scope = Scope::new(Time::of(clock.clone()));
    (clock, scope)
}

/// Computes for `turns`, each of which takes as long as it says, beside a task that wants to run all the time.
/// Returns all the times for which it could not.
fn silences(turns: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let (clock, scope) = manual();
    let mut preempt = scope.preempt(PERIOD);
    let computation = async {
        for turn in turns {
            clock.advance(turn);
            preempt.point().await.unwrap();
        }
    };
    let mut computation = pin!(computation);
    let mut context = Context::from_waker(Waker::noop());
    let mut silences = Vec::new();
    loop {
        let start = clock.now();
        let is_done = computation.as_mut().poll(&mut context).is_ready();
        silences.push(clock.now().since(start));
        if is_done {
            return silences;
        }
    }
}

fn longest_silence(turns: impl Iterator<Item = Duration>) -> Duration {
    silences(turns).into_iter().max().unwrap()
}

#[test]
fn it_yields_no_more_often_than_twice_in_a_period() {
    // 105 ms of turns of 7 µs: a period is 10 ms.
    let yields = silences(std::iter::repeat_n(Duration::from_micros(7), 15_000)).len() - 1;
    assert!((10..=21).contains(&yields), "{yields}");
}

#[test]
fn it_yields_once_in_every_period_whatever_a_turn_takes() {
    for micros in [1, 7, 50, 300, 1_200] {
        let turn = Duration::from_micros(micros);
        let silence = longest_silence(std::iter::repeat_n(turn, 200_000 / micros as usize));
        assert!(silence >= PERIOD / 2 && silence <= PERIOD, "turns of {turn:?}: {silence:?}");
    }
}

#[test]
fn it_yields_once_in_every_period_when_turns_become_four_times_as_slow() {
    // 1 µs, 4 µs, 16 µs, 64 µs, 256 µs, 1 024 µs: 300 turns of each.
    let turns = (0..6).flat_map(|step| std::iter::repeat_n(Duration::from_micros(4_u64.pow(step)), 300));
    let silence = longest_silence(turns);
    assert!(silence <= PERIOD, "{silence:?}");
}

#[test]
fn a_sudden_slowness_lasts_for_64_turns_at_most() {
    let fast = std::iter::repeat_n(Duration::from_nanos(10), 10_000);
    let slow = std::iter::repeat_n(PERIOD, 1_000);
    assert!(longest_silence(fast.chain(slow)) <= 64 * PERIOD + PERIOD);
}

#[test]
fn turns_longer_than_the_period_yield_each_time() {
    assert_eq!(longest_silence(std::iter::repeat_n(3 * PERIOD, 20)), 3 * PERIOD);
}

#[test]
fn blocking_work_stops_within_a_period_of_the_deadline() {
    for micros in [1, 40, 1_000] {
        let (clock, root) = manual();
        let scope = root.within(SECOND);
        let mut preempt = scope.preempt(PERIOD);
        while preempt.check().is_ok() {
            clock.advance(Duration::from_micros(micros));
        }
        let late = clock.now().since(Tick::ZERO + SECOND);
        assert!(late <= PERIOD / 8 + Duration::from_micros(micros), "turns of {micros} µs: {late:?}");
    }
}

#[test]
fn async_work_stops_within_a_period_of_being_cancelled() {
    let (clock, scope) = manual();
    let mut preempt = scope.preempt(PERIOD);
    let mut cancelled_at = None;
    let computation = async {
        for turn in 0.. {
            if turn == 7_777 {
                scope.cancel();
                cancelled_at = Some(clock.now());
            }
            clock.advance(Duration::from_micros(3));
            preempt.point().await?;
        }
        Ok(())
    };
    let mut computation = Box::pin(computation);
    let mut context = Context::from_waker(Waker::noop());
    let ended = std::iter::repeat_with(|| computation.as_mut().poll(&mut context)).find(Poll::is_ready);
    assert_eq!(ended, Some(Poll::Ready(Err(Ended::Cancelled))));
    drop(computation);
    assert!(clock.now().since(cancelled_at.unwrap()) <= PERIOD);
}

#[test]
fn what_happens_while_it_yields_counts() {
    let (clock, root) = manual();
    let scope = root.within(SECOND);
    let mut preempt = scope.preempt(PERIOD);
    clock.advance(PERIOD);
    let mut point = Box::pin(preempt.point());
    let mut context = Context::from_waker(Waker::noop());
    assert!(point.as_mut().poll(&mut context).is_pending());
    clock.advance(SECOND);
    assert_eq!(point.as_mut().poll(&mut context), Poll::Ready(Err(Ended::Deadline)));
}

/// Stands still, and counts how often it is read.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU32>);

impl Clock for Counting {
    fn now(&self) -> Tick {
        self.0.fetch_add(1, Ordering::Relaxed);
        Tick::ZERO
    }
}

#[test]
fn a_tight_loop_seldom_reads_the_clock() {
    let clock = Counting::default();
    let mut preempt = Scope::new(Time::of(clock.clone())).preempt(PERIOD);
    for _ in 0..63 + 64 * 1_000 {
        preempt.check().unwrap();
    }
    // Once to begin with, six times for strides of 1, 2, 4, 8, 16 and 32, then every 64th time.
    assert_eq!(clock.0.load(Ordering::Relaxed), 1 + 6 + 1_000);
}

#[tokio::test]
async fn a_thread_ends_with_whoever_wants_its_result() {
    let scope = Scope::new(Time::tokio());
    let guard = scope.cancel_on_drop();
    let mut preempt = scope.preempt(PERIOD);
    let thread = tokio::task::spawn_blocking(move || {
        loop {
            if let Err(ended) = preempt.check() {
                return ended;
            }
        }
    });
    drop(guard);
    assert_eq!(thread.await.unwrap(), Ended::Cancelled);
}
