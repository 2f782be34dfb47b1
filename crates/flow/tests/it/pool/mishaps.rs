//! Panics in everything the caller gives to a pool: no job is lost, and no run hangs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tollgate::Quota;
use tollgate_flow::pool::{Attempted, Observer};
use tollgate_flow::{
    AdaptiveLimit, Again, Aimd, Control, Fault, Feedback, Pool, RateControl, Retry, Scope, Time,
};

use super::support::{all, limiter};

const SECOND: Duration = Duration::from_secs(1);

#[allow(clippy::needless_pass_by_value, reason = "as work gets it")]
fn fine(job: Arc<u32>) -> std::future::Ready<Result<u32, Fault>> {
    std::future::ready(Ok(*job))
}

/// Panics when it hears of the third attempt.
fn third_time() -> impl Fn(&Attempted<'_>, &Control) + Send + Sync {
    let heard = AtomicUsize::new(0);
    move |_, _| assert_ne!(heard.fetch_add(1, Ordering::SeqCst), 2, "the third")
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_observer_changes_nothing() {
    let outcomes = all(Pool::new(2).on_attempt(third_time()).run(0..10, |job, _| fine(job))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.result.is_ok()).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_observer_does_not_hold_up_those_behind() {
    let pool = Pool::new(2).in_input_order().on_attempt(third_time());
    assert_eq!(all(pool.run(0..1_000, |job, _| fine(job))).await.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_judge_is_a_fault() {
    let pool = Pool::new(2).retry(Retry::new().judge(|_: &Fault| -> Again { panic!("who knows") }));
    let outcomes = all(pool.run(0..3, |_, _| async { Err::<(), _>(Fault::new("no")) })).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.result.is_err()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_conversion_is_a_fault() {
    struct Odd;
    impl From<Odd> for Fault {
        fn from(_: Odd) -> Self {
            panic!("no words")
        }
    }
    let outcomes = all(Pool::new(2).run(0..3, |_, _| async { Err::<(), _>(Odd) })).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.result.is_err()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_an_attempt_is_cancelled_is_a_fault() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "boom");
        }
    }
    let pool = Pool::new(2).attempt_timeout(SECOND);
    let work = |_, _| async {
        let _bomb = Bomb;
        std::future::pending::<Result<(), Fault>>().await
    };
    let outcomes = all(pool.run(0..3, work)).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.result.is_err()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_cost_reaches_the_reader_and_the_job_is_still_done() {
    let limiter = limiter(Quota::per_second(1_000).burst(100));
    let cost = |job: &u32| if *job == 5 { panic!("priceless") } else { 1 };
    let mut outcomes = Pool::new(2).gate(limiter).cost(cost).run(0..10, |job, _| fine(job));
    let (mut done, mut panics) = (0, 0);
    loop {
        match AssertUnwindSafe(outcomes.next()).catch_unwind().await {
            Ok(Some(_)) => done += 1,
            Ok(None) => break,
            Err(_) => panics += 1,
        }
    }
    assert_eq!((done, panics), (10, 1));
}

#[test]
fn a_runtime_without_timers_gives_faults_and_loses_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let outcomes = runtime
        .block_on(async { all(Pool::new(2).attempt_timeout(SECOND).run(0..3, |job, _| fine(job))).await });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.result.is_err()).count(), 3);
}

#[derive(Default)]
struct Heard {
    begun: AtomicUsize,
    failed: AtomicUsize,
}

impl Observer for Heard {
    fn begins(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn ended(&self, attempt: &Attempted<'_>, _: &Control) {
        self.failed.fetch_add(usize::from(attempt.fault.is_some()), Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_cut_short_by_the_jobs_time_is_heard_of() {
    let heard = Arc::new(Heard::default());
    let pool = Pool::new(2).job_timeout(SECOND).observer(Arc::clone(&heard));
    all(pool.run(0..3, |_, _| std::future::pending::<Result<(), Fault>>())).await;
    assert_eq!((heard.begun.load(Ordering::SeqCst), heard.failed.load(Ordering::SeqCst)), (3, 3));

    let limit = AdaptiveLimit::new(Aimd::new().starting_at(20), Time::tokio());
    let pool = Pool::adapting(&limit).job_timeout(SECOND);
    all(pool.run(0..400, |_, _| std::future::pending::<Result<(), Fault>>())).await;
    assert!(limit.limit() < 20, "nothing but time-outs, and still {} at once", limit.limit());
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_retries_belong_to_a_scope_ends_with_it() {
    let time = Time::tokio();
    let scope = Scope::new(time.clone()).within(5 * SECOND);
    let pool = Pool::new(1).time(time.clone()).retry(Retry::new().within(&scope));
    let start = time.now();
    let outcomes = all(pool.run(0..3, |_, _| std::future::pending::<Result<(), Fault>>())).await;
    assert_eq!(time.now().since(start), 5 * SECOND);
    assert_eq!(outcomes.iter().map(|outcome| outcome.attempts).collect::<Vec<_>>(), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_says_no_time_slows_the_whole_pool() {
    let limiter = limiter(Quota::per_second(100));
    let feedback = Feedback::new(&limiter, RateControl::new().starting_at(100.0));
    let pool = Pool::new(4).gate(limiter).observer(feedback.clone());
    let refuse = |_, _| async { Err::<(), _>(Fault::untraced("429").try_again(Again::Later)) };
    all(pool.run(0..20, refuse)).await;
    assert!(feedback.rate() < 100.0, "still {} a second", feedback.rate());
}

#[tokio::test(start_paused = true)]
async fn jobs_that_are_refused_at_once_let_others_get_on() {
    let pool = Pool::new(1).gate(limiter(Quota::per_second(1))).cost(|_| u64::MAX);
    let mut outcomes = pool.run(0.., |_: Arc<u32>, _| async { Ok::<_, Fault>(()) });
    let somebody_else = tokio::spawn(async { 7 });
    tokio::select! {
        biased;
        seven = somebody_else => assert_eq!(seven.expect("no panic"), 7),
        () = async { while outcomes.next().await.is_some() {} } => panic!("there is no end to them"),
    }
}
