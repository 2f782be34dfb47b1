//! Trying again, and what others learn from attempts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{ConcurrencyLimit, Gate, Limiter, TokenBucket, TokioClock, WaitError};
use tollgate_flow::fault::Panicked;
use tollgate_flow::pool::{Attempted, JobContext, Observer};
use tollgate_flow::retry::{Allowance, Setback, Why};
use tollgate_flow::{
    AdaptiveLimit, Again, Aimd, Backoff, Control, Elapsed, Fault, Feedback, Heart, Jitter, Pool, RateControl,
    Retry, RetryBudget, Rhythm, Time,
};

use super::support::{MS, Stopwatch, all, evenly, for_a_while, limiter, nap, positions, sleep_ms};

/// Waits of exactly 125 ms, paid for by nobody.
fn steady() -> Retry {
    Retry::new().backoff(Backoff::new().initial(125 * MS).factor(1.0).jitter(Jitter::None)).unbudgeted()
}

/// When attempts were made: milliseconds, job, number.
#[derive(Clone)]
struct Log {
    watch: Stopwatch,
    attempts: Arc<Mutex<Vec<(u64, u64, u32)>>>,
}

impl Log {
    fn start() -> Self {
        Self { watch: Stopwatch::start(), attempts: Arc::default() }
    }

    fn note(&self, job: u64, context: JobContext) {
        self.attempts.lock().unwrap().push((self.watch.ms(), job, context.attempt));
    }

    /// Work that takes 10 ms and fails as often as its job says.
    fn failing(&self) -> impl Fn(Arc<u64>, JobContext) -> Failing + use<> {
        let log = self.clone();
        move |failures, context| {
            log.note(*failures, context);
            Box::pin(async move {
                sleep_ms(10).await;
                if u64::from(context.attempt) <= *failures { Err(Fault::untraced("not yet")) } else { Ok(()) }
            })
        }
    }

    fn all(&self) -> Vec<(u64, u64, u32)> {
        self.attempts.lock().unwrap().clone()
    }
}

type Failing = std::pin::Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

#[tokio::test(start_paused = true)]
async fn a_failing_job_keeps_its_slot_while_it_backs_off() {
    let log = Log::start();
    let mut outcomes = Pool::new(1).retry(steady()).run([2, 0], log.failing());
    assert!(for_a_while(&mut outcomes, 50 * MS).await.is_empty());
    let stats = outcomes.control().stats();
    assert_eq!((stats.in_flight, stats.queued, stats.retries), (1, 1, 1));
    assert_eq!(outcomes.control().limit().in_use(), 1);
    let control = outcomes.control();
    let outcomes = all(outcomes).await;
    assert_eq!(log.all(), [(0, 2, 1), (135, 2, 2), (270, 2, 3), (280, 0, 1)]);
    assert_eq!((outcomes[0].attempts, outcomes[1].attempts), (3, 1));
    assert_eq!((outcomes[0].times.waited, outcomes[0].times.ran), (Duration::ZERO, 280 * MS));
    assert_eq!((control.stats().successes, control.stats().errors, control.stats().retries), (2, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_pays_the_gate() {
    let (log, rate) = (Log::start(), limiter(evenly(1)));
    let outcomes = all(Pool::new(1).gate(rate).retry(steady()).run([1, 1], log.failing())).await;
    assert_eq!(log.all(), [(0, 1, 1), (1_000, 1, 2), (2_000, 1, 1), (3_000, 1, 2)]);
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn the_slots_of_a_gate_are_free_while_a_job_backs_off() {
    let (log, disk) = (Log::start(), ConcurrencyLimit::new(1));
    let outcomes = all(Pool::new(2).gate(disk).retry(steady()).run([1, 0], log.failing())).await;
    assert_eq!(log.all(), [(0, 1, 1), (10, 0, 1), (135, 1, 2)]);
    assert_eq!(positions(&outcomes), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn retries_are_not_held_up_by_a_reader_that_does_not_read() {
    let (log, rate) = (Log::start(), limiter(evenly(10)));
    let mut outcomes = Pool::new(1).gate(rate).retry(steady()).run([1, 0, 0], log.failing());
    // The reader waits for a slot and the gate, and then looks away.
    assert!(for_a_while(&mut outcomes, 5 * MS).await.is_empty());
    sleep_ms(1_000).await;
    assert_eq!(log.all(), [(0, 1, 1), (135, 1, 2)]);
    assert_eq!(all(outcomes).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_is_not_tried_again() {
    let work = |_, _| async { Err::<(), _>(Fault::untraced("gone").try_again(Again::Never)) };
    let outcomes = all(Pool::new(1).retry(steady()).run([()], work)).await;
    assert_eq!(outcomes[0].attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_are_tried_again() {
    let work = |_, context: JobContext| async move {
        match context.attempt {
            1 => panic!("the first time"),
            2 => std::future::pending().await,
            _ => Ok::<_, Fault>(()),
        }
    };
    let faults = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&faults);
    let pool = Pool::new(1).retry(steady()).attempt_timeout(50 * MS).on_attempt(move |attempt, _| {
        let kind = attempt
            .fault
            .map(|fault| (fault.find::<Panicked>().is_some(), fault.find::<Elapsed>().is_some()));
        heard.lock().unwrap().push((attempt.number, kind, attempt.took));
    });
    let outcomes = all(pool.run([()], work)).await;
    assert_eq!((outcomes[0].attempts, outcomes[0].times.ran), (3, (125 + 50 + 125) * MS));
    let panicked = (1, Some((true, false)), Duration::ZERO);
    let timed_out = (2, Some((false, true)), 50 * MS);
    assert_eq!(*faults.lock().unwrap(), [panicked, timed_out, (3, None, Duration::ZERO)]);
}

#[tokio::test(start_paused = true)]
async fn a_job_timeout_ends_a_backoff() {
    let log = Log::start();
    let outcomes = all(Pool::new(1).retry(steady()).job_timeout(150 * MS).run([9, 0], log.failing())).await;
    assert_eq!(log.all(), [(0, 9, 1), (135, 9, 2), (150, 0, 1)]);
    assert_eq!((outcomes[0].attempts, outcomes[0].times.ran), (2, 150 * MS));
    assert!(outcomes[0].result.as_ref().unwrap_err().find::<Elapsed>().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_job_timeout_ends_a_wait_for_the_gate() {
    let (log, rate) = (Log::start(), limiter(evenly(1)));
    let pool = Pool::new(1).gate(rate.clone()).retry(steady()).job_timeout(500 * MS);
    let outcomes = all(pool.run([9, 0], log.failing())).await;
    // The token that the first job did not wait for goes to the second.
    assert_eq!(log.all(), [(0, 9, 1), (1_000, 0, 1)]);
    assert_eq!((outcomes[0].times.ran, outcomes[1].times.waited), (500 * MS, 1_000 * MS));
}

#[tokio::test(start_paused = true)]
async fn cancel_while_waiting_for_a_token_loses_none() {
    let (log, rate) = (Log::start(), limiter(evenly(1)));
    let mut outcomes = Pool::new(2).gate(rate.clone()).retry(steady()).run([9, 0], log.failing());
    // One job was tried and waits for its next token, the other for its first.
    assert!(for_a_while(&mut outcomes, 500 * MS).await.is_empty());
    let rest = outcomes.stop().await;
    let unfinished: Vec<_> = rest.unfinished.iter().map(|left| (*left.job, left.attempts)).collect();
    assert_eq!(unfinished, [(9, 1), (0, 0)]);
    sleep_ms(500).await;
    assert!(rate.allow(), "the token is there");
}

#[tokio::test(start_paused = true)]
async fn cancel_while_backing_off_hands_the_job_back() {
    let log = Log::start();
    let mut outcomes = Pool::new(1).retry(steady()).run([9], log.failing());
    let limit = outcomes.control().limit().clone();
    assert!(for_a_while(&mut outcomes, 150 * MS).await.is_empty());
    let rest = outcomes.stop().await;
    assert_eq!((*rest.unfinished[0].job, rest.unfinished[0].attempts), (9, 2));
    assert_eq!(Arc::strong_count(&rest.unfinished[0].job), 1);
    assert_eq!(limit.in_use(), 0);
    sleep_ms(10_000).await;
    assert_eq!(log.all().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_back_the_next_attempt() {
    let log = Log::start();
    let mut outcomes = Pool::new(1).retry(steady()).run([1], log.failing());
    let control = outcomes.control();
    assert!(for_a_while(&mut outcomes, 50 * MS).await.is_empty());
    control.pause();
    assert!(for_a_while(&mut outcomes, 950 * MS).await.is_empty());
    control.resume();
    assert_eq!(all(outcomes).await.len(), 1);
    assert_eq!(log.all(), [(0, 1, 1), (1_000, 1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_while_a_retry_waits_for_the_gate_gives_the_token_back() {
    let (log, rate) = (Log::start(), limiter(evenly(1)));
    let mut outcomes = Pool::new(1).gate(rate.clone()).retry(steady()).run([1], log.failing());
    let control = outcomes.control();
    assert!(for_a_while(&mut outcomes, 500 * MS).await.is_empty());
    control.pause();
    assert!(for_a_while(&mut outcomes, 1_000 * MS).await.is_empty());
    assert_eq!(rate.remaining(), 1);
    control.resume();
    assert_eq!(all(outcomes).await.len(), 1);
    assert_eq!(log.all(), [(0, 1, 1), (1_500, 1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_pushback_holds_the_whole_pool() {
    let log = Log::start();
    let noted = log.clone();
    let work = move |job: Arc<u64>, context: JobContext| {
        noted.note(*job, context);
        async move {
            sleep_ms(10).await;
            let is_refused = *job == 0 && context.attempt == 1;
            let refusal = || Fault::untraced("429").try_again(Again::After(1_000 * MS));
            if is_refused { Err(refusal()) } else { Ok(()) }
        }
    };
    let pool = Pool::new(2).retry(steady()).heed_pushback();
    let outcomes = all(pool.run([0, 1, 2, 3], work)).await;
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
    // The refusal came at 10 ms; whatever else would start then waits for a second.
    assert_eq!(log.all()[..2], [(0, 0, 1), (0, 1, 1)]);
    assert!(log.all()[2..].iter().all(|(at, ..)| *at >= 1_010), "{:?}", log.all());
    assert_eq!(log.all()[2].0, 1_010);
}

#[tokio::test(start_paused = true)]
async fn a_budget_keeps_retries_to_a_share_of_the_jobs() {
    let allowance = Allowance { share: 0.2, per_second: 0, lasting: Duration::from_secs(3_600) };
    let retry = steady().budget(RetryBudget::of(Time::tokio(), allowance));
    let whys = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&whys);
    let retry =
        retry.notify(move |setback: &Setback<'_, Fault>| heard.lock().unwrap().push(setback.next.err()));
    let pool = Pool::new(10).retry(retry);
    let outcomes = pool.run(vec![u64::MAX; 1_000], Log::start().failing());
    let control = outcomes.control();
    assert_eq!(all(outcomes).await.len(), 1_000);
    assert_eq!((control.stats().errors, control.stats().retries), (1_000, 200));
    let whys = whys.lock().unwrap();
    assert_eq!(whys.iter().filter(|why| **why == Some(Why::Budget)).count(), 1_000);
    assert_eq!(whys.iter().filter(|why| why.is_none()).count(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_closes_while_a_job_backs_off_is_its_fault() {
    let (log, rate) = (Log::start(), limiter(evenly(1)));
    let mut outcomes = Pool::new(1).gate(rate.clone()).retry(steady()).run([1], log.failing());
    assert!(for_a_while(&mut outcomes, 50 * MS).await.is_empty());
    rate.close();
    let outcomes = all(outcomes).await;
    let fault = outcomes[0].result.as_ref().unwrap_err();
    assert_eq!((fault.find::<WaitError>(), outcomes[0].attempts), (Some(&WaitError::Closed), 1));
}

#[tokio::test(start_paused = true)]
async fn a_heart_beats_at_every_attempt() {
    let heart = Arc::new(Heart::new(Rhythm::every(Duration::from_secs(1)), Time::tokio()));
    let monitor = heart.monitor();
    let pool = Pool::new(2).retry(steady()).observer(Arc::clone(&heart));
    assert_eq!(all(pool.run([2, 0, 1], Log::start().failing())).await.len(), 3);
    assert_eq!(monitor.latest().units, 3 + 1 + 2);
}

/// Halves the rate at each failure, and raises it by one per second at each success.
struct Cautious {
    rate: Limiter<TokenBucket, TokioClock>,
}

impl Observer for Cautious {
    fn ended(&self, attempt: &Attempted<'_>, _: &Control) {
        let rate = self.rate.quota().count();
        self.rate.set_quota(evenly(if attempt.fault.is_some() { (rate / 2).max(1) } else { rate + 1 }));
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_slows_the_pool_after_failures_and_speeds_it_up_after_successes() {
    let (log, rate) = (Log::start(), limiter(evenly(8)));
    let retry = Retry::new().backoff(Backoff::new().initial(MS).jitter(Jitter::None)).unbudgeted();
    let pool =
        Pool::new(1).gate(Gate::new(rate.clone())).retry(retry).observer(Cautious { rate: rate.clone() });
    assert_eq!(all(pool.run([2, 0, 0], log.failing())).await.len(), 3);
    let starts: Vec<_> = log.all().iter().map(|(at, ..)| *at).collect();
    // Each attempt takes 10 ms. At 8/s that gives 0.08 of a token; the rest, at 4/s from then on, takes 230 ms. At 4/s it
    // gives 0.04; the rest, at 2/s, takes 480 ms. Then 0.02, and 326.7 ms at 3/s; then 0.031, and 242.3 ms at 4/s.
    assert_eq!(starts, [0, 240, 730, 1_067, 1_320]);
    assert_eq!(rate.quota().count(), 5);
}

#[tokio::test(start_paused = true)]
async fn feedback_stops_the_pool_at_a_refusal_and_slows_it_afterwards() {
    let (log, rate) = (Log::start(), limiter(evenly(1)));
    let control = RateControl::new().starting_at(20.0).burst(1);
    let feedback = Feedback::new(&rate, control);
    let noted = log.clone();
    let work = move |job: Arc<u64>, context: JobContext| {
        noted.note(*job, context);
        async move {
            let is_refused = *job == 0 && context.attempt == 1;
            let refusal = || Fault::untraced("429").try_again(Again::After(1_000 * MS));
            if is_refused { Err(refusal()) } else { Ok(()) }
        }
    };
    let before = feedback.rate();
    let pool = Pool::new(4).gate(rate).retry(steady()).observer(feedback.clone());
    assert_eq!(all(pool.run(0..4, work)).await.len(), 4);
    let starts: Vec<_> = log.all().iter().map(|(at, ..)| *at).collect();
    assert_eq!(starts[0], 0);
    assert!(starts[1] >= 1_000, "nobody gets a turn for a second: {starts:?}");
    assert!(feedback.rate() < before, "{} is not below {before}", feedback.rate());
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_that_finds_itself_grows_with_successes_and_shrinks_with_timeouts() {
    let limit = AdaptiveLimit::with_window(Aimd::new().starting_at(2), Time::tokio(), Duration::ZERO, 1);
    let pool = Pool::adapting(&limit);
    assert_eq!(all(pool.run(vec![10_u64; 50], |millis, _| nap(millis))).await.len(), 50);
    let grown = limit.limit();
    assert!(grown > 4, "{grown}");
    let pool = pool.attempt_timeout(5 * MS);
    assert_eq!(all(pool.run(vec![10_u64; 50], |millis, _| nap(millis))).await.len(), 50);
    assert!(limit.limit() < grown, "{} is not below {grown}", limit.limit());
    assert_eq!(limit.concurrency().in_use(), 0);
}
