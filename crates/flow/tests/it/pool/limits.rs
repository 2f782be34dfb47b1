//! Rate, concurrency, priority, pauses.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{ConcurrencyLimit, Gate, Quota, WaitError};
use tollgate_flow::pool::JobContext;
use tollgate_flow::{Again, Fault, Pool};

use super::support::{Crowd, MS, Stopwatch, all, evenly, for_a_while, limiter, nap, positions, sleep_ms};

type Nap = Pin<Box<dyn Future<Output = Result<u64, Fault>> + Send>>;

/// When jobs were started, in milliseconds.
#[derive(Clone)]
struct Starts {
    watch: Stopwatch,
    at: Arc<Mutex<Vec<u64>>>,
}

impl Starts {
    fn new() -> Self {
        Self { watch: Stopwatch::start(), at: Arc::default() }
    }

    /// A nap that is noted.
    fn nap(&self) -> impl Fn(Arc<u64>, JobContext) -> Nap + use<> {
        let starts = self.clone();
        move |millis, _| {
            starts.at.lock().unwrap().push(starts.watch.ms());
            Box::pin(nap(millis))
        }
    }

    fn ms(&self) -> Vec<u64> {
        self.at.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_spaces_the_starts() {
    let starts = Starts::new();
    let outcomes = all(Pool::new(8).gate(limiter(evenly(10))).run([0; 5], starts.nap())).await;
    assert_eq!(starts.ms(), [0, 100, 200, 300, 400]);
    assert_eq!(outcomes[4].times.waited, 400 * MS);
}

#[tokio::test(start_paused = true)]
async fn each_job_pays_its_own_cost() {
    let starts = Starts::new();
    let pool = Pool::new(8).gate(limiter(Quota::per_second(10).burst(5))).cost(|cost| *cost);
    let outcomes = all(pool.run([3, 2, 1, 5, 0], starts.nap())).await;
    // Five at once, then 100 ms for each.
    assert_eq!(starts.ms(), [0, 0, 100, 600, 600]);
    assert_eq!(outcomes.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_can_never_be_had_is_a_fault_and_stops_nobody() {
    let pool = Pool::new(8).gate(limiter(Quota::per_second(10).burst(5))).cost(|cost| *cost);
    let outcomes = all(pool.run([1, 6, 2], |millis, _| nap(millis))).await;
    let refused = outcomes.iter().find(|outcome| outcome.position == 1).unwrap();
    let fault = refused.result.as_ref().unwrap_err();
    assert_eq!(fault.find::<WaitError>(), Some(&WaitError::Never { cost: 6, limit: 5 }));
    assert_eq!((refused.attempts, fault.again()), (0, Again::Never));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.result.is_ok()).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_rate_can_change_while_it_runs() {
    let starts = Starts::new();
    let rate = limiter(evenly(10));
    let mut outcomes = Pool::new(8).gate(rate.clone()).run([0; 8], starts.nap());
    let early = for_a_while(&mut outcomes, 250 * MS).await;
    rate.set_quota(evenly(1));
    let slow = for_a_while(&mut outcomes, 2_000 * MS).await;
    rate.set_quota(evenly(100));
    let rest = all(outcomes).await;
    // At 250 ms half a token was there; the other half takes 500 ms at one per second. At 2250 ms again half of one is.
    assert_eq!(starts.ms(), [0, 100, 200, 750, 1_750, 2_255, 2_265, 2_275]);
    assert_eq!((early.len(), slow.len(), rest.len()), (3, 2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_gate_holds_its_slots_while_an_attempt_runs() {
    let (starts, disk) = (Starts::new(), ConcurrencyLimit::new(2));
    let gate = Gate::new(limiter(evenly(1_000))).and(disk.clone());
    let outcomes = all(Pool::new(8).gate(gate).run([100; 5], starts.nap())).await;
    assert_eq!(starts.ms(), [0, 1, 100, 101, 200]);
    assert_eq!((outcomes.len(), disk.in_use()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn concurrency_never_exceeds_the_limit() {
    let crowd = Crowd::default();
    let work = crowd.napping();
    let outcomes = all(Pool::new(5).run((0..500).map(|job| job % 7), work)).await;
    assert_eq!((outcomes.len(), crowd.most(), crowd.now()), (500, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_raised_concurrency_acts_at_once() {
    let starts = Starts::new();
    let mut outcomes = Pool::new(1).run([1_000; 4], starts.nap());
    let control = outcomes.control();
    assert!(for_a_while(&mut outcomes, 400 * MS).await.is_empty());
    control.limit().set_limit(3);
    assert_eq!(all(outcomes).await.len(), 4);
    assert_eq!(starts.ms(), [0, 400, 400, 1_000]);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_concurrency_lets_running_jobs_finish() {
    let starts = Starts::new();
    let limit = ConcurrencyLimit::new(3);
    let mut outcomes = Pool::sharing(limit.clone()).run([100, 200, 300, 100, 100], starts.nap());
    assert!(for_a_while(&mut outcomes, 50 * MS).await.is_empty());
    limit.set_limit(1);
    assert_eq!(positions(&all(outcomes).await), [0, 1, 2, 3, 4]);
    assert_eq!(starts.ms(), [0, 0, 0, 300, 400]);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_concurrency_acts_on_jobs_that_take_no_time() {
    let (crowd, limit) = (Crowd::default(), ConcurrencyLimit::new(4));
    let (working, lowered) = (crowd.clone(), limit.clone());
    let work = move |job: Arc<u64>, _| {
        let (member, at_once, lowered) = (working.join(), working.now(), lowered.clone());
        async move {
            tokio::task::yield_now().await;
            if *job == 20 {
                lowered.set_limit(1);
            }
            drop(member);
            Ok::<_, Fault>(at_once)
        }
    };
    let outcomes = all(Pool::sharing(limit).run(0..100, work)).await;
    let at_once = |jobs: std::ops::Range<u64>| {
        let outcomes = outcomes.iter().filter(|outcome| jobs.contains(&outcome.job));
        outcomes.map(|outcome| *outcome.result.as_ref().unwrap()).max()
    };
    // When job 20 lowers the limit, the other three runners may be a round ahead.
    assert_eq!((at_once(0..20), at_once(27..100)), (Some(4), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_of_zero_waits_until_it_is_raised() {
    let starts = Starts::new();
    let mut outcomes = Pool::new(0).run([1], starts.nap());
    let control = outcomes.control();
    assert!(for_a_while(&mut outcomes, 100 * MS).await.is_empty());
    control.limit().set_limit(1);
    assert_eq!(all(outcomes).await.len(), 1);
    assert_eq!(starts.ms(), [100]);
}

#[tokio::test(start_paused = true)]
async fn pools_that_share_a_limit_share_it_even_if_one_is_read_while_reading_the_other() {
    let (crowd, limit) = (Crowd::default(), ConcurrencyLimit::new(1));
    let work = crowd.napping();
    let pool = Pool::sharing(limit);
    let mut outer = pool.run([1; 5], work.clone());
    let mut read = 0;
    while outer.next().await.is_some() {
        read += 1 + all(pool.run([1; 3], work.clone())).await.len();
    }
    assert_eq!((read, crowd.most()), (20, 1));
}

#[tokio::test(start_paused = true)]
async fn two_pools_with_one_limit_both_get_on() {
    let limit = ConcurrencyLimit::new(2);
    let pool = Pool::sharing(limit);
    let watch = Stopwatch::start();
    let [one, two] = [(); 2].map(|()| all(pool.run([10; 20], |millis, _| nap(millis))));
    let half = async {
        let read = one.await.len();
        (read, watch.ms())
    };
    let ((one, end), two) = tokio::join!(half, two);
    assert_eq!((one, two.len(), watch.ms()), (20, 20, 200));
    assert!(end > 100, "the first had not everything for itself: it ended after {end} ms");
}

#[tokio::test(start_paused = true)]
async fn a_closed_limit_is_a_fault_for_everybody() {
    let limit = ConcurrencyLimit::new(1);
    limit.close();
    limit.set_limit(0);
    let outcomes = all(Pool::sharing(limit).run([1, 2], |millis, _| nap(millis))).await;
    let closed = |fault: &Fault| fault.find::<WaitError>() == Some(&WaitError::Closed);
    assert!(
        outcomes.len() == 2 && outcomes.iter().all(|outcome| closed(outcome.result.as_ref().unwrap_err()))
    );
}

#[tokio::test(start_paused = true)]
async fn urgent_jobs_go_first_and_one_start_in_eight_goes_to_the_oldest() {
    let pool = Pool::new(1).queued(100).priority(|job: &u64| u8::from(*job >= 100));
    let jobs = (0..3).chain(100..114);
    let outcomes = all(pool.run(jobs, |_, _| nap(Arc::new(1)))).await;
    let order: Vec<_> = outcomes.iter().map(|outcome| *outcome.job).collect();
    assert_eq!(order[..8], [100, 101, 102, 103, 104, 105, 106, 0]);
    assert_eq!(order[8..], [107, 108, 109, 110, 111, 112, 113, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_job_overtakes_those_that_wait_for_the_gate() {
    let pool = Pool::new(100).gate(limiter(evenly(1))).priority(|job: &u64| *job as u8);
    let (sender, receiver) = tokio::sync::mpsc::channel(100);
    for job in [0, 0, 0] {
        sender.send(job).await.unwrap();
    }
    let channel = super::support::Channel(receiver);
    let mut outcomes = pool.run_stream(channel, |job, _| async move { Ok::<_, Fault>(*job) });
    assert_eq!(for_a_while(&mut outcomes, 500 * MS).await.len(), 1);
    sender.send(9).await.unwrap();
    drop(sender);
    let rest: Vec<_> = all(outcomes).await.iter().map(|outcome| *outcome.job).collect();
    assert_eq!(rest, [9, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_starts_and_takes_nothing_and_what_runs_goes_on() {
    let starts = Starts::new();
    let mut outcomes = Pool::new(2).queued(2).run([100; 10], starts.nap());
    let control = outcomes.control();
    assert!(for_a_while(&mut outcomes, 50 * MS).await.is_empty());
    control.pause();
    let taken = control.stats().taken;
    assert_eq!(for_a_while(&mut outcomes, 1_000 * MS).await.len(), 2);
    assert_eq!((starts.ms(), control.stats().taken), (vec![0, 0], taken));
    control.resume();
    assert_eq!(all(outcomes).await.len(), 8);
    assert_eq!(starts.ms()[2..4], [1_050, 1_050]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_acts_on_jobs_that_take_no_time() {
    let pool = Pool::new(1).on_attempt(|attempt, run| {
        assert!(attempt.fault.is_none());
        if run.stats().successes == 9 {
            run.pause();
        }
    });
    let mut outcomes = pool.run(0..100_u64, |_, _| async { Ok::<_, Fault>(()) });
    assert_eq!(for_a_while(&mut outcomes, 100 * MS).await.len(), 10);
    outcomes.control().resume();
    assert_eq!(all(outcomes).await.len(), 90);
}

#[tokio::test(start_paused = true)]
async fn a_hold_starts_nothing_until_it_is_over_and_the_longest_counts() {
    let starts = Starts::new();
    let mut outcomes = Pool::new(1).run([10; 4], starts.nap());
    let control = outcomes.control();
    assert_eq!(for_a_while(&mut outcomes, 15 * MS).await.len(), 1);
    control.hold(500 * MS);
    control.hold(100 * MS);
    assert_eq!(all(outcomes).await.len(), 3);
    assert_eq!(starts.ms(), [0, 10, 515, 525]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_for_ever_ends_with_the_run() {
    let mut outcomes = Pool::new(1).run([10; 4], |millis, _| nap(millis));
    let control = outcomes.control();
    control.hold(Duration::MAX);
    assert!(for_a_while(&mut outcomes, Duration::from_secs(3_600)).await.is_empty());
    let rest = outcomes.stop().await;
    assert_eq!((rest.outcomes.len(), rest.unfinished.len()), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn a_pause_while_waiting_for_the_gate_takes_no_token() {
    let (starts, rate) = (Starts::new(), limiter(evenly(1)));
    let mut outcomes = Pool::new(4).gate(rate.clone()).run([0; 3], starts.nap());
    let control = outcomes.control();
    assert_eq!(for_a_while(&mut outcomes, 500 * MS).await.len(), 1);
    control.pause();
    assert!(for_a_while(&mut outcomes, 1_500 * MS).await.is_empty());
    assert_eq!(rate.remaining(), 1);
    control.resume();
    assert_eq!(all(outcomes).await.len(), 2);
    assert_eq!(starts.ms(), [0, 2_000, 3_000]);
    sleep_ms(1).await;
}
