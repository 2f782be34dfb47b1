use std::future::pending;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::ManualClock;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn heart() -> Heart {
    Heart::new(Rhythm::every(SECOND), Time::tokio())
}

/// A heart by a clock moved by hand.
fn manual() -> (ManualClock, Heart) {
    let clock = ManualClock::new();
    let heart = Heart::new(Rhythm::every(SECOND), Time::of(clock.clone()));
    (clock, heart)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn listener_absent_beats_go_on_and_a_later_one_sees_the_latest() {
    let (clock, heart) = manual();
    for _ in 0..10 {
        clock.advance(SECOND);
        heart.beat();
    }
    assert_eq!(heart.begin_unit(), 1);
    clock.advance(SECOND);
    assert_eq!(heart.begin_unit(), 2);
    let latest = heart.monitor().latest();
    assert_eq!(latest, Pulse { at: Tick::ZERO + 11 * SECOND, beats: 12, units: 2 });
}

#[test]
fn listener_slow_sees_only_the_latest() {
    let (_, heart) = manual();
    let mut monitor = heart.monitor();
    for _ in 0..1_000 {
        heart.begin_unit();
    }
    let expected = Pulse { at: Tick::ZERO, beats: 1_000, units: 1_000 };
    assert_eq!(poll(pin!(monitor.pulse())), Poll::Ready(Some(expected)));
    let mut pulse = pin!(monitor.pulse());
    assert_eq!(poll(pulse.as_mut()), Poll::Pending);
    heart.beat();
    assert!(poll(pulse.as_mut()).is_ready());
}

#[test]
fn listener_gone_while_it_waited_does_not_matter() {
    let (_, heart) = manual();
    let mut monitor = heart.monitor();
    assert!(poll(pin!(monitor.pulse())).is_pending());
    drop(monitor);
    heart.beat();
    heart.beat();
    assert_eq!(heart.monitor().latest().beats, 2);
}

#[tokio::test(start_paused = true)]
async fn worker_that_stops_beating_is_slow_then_dead_then_healthy_at_its_next_beat() {
    let time = Time::tokio();
    let heart = Heart::new(Rhythm::every(SECOND), time.clone());
    let mut monitor = heart.monitor();
    time.sleep(3 * SECOND / 2).await;
    heart.beat();
    assert_eq!(monitor.changed().await, Some(Health::Slow));
    assert_eq!(time.now(), Tick::ZERO + 7 * SECOND / 2);
    assert_eq!(monitor.changed().await, Some(Health::Dead));
    assert_eq!(time.now(), Tick::ZERO + 13 * SECOND / 2);
    let later = async {
        time.sleep(60 * SECOND).await;
        heart.beat();
    };
    let (health, ()) = tokio::join!(monitor.changed(), later);
    assert_eq!(health, Some(Health::Healthy));
    assert_eq!(time.now(), Tick::ZERO + 13 * SECOND / 2 + 60 * SECOND);
    assert_eq!(monitor.changed().await, Some(Health::Slow));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ended_is_not_dead() {
    let time = Time::tokio();
    let heart = heart();
    let mut monitor = heart.monitor();
    let ends = async {
        tokio::time::sleep(SECOND).await;
        drop(heart);
    };
    let (health, ()) = tokio::join!(monitor.changed(), ends);
    assert_eq!((health, time.now()), (Some(Health::Ended), Tick::ZERO + SECOND), "told at once");
    tokio::time::sleep(3_600 * SECOND).await;
    assert_eq!(monitor.health(), Health::Ended);
    assert_eq!(monitor.changed().await, None);
    assert_eq!(monitor.pulse().await, None);
}

#[test]
fn the_last_beat_before_the_end_is_still_told() {
    let (_, heart) = manual();
    let mut monitor = heart.monitor();
    heart.begin_unit();
    drop(heart);
    let expected = Pulse { at: Tick::ZERO, beats: 1, units: 1 };
    assert_eq!(poll(pin!(monitor.pulse())), Poll::Ready(Some(expected)));
    assert_eq!(poll(pin!(monitor.pulse())), Poll::Ready(None));
}

#[tokio::test(start_paused = true)]
async fn waiting_beats_at_each_interval_and_at_both_ends() {
    let heart = heart();
    let mut monitor = heart.monitor();
    let waiting = heart.beating(tokio::time::sleep(7 * SECOND / 2));
    tokio::select! {
        biased;
        change = monitor.changed() => panic!("a worker that waits is {change:?}"),
        () = waiting => {}
    }
    // At 0, 1, 2 and 3 seconds, and at the end.
    assert_eq!(monitor.latest(), Pulse { at: Tick::ZERO + 7 * SECOND / 2, beats: 5, units: 0 });
}

#[tokio::test(start_paused = true)]
async fn waiting_that_is_given_up_stops_the_beats() {
    let heart = heart();
    let mut monitor = heart.monitor();
    assert!(Time::tokio().timeout(10 * SECOND, heart.beating(pending::<()>())).await.is_err());
    assert_eq!(monitor.changed().await, Some(Health::Slow));
    assert_eq!(monitor.changed().await, Some(Health::Dead));
}

#[test]
fn the_beats_of_a_healthy_worker_wake_nobody() {
    let (clock, heart) = manual();
    let mut monitor = heart.monitor();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut changed = pin!(monitor.changed());
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for _ in 0..1_000 {
        heart.beat();
    }
    assert_eq!(woken.0.load(SeqCst), 0);
    clock.advance(2 * SECOND);
    assert_eq!(woken.0.load(SeqCst), 1);
}

#[test]
fn only_the_first_beat_after_a_silence_wakes_those_who_wait_for_it() {
    let (clock, heart) = manual();
    let mut monitor = heart.monitor();
    clock.advance(60 * SECOND);
    assert_eq!(poll(pin!(monitor.changed())), Poll::Ready(Some(Health::Dead)));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut changed = pin!(monitor.changed());
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for _ in 0..1_000 {
        heart.beat();
    }
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(!heart.shared.wanted.load(SeqCst), "later beats need not look for anybody");
    assert_eq!(poll(changed), Poll::Ready(Some(Health::Healthy)));
}

#[test]
fn a_wait_that_is_dropped_loses_no_change() {
    let (clock, heart) = manual();
    let mut monitor = heart.monitor();
    assert!(poll(pin!(monitor.changed())).is_pending());
    clock.advance(2 * SECOND);
    assert_eq!(poll(pin!(monitor.changed())), Poll::Ready(Some(Health::Slow)));
    assert!(poll(pin!(monitor.changed())).is_pending());
    drop(heart);
    assert_eq!(poll(pin!(monitor.changed())), Poll::Ready(Some(Health::Ended)));
}

#[test]
fn a_clock_that_steps_back_makes_nobody_worse() {
    let (clock, heart) = manual();
    clock.advance(100 * SECOND);
    heart.beat();
    clock.set(Tick::ZERO + SECOND);
    heart.beat();
    let monitor = heart.monitor();
    assert_eq!(monitor.health(), Health::Healthy);
    assert_eq!(monitor.latest().at, Tick::ZERO + 100 * SECOND);
    assert_eq!(monitor.health_at(Tick::ZERO + 102 * SECOND), Health::Slow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_threads_beat_and_no_waiting_listener_is_forgotten() {
    let heart = Arc::new(heart());
    let (mut first, mut second) = (heart.monitor(), heart.monitor());
    let listen = |mut monitor: Monitor| async move {
        let mut units = 0;
        while let Some(pulse) = monitor.pulse().await {
            units = units.max(pulse.units);
        }
        units
    };
    let listeners = [tokio::spawn(listen(first.clone())), tokio::spawn(listen(second.clone()))];
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let heart = Arc::clone(&heart);
            std::thread::spawn(move || {
                for _ in 0..10_000 {
                    heart.begin_unit();
                }
            })
        })
        .collect();
    drop(heart);
    for thread in threads {
        tokio::task::spawn_blocking(|| thread.join()).await.unwrap().unwrap();
    }
    for listener in listeners {
        assert_eq!(listener.await.unwrap(), 40_000);
    }
    assert_eq!(first.pulse().await.unwrap().beats, 40_000);
    assert_eq!(second.changed().await, Some(Health::Ended));
}
