//! Names are right within their error.

use super::*;

/// What each key really did.
#[derive(Default)]
struct Exact {
    counts: HashMap<String, u64>,
    total: u64,
}

impl Exact {
    fn count(&mut self, name: String) {
        *self.counts.entry(name).or_default() += 1;
        self.total += 1;
    }

    /// The guarantee, in full.
    fn holds(&self, capacity: usize, named: &[Named], stream: &str) {
        assert!(named.is_sorted_by_key(|named| std::cmp::Reverse(named.count)), "{stream}: not sorted");
        for Named { name, count, error, .. } in named {
            let exact = self.counts.get(name).copied().unwrap_or(0);
            assert!(*count >= exact, "{stream}: {name} counted {count}, came {exact} times");
            assert!(count - error <= exact, "{stream}: {name} counted {count} - {error}, came {exact} times");
            assert!(*error <= self.total / capacity as u64, "{stream}: an error of {error}");
        }
        let found: HashMap<&str, u64> = named.iter().map(|named| (&*named.name, named.count)).collect();
        assert_eq!(found.len(), named.len(), "{stream}: somebody is in it twice");
        for (name, count) in &self.counts {
            let is_heavy = count * capacity as u64 > self.total;
            assert!(!is_heavy || found.contains_key(&**name), "{stream}: {name} is missing");
        }
    }
}

fn zipf(rng: &mut Rng) -> u64 {
    // The inverse of the distribution function for an exponent of one: e^(u ln n).
    (rng.f64() * 10_000_f64.ln()).exp() as u64
}

/// A stream of keys: the name of its sort, and the key at each step.
type Stream = (&'static str, Box<dyn FnMut(u64, &mut Rng) -> u64>);

fn streams() -> [Stream; 5] {
    [
        ("zipf", Box::new(|_, rng| zipf(rng))),
        ("uniform", Box::new(|_, rng| rng.u64(..1_000))),
        // Ever new keys push out the least, so that a few regulars must hold their places against them.
        ("flood", Box::new(|step, rng| if rng.u8(..10) == 0 { rng.u64(..4) } else { 1_000 + step })),
        // Each comes just often enough to climb, then never again, and the one that matters comes last.
        ("climbers", Box::new(|step, _| if step > 4_500 { 7 } else { 1_000 + step / 3 })),
        // As many as there are entries, in turn: the one that was pushed out is always the next to come.
        ("in turn", Box::new(|step, _| step % 200)),
    ]
}

#[test]
fn counts_are_right_within_their_error_and_nobody_heavy_is_missing() {
    for seed in 0..20 {
        for capacity in [1, 2, 10, 100] {
            for (stream, mut next) in streams() {
                let mut rng = Rng::with_seed(seed);
                let limiter: Bucket<u64> = KeyedLimiter::builder(Quota::per_second(1).burst(5))
                    .names(capacity, u64::to_string)
                    .clock(ManualClock::new())
                    .build();
                let (mut calls, mut denials) = (Exact::default(), Exact::default());
                for step in 0..5_000 {
                    let key = next(step, &mut rng);
                    calls.count(key.to_string());
                    if !limiter.allow_n(&key, 1 + step % 3) {
                        denials.count(key.to_string());
                    }
                }
                let busiest = limiter.busiest(usize::MAX);
                calls.holds(capacity, &busiest, stream);
                let counts = |named: &[Named]| named.iter().map(|named| named.count).collect::<Vec<_>>();
                assert_eq!(counts(&limiter.busiest(3)), counts(&busiest[..busiest.len().min(3)]));
                denials.holds(capacity, &limiter.most_denied(usize::MAX), stream);
            }
        }
    }
}

#[test]
fn with_room_for_all_the_counts_are_exact() {
    let limiter: Bucket<u64> = KeyedLimiter::builder(Quota::per_hour(1).burst(10))
        .names(64, u64::to_string)
        .clock(ManualClock::new())
        .build();
    for key in 1..=40 {
        for _ in 0..key {
            let _ = limiter.allow(&key);
        }
    }
    let calls: Vec<_> = limiter.busiest(3).into_iter().map(|n| (n.name, n.count, n.error)).collect();
    assert_eq!(calls, [("40".into(), 40, 0), ("39".into(), 39, 0), ("38".into(), 38, 0)]);
    let denials: Vec<_> = limiter.most_denied(2).into_iter().map(|n| (n.name, n.count, n.error)).collect();
    assert_eq!(denials, [("40".into(), 30, 0), ("39".into(), 29, 0)]);
    assert_eq!((limiter.busiest(100).len(), limiter.most_denied(100).len()), (40, 30));
}

#[test]
fn from_many_threads_nothing_is_lost() {
    let limiter = KeyedLimiter::<u64>::builder(Quota::per_hour(1)).names(50, u64::to_string).build();
    let exact = Mutex::new(Exact::default());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (limiter, exact) = (&limiter, &exact);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(thread);
                let keys: Vec<u64> = (0..5_000).map(|_| zipf(&mut rng)).collect();
                for key in &keys {
                    let _ = limiter.allow(key);
                }
                let mut exact = exact.lock().unwrap();
                for key in keys {
                    exact.count(key.to_string());
                }
            });
        }
    });
    let exact = exact.into_inner().unwrap();
    exact.holds(50, &limiter.busiest(usize::MAX), "threads");
}

#[test]
fn a_name_is_asked_for_only_when_it_is_new() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let limiter = KeyedLimiter::<str>::builder(Quota::per_hour(1))
        .names(10, move |key: &str| {
            counter.fetch_add(1, Ordering::SeqCst);
            key.to_owned()
        })
        .build();
    let passed = (0..1_000).filter(|_| limiter.allow("alice")).count();
    assert_eq!(passed, 1);
    assert_eq!(asked.load(Ordering::SeqCst), 2, "once for the busiest, once for the denied");
    assert_eq!((limiter.busiest(1)[0].count, limiter.most_denied(1)[0].count), (1_000, 999));
    assert!(limiter.peek("bob").is_allowed());
    assert_eq!(asked.load(Ordering::SeqCst), 2, "who only looks is not counted");
}

#[test]
fn long_names_are_cut_and_yet_told_apart() {
    let limiter =
        KeyedLimiter::<str>::builder(Quota::per_hour(1)).names(10, |key: &str| key.to_owned()).build();
    // The cut falls inside a character of one of them, wherever it falls.
    let long: Vec<String> =
        (0..4).map(|shift| "x".repeat(shift) + &"ß€😀".repeat(1 << 20 >> shift)).collect();
    for (index, name) in long.iter().enumerate() {
        for _ in 0..=index {
            let _ = limiter.allow(name);
        }
    }
    let busiest = limiter.busiest(10);
    let counts: Vec<u64> = busiest.iter().map(|named| named.count).collect();
    assert_eq!(counts, [4, 3, 2, 1]);
    for (named, long) in busiest.iter().rev().zip(&long) {
        assert!(named.name.len() <= 256 && named.name.len() > 240, "{} bytes", named.name.len());
        assert!(long.starts_with(named.name.strip_suffix('…').expect("the mark")));
    }
    let just = "y".repeat(256);
    assert!((0..9).filter(|_| limiter.allow(&just)).count() == 1);
    assert_eq!(limiter.busiest(1)[0].name, just, "it fits");
}

#[test]
fn a_naming_function_that_panics_or_asks_the_limiter_breaks_nothing() {
    thread_local!(static LIMITER: std::cell::RefCell<Option<KeyedLimiter<u64>>> = const { std::cell::RefCell::new(None) });
    let limiter = KeyedLimiter::<u64>::builder(Quota::per_hour(1))
        .names(2, |key| {
            assert_ne!(*key, 13, "an unlucky number");
            LIMITER.with_borrow(|limiter| limiter.as_ref().map(|limiter| limiter.busiest(9).len()));
            key.to_string()
        })
        .build();
    LIMITER.set(Some(limiter.clone()));
    for key in 0..100 {
        assert_eq!(catch_unwind(AssertUnwindSafe(|| limiter.allow(&key))).is_err(), key == 13);
    }
    assert!(!limiter.busiest(9).is_empty());
    LIMITER.take();
}
