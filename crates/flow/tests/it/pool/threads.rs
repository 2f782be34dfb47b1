//! On several threads: nothing is lost, and nobody waits for ever.

use std::sync::Arc;
use std::time::Duration;

use tollgate::ConcurrencyLimit;
use tollgate_flow::pool::JobContext;

use tollgate_flow::{Control, Fault, Pool};

use super::support::Crowd;

const JOBS: u64 = 300;

/// Gives way as often as its job says.
async fn work(crowd: Crowd, job: Arc<u64>, _: JobContext) -> Result<u64, Fault> {
    let _member = crowd.join();
    for _ in 0..*job % 4 {
        tokio::task::yield_now().await;
    }
    Ok(*job)
}

/// Pauses and resumes, whatever the reader is doing just then.
async fn toggle(run: Control, times: u64) {
    for _ in 0..times {
        run.pause();
        tokio::task::yield_now().await;
        run.resume();
    }
}

/// Reads some outcomes, changes the limit, stops or finishes; every job is accounted for.
async fn one_round(round: u64) {
    let (crowd, limit) = (Crowd::default(), ConcurrencyLimit::new(1 + round % 9));
    let working = crowd.clone();
    let mut pool =
        Pool::sharing(limit.clone()).queued(1 + round as usize % 70).unread(1 + round as usize % 50);
    if round.is_multiple_of(3) {
        pool = pool.in_input_order();
    }
    if round.is_multiple_of(5) {
        pool = pool.gate(ConcurrencyLimit::new(3));
    }
    let mut run = pool.run(0..JOBS, move |job, context| work(working.clone(), job, context));
    let toggling = tokio::spawn(toggle(run.control(), round % 20));
    let mut jobs = Vec::new();
    for _ in 0..round % JOBS {
        jobs.extend(run.next().await.map(|outcome| *outcome.job));
        limit.set_limit(1 + jobs.len() as u64 % 12);
    }
    if round.is_multiple_of(2) {
        while let Some(outcome) = run.next().await {
            jobs.push(outcome.result.unwrap());
        }
        assert_eq!(jobs.len() as u64, JOBS);
    }
    toggling.await.unwrap();
    let rest = run.stop().await;
    jobs.extend(rest.outcomes.iter().map(|outcome| *outcome.job));
    jobs.extend(rest.unfinished.iter().map(|left| *left.job));
    jobs.extend(rest.source);
    jobs.sort_unstable();
    assert_eq!(jobs, (0..JOBS).collect::<Vec<_>>(), "round {round}");
    assert_eq!((crowd.now(), limit.in_use()), (0, 0), "round {round}");
    assert!(crowd.most() <= 12, "round {round}");
}

#[test]
fn every_job_is_accounted_for_on_several_threads() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        for round in 0..600 {
            let guard = tokio::time::timeout(Duration::from_secs(60), tokio::spawn(one_round(round)));
            guard.await.unwrap_or_else(|_| panic!("round {round} hangs")).unwrap();
        }
    });
}
