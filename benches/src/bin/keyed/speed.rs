//! Time and instructions per check.

use std::hint::black_box;
use std::time::Instant;

use tollgate_benches::{
    Bench, Better, Case, Contender, Goal, instructions, interleave, on_both_cores, on_core,
};

use crate::contenders::{Contest, Keyed, Pass, Terms};
use crate::keys::{Guess, Key, Spread, colliding};
use crate::ours::Ours;
use crate::{COUNT, KEYS, Plan};

/// limitador is so slow that a tenth of the calls must do.
const SLOW: &str = "limitador";
const SLOW_PART: usize = 10;

/// Beside the contenders, for their speed alone.
const BESIDE: &[&str] = &["tollgate-coarse", "floor"];

/// A limiter that knows every key, with its name.
type Filled<K> = (&'static str, Box<dyn Keyed<K>>);

/// All contenders, every spread, one thread and two.
pub(crate) fn checks<K: Contest>(plan: &Plan, bench: &mut Bench) {
    let names = K::CONTENDERS.iter().chain(BESIDE);
    let filled: Vec<Filled<K>> = names.map(|name| (*name, filled(name))).collect();
    for spread in Spread::ALL {
        let calls = [1, 2].map(|seed| spread.calls::<K>(KEYS, plan.turns, seed));
        for threads in [1, 2] {
            let name = format!("{}-{}-{threads}t", K::NAME, spread.name());
            let case = Case::new(name, "ns", Better::Lower)
                .goal(Goal::ratio_at_most("tollgate", "governor", 0.35))
                .goal(Goal::ratio_at_most("tollgate", "governor-ahash", 0.6));
            bench.add(run(plan.rounds, case, &contenders(&filled, &calls, threads)));
        }
    }
}

fn filled<K: Contest>(name: &str) -> Box<dyn Keyed<K>> {
    let limiter = K::make(name, Terms::BUSY);
    fill(&*limiter, KEYS);
    limiter
}

/// Lets every key ask once.
fn fill<K: Key>(limiter: &(impl Keyed<K> + ?Sized), keys: u64) {
    for number in 0..keys {
        assert!(limiter.allow(&K::nth(number)), "key {number} was refused; the set-up is wrong");
    }
}

fn contenders<'a, K: Contest>(
    filled: &'a [Filled<K>],
    calls: &'a [Vec<K>; 2],
    threads: usize,
) -> Vec<Contender<'a, f64>> {
    let contender = |(name, limiter): &'a Filled<K>| -> Contender<'a, f64> {
        let part = if *name == SLOW { SLOW_PART } else { 1 };
        let calls = calls.each_ref().map(|calls| &calls[..calls.len() / part]);
        (*name, Box::new(move || nanos(name, calls, threads, |keys| limiter.pass(keys))))
    };
    filled.iter().map(contender).collect()
}

/// Nanoseconds that a check takes its thread.
fn nanos<K: Sync>(name: &str, calls: [&[K]; 2], threads: usize, pass: impl Fn(&[K]) -> Pass + Sync) -> f64 {
    let turns = calls[0].len();
    let passes = match threads {
        1 => vec![on_core(1, || pass(calls[0]))],
        _ => on_both_cores(|core| pass(calls[core])).to_vec(),
    };
    let allowed: u64 = passes.iter().map(|pass| pass.allowed).sum();
    assert_eq!(allowed, (threads * turns) as u64, "{name} refused some; the set-up is wrong");
    let began = passes.iter().map(|pass| pass.began).min().expect("a pass");
    let ended = passes.iter().map(|pass| pass.ended).max().expect("a pass");
    (ended - began).as_secs_f64() * 1e9 / turns as f64
}

fn run(rounds: usize, mut case: Case, contenders: &[Contender<'_, f64>]) -> Case {
    for (_, run) in contenders {
        run(); // warms up
    }
    interleave(rounds, contenders, |name, value| case.sample(name, value));
    case
}

/// Ours in batches against ours one by one, with the same answer, a whole decision, from both.
pub(crate) fn batches(plan: &Plan, bench: &mut Bench) {
    let numbers = Ours::<u64>::new(Terms::BUSY);
    fill(&numbers, KEYS);
    let calls = Spread::Uniform.calls::<u64>(KEYS, plan.turns, 1);
    bench.add(batch_case(plan, "check-many-u64-uniform-1t", &numbers, &calls.iter().collect::<Vec<_>>()));

    let texts = Ours::<str>::new(Terms::BUSY);
    fill(&texts, KEYS);
    let calls = Spread::Uniform.calls::<String>(KEYS, plan.turns, 1);
    let keys: Vec<&str> = calls.iter().map(String::as_str).collect();
    bench.add(batch_case(plan, "check-many-str36-uniform-1t", &texts, &keys));
}

fn batch_case<K: ?Sized + std::hash::Hash + Sync + 'static>(
    plan: &Plan,
    name: &str,
    limiter: &Ours<K>,
    keys: &[&K],
) -> Case
where
    Ours<K>: Sync,
{
    let single = || nanos("check", [keys; 2], 1, |keys| singly(limiter, keys));
    let batch = |size| nanos("check_many", [keys; 2], 1, |keys| in_batches(limiter, keys, size));
    let contenders: Vec<Contender<'_, f64>> = vec![
        ("tollgate-check", Box::new(single)),
        ("tollgate-many-16", Box::new(move || batch(16))),
        ("tollgate-many-64", Box::new(move || batch(64))),
    ];
    let goal = Goal::ratio_at_most("tollgate-many-16", "tollgate-check", 0.6);
    run(plan.rounds, Case::new(name, "ns a key", Better::Lower).goal(goal), &contenders)
}

fn singly<K: ?Sized + std::hash::Hash + 'static>(limiter: &Ours<K>, keys: &[&K]) -> Pass {
    let mut allowed = 0;
    let began = Instant::now();
    for key in keys {
        allowed += u64::from(black_box(limiter.check(key)));
    }
    Pass { allowed, began, ended: Instant::now() }
}

fn in_batches<K: ?Sized + std::hash::Hash + 'static>(limiter: &Ours<K>, keys: &[&K], size: usize) -> Pass {
    let mut allowed = 0;
    let began = Instant::now();
    for batch in keys.chunks(size) {
        allowed += black_box(limiter.check_many(batch));
    }
    Pass { allowed, began, ended: Instant::now() }
}

/// Keys that an attacker chose against ones that nobody chose. Few enough for the cache, where a long probe shows most.
pub(crate) fn collisions(plan: &Plan, bench: &mut Bench) {
    const CHOSEN: usize = 1_024;
    let sets = Guess::ALL.map(|guess| (guess.name, colliding(guess, CHOSEN)));
    let random = (0..CHOSEN as u64).map(u64::nth).collect();
    let sets: Vec<(&'static str, Vec<u64>)> = [("random", random)].into_iter().chain(sets).collect();
    let prepare = |(name, keys): &(&'static str, Vec<u64>)| {
        let mut chance = fastrand::Rng::with_seed(1);
        let calls: Vec<u64> = (0..plan.turns).map(|_| keys[chance.usize(0..keys.len())]).collect();
        (*name, Ours::<u64>::new(Terms::BUSY), calls)
    };
    let prepared: Vec<_> = sets.iter().map(prepare).collect();
    let contender = |(name, limiter, calls): &'_ (&'static str, Ours<u64>, Vec<u64>)| {
        nanos(name, [calls, calls], 1, |keys| limiter.pass(keys))
    };
    let contenders: Vec<Contender<'_, f64>> = prepared
        .iter()
        .map(|prepared| -> Contender<'_, f64> { (prepared.0, Box::new(move || contender(prepared))) })
        .collect();
    let case = Case::new("collide-u64", "ns", Better::Lower);
    let goal = |case: Case, guess: Guess| case.goal(Goal::ratio_at_most(guess.name, "random", 1.2));
    bench.add(run(plan.rounds, Guess::ALL.into_iter().fold(case, goal), &contenders));
}

/// How many keys a limiter holds whose instructions are counted: their number changes nothing, and valgrind is slow.
const COUNTED_KEYS: u64 = 10_000;

/// How often they are counted.
const SEEDS: usize = 5;

/// The child under valgrind.
pub(crate) fn count(what: &str, turns: u64) {
    match what.split_once('/') {
        Some(("u64", name)) => count_one::<u64>(name, turns),
        Some(("str36", name)) => count_one::<String>(name, turns),
        _ => panic!("nothing to count is called {what:?}"),
    }
}

fn count_one<K: Contest>(name: &str, turns: u64) {
    let calls: Vec<K> = Spread::Uniform.calls(COUNTED_KEYS, COUNTED_KEYS as usize, 1);
    if name == "loop" {
        return Loop.count(turns, &calls);
    }
    let limiter = K::make(name, Terms::BUSY);
    fill(&*limiter, COUNTED_KEYS);
    limiter.count(turns, &calls);
}

/// What lies around the check.
struct Loop;

impl<K> Keyed<K> for Loop {
    #[inline]
    fn allow(&self, key: &K) -> bool {
        black_box(key);
        true
    }
}

pub(crate) fn instruction_cases() -> Result<[Case; 2], String> {
    let counted = |kind: &str| {
        let bare = instructions(&[COUNT, &format!("{kind}/loop")])?;
        let mut case = Case::new(format!("instructions-{kind}"), "instructions", Better::Lower);
        for name in ["tollgate", "governor", "governor-ahash"] {
            // Where keys lie differs from process to process, and with it how many are found at once.
            for _ in 0..SEEDS {
                case.sample(name, instructions(&[COUNT, &format!("{kind}/{name}")])? - bare);
            }
        }
        Ok::<Case, String>(case)
    };
    let goal = Goal::ratio_at_most("tollgate", "governor", 0.35);
    Ok([counted("u64")?.goal(goal), counted("str36")?])
}
