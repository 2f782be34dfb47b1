//! A million keys ask once and never again. What does another caller see of their going, and is their memory given
//! back?
//!
//! - tollgate: nobody asks for anything; the calls on other keys do the sweeping. `tollgate-sweeper` has a thread for it too.
//! - governor: another thread calls `retain_recent` and `shrink_to_fit`, as its documentation says one should now and then.
//! - throttlecrab: its store cleans up in a call, when its interval is over. A key's time includes the whole burst, so
//!   its burst is 2 here.
//! - limitador: it never lets go of idle keys, only of some key at its capacity; the calls are on new keys.
//! - pingora-limits: all counters are cleared in a call, once a second.
//! - `no-sweep`: tollgate without those million keys, as the noise of the machine.
//!
//! Each in a process of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_benches::{
    Bench, Better, Case, Contender, Findings, Goal, Pauses, findings_of, on_core, pin_to_core,
    resident_bytes, take_turns,
};

use crate::contenders::{Contest, Keyed, Terms};
use crate::{KEYS, Plan, SWEEP, child_of};

const STILL: &str = "no-sweep";
const SWEPT: &str = "tollgate-sweeper";
const SLOW: &str = "limitador";

/// How long a key is busy after its only call.
const BUSY: Duration = Duration::from_secs(1);
/// After this all of them are idle for everybody; governor keeps a key for one more period than it must.
const IDLE: Duration = Duration::from_millis(2_100);
const TERMS: Terms =
    Terms { per_token: BUSY, burst: 5_000_000, capacity: KEYS, cleanup: Duration::from_secs(2) };
/// How many others call meanwhile.
const OTHERS: u64 = 1_000;
/// The longest that idle keys are waited for.
const LONGEST: Duration = Duration::from_secs(10);
/// How long calls go on after that, for what is still to be given back.
const AFTER: Duration = Duration::from_millis(100);
/// How long the noise is listened to: about as long as sweeping should take.
const STILL_FOR: Duration = Duration::from_millis(400);

// What the child tells.
const PAUSE: &str = "longest-us";
const WALL: &str = "longest-wall-us";
const GIVEN_BACK: &str = "given-back";
const KEYS_LEFT: &str = "keys-left";

pub(crate) fn cases<K: Contest>(plan: &Plan, bench: &mut Bench) {
    let case = |what: &str, unit, better| Case::new(format!("sweep-{what}-{}", K::NAME), unit, better);
    let mut longest = case("longest-pause", "us", Better::Lower)
        .goal(Goal::least_at_most("tollgate", 100.0))
        .goal(Goal::least_at_most(SWEPT, 100.0));
    let mut wall = case("longest-wall", "us", Better::Lower);
    let mut back = case("memory-given-back", "of what the keys took", Better::Higher)
        .goal(Goal::at_least("tollgate", 0.9))
        .goal(Goal::at_least(SWEPT, 0.9));
    let mut left = case("keys-left", "keys", Better::Lower);
    let mut sample = |name, found: Findings| {
        for (case, finding) in
            [(&mut longest, PAUSE), (&mut wall, WALL), (&mut back, GIVEN_BACK), (&mut left, KEYS_LEFT)]
        {
            if let Some(value) = found.get(finding) {
                case.sample(name, value);
            }
        }
    };
    take_turns(plan.rounds_of_children, &contenders::<K>(), &mut sample);
    if K::CONTENDERS.contains(&SLOW) && !plan.is_quick {
        sample(SLOW, swept::<K>(SLOW)); // it takes long, and once is enough to see
    }
    for case in [longest, wall, back, left] {
        bench.add(case);
    }
}

fn contenders<K: Contest>() -> Vec<Contender<'static, Findings>> {
    let peers = K::CONTENDERS.iter().filter(|name| **name != SLOW).copied();
    let contender =
        |name: &'static str| -> Contender<'static, Findings> { (name, Box::new(move || swept::<K>(name))) };
    peers.chain([SWEPT, STILL]).map(contender).collect()
}

fn swept<K: Contest>(name: &str) -> Findings {
    child_of(findings_of(&[SWEEP, K::NAME, name], Duration::from_secs(60)))
}

/// The child.
pub(crate) fn sweep<K: Contest>(name: &str) -> Findings {
    let others: Vec<K> = (KEYS..KEYS + OTHERS).map(K::nth).collect();
    let before = resident_bytes();
    let limiter = make::<K>(name);
    if name != STILL {
        (0..KEYS).for_each(|number| _ = limiter.allow(&K::nth(number)));
    }
    let full = resident_bytes();
    // The sweeper's keys go while others call; for the rest they must all be idle before the first call is timed.
    if !matches!(name, SWEPT | STILL | SLOW) {
        thread::sleep(IDLE);
    }
    let caller = Caller { limiter: limiter.as_ref(), others: &others };
    let pauses = match name {
        "tollgate" | SWEPT => on_core(1, || caller.until(|| is_gone(&*limiter))),
        STILL => on_core(1, || caller.for_a_time(STILL_FOR)),
        "pingora-limits" => on_core(1, || caller.for_a_time(BUSY)),
        "throttlecrab" => on_core(1, || caller.for_a_time(Duration::ZERO)), // the first call cleans up
        SLOW => on_core(1, || caller.with_new_keys(IDLE)),
        _ => cleaned_meanwhile(&caller),
    };
    let mut found = Findings::default();
    found.note(PAUSE, pauses.longest_us());
    found.note(WALL, pauses.longest_wall_us());
    drop(pauses); // what it remembers is not the limiter's
    if name != STILL {
        let (took, kept) = (full.saturating_sub(before), resident_bytes().saturating_sub(before));
        found.note(GIVEN_BACK, 1.0 - kept as f64 / took as f64);
        if let Some(keys) = limiter.keys() {
            found.note(KEYS_LEFT, keys.saturating_sub(OTHERS as usize) as f64);
        }
    }
    std::mem::forget(limiter); // the process ends; taking it apart would only take time
    found
}

fn make<K: Contest>(name: &str) -> Box<dyn Keyed<K>> {
    match name {
        // Its thread stays on the core that it was started on, as governor's cleaner does, so that the caller does not lose
        // its core to it.
        SWEPT => on_core(0, || K::ours_swept(TERMS, Duration::from_millis(100))),
        STILL => K::make("tollgate", TERMS),
        "throttlecrab" => K::make(name, Terms { burst: 2, ..TERMS }),
        other => K::make(other, TERMS),
    }
}

fn is_gone<K>(limiter: &dyn Keyed<K>) -> bool {
    limiter.keys().is_some_and(|keys| keys <= 2 * OTHERS as usize)
}

/// Another thread on the other core cleans up.
fn cleaned_meanwhile<K: Contest>(caller: &Caller<'_, K>) -> Pauses {
    let cleaned = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_core(0);
            thread::sleep(AFTER); // the caller is on its way by then
            caller.limiter.clean();
            cleaned.store(true, Ordering::Relaxed);
        });
        on_core(1, || caller.until(|| cleaned.load(Ordering::Relaxed)))
    })
}

/// Somebody who calls all the time, and times each call.
struct Caller<'a, K> {
    limiter: &'a dyn Keyed<K>,
    others: &'a [K],
}

impl<K: Contest> Caller<'_, K> {
    /// Until something is over, and for a while longer.
    fn until(&self, is_over: impl Fn() -> bool) -> Pauses {
        let (began, mut pauses) = (Instant::now(), Pauses::new());
        let mut over_since = None;
        while over_since.is_none_or(|since: Instant| since.elapsed() < AFTER) {
            // Often enough to end in time, seldom enough not to matter.
            for _ in 0..10 {
                for key in self.others {
                    pauses.time(|| self.limiter.allow(key));
                }
            }
            if over_since.is_none() && (is_over() || began.elapsed() > LONGEST) {
                over_since = Some(Instant::now());
            }
        }
        pauses
    }

    /// For so long, and for a while longer.
    fn for_a_time(&self, long: Duration) -> Pauses {
        let began = Instant::now();
        self.until(|| began.elapsed() >= long)
    }

    /// With keys that were never seen.
    fn with_new_keys(&self, long: Duration) -> Pauses {
        let (began, mut pauses) = (Instant::now(), Pauses::new());
        for number in KEYS + OTHERS.. {
            let key = K::nth(number);
            pauses.time(|| self.limiter.allow(&key));
            if number.is_multiple_of(1_000) && began.elapsed() > long {
                break;
            }
        }
        pauses
    }
}
