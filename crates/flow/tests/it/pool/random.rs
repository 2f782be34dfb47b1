//! Random runs, steered at random: the laws hold.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;
use tollgate::{ConcurrencyLimit, Quota};
use tollgate_flow::pool::JobContext;
use tollgate_flow::{Backoff, Control, Fault, Outcome, Pool, Retry};

use super::support::{Crowd, MS, for_a_while, limiter, positions, sleep_ms};

/// A job: how long an attempt takes, how often it fails, what it costs, how urgent it is, whether it panics in the end.
#[derive(Clone, Debug)]
struct Job {
    number: u64,
    millis: u64,
    failures: u32,
    cost: u64,
    priority: u8,
    panics: bool,
}

/// What is done to a run.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    LookAway(u64),
    Limit(u64),
    Rate(u64),
    Pause,
    Resume,
    Hold(u64),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Finish,
    Drain,
    Stop,
}

#[derive(Clone, Debug)]
struct Plan {
    jobs: Vec<Job>,
    concurrency: u64,
    queued: usize,
    unread: usize,
    in_input_order: bool,
    rate: Option<u64>,
    steps: Vec<Step>,
    end: End,
    seed: u64,
}

const BURST: u64 = 3;
const MOST_PER_SECOND: u64 = 400;
const NANOS: u128 = 1_000_000_000;

fn job() -> impl Strategy<Value = Job> {
    (0..30_u64, 0..3_u32, 0..=BURST, 0..3_u8, prop::bool::weighted(0.1)).prop_map(
        |(millis, failures, cost, priority, panics)| Job {
            number: 0,
            millis,
            failures,
            cost,
            priority,
            panics,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..60_u64).prop_map(Step::Wait),
        2 => (0..60_u64).prop_map(Step::LookAway),
        2 => (0..6_u64).prop_map(Step::Limit),
        2 => (1..MOST_PER_SECOND).prop_map(Step::Rate),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => (0..60_u64).prop_map(Step::Hold),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let shape = (1..6_u64, 1..8_usize, 1..8_usize, any::<bool>(), prop::option::of(50..MOST_PER_SECOND));
    let end = prop_oneof![Just(End::Finish), Just(End::Drain), Just(End::Stop)];
    (prop::collection::vec(job(), 0..60), shape, prop::collection::vec(step(), 0..12), end, any::<u64>())
        .prop_map(|(mut jobs, (concurrency, queued, unread, in_input_order, rate), steps, end, seed)| {
            jobs.iter_mut().zip(0..).for_each(|(job, number)| job.number = number);
            Plan { jobs, concurrency, queued, unread, in_input_order, rate, steps, end, seed }
        })
}

/// What attempts saw.
#[derive(Clone)]
struct Witness {
    crowd: Crowd,
    limit: ConcurrencyLimit,
    /// When the limit was last lowered, and from where.
    lowered: Arc<Mutex<(Instant, u64)>>,
    /// When attempts were made, and what they cost.
    paid: Arc<Mutex<Vec<(Instant, u64)>>>,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Witness {
    fn new(limit: ConcurrencyLimit) -> Self {
        let lowered = Arc::new(Mutex::new((Instant::now(), 0)));
        let (crowd, paid, complaints) = (Crowd::default(), Arc::default(), Arc::default());
        Self { crowd, limit, lowered, paid, complaints }
    }

    fn set_limit(&self, limit: u64) {
        let mut lowered = self.lowered.lock().unwrap();
        let before = if lowered.0 == Instant::now() { lowered.1 } else { 0 };
        *lowered = (Instant::now(), before.max(self.limit.limit()));
        self.limit.set_limit(limit);
    }

    /// The most that may run: a job that got its slot before the limit was lowered may begin in the same instant.
    fn most(&self) -> u64 {
        let (when, before) = *self.lowered.lock().unwrap();
        if when == Instant::now() { before.max(self.limit.limit()) } else { self.limit.limit() }
    }

    async fn work(self, job: Arc<Job>, context: JobContext) -> Result<u64, Fault> {
        let _member = self.crowd.join();
        self.paid.lock().unwrap().push((Instant::now(), job.cost));
        let (now, most) = (self.crowd.now() as u64, self.most());
        if context.attempt == 1 && now > most {
            self.complaints.lock().unwrap().push(format!("{now} at once, of {most}"));
        }
        sleep_ms(job.millis).await;
        if context.attempt <= job.failures {
            return Err(Fault::untraced("not yet"));
        }
        assert!(!job.panics, "as planned");
        Ok(job.number)
    }

    /// In any span T, at most burst + rate·T.
    fn assert_rate_kept(&self) {
        let paid = self.paid.lock().unwrap();
        for (first, (start, _)) in paid.iter().enumerate() {
            let mut sum = 0_u64;
            for (moment, cost) in &paid[first..] {
                sum += cost;
                let span = *moment - *start;
                let bound = u128::from(BURST) * NANOS + u128::from(MOST_PER_SECOND) * span.as_nanos();
                assert!(u128::from(sum) * NANOS <= bound, "{sum} within {span:?}");
            }
        }
    }
}

async fn carry_out(plan: Plan) {
    let limit = ConcurrencyLimit::new(plan.concurrency);
    let witness = Witness::new(limit.clone());
    let retry = Retry::new().backoff(Backoff::new().initial(20 * MS)).tries(3).unbudgeted().seeded(plan.seed);
    let mut pool = Pool::sharing(limit.clone()).queued(plan.queued).unread(plan.unread).retry(retry);
    pool = pool.priority(|job: &Job| job.priority).cost(|job| job.cost);
    let rate = limiter(Quota::per_second(plan.rate.unwrap_or(1)).burst(BURST));
    if plan.rate.is_some() {
        pool = pool.gate(rate.clone());
    }
    if plan.in_input_order {
        pool = pool.in_input_order();
    }
    let working = witness.clone();
    let mut run = pool.run(plan.jobs.clone(), move |job, context| working.clone().work(job, context));
    let (control, mut read) = (run.control(), Vec::new());
    for step in &plan.steps {
        match *step {
            Step::Wait(millis) => read.extend(for_a_while(&mut run, millis as u32 * MS).await),
            Step::LookAway(millis) => sleep_ms(millis).await,
            Step::Limit(limit) => witness.set_limit(limit),
            Step::Rate(rate_now) => rate.set_quota(Quota::per_second(rate_now).burst(BURST)),
            Step::Pause => control.pause(),
            Step::Resume => control.resume(),
            Step::Hold(millis) => control.hold(millis as u32 * MS),
        }
        assert_sane(&control, &plan);
    }
    witness.set_limit(control.limit().limit().max(1));
    match plan.end {
        End::Finish => control.resume(),
        End::Drain => control.drain(),
        End::Stop => control.stop(),
    }
    let end = tokio::time::timeout(Duration::from_secs(3_600), async {
        while let Some(outcome) = run.next().await {
            read.push(outcome);
        }
    });
    end.await.expect("it ends");
    let rest = run.stop().await;
    assert!(rest.outcomes.is_empty());

    let outcomes = read.iter().map(|outcome| outcome.job.number);
    let unfinished = rest.unfinished.iter().map(|left| left.job.number);
    let mut jobs: Vec<_> = outcomes.chain(unfinished).chain(rest.source.map(|job| job.number)).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, (0..plan.jobs.len() as u64).collect::<Vec<_>>(), "every job exactly once");
    assert!(matches!(plan.end, End::Stop) || rest.unfinished.is_empty());
    assert!(!matches!(plan.end, End::Finish) || read.len() == plan.jobs.len());
    assert!(!plan.in_input_order || positions(&read).is_sorted());
    read.iter().for_each(assert_right);
    assert_eq!((witness.crowd.now(), limit.in_use(), control.stats().in_flight), (0, 0, 0));
    assert_eq!(*witness.complaints.lock().unwrap(), Vec::<String>::new());
    if plan.rate.is_some() {
        witness.assert_rate_kept();
    }
}

/// What is held stays within its bounds.
fn assert_sane(control: &Control, plan: &Plan) {
    let stats = control.stats();
    assert!(stats.queued <= plan.queued, "{stats:?}");
    assert!(stats.in_flight <= 6, "{stats:?}");
}

/// An outcome is what its job says.
fn assert_right(outcome: &Outcome<Job, u64>) {
    let job = &outcome.job;
    let expected = if job.failures >= 3 || job.panics { None } else { Some(job.number) };
    assert_eq!(outcome.result.as_ref().ok().copied(), expected);
    let attempts = if job.panics { 3 } else { job.failures + 1 };
    assert_eq!(outcome.attempts, attempts.min(3), "{job:?}");
    assert!(outcome.times.ran >= outcome.attempts * (job.millis as u32) * MS, "{job:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_job_comes_out_once_within_all_limits(plan in plan()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(carry_out(plan));
    }
}
