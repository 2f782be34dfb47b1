//! What comes out, in what order, and how much of it waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_flow::fault::Panicked;
use tollgate_flow::{Again, Elapsed, Fault, Pool};

use super::support::{Channel, Crowd, MS, Stopwatch, all, for_a_while, nap, positions, sleep_ms};

#[tokio::test(start_paused = true)]
async fn an_outcome_has_its_job_value_attempts_and_times() {
    let outcomes = all(Pool::new(1).run([10_u64, 20, 30], |millis, _| nap(millis))).await;
    assert_eq!(positions(&outcomes), [0, 1, 2]);
    for (outcome, (waited, ran)) in outcomes.iter().zip([(0, 10), (10, 20), (30, 30)]) {
        assert_eq!((*outcome.job, outcome.attempts), (ran, 1));
        assert_eq!(outcome.result.as_ref().unwrap(), &ran);
        assert_eq!((outcome.times.waited, outcome.times.ran), (waited as u32 * MS, ran as u32 * MS));
        assert_eq!(outcome.times.total(), (waited + ran) as u32 * MS);
        assert_eq!(outcome.times.queued, outcomes[0].times.queued);
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_come_in_order_of_completion() {
    let outcomes = all(Pool::new(3).run([30, 10, 20], |millis, _| nap(millis))).await;
    assert_eq!(positions(&outcomes), [1, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn outcomes_come_in_order_of_input_on_request() {
    let outcomes = all(Pool::new(3).in_input_order().run([30, 10, 20], |millis, _| nap(millis))).await;
    assert_eq!(positions(&outcomes), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn in_input_order_a_slow_head_stops_pulling_and_everything_comes_in_the_end() {
    let pool = Pool::new(4).in_input_order().queued(2).unread(3);
    let jobs = (0..1_000).map(|job| if job % 100 == 0 { 1_000 } else { 0 });
    let mut outcomes = pool.run(jobs, |millis, _| nap(millis));
    let control = outcomes.control();
    assert_eq!(for_a_while(&mut outcomes, 999 * MS).await.len(), 0);
    assert_eq!(control.stats().taken, 2 + 4); // what may be queued, and what may run
    let outcomes = all(outcomes).await;
    assert_eq!(positions(&outcomes), (0..1_000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_queue_shorter_than_the_concurrency_leaves_no_slot_empty() {
    let crowd = Crowd::default();
    let work = crowd.napping();
    let watch = Stopwatch::start();
    let outcomes = all(Pool::new(10).queued(1).run([100; 40], work)).await;
    assert_eq!((outcomes.len(), crowd.most(), watch.ms()), (40, 10, 400));
}

#[tokio::test(start_paused = true)]
async fn many_slots_are_all_used_at_once() {
    let crowd = Crowd::default();
    let work = crowd.napping();
    let watch = Stopwatch::start();
    let outcomes = all(Pool::new(1_000).run(vec![100; 3_000], work)).await;
    assert_eq!((outcomes.len(), crowd.most(), watch.ms()), (3_000, 1_000, 300));
}

#[tokio::test(start_paused = true)]
async fn jobs_come_from_a_stream_that_is_not_always_ready() {
    let (sender, receiver) = mpsc::channel(1);
    let mut outcomes = Pool::new(2).run_stream(Channel(receiver), |millis, _| nap(millis));
    assert!(for_a_while(&mut outcomes, MS).await.is_empty());
    let feeder = tokio::spawn(async move {
        for job in [5, 1, 7] {
            sleep_ms(100).await;
            sender.send(job).await.unwrap();
        }
    });
    let outcomes = all(outcomes).await;
    feeder.await.unwrap();
    assert_eq!(outcomes.iter().map(|outcome| *outcome.job).collect::<Vec<_>>(), [5, 1, 7]);
    assert!(outcomes.iter().all(|outcome| outcome.times.waited.is_zero()));
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_jobs_ends_at_once() {
    let outcomes = all(Pool::new(2).run(Vec::<u64>::new(), |millis, _| nap(millis))).await;
    assert!(outcomes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_job_is_a_fault_and_the_pool_goes_on() {
    let work = |job: Arc<u32>, _| {
        assert!(*job != 1, "one is too few");
        async move {
            assert!(*job != 3, "three is too many");
            Ok::<_, Fault>(*job)
        }
    };
    let outcomes = all(Pool::new(1).run(0..5, work)).await;
    assert_eq!(positions(&outcomes), [0, 1, 2, 3, 4]);
    for (outcome, said) in outcomes.iter().zip([None, Some("few"), None, Some("many"), None]) {
        let fault = outcome.result.as_ref().err();
        let panic = fault.map(|fault| fault.find::<Panicked>().unwrap().to_string());
        assert_eq!(panic.as_deref().map(|panic| panic.ends_with(said.unwrap())), said.map(|_| true));
        assert_eq!((*outcome.job, outcome.attempts), (outcome.position as u32, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_a_fault() {
    let work = |_, _| async { Err::<(), _>(std::io::Error::from(std::io::ErrorKind::NotFound)) };
    let outcomes = all(Pool::new(1).run([()], work)).await;
    let fault = outcomes[0].result.as_ref().unwrap_err();
    assert!(fault.is_unexpected());
    assert_eq!(fault.again(), Again::Never);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_cancelled() {
    let crowd = Crowd::default();
    let work = crowd.napping();
    let outcomes = all(Pool::new(1).attempt_timeout(10 * MS).run([9, 1_000, 10, 3], work)).await;
    let rans: Vec<_> = outcomes.iter().map(|outcome| outcome.times.ran).collect();
    assert_eq!(rans, [9 * MS, 10 * MS, 10 * MS, 3 * MS]);
    let fault = outcomes[1].result.as_ref().unwrap_err();
    assert!(fault.find::<Elapsed>().is_some());
    assert_eq!(fault.again(), Again::Later);
    assert_eq!(fault.context().collect::<Vec<_>>(), [("time limit", "10ms for one attempt")]);
    // What is ready at the last moment is in time.
    assert_eq!(outcomes[2].result.as_ref().unwrap(), &10);
    assert_eq!((crowd.now(), crowd.most()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_too_long_is_cancelled() {
    let outcomes = all(Pool::new(1).job_timeout(10 * MS).run([9, 1_000, 3], |millis, _| nap(millis))).await;
    let rans: Vec<_> = outcomes.iter().map(|outcome| outcome.times.ran).collect();
    assert_eq!(rans, [9 * MS, 10 * MS, 3 * MS]); // each anew
    let fault = outcomes[1].result.as_ref().unwrap_err();
    assert_eq!(fault.context().collect::<Vec<_>>(), [("time limit", "10ms for all attempts")]);
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_for_ever_is_none() {
    let pool = Pool::new(1).attempt_timeout(Duration::MAX).job_timeout(Duration::MAX);
    let outcomes = all(pool.run([1_000_000], |millis, _| nap(millis))).await;
    assert_eq!(outcomes[0].result.as_ref().unwrap(), &1_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_stops_the_run() {
    let started = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&started);
    let work = move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Fault>(()) }
    };
    let mut outcomes = Pool::new(5).queued(10).unread(20).run(std::iter::repeat(()), work);
    let control = outcomes.control();
    for read in 1..=100 {
        outcomes.next().await.unwrap();
        sleep_ms(1_000).await; // whatever may happen without the reader happens
        // Twenty and those that ran then are put away, and as many were taken over by the reader.
        let (started, taken) = (started.load(Ordering::SeqCst), control.stats().taken);
        assert!(started <= read + 2 * (20 + 5), "{started} started after {read} were read");
        assert!(taken <= started + 10, "{taken} taken, {started} started");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_outcomes_stops_everything() {
    let crowd = Crowd::default();
    let working = crowd.clone();
    let work = move |_: Arc<Arc<()>>, _| {
        let member = working.join();
        async move {
            std::future::pending::<()>().await;
            drop(member);
            Ok::<_, Fault>(())
        }
    };
    let job = Arc::new(());
    let jobs: Vec<_> = std::iter::repeat_n(Arc::clone(&job), 100).collect();
    let pool = Pool::new(7).queued(20);
    let mut outcomes = pool.run(jobs, work);
    let control = outcomes.control();
    assert!(for_a_while(&mut outcomes, MS).await.is_empty());
    assert_eq!((crowd.now(), control.stats().in_flight, control.stats().queued), (7, 7, 20));
    drop(outcomes);
    sleep_ms(1).await;
    assert_eq!((crowd.now(), control.stats().in_flight, control.stats().queued), (0, 0, 0));
    assert_eq!(control.limit().in_use(), 0);
    assert_eq!(Arc::strong_count(&job), 1, "every job was dropped");
}

#[test]
fn jobs_run_in_parallel() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    // Each job blocks its thread until another one does the same.
    let barrier = Arc::new(Barrier::new(2));
    let work = move |_, _| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait();
            Ok::<_, Fault>(())
        }
    };
    let outcomes = runtime.block_on(async { all(Pool::new(2).run(0..100, work)).await });
    assert_eq!(outcomes.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn numbers_tell_how_it_is_doing() {
    let work = |millis: Arc<u64>, _| async move {
        sleep_ms(*millis).await;
        if *millis == 300 { Err(Fault::untraced("three hundred")) } else { Ok(()) }
    };
    let mut outcomes = Pool::new(2).queued(3).run([100, 200, 300, 1_000, 1_000, 1_000, 1_000, 1_000], work);
    let control = outcomes.control();
    assert_eq!(control.stats().taken, 0);
    let watch = Stopwatch::start();
    assert_eq!(for_a_while(&mut outcomes, 450 * MS).await.len(), 3);
    assert_eq!(watch.ms(), 450);
    let stats = control.stats();
    assert_eq!((stats.in_flight, stats.queued, stats.taken), (2, 3, 8));
    assert_eq!((stats.successes, stats.errors, stats.retries), (2, 1, 0));
    assert!((stats.rate - 3.0).abs() < 1e-9, "{}", stats.rate);
    // The first two did not wait, the third 100 ms, the next two at most 400.
    assert!(stats.waits.half >= 99 * MS && stats.waits.half <= 102 * MS, "{:?}", stats.waits);
    assert!(stats.waits.longest >= 400 * MS && stats.waits.longest <= 405 * MS, "{:?}", stats.waits);
    assert_eq!(all(outcomes).await.len(), 5);
    let stats = control.stats();
    assert_eq!((stats.in_flight, stats.queued, stats.successes + stats.errors), (0, 0, 8));
}
