use std::future::pending;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc;

use tollgate::{ManualClock, Tick};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const RHYTHM: Rhythm = Rhythm::every(SECOND);

/// What a steward told, with the times.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(Duration, String)>>>);

impl Diary {
    /// Keeps the diary of `steward`, by tokio's time.
    fn of(steward: Steward) -> (Self, Steward) {
        let (diary, time) = (Self::default(), Time::tokio());
        let pages = Arc::clone(&diary.0);
        let steward = steward.on_event(move |event| {
            pages.lock().unwrap().push((time.now().since(Tick::ZERO), in_short(event)));
        });
        (diary, steward)
    }

    fn read(&self) -> Vec<(Duration, String)> {
        self.0.lock().unwrap().clone()
    }

    fn says(&self, expected: &[(Duration, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(at, event)| (*at, (*event).to_owned())).collect();
        assert_eq!(self.read(), expected);
    }
}

fn in_short(event: &StewardEvent) -> String {
    match event {
        StewardEvent::Started { restarts } => format!("started {restarts}"),
        StewardEvent::Slow => "slow".into(),
        StewardEvent::Recovered => "recovered".into(),
        StewardEvent::Died { death, restart_in } => format!("{death}; next in {restart_in:?}"),
        StewardEvent::LeftBehind => "left behind".into(),
        StewardEvent::Finished => "finished".into(),
        StewardEvent::Stopped { failure: None } => "stopped".into(),
        StewardEvent::Stopped { failure: Some(death) } => format!("stopped: {death}"),
        StewardEvent::GaveUp(gave_up) => gave_up.to_string(),
    }
}

/// Tells how many workers are there: each holds a clone.
#[derive(Clone, Default)]
struct Roll(Arc<()>);

impl Roll {
    /// How many hold it, besides the test and the function that starts workers.
    fn present(&self) -> usize {
        Arc::strong_count(&self.0) - 2
    }
}

/// A token that is cancelled after `span`.
fn stopping_after(span: Duration) -> CancellationToken {
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(span).await;
        token.cancel();
    });
    stop
}

type Outcome = io::Result<()>;

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_done_ends_its_steward() {
    let (diary, steward) = Diary::of(Steward::new(RHYTHM, |heart, _| async move {
        heart.beating(tokio::time::sleep(60 * SECOND)).await;
        Outcome::Ok(())
    }));
    assert!(steward.run(CancellationToken::new()).await.is_ok());
    diary.says(&[(Duration::ZERO, "started 0"), (60 * SECOND, "finished")]);
}

#[tokio::test(start_paused = true)]
async fn worker_that_stops_beating_is_stopped_and_replaced() {
    let (diary, steward) = Diary::of(Steward::new(RHYTHM, |heart, stop: CancellationToken| async move {
        heart.beating(tokio::time::sleep(3 * SECOND)).await;
        stop.cancelled().await;
        Outcome::Ok(())
    }));
    assert!(steward.run(stopping_after(12 * SECOND)).await.is_ok());
    diary.says(&[
        (Duration::ZERO, "started 0"),
        (5 * SECOND, "slow"),
        (8 * SECOND, "the worker did not beat for 5s; next in 100ms"),
        (8_100 * MILLI, "started 1"),
        (12 * SECOND, "stopped"),
    ]);
    assert_eq!(steward.restarts(), 1);
}

#[tokio::test(start_paused = true)]
async fn worker_that_is_slow_and_recovers_is_kept() {
    let (diary, steward) = Diary::of(Steward::new(RHYTHM, |heart, _| async move {
        tokio::time::sleep(3 * SECOND).await;
        heart.begin_unit();
        tokio::time::sleep(SECOND).await;
        Outcome::Ok(())
    }));
    assert!(steward.run(CancellationToken::new()).await.is_ok());
    diary.says(&[
        (Duration::ZERO, "started 0"),
        (2 * SECOND, "slow"),
        (3 * SECOND, "recovered"),
        (4 * SECOND, "finished"),
    ]);
}

#[tokio::test(start_paused = true)]
async fn worker_that_panics_at_once_is_restarted_up_to_the_limit() {
    let (diary, steward) = Diary::of(Steward::new(RHYTHM, |_, _| async { panic!("boom") as Outcome }));
    let error = steward.run(CancellationToken::new()).await.unwrap_err();
    let last_words = "gave up after 5 restarts within 60s: the worker panicked: boom";
    assert_eq!(error.to_string(), last_words);
    assert_eq!(steward.restarts(), 5);
    // 100 ms doubled: 100, 300, 700, 1500, 3100.
    diary.says(&[
        (Duration::ZERO, "started 0"),
        (Duration::ZERO, "the worker panicked: boom; next in 100ms"),
        (100 * MILLI, "started 1"),
        (100 * MILLI, "the worker panicked: boom; next in 200ms"),
        (300 * MILLI, "started 2"),
        (300 * MILLI, "the worker panicked: boom; next in 400ms"),
        (700 * MILLI, "started 3"),
        (700 * MILLI, "the worker panicked: boom; next in 800ms"),
        (1_500 * MILLI, "started 4"),
        (1_500 * MILLI, "the worker panicked: boom; next in 1.6s"),
        (3_100 * MILLI, "started 5"),
        (3_100 * MILLI, last_words),
    ]);
}

#[tokio::test(start_paused = true)]
async fn starting_that_panics_counts_as_the_worker() {
    let start = |_: Heart, _: CancellationToken| -> std::future::Ready<Outcome> { panic!("no worker") };
    let error = Steward::new(RHYTHM, start).give_up_after(0, SECOND).run(CancellationToken::new()).await;
    let Death::Panicked(message) = error.unwrap_err().last else { panic!("it did not panic") };
    assert_eq!(message, "no worker");
}

#[tokio::test(start_paused = true)]
async fn worker_that_fails_early_gives_its_error_as_the_source() {
    let steward = Steward::new(RHYTHM, |_, _| async { Outcome::Err(io::Error::other("disk full")) })
        .give_up_after(2, 60 * SECOND);
    let error = steward.run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "gave up after 2 restarts within 60s: the worker failed");
    assert_eq!(error.source().unwrap().to_string(), "disk full");
    assert_eq!(steward.restarts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_steady_life_resets_the_backoff() {
    // Lives 0, 0, 60 and 0 seconds.
    let lives = Arc::new(AtomicU64::new(0));
    let steward = Steward::new(RHYTHM, move |heart: Heart, _| {
        let span = if lives.fetch_add(1, Ordering::Relaxed) == 2 { 60 * SECOND } else { Duration::ZERO };
        async move {
            heart.beating(tokio::time::sleep(span)).await;
            Outcome::Err(io::Error::other("again"))
        }
    });
    let (diary, steward) = Diary::of(steward.backoff(DOUBLING.initial(SECOND)));
    assert!(steward.run(stopping_after(65 * SECOND)).await.is_ok());
    diary.says(&[
        (Duration::ZERO, "started 0"),
        (Duration::ZERO, "the worker failed; next in 1s"),
        (SECOND, "started 1"),
        (SECOND, "the worker failed; next in 2s"),
        (3 * SECOND, "started 2"),
        (63 * SECOND, "the worker failed; next in 1s"),
        (64 * SECOND, "started 3"),
        (64 * SECOND, "the worker failed; next in 2s"),
        (65 * SECOND, "stopped"),
    ]);
}

#[tokio::test(start_paused = true)]
async fn old_worker_that_ignores_its_cancel_token_is_gone_before_the_next_starts() {
    let roll = Roll::default();
    let present = Arc::new(Mutex::new(Vec::new()));
    let steward = {
        let (roll, present) = (roll.clone(), Arc::clone(&present));
        Steward::new(RHYTHM, move |heart: Heart, _| {
            present.lock().unwrap().push(roll.present());
            let here = roll.clone();
            async move {
                let _here = (here, heart);
                pending::<Outcome>().await
            }
        })
    };
    let (diary, steward) = Diary::of(steward.grace(10 * SECOND));
    assert!(steward.run(stopping_after(16 * SECOND)).await.is_ok());
    diary.says(&[
        (Duration::ZERO, "started 0"),
        (2 * SECOND, "slow"),
        (15 * SECOND, "the worker did not beat for 5s; next in 100ms"),
        (15_100 * MILLI, "started 1"),
        (26 * SECOND, "stopped: the worker failed"),
    ]);
    assert_eq!(*present.lock().unwrap(), [0, 0]);
    assert_eq!(roll.present(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_worker_that_blocks_its_thread_is_left_behind_and_replaced() {
    let (release, blocked) = mpsc::channel::<()>();
    let (blocks, is_blocked) = tokio::sync::oneshot::channel();
    let (left, mut is_left) = tokio::sync::oneshot::channel();
    let (first, left) = (Mutex::new(Some((blocks, blocked))), Mutex::new(Some(left)));
    let clock = ManualClock::new();
    let steward = Steward::new(RHYTHM, move |heart: Heart, _| {
        let first = first.lock().unwrap().take();
        async move {
            if let Some((blocks, blocked)) = first {
                blocks.send(()).unwrap();
                let _ = (blocked.recv(), heart.begin_unit());
            }
            Outcome::Ok(())
        }
    })
    .time(Time::of(clock.clone()))
    .backoff(DOUBLING.initial(Duration::ZERO))
    .on_event(move |event| {
        if let StewardEvent::LeftBehind = event {
            left.lock().unwrap().take().unwrap().send(()).unwrap();
        }
    });
    let run = tokio::spawn(steward.run(CancellationToken::new()));
    is_blocked.await.unwrap();
    while is_left.try_recv().is_err() {
        clock.advance(100 * MILLI);
        tokio::task::yield_now().await;
    }
    assert!(run.await.unwrap().is_ok());
    assert_eq!(steward.restarts(), 1);
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn shutdown_during_backoff_starts_nobody() {
    let failing = Steward::new(RHYTHM, |_, _| async { Outcome::Err(io::Error::other("down")) });
    let (diary, steward) = Diary::of(failing.backoff(DOUBLING.initial(30 * SECOND)));
    assert!(steward.run(stopping_after(SECOND)).await.is_ok());
    assert_eq!(steward.restarts(), 0);
    diary.says(&[
        (Duration::ZERO, "started 0"),
        (Duration::ZERO, "the worker failed; next in 30s"),
        (SECOND, "stopped"),
    ]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_before_the_start_starts_nobody() {
    let (diary, steward) = Diary::of(Steward::new(RHYTHM, |_, _| pending::<Outcome>()));
    let stop = CancellationToken::new();
    stop.cancel();
    assert!(steward.run(stop).await.is_ok());
    diary.says(&[(Duration::ZERO, "stopped")]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_that_a_worker_answers_with_an_error_is_still_one() {
    let (diary, steward) = Diary::of(Steward::new(RHYTHM, |heart, stop: CancellationToken| async move {
        heart.beating(stop.cancelled()).await;
        Outcome::Err(io::Error::other("interrupted"))
    }));
    let steward = steward.give_up_after(0, SECOND);
    assert!(steward.run(stopping_after(SECOND)).await.is_ok());
    diary.says(&[(Duration::ZERO, "started 0"), (SECOND, "stopped: the worker failed")]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_drops_its_heart_is_not_silent() {
    let (diary, steward) = Diary::of(Steward::new(RHYTHM, |heart, _| async move {
        drop(heart);
        tokio::time::sleep(3_600 * SECOND).await;
        Outcome::Ok(())
    }));
    assert!(steward.run(CancellationToken::new()).await.is_ok());
    diary.says(&[(Duration::ZERO, "started 0"), (3_600 * SECOND, "finished")]);
}

/// Workers that wait for their token and beat meanwhile.
fn patient(roll: &Roll) -> Steward {
    let roll = roll.clone();
    Steward::new(RHYTHM, move |heart: Heart, stop: CancellationToken| {
        let here = roll.clone();
        async move {
            heart.beating(stop.cancelled()).await;
            drop(here);
            Outcome::Ok(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn nested_stewards_stop_from_the_outside_in() {
    let roll = Roll::default();
    let (diary, inner) = Diary::of(patient(&roll));
    let outer = Steward::new(RHYTHM, move |heart, stop| inner.work(heart, stop));
    let outermost = outer.clone();
    let outermost = Steward::new(RHYTHM, move |heart, stop| outermost.work(heart, stop));
    assert!(outermost.run(stopping_after(3_600 * SECOND)).await.is_ok());
    diary.says(&[(Duration::ZERO, "started 0"), (3_600 * SECOND, "stopped")]);
    assert_eq!((outermost.restarts(), outer.restarts(), roll.present()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn nested_stewards_replace_a_worker_without_troubling_the_outer_one() {
    let inner = Steward::new(RHYTHM, |heart, _| async move {
        let _heart = heart;
        pending::<Outcome>().await
    });
    let (inner_diary, inner) =
        Diary::of(inner.grace(Duration::ZERO).backoff(DOUBLING.initial(20 * SECOND).cap(20 * SECOND)));
    let nested = inner.clone();
    let (diary, outer) = Diary::of(Steward::new(RHYTHM, move |heart, stop| nested.work(heart, stop)));
    assert!(outer.run(stopping_after(60 * SECOND)).await.is_ok());
    assert_eq!(inner.restarts(), 2); // dead at 5, 30 and 55 seconds
    assert_eq!(inner_diary.read().last().unwrap(), &(60 * SECOND, "stopped".to_owned()));
    diary.says(&[(Duration::ZERO, "started 0"), (60 * SECOND, "stopped")]);
}

#[tokio::test(start_paused = true)]
async fn nested_stewards_pass_giving_up_on() {
    let starts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&starts);
    let inner = Steward::new(RHYTHM, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { panic!("boom") as Outcome }
    })
    .give_up_after(1, 60 * SECOND);
    let outer =
        Steward::new(RHYTHM, move |heart, stop| inner.work(heart, stop)).give_up_after(2, 60 * SECOND);
    let error = outer.run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "gave up after 2 restarts within 60s: the worker failed");
    let inner = error.source().unwrap().to_string();
    assert_eq!(inner, "gave up after 1 restart within 60s: the worker panicked: boom");
    assert_eq!(starts.load(Ordering::Relaxed), 3 * 2);
}

#[tokio::test(start_paused = true)]
async fn a_steward_that_is_dropped_takes_everybody_with_it() {
    let roll = Roll::default();
    let inner = patient(&roll);
    let outer = Steward::new(RHYTHM, move |heart, stop| inner.work(heart, stop));
    let run = outer.run(CancellationToken::new());
    assert!(Time::tokio().timeout(60 * SECOND, run).await.is_err());
    assert_eq!(roll.present(), 1);
    tokio::time::sleep(MILLI).await;
    assert_eq!(roll.present(), 0);
}

#[test]
fn the_default_backoff_doubles_up_to_half_a_minute() {
    let (mut schedule, mut random) = (DOUBLING.schedule(), fastrand::Rng::new());
    let waits: Vec<_> = std::iter::from_fn(|| schedule.next(Duration::ZERO, &mut random)).take(20).collect();
    assert_eq!(waits[..2], [100 * MILLI, 200 * MILLI]);
    assert_eq!(waits[8], 25_600 * MILLI);
    assert_eq!(waits[9..], [30 * SECOND; 11]);
}

#[tokio::test(start_paused = true)]
async fn the_total_of_a_backoff_does_not_count() {
    let failing = Steward::new(RHYTHM, |_, _| async { Outcome::Err(io::Error::other("down")) });
    let steward = failing.backoff(DOUBLING.initial(SECOND).total(MILLI));
    assert!(steward.run(stopping_after(2 * SECOND)).await.is_ok());
    assert_eq!(steward.restarts(), 1);
}
