//! Several limiters as one gate, and one limiter in shards.
//!
//! - `gate-allow-…`: one, two and three tiers that all admit; all tiers are asked at one moment, and either all of them are
//!   charged or none is. `three-checks` and `governor-three-checks` ask three limiters one after the other, which is not
//!   the same: what the first ones took is lost if the last refuses.
//! - `gate-deny-last-1t`: the last tier refuses.
//! - `sharded-allow-…`, `sharded-scaling`: everything is admitted.
//! - `sharded-near-limit-2t`, `sharded-flooded-2t`: two threads ask for several times, or a hundred times, what the quota
//!   gives, so that shards hold little or nothing. `-admitted` is what was admitted of what the quota gives, burst included,
//!   in that time.
//!
//! tollgate reads its default clock, the processor's counter; governor its default, quanta.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::ExitCode;

use tollgate::{Limiter, Quota};
use tollgate_benches::{Asked, Bench, Better, Case, Contender, Goal, Load, Options, interleave};

type Contenders<'a> = Vec<Contender<'a, f64>>;

fn main() -> ExitCode {
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("gate: {message}");
            return ExitCode::from(2);
        }
    };
    let plan = Plan::new(options);
    let mut bench = Bench::new("gate", options);
    tiers_that_allow(&plan, &mut bench);
    last_tier_denies(&plan, &mut bench);
    sharded_all_admitted(&plan, &mut bench);
    for demand in [Demand::NEAR, Demand::FLOOD] {
        sharded_near_limit(&plan, &mut bench, demand);
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

// Set-ups.

/// As in `direct`: the fastest rate and the largest burst that governor can express, so that nothing is refused.
const ENDLESS: Quota = Quota::per_second(1_000_000_000).burst(u32::MAX as u64);
const DRAINED: Quota = Quota::per_hour(1);

fn governor(quota: Quota) -> governor::DefaultDirectRateLimiter {
    let some =
        |number: u64| u32::try_from(number).ok().and_then(NonZeroU32::new).expect("a number for governor");
    let one_per = quota.period() / some(quota.count()).get();
    let theirs = governor::Quota::with_period(one_per).expect("a period");
    governor::RateLimiter::direct(theirs.allow_burst(some(quota.burst_size())))
}

/// A sharded limiter's yes or no.
fn sharded(quota: Quota) -> impl Fn() -> bool + Sync {
    let limiter = Limiter::builder(quota).sharded().build();
    move || limiter.allow()
}

/// What a thread waits for an answer, in nanoseconds, or how many million answers a second two of them get.
fn measured(load: Load, name: &str, expected: bool, ask: impl Fn() -> bool + Sync) -> f64 {
    let asked = load.ask(ask);
    let right = if expected { asked.asked } else { 0 };
    assert_eq!(asked.allowed, right, "{name}, of {} questions; the set-up is wrong", asked.asked);
    match load {
        Load::Alone { .. } => asked.nanos(),
        Load::Together { .. } => asked.millions_per_second(),
    }
}

fn contender<'a>(
    name: &'static str,
    load: Load,
    expected: bool,
    ask: impl Fn() -> bool + Sync + 'a,
) -> Contender<'a, f64> {
    (name, Box::new(move || measured(load, name, expected, &ask)))
}

// Gates.

fn tiers_that_allow(plan: &Plan, bench: &mut Bench) {
    let alone = Case::new("gate-allow-1t", "ns", Better::Lower).goal(Goal::ratio_at_most(
        "tollgate-three",
        "tollgate-one",
        2.5,
    ));
    let together = Case::new("gate-allow-2t", "Mop/s", Better::Higher);
    let turns = plan.turns;
    let [a, b, c] = [0; 3].map(|_| Limiter::new(ENDLESS));
    let (two, three) = (a.and(&b), a.and(&b).and(&c));
    let theirs = [0; 3].map(|_| governor(ENDLESS));
    for (case, load) in [(alone, Load::Alone { turns }), (together, Load::Together { turns })] {
        let contenders = vec![
            contender("tollgate-one", load, true, || a.check().is_allowed()),
            contender("tollgate-two", load, true, || two.check().is_allowed()),
            contender("tollgate-three", load, true, || three.check().is_allowed()),
            contender("three-checks", load, true, || {
                [&a, &b, &c].iter().all(|tier| tier.check().is_allowed())
            }),
            contender("governor-one", load, true, || theirs[0].check().is_ok()),
            contender("governor-three-checks", load, true, || theirs.iter().all(|tier| tier.check().is_ok())),
        ];
        bench.add(plan.run(case, &contenders));
    }
}

fn last_tier_denies(plan: &Plan, bench: &mut Bench) {
    let load = Load::Alone { turns: plan.turns };
    let (a, b, last) = (Limiter::new(ENDLESS), Limiter::new(ENDLESS), Limiter::new(DRAINED));
    let theirs = [governor(ENDLESS), governor(ENDLESS), governor(DRAINED)];
    black_box((last.allow(), theirs[2].check().is_ok())); // empties them
    let gate = a.and(&b).and(&last);
    let contenders = vec![
        contender("tollgate-one", load, false, || last.check().is_allowed()),
        contender("tollgate-three", load, false, || gate.check().is_allowed()),
        contender("governor-three-checks", load, false, || theirs.iter().all(|tier| tier.check().is_ok())),
    ];
    bench.add(plan.run(Case::new("gate-deny-last-1t", "ns", Better::Lower), &contenders));
}

// Shards.

fn sharded_all_admitted(plan: &Plan, bench: &mut Bench) {
    let turns = plan.turns;
    let (shards, word, theirs) = (sharded(ENDLESS), Limiter::new(ENDLESS), governor(ENDLESS));
    let contenders = |load| {
        vec![
            contender("tollgate-sharded", load, true, &shards),
            contender("tollgate", load, true, || word.allow()),
            contender("governor", load, true, || theirs.check().is_ok()),
        ]
    };
    let alone = Case::new("sharded-allow-1t", "ns", Better::Lower);
    bench.add(plan.run(alone, &contenders(Load::Alone { turns })));
    let together = Case::new("sharded-allow-2t", "Mop/s", Better::Higher).goal(Goal::ratio_at_least(
        "tollgate-sharded",
        "governor",
        10.0,
    ));
    bench.add(plan.run(together, &contenders(Load::Together { turns })));

    let scaling = Case::new("sharded-scaling", "x one thread", Better::Higher)
        .goal(Goal::at_least("tollgate-sharded", 1.8));
    let contenders: Contenders<'_> = vec![
        ("tollgate-sharded", Box::new(|| scaled(turns, &shards))),
        ("tollgate", Box::new(|| scaled(turns, || word.allow()))),
        ("governor", Box::new(|| scaled(turns, || theirs.check().is_ok()))),
    ];
    bench.add(plan.run(scaling, &contenders));
}

/// How many times the throughput of one thread two threads have.
fn scaled(turns: u64, ask: impl Fn() -> bool + Sync) -> f64 {
    let alone = Load::Alone { turns }.ask(&ask).millions_per_second();
    Load::Together { turns }.ask(&ask).millions_per_second() / alone
}

/// More than the quota gives.
#[derive(Clone, Copy)]
struct Demand {
    name: &'static str,
    /// Two threads ask some hundred million times a second.
    rate: u64,
}

impl Demand {
    const NEAR: Self = Self { name: "near-limit", rate: 20_000_000 };
    const FLOOD: Self = Self { name: "flooded", rate: 1_000_000 };

    /// A burst of a millisecond: no more than what a round takes in a moment.
    fn quota(self) -> Quota {
        Quota::per_second(self.rate).burst(self.rate / 1_000)
    }

    /// The part of what the quota gives, from a full bucket, that was admitted.
    fn used(self, asked: Asked) -> f64 {
        let quota = self.quota();
        let given = quota.burst_size() as f64 + self.rate as f64 * asked.wall.as_secs_f64();
        asked.allowed as f64 / given
    }
}

fn sharded_near_limit(plan: &Plan, bench: &mut Bench, demand: Demand) {
    let load = Load::Together { turns: plan.turns };
    let (shards, word) = (sharded(demand.quota()), Limiter::new(demand.quota()));
    let theirs = governor(demand.quota());
    let contenders: Vec<Contender<'_, Asked>> = vec![
        ("tollgate-sharded", Box::new(|| load.ask(&shards))),
        ("tollgate", Box::new(|| load.ask(|| word.allow()))),
        ("governor", Box::new(|| load.ask(|| theirs.check().is_ok()))),
    ];
    let mut speed = Case::new(format!("sharded-{}-2t", demand.name), "Mop/s", Better::Higher)
        .goal(Goal::ratio_at_least("tollgate-sharded", "tollgate", 0.95));
    // The clocks of the limiter and of this program may differ by a little.
    let mut used = Case::new(format!("sharded-{}-admitted-2t", demand.name), "of the quota", Better::Higher)
        .goal(Goal::ratio_at_least("tollgate-sharded", "tollgate", 0.95))
        .goal(Goal::at_most("tollgate-sharded", 1.001));
    for (_, run) in &contenders {
        run(); // warms up
    }
    interleave(plan.rounds, &contenders, |name, asked| {
        speed.sample(name, asked.millions_per_second());
        used.sample(name, demand.used(asked));
    });
    bench.add(speed);
    bench.add(used);
}
