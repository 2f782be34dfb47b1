//! A thousand tasks that wait in line for one limiter: is the rate reached, how late, how fair, at what cost, and what
//! becomes of it when some of them give up.
//!
//! Every contender is judged by the same replay of a token bucket, written here in nanoseconds rather than taken from
//! tollgate. It goes by the moments of the grants where the limiter tells them, and otherwise by the moments at which the
//! tasks went on, which flatters: after a pause of the runtime the replay has lost tokens that the limiter has not.

use std::future::Future;
use std::num::NonZeroU32;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tollgate::{Clock, Limiter, Quota};
use tollgate_benches::{Bench, Better, Case, Contender, Goal, Options, interleave, percentile};

const TASKS: u32 = 1_000;
const RATE: u32 = 100_000;
/// Two milliseconds' worth.
const BURST: u32 = 200;
/// Nanoseconds a token; the rate was chosen so that this is a whole number.
const TOKEN_NS: u64 = 1_000_000_000 / RATE as u64;
/// What is left out of the rate and the processor time: the burst and the start.
const LEAD_IN: Duration = Duration::from_millis(100);
/// How many of a hundred waits are raced against a timeout.
const DROPPED_PERCENT: u32 = 30;

fn main() -> ExitCode {
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("wait: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("wait", options);
    let (rounds, seconds) = if options.is_quick() { (2, 1) } else { (5, 3) };
    let long = Duration::from_secs(seconds);
    for case in patient(rounds, long).into_iter().chain(dropping(rounds, long)) {
        bench.add(case);
    }
    bench.finish()
}

/// Everybody waits until it is their turn.
fn patient(rounds: usize, long: Duration) -> Vec<Case> {
    let mut rate =
        Case::new("rate-1000w", "of the rate", Better::Higher).goal(Goal::at_least("tollgate", 0.999));
    let mut p50 = Case::new("lateness-p50-1000w", "us", Better::Lower);
    let mut p99 = Case::new("lateness-p99-1000w", "us", Better::Lower).goal(Goal::at_most("tollgate", 300.0));
    let even = Case::new("admissions-min-to-max-1000w", "of the most", Better::Higher);
    let mut even = even.goal(Goal::at_least("tollgate", 0.98));
    let mut cpu = Case::new("cpu-1000w", "cores", Better::Lower).goal(Goal::at_most("tollgate", 0.3));
    let inversions = Case::new("inversions-1000w", "grants a round", Better::Lower);
    let mut inversions = inversions.goal(Goal::never("tollgate"));
    let by_grant = Case::new("inversions-by-grant-time-1000w", "grants a round", Better::Lower);
    let mut by_grant = by_grant.goal(Goal::never("tollgate"));
    let mut grants = 0;
    interleave(rounds, &contenders(long, Patience::Endless), |name, round| {
        rate.sample(name, round.rate_reached());
        let lateness = round.lateness_us();
        p50.sample(name, percentile(&lateness, 0.50));
        p99.sample(name, percentile(&lateness, 0.99));
        even.sample(name, round.fewest_to_most());
        cpu.sample(name, round.cores);
        inversions.sample(name, inversions_in(round.grants.iter()) as f64);
        if name == "tollgate" {
            by_grant.sample(name, inversions_in(round.by_grant_time().into_iter()) as f64);
        }
        grants += if name == "tollgate" { round.grants.len() } else { 0 };
    });
    println!("{grants} grants of tollgate were looked at for order\n");
    vec![rate, p50, p99, even, cpu, inversions, by_grant]
}

/// Some give up.
fn dropping(rounds: usize, long: Duration) -> Vec<Case> {
    let used = Case::new("used-30-percent-dropped", "of the limit", Better::Higher);
    let mut used = used.goal(Goal::at_least("tollgate", 0.98));
    let excess = Case::new("excess-30-percent-dropped", "grants a round", Better::Lower);
    let mut excess = excess.goal(Goal::never("tollgate"));
    let lost = Case::new("lost-30-percent-dropped", "grants a round", Better::Lower);
    let mut lost = lost.goal(Goal::never("tollgate"));
    let mut dropped = Case::new("dropped-30-percent-dropped", "waits a round", Better::Lower);
    interleave(rounds, &contenders(long, Patience::Sometimes), |name, round| {
        used.sample(name, round.used());
        dropped.sample(name, round.dropped as f64);
        if let Some(books) = &round.books {
            excess.sample(name, books.excess as f64);
            lost.sample(name, books.lost as f64);
        }
    });
    vec![used, excess, lost, dropped]
}

fn contenders(long: Duration, patience: Patience) -> Vec<Contender<'static, Round>> {
    vec![
        ("tollgate", Box::new(move || run(&Arc::new(tollgate()), long, patience))),
        ("governor", Box::new(move || run(&Arc::new(governor()), long, patience))),
        ("leaky-bucket", Box::new(move || run(&Arc::new(leaky_bucket()), long, patience))),
        ("sleep-per-waiter", Box::new(move || run(&Arc::new(SleepPerWaiter::new()), long, patience))),
    ]
}

/// A limiter to wait for.
trait Turns: Send + Sync + 'static {
    /// Waits for one; `None` once it is closed.
    fn turn(&self) -> impl Future<Output = Option<Granted>> + Send;

    /// The time by the limiter's own clock if it has one, else since `began`.
    fn now(&self, began: Instant) -> u64 {
        began.elapsed().as_nanos() as u64
    }

    /// Ends all waiting, if it can; what it thinks is left, and when, by its own clock.
    fn close(&self) -> Option<Left> {
        None
    }
}

/// A grant's moment by the limiter's own clock, if it says so.
struct Granted(Option<u64>);

struct Left {
    tokens: u64,
    at: u64,
}

fn tollgate() -> Limiter {
    Limiter::new(Quota::per_second(u64::from(RATE)).burst(u64::from(BURST)))
}

impl Turns for Limiter {
    async fn turn(&self) -> Option<Granted> {
        self.wait().await.ok().map(|turn| Granted(Some(turn.act_time().as_nanos())))
    }

    fn now(&self, _: Instant) -> u64 {
        self.clock().now().as_nanos()
    }

    fn close(&self) -> Option<Left> {
        Self::close(self);
        let now = self.clock().now();
        // A question of cost zero: what is left before anything is taken.
        Some(Left { tokens: self.peek_n_at(0, now).remaining(), at: now.as_nanos() })
    }
}

fn governor() -> governor::DefaultDirectRateLimiter {
    let some = |number| NonZeroU32::new(number).expect("not zero");
    governor::RateLimiter::direct(governor::Quota::per_second(some(RATE)).allow_burst(some(BURST)))
}

impl Turns for governor::DefaultDirectRateLimiter {
    async fn turn(&self) -> Option<Granted> {
        self.until_ready().await;
        Some(Granted(None))
    }
}

fn leaky_bucket() -> leaky_bucket::RateLimiter {
    let mut builder = leaky_bucket::RateLimiter::builder();
    builder.refill(RATE as usize / 1_000).interval(Duration::from_millis(1));
    builder.max(BURST as usize).initial(BURST as usize).build()
}

impl Turns for leaky_bucket::RateLimiter {
    async fn turn(&self) -> Option<Granted> {
        self.acquire_one().await;
        Some(Granted(None))
    }
}

/// What one writes first: every waiter reserves its moment and sleeps until then.
struct SleepPerWaiter {
    origin: Instant,
    schedule: Mutex<Schedule>,
}

impl SleepPerWaiter {
    fn new() -> Self {
        Self { origin: Instant::now(), schedule: Mutex::new(Schedule::new()) }
    }
}

impl Turns for SleepPerWaiter {
    async fn turn(&self) -> Option<Granted> {
        let now = self.now(self.origin);
        let due = self.schedule.lock().expect("nobody panics with it").take(now).due;
        if due > now {
            tokio::time::sleep_until((self.origin + Duration::from_nanos(due)).into()).await;
        }
        Some(Granted(Some(due.max(now))))
    }

    fn now(&self, _: Instant) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// The replay: a token bucket as the moment at which it will be full, exact because a token is whole nanoseconds.
struct Schedule {
    full_at: u64,
}

/// What the replay says of one grant.
struct Slot {
    /// The first moment at which it could have been granted.
    due: u64,
    /// Whether it was granted before.
    too_soon: bool,
}

impl Schedule {
    const DEPTH_NS: u64 = BURST as u64 * TOKEN_NS;

    fn new() -> Self {
        Self { full_at: 0 }
    }

    /// Takes one at `now`. A gap so long that the bucket overflowed loses what overflowed.
    fn take(&mut self, now: u64) -> Slot {
        let due = (self.full_at + TOKEN_NS).saturating_sub(Self::DEPTH_NS);
        self.full_at = self.full_at.max(now) + TOKEN_NS;
        Slot { due, too_soon: due > now }
    }

    /// Whole tokens at `now`.
    fn tokens(&self, now: u64) -> u64 {
        Self::DEPTH_NS.saturating_sub(self.full_at.saturating_sub(now)) / TOKEN_NS
    }
}

/// Whether tasks give up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Endless,
    Sometimes,
}

/// One grant. All times are by the limiter's clock.
#[derive(Clone, Copy)]
struct Grant {
    task: u32,
    /// In order of arrival.
    ticket: u64,
    arrived: u64,
    went_on: u64,
    /// The moment that counts for the replay.
    granted: u64,
}

/// What a round of one contender left behind.
struct Round {
    /// In the order in which the tasks went on.
    grants: Vec<Grant>,
    /// The grants between the end of the lead-in and the end.
    window: Range<usize>,
    /// How long that was.
    window_long: Duration,
    /// From the beginning to the end.
    long: Duration,
    /// Processor time of the whole process per time, within the window.
    cores: f64,
    dropped: u64,
    books: Option<Books>,
}

/// What can be said of a limiter that tells its own times.
struct Books {
    /// Grants before the replay had a token for them.
    excess: u64,
    /// Tokens that the replay has left and the limiter has not.
    lost: u64,
}

/// A look at the clocks and at how far the tasks have come.
struct Moment {
    at: Instant,
    grants: usize,
    busy: Duration,
}

/// What the tasks of a round share.
struct Field {
    began: Instant,
    stop: AtomicBool,
    tickets: AtomicU64,
    dropped: AtomicU64,
    grants: Mutex<Vec<Grant>>,
    patience: Patience,
}

impl Field {
    fn new(long: Duration, patience: Patience) -> Self {
        let room = (RATE as usize * (long.as_millis() as usize + 200)) / 1_000;
        let mut grants = Vec::with_capacity(room);
        // Touches the memory now rather than within the measurement.
        grants.resize(room, Grant { task: 0, ticket: 0, arrived: 0, went_on: 0, granted: 0 });
        grants.clear();
        Self {
            began: Instant::now(),
            stop: AtomicBool::new(false),
            tickets: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            grants: Mutex::new(grants),
            patience,
        }
    }

    fn seen(&self) -> Moment {
        let grants = self.grants.lock().expect("nobody panics with it").len();
        Moment { at: Instant::now(), grants, busy: process_time() }
    }

    /// One task's life.
    async fn task(&self, task: u32, limiter: &impl Turns) {
        let mut chance = fastrand::Rng::with_seed(u64::from(task));
        let mut arrived = limiter.now(self.began);
        while !self.stop.load(Ordering::Relaxed) {
            let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
            let gives_up = self.patience == Patience::Sometimes && chance.u32(0..100) < DROPPED_PERCENT;
            let outcome = if gives_up {
                // The usual wait is 10 ms.
                let patience = Duration::from_micros(chance.u64(1_000..12_000));
                tokio::time::timeout(patience, limiter.turn()).await.ok()
            } else {
                Some(limiter.turn().await)
            };
            let went_on = limiter.now(self.began); // one reading does for the grant and the next arrival
            match outcome {
                Some(Some(Granted(granted))) => {
                    let granted = granted.unwrap_or(went_on);
                    let grant = Grant { task, ticket, arrived, went_on, granted };
                    self.grants.lock().expect("nobody panics with it").push(grant);
                }
                Some(None) => return,
                None => {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            arrived = went_on;
        }
    }
}

/// One round of one contender, on a runtime of its own with one thread.
fn run<L: Turns>(limiter: &Arc<L>, long: Duration, patience: Patience) -> Round {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let field = Arc::new(Field::new(long, patience));
    let (from, to, left) = runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (field, limiter) = (Arc::clone(&field), Arc::clone(limiter));
                tokio::spawn(async move { field.task(task, &*limiter).await })
            })
            .collect();
        tokio::time::sleep(LEAD_IN).await;
        let from = field.seen();
        tokio::time::sleep(long.saturating_sub(LEAD_IN)).await;
        let to = field.seen();
        field.stop.store(true, Ordering::Relaxed);
        let left = limiter.close();
        if left.is_some() {
            for task in tasks {
                task.await.expect("tasks do not panic");
            }
        }
        (from, to, left)
    });
    runtime.shutdown_background();
    let grants = std::mem::take(&mut *field.grants.lock().expect("nobody panics with it"));
    let books = left.map(|left| Books::of(&grants, &left));
    let window_long = to.at - from.at;
    Round {
        grants,
        window: from.grants..to.grants,
        window_long,
        long: to.at - field.began,
        cores: to.busy.saturating_sub(from.busy).as_secs_f64() / window_long.as_secs_f64(),
        dropped: field.dropped.load(Ordering::Relaxed),
        books,
    }
}

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Books {
    /// By the limiter's own times: the tasks see a grant later than it was made, and bunched.
    fn of(grants: &[Grant], left: &Left) -> Self {
        let mut times: Vec<u64> = grants.iter().map(|grant| grant.granted).collect();
        times.sort_unstable();
        let mut schedule = Schedule::new();
        let excess = times.iter().filter(|time| schedule.take(**time).too_soon).count() as u64;
        Self { excess, lost: schedule.tokens(left.at).saturating_sub(left.tokens) }
    }
}

impl Round {
    fn rate_reached(&self) -> f64 {
        self.window.len() as f64 / (self.window_long.as_secs_f64() * f64::from(RATE))
    }

    fn used(&self) -> f64 {
        self.window.end as f64 / (f64::from(BURST) + self.long.as_secs_f64() * f64::from(RATE))
    }

    fn by_grant_time(&self) -> Vec<&Grant> {
        let mut grants: Vec<&Grant> = self.grants.iter().collect();
        grants.sort_by_key(|grant| grant.granted); // stable: what was granted together stays in order
        grants
    }

    /// Of every grant, how much later it was than it could have been; sorted.
    fn lateness_us(&self) -> Vec<f64> {
        let mut schedule = Schedule::new();
        let late = |grant: &Grant| {
            let due = schedule.take(grant.granted).due;
            grant.went_on.saturating_sub(due.max(grant.arrived)) as f64 / 1e3
        };
        let mut lateness: Vec<f64> = self.by_grant_time().into_iter().map(late).collect();
        lateness.sort_by(f64::total_cmp);
        lateness
    }

    fn fewest_to_most(&self) -> f64 {
        let mut admissions = vec![0_u32; TASKS as usize];
        for grant in &self.grants[self.window.clone()] {
            admissions[grant.task as usize] += 1;
        }
        let (least, most) = (admissions.iter().min(), admissions.iter().max());
        f64::from(*least.expect("tasks")) / f64::from(*most.expect("tasks")).max(1.0)
    }
}

/// Grants to somebody who came before one that was already granted.
fn inversions_in<'a>(grants: impl Iterator<Item = &'a Grant>) -> usize {
    let mut latest = 0;
    let behind = |grant: &&Grant| {
        let behind = grant.ticket < latest;
        latest = latest.max(grant.ticket);
        behind
    };
    grants.filter(behind).count()
}
