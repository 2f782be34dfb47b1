//! Memory per key, and the longest call, while a limiter grows. Each contender grows in a process of its own.

use std::time::{Duration, Instant};

use tollgate_benches::{
    Bench, Better, Case, Contender, Findings, Goal, Pauses, findings_of, on_core, resident_bytes, take_turns,
};

use crate::contenders::{Contest, Terms};
use crate::{GROW, KEYS, Plan, child_of};

/// Not growing at all: the noise of the machine.
const STILL: &str = "no-growth";
/// These grow in every round; the others only once, which is enough for memory and to see the size of a pause.
const EVERY_ROUND: [&str; 3] = ["tollgate", "governor", STILL];
/// Not beyond 1M keys: limitador needs a kilobyte for each, and pingora-limits is a sketch, whose memory does not depend on
/// the keys.
const AT_1M_ONLY: [&str; 2] = ["limitador", "pingora-limits"];

/// Where the load is worst between two growths is looked for from 1M to 4M keys in steps of 2 %, over two doublings.
const WORST_FROM: u64 = KEYS;
const WORST_TO: u64 = 4 * KEYS;

// What the child tells.
const AT_1M: &str = "bytes-1m";
const AT_10M: &str = "bytes-10m";
const WORST: &str = "bytes-worst";
const OWN_AT_1M: &str = "own-bytes-1m";
const OWN_AT_10M: &str = "own-bytes-10m";
const OWN_WORST: &str = "own-bytes-worst";
const LONGEST: &str = "longest-us";
const LONGEST_WALL: &str = "longest-wall-us";

pub(crate) fn cases<K: Contest>(plan: &Plan, bench: &mut Bench) {
    let bytes = |what: &str, most| {
        let case = Case::new(format!("bytes-per-key-{}-{what}", K::NAME), "bytes", Better::Lower);
        case.goal(Goal::at_most("tollgate", most))
    };
    let (mut at_1m, mut worst) = (bytes("1m", 32.0), bytes("worst-1m-4m", 40.0));
    let mut at_10m = bytes("10m", 32.0);
    let pause = |what: &str| Case::new(format!("grow-longest-{what}-{}", K::NAME), "us", Better::Lower);
    let (mut longest, mut wall) =
        (pause("pause").goal(Goal::least_at_most("tollgate", 500.0)), pause("wall"));

    let mut take = |name: &'static str, found: &Findings| {
        sample(&mut at_1m, name, found.get(AT_1M));
        sample(&mut worst, name, found.get(WORST));
        sample(&mut at_10m, name, found.get(AT_10M));
        sample(&mut longest, name, found.get(LONGEST));
        sample(&mut wall, name, found.get(LONGEST_WALL));
        if name == "tollgate" {
            sample(&mut at_1m, OWN, found.get(OWN_AT_1M));
            sample(&mut worst, OWN, found.get(OWN_WORST));
            sample(&mut at_10m, OWN, found.get(OWN_AT_10M));
        }
    };
    take_turns(plan.rounds_of_children, &contenders::<K>(plan), |name, found| take(name, &found));
    let once = K::CONTENDERS.iter().filter(|name| !EVERY_ROUND.contains(*name));
    for name in once.filter(|name| !(plan.is_quick && **name == "limitador")) {
        let most = if AT_1M_ONLY.contains(name) { KEYS } else { plan.most_keys };
        take(name, &grown::<K>(name, most));
    }
    bench.add(at_1m);
    bench.add(worst);
    if plan.is_quick {
        println!(
            "bytes-per-key-{}-10m: not in a quick run, which ends at {} keys\n",
            K::NAME,
            plan.most_keys
        );
    } else {
        bench.add(at_10m);
    }
    bench.add(longest);
    bench.add(wall);
}

/// What tollgate itself says it has.
const OWN: &str = "tollgate-own-account";

fn sample(case: &mut Case, name: &'static str, value: Option<f64>) {
    if let Some(value) = value {
        case.sample(name, value);
    }
}

fn contenders<K: Contest>(plan: &Plan) -> Vec<Contender<'static, Findings>> {
    let most = plan.most_keys;
    let contender =
        |name| -> Contender<'static, Findings> { (name, Box::new(move || grown::<K>(name, most))) };
    EVERY_ROUND.map(contender).into()
}

fn grown<K: Contest>(name: &str, most: u64) -> Findings {
    let most = most.to_string();
    child_of(findings_of(&[GROW, K::NAME, name, &most], Duration::from_secs(90)))
}

/// The child.
pub(crate) fn grow<K: Contest>(name: &str, most: u64) -> Findings {
    if name == STILL {
        return stand_still::<K>();
    }
    on_core(1, || {
        let before = resident_bytes();
        let limiter = K::make(name, Terms::BUSY);
        let (mut found, mut pauses) = (Findings::default(), Pauses::new());
        let (mut worst, mut own_worst) = (0.0_f64, None);
        let mut next = WORST_FROM;
        for number in 0..most {
            let key = K::nth(number);
            assert!(pauses.time(|| limiter.allow(&key)), "key {number} was refused; the set-up is wrong");
            let keys = number + 1;
            if keys != next && keys != most {
                continue;
            }
            let per_key = resident_bytes().saturating_sub(before) as f64 / keys as f64;
            let own = limiter.own_bytes().map(|bytes| bytes as f64 / keys as f64);
            note(&mut found, keys == KEYS, [AT_1M, OWN_AT_1M], per_key, own);
            note(&mut found, keys == 10 * KEYS, [AT_10M, OWN_AT_10M], per_key, own);
            if keys <= WORST_TO {
                worst = worst.max(per_key);
                own_worst = own.map(|own| own.max(own_worst.unwrap_or(0.0)));
                next = keys + keys / 50;
            }
        }
        note(&mut found, most >= WORST_TO, [WORST, OWN_WORST], worst, own_worst);
        if !AT_1M_ONLY.contains(&name) {
            note_pauses(&mut found, &pauses);
        }
        std::mem::forget(limiter); // the process ends; taking it apart would only take time
        found
    })
}

fn note(found: &mut Findings, now: bool, names: [&str; 2], per_key: f64, own: Option<f64>) {
    if now {
        found.note(names[0], per_key);
        if let Some(own) = own {
            found.note(names[1], own);
        }
    }
}

fn note_pauses(found: &mut Findings, pauses: &Pauses) {
    found.note(LONGEST, pauses.longest_us());
    found.note(LONGEST_WALL, pauses.longest_wall_us());
}

/// The same loop, for about as long as growing takes, over keys that are all there.
fn stand_still<K: Contest>() -> Findings {
    const LONG: Duration = Duration::from_secs(2);
    on_core(1, || {
        let limiter = K::make("tollgate", Terms::BUSY);
        let (began, mut pauses) = (Instant::now(), Pauses::new());
        while began.elapsed() < LONG {
            for number in 0..1_000 {
                let key = K::nth(number);
                pauses.time(|| limiter.allow(&key));
            }
        }
        let mut found = Findings::default();
        note_pauses(&mut found, &pauses);
        found
    })
}
