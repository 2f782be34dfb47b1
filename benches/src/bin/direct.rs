//! One limiter, asked directly: time and instructions per question, alone and from two threads.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, QuantaUpkeepClock};
use tollgate::{CoarseClock, Limiter, MonotonicClock, Quota};
use tollgate_benches::{
    Asked, Bench, Better, Case, Contender, Goal, Load, Options, counted, instructions, interleave,
};

type Contenders<'a> = Vec<Contender<'a, f64>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, what, turns] = &args[..]
        && flag == COUNT
    {
        count(what, turns.parse().expect("a number of turns"));
        return ExitCode::SUCCESS;
    }
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("direct: {message}");
            return ExitCode::from(2);
        }
    };
    let plan = Plan::new(options);
    let mut bench = Bench::new("direct", options);
    one_thread(&plan, &mut bench);
    coarse(&plan, &mut bench);
    two_threads(&plan, &mut bench);
    match counts() {
        Ok(cases) => cases.into_iter().for_each(|case| bench.add(case)),
        Err(reason) => println!("instructions: not counted: {reason}\n"),
    }
    bench.finish()
}

/// How much to measure.
struct Plan {
    rounds: usize,
    turns: u64,
}

impl Plan {
    fn new(options: Options) -> Self {
        // Many short rounds rather than few long ones: the machine drifts within seconds.
        if options.is_quick() {
            Self { rounds: 2, turns: 500_000 }
        } else {
            Self { rounds: 15, turns: 2_000_000 }
        }
    }

    fn run(&self, mut case: Case, contenders: &Contenders<'_>) -> Case {
        for (_, run) in contenders {
            run(); // warms up
        }
        interleave(self.rounds, contenders, |name, value| case.sample(name, value));
        case
    }
}

// The questions' set-ups: a quota that never denies, and one that always does.

/// The fastest rate that governor can express.
const FAST: u32 = 1_000_000_000;
/// The largest burst that governor can express; far more than a run ever takes.
const DEEP: u32 = u32::MAX;
const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Allow,
    Deny,
}

impl Answer {
    fn tollgate(self) -> Quota {
        match self {
            Self::Allow => Quota::per_second(u64::from(FAST)).burst(u64::from(DEEP)),
            Self::Deny => Quota::per_hour(1),
        }
    }

    fn governor(self) -> governor::Quota {
        let some = |number| NonZeroU32::new(number).expect("not zero");
        match self {
            Self::Allow => governor::Quota::per_second(some(FAST)).allow_burst(some(DEEP)),
            Self::Deny => governor::Quota::per_hour(some(1)),
        }
    }

    fn ratelimit(self) -> ratelimit::Ratelimiter {
        let builder = match self {
            Self::Allow => ratelimit::Ratelimiter::builder(u64::from(FAST))
                .max_tokens(u64::from(DEEP))
                .initial_available(u64::from(DEEP)),
            Self::Deny => ratelimit::Ratelimiter::builder(1).period(HOUR).max_tokens(1).initial_available(1),
        };
        builder.build().expect("a valid set-up")
    }

    fn leaky_bucket(self, fair: bool) -> leaky_bucket::RateLimiter {
        let mut builder = leaky_bucket::RateLimiter::builder();
        match self {
            Self::Allow => builder
                .refill(FAST as usize / 1_000)
                .interval(Duration::from_millis(1))
                .max(DEEP as usize)
                .initial(DEEP as usize),
            Self::Deny => builder.refill(1).interval(HOUR).max(1).initial(1),
        };
        builder.fair(fair).build()
    }

    fn mutex(self) -> MutexBucket {
        match self {
            Self::Allow => MutexBucket::new(f64::from(FAST), f64::from(DEEP)),
            Self::Deny => MutexBucket::new(1.0 / HOUR.as_secs_f64(), 1.0),
        }
    }
}

/// What one writes first: a token bucket of floats behind a lock.
struct MutexBucket {
    rate: f64,
    burst: f64,
    state: Mutex<(f64, Instant)>,
}

impl MutexBucket {
    fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, state: Mutex::new((burst, Instant::now())) }
    }

    /// How long to wait, in seconds; `None` if it may go ahead.
    fn check(&self) -> Option<f64> {
        let mut state = self.state.lock().expect("nobody panics with it");
        let now = Instant::now();
        let tokens = (state.0 + now.duration_since(state.1).as_secs_f64() * self.rate).min(self.burst);
        let left = tokens - 1.0;
        *state = (if left >= 0.0 { left } else { tokens }, now);
        (left < 0.0).then(|| -left / self.rate)
    }
}

// How an operation is timed.

/// Runs `ask` and makes sure of every answer: nanoseconds per question for one thread, million questions per second for
/// two.
fn measure(load: Load, name: &str, expected: Answer, ask: impl Fn() -> bool + Sync) -> f64 {
    let measured = load.ask(ask);
    let Asked { allowed, asked, .. } = measured;
    let right = if expected == Answer::Allow { asked } else { 0 };
    // leaky-bucket's unfair mode now and then refuses almost everything when two threads ask at once; its figure stays,
    // with a word about it.
    if allowed != right && name.starts_with("leaky-bucket") {
        eprintln!("{name} allowed {allowed} of {asked} where it should have allowed {right}");
    } else {
        assert_eq!(allowed, right, "{name}, of {asked} questions; the set-up is wrong");
    }
    match load {
        Load::Alone { .. } => measured.nanos(),
        Load::Together { .. } => measured.millions_per_second(),
    }
}

/// A contender that answers with a bool, drained first.
fn contender<'a>(
    name: &'static str,
    load: Load,
    expected: Answer,
    ask: impl Fn() -> bool + Sync + 'a,
) -> Contender<'a, f64> {
    black_box(ask());
    (name, Box::new(move || measure(load, name, expected, &ask)))
}

// The contenders.

fn drop_contenders(answer: Answer, load: Load) -> Contenders<'static> {
    let quota = answer.tollgate();
    let (ours, std) = (Limiter::new(quota), Limiter::builder(quota).clock(MonotonicClock::new()).build());
    let theirs = governor::RateLimiter::direct(answer.governor());
    let clock = governor::clock::MonotonicClock;
    let theirs_std = governor::RateLimiter::direct_with_clock(answer.governor(), clock);
    let (ratelimit, mutex) = (answer.ratelimit(), answer.mutex());
    let (fair, unfair) = (answer.leaky_bucket(true), answer.leaky_bucket(false));
    vec![
        contender("tollgate", load, answer, move || ours.allow()),
        contender("tollgate-std", load, answer, move || std.allow()),
        contender("governor", load, answer, move || theirs.check().is_ok()),
        contender("governor-std", load, answer, move || theirs_std.check().is_ok()),
        contender("ratelimit", load, answer, move || ratelimit.try_wait().is_ok()),
        contender("leaky-bucket-fair", load, answer, move || fair.try_acquire(1)),
        contender("leaky-bucket-unfair", load, answer, move || unfair.try_acquire(1)),
        contender("mutex", load, answer, move || mutex.check().is_none()),
    ]
}

/// What no limiter can do without: reading the time, and changing a word.
fn floors(load: Load) -> Contenders<'static> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let word = Line(AtomicU64::new(0));
    let swap = move || {
        let now = quanta::Instant::now();
        let mut seen = word.0.load(Ordering::Acquire);
        while let Err(other) =
            word.0.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire)
        {
            seen = other;
        }
        black_box(now);
        true
    };
    let read = || {
        black_box(quanta::Instant::now());
        true
    };
    vec![
        contender("floor-clock", load, Answer::Allow, read),
        contender("floor-cas", load, Answer::Allow, swap),
    ]
}

fn one_thread(plan: &Plan, bench: &mut Bench) {
    let load = Load::Alone { turns: plan.turns };
    let drop_case = |name, answer| {
        let mut contenders = drop_contenders(answer, load);
        contenders.extend(floors(load));
        let case = nanos(name)
            .goal(Goal::ratio_at_most("tollgate", "governor", 1.05))
            .goal(Goal::ratio_at_most("tollgate", "floor-clock", 1.15));
        plan.run(case, &contenders)
    };
    let retry_goal = Goal::ratio_at_most("tollgate", "governor", 0.55);
    bench.add(drop_case("allow-1t", Answer::Allow));
    bench.add(drop_case("deny-1t", Answer::Deny));
    bench.add(plan.run(nanos("deny-retry-1t").goal(retry_goal), &retry_contenders(load)));
    bench.add(plan.run(nanos("check-1t"), &check_contenders(load)));
}

fn nanos(name: &'static str) -> Case {
    Case::new(name, "ns", Better::Lower)
}

/// Denials whose time to come back is read.
fn retry_contenders(load: Load) -> Contenders<'static> {
    let ours = Limiter::new(Answer::Deny.tollgate());
    let theirs = governor::RateLimiter::direct(Answer::Deny.governor());
    let clock = governor::clock::DefaultClock::default();
    let (ratelimit, mutex) = (Answer::Deny.ratelimit(), Answer::Deny.mutex());
    let read_ours = move || {
        let decision = ours.check();
        black_box(decision.retry_after());
        decision.is_allowed()
    };
    let read_theirs = move || match theirs.check() {
        Ok(()) => true,
        Err(not_until) => {
            black_box(not_until.wait_time_from(clock.now()));
            false
        }
    };
    vec![
        contender("tollgate", load, Answer::Deny, read_ours),
        contender("governor", load, Answer::Deny, read_theirs),
        contender("ratelimit", load, Answer::Deny, move || black_box(ratelimit.try_wait()).is_ok()),
        contender("mutex", load, Answer::Deny, move || black_box(mutex.check()).is_none()),
    ]
}

/// Everything a header needs: whether, what is left, when it is full again.
fn check_contenders(load: Load) -> Contenders<'static> {
    let ours = Limiter::new(Answer::Allow.tollgate());
    let middleware = governor::RateLimiter::direct(Answer::Allow.governor())
        .with_middleware::<governor::middleware::StateInformationMiddleware>();
    let read_theirs = move || match middleware.check() {
        Ok(snapshot) => {
            black_box(snapshot.remaining_burst_capacity());
            true
        }
        Err(_) => false,
    };
    vec![
        contender("tollgate", load, Answer::Allow, move || full_check(&ours)),
        contender("governor-remaining", load, Answer::Allow, read_theirs),
    ]
}

#[inline]
fn full_check(limiter: &Limiter) -> bool {
    let decision = limiter.check();
    black_box((decision.remaining(), decision.reset_after()));
    decision.is_allowed()
}

/// Clocks that somebody else winds, every millisecond.
fn coarse(plan: &Plan, bench: &mut Bench) {
    let load = Load::Alone { turns: plan.turns };
    let every = Duration::from_millis(1);
    // Both stop with their last clone, at the end of this function.
    let clock = CoarseClock::new(every);
    let upkeep = QuantaUpkeepClock::from_interval(every).expect("no other upkeep");
    let case = |name, answer: Answer| {
        let ours = Limiter::builder(answer.tollgate()).clock(clock.clone()).build();
        let theirs = governor::RateLimiter::direct_with_clock(answer.governor(), upkeep.clone());
        let contenders = vec![
            contender("tollgate-coarse", load, answer, move || ours.allow()),
            contender("governor-upkeep", load, answer, move || theirs.check().is_ok()),
        ];
        plan.run(
            nanos(name).goal(Goal::ratio_at_most("tollgate-coarse", "governor-upkeep", 1.0)),
            &contenders,
        )
    };
    bench.add(case("allow-1t-coarse", Answer::Allow));
    bench.add(case("deny-1t-coarse", Answer::Deny));
}

fn two_threads(plan: &Plan, bench: &mut Bench) {
    let load = Load::Together { turns: plan.turns };
    let case = |name, answer| {
        let mut contenders = drop_contenders(answer, load);
        contenders.extend(floors(load));
        (Case::new(name, "Mop/s", Better::Higher), contenders)
    };
    let (allow, contenders) = case("allow-2t", Answer::Allow);
    bench.add(plan.run(allow.goal(Goal::ratio_at_least("tollgate", "governor", 1.35)), &contenders));
    let (deny, contenders) = case("deny-2t", Answer::Deny);
    bench.add(plan.run(deny, &contenders));
    bench.add(scaling(plan));
}

/// How many times the throughput of one thread two threads have.
fn scaling(plan: &Plan) -> Case {
    let (ours, theirs) =
        (Limiter::new(Answer::Deny.tollgate()), governor::RateLimiter::direct(Answer::Deny.governor()));
    black_box((ours.allow(), theirs.check().is_ok()));
    let (turns, start) = (plan.turns, quanta::Instant::now());
    let contenders: Contenders<'_> = vec![
        ("tollgate", Box::new(|| times(turns, || ours.allow()))),
        ("governor", Box::new(|| times(turns, || theirs.check().is_ok()))),
        // What the machine allows: two threads that share nothing.
        ("floor-clock", Box::new(|| times(turns, || black_box(quanta::Instant::now()) == start))),
    ];
    let case = Case::new("deny-scaling", "x one thread", Better::Higher);
    plan.run(case.goal(Goal::at_least("tollgate", 1.9)), &contenders)
}

fn times(turns: u64, ask: impl Fn() -> bool + Sync) -> f64 {
    let alone = 1e3 / measure(Load::Alone { turns }, "scaling", Answer::Deny, &ask);
    measure(Load::Together { turns }, "scaling", Answer::Deny, &ask) / alone
}

// Instructions.

/// Runs one operation for callgrind; not for people.
const COUNT: &str = "--count";

fn count(what: &str, turns: u64) {
    let (ours, theirs) =
        (Limiter::new(Answer::Allow.tollgate()), governor::RateLimiter::direct(Answer::Allow.governor()));
    let (ours_denied, theirs_denied) =
        (Limiter::new(Answer::Deny.tollgate()), governor::RateLimiter::direct(Answer::Deny.governor()));
    let clock = governor::clock::DefaultClock::default();
    black_box((ours_denied.allow(), theirs_denied.check().is_ok()));
    match what {
        "loop" => counted(turns, || _ = black_box(true)),
        "tollgate-allow" => counted(turns, || _ = black_box(ours.allow())),
        "governor-allow" => counted(turns, || _ = black_box(theirs.check().is_ok())),
        "tollgate-check" => counted(turns, || _ = black_box(full_check(&ours))),
        "tollgate-deny" => counted(turns, || _ = black_box(ours_denied.allow())),
        "governor-deny" => counted(turns, || _ = black_box(theirs_denied.check().is_ok())),
        "tollgate-deny-retry" => counted(turns, || _ = black_box(ours_denied.check().retry_after())),
        "governor-deny-retry" => counted(turns, || {
            let wait = theirs_denied.check().map_err(|not_until| not_until.wait_time_from(clock.now()));
            black_box(wait.err());
        }),
        other => panic!("nothing to count is called {other:?}"),
    }
}

fn counts() -> Result<Vec<Case>, String> {
    let bare = instructions(&[COUNT, "loop"])?;
    let count = |mut case: Case, contenders: &[(&'static str, &str)]| {
        for (contender, what) in contenders {
            case.sample(contender, instructions(&[COUNT, what])? - bare);
        }
        Ok::<Case, String>(case)
    };
    let case = |name| Case::new(name, "instructions", Better::Lower);
    let (ours, theirs) = ("tollgate", "governor");
    let check = case("instructions-check").goal(Goal::at_most(ours, 35.0));
    Ok(vec![
        count(case("instructions-allow"), &[(ours, "tollgate-allow"), (theirs, "governor-allow")])?,
        count(check, &[(ours, "tollgate-check")])?,
        count(case("instructions-deny"), &[(ours, "tollgate-deny"), (theirs, "governor-deny")])?,
        count(
            case("instructions-deny-retry"),
            &[(ours, "tollgate-deny-retry"), (theirs, "governor-deny-retry")],
        )?,
    ])
}
