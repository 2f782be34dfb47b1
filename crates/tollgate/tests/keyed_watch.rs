//! Watching a keyed limiter: an observer is told what happened, names are right within their error, and a sweeper clears up
//! without any call.
#![cfg(not(loom))]

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tollgate::{
    AtCap, Clock, Decision, Evicted, KeyedLimiter, KeyedWait, Limiter, ManualClock, MonotonicClock, Named,
    Observer, Quota, Sweeper, Tick, TokenBucket, WaitError,
};

type Bucket<K> = KeyedLimiter<K, TokenBucket, ManualClock>;

/// Writes down everything it is told.
#[derive(Debug, Default)]
struct Notes {
    /// How often each key was allowed and denied.
    keys: Mutex<HashMap<u64, [u64; 2]>>,
    evicted: Mutex<Evicted>,
    reports: AtomicU64,
}

impl Notes {
    fn decided(&self, key: u64, index: usize, decision: &Decision) {
        assert_eq!(decision.is_admitted(), index == 0);
        self.keys.lock().unwrap().entry(key).or_default()[index] += 1;
        self.reports.fetch_add(1, Ordering::SeqCst);
    }

    fn total(&self, index: usize) -> u64 {
        self.keys.lock().unwrap().values().map(|counts| counts[index]).sum()
    }

    fn dropped(&self) -> Evicted {
        *self.evicted.lock().unwrap()
    }
}

impl Observer<u64> for Notes {
    fn allowed(&self, key: &u64, decision: &Decision) {
        self.decided(*key, 0, decision);
    }

    fn denied(&self, key: &u64, decision: &Decision) {
        self.decided(*key, 1, decision);
    }

    fn evicted(&self, evicted: Evicted) {
        assert_ne!(evicted, Evicted::default(), "nothing to report");
        let mut all = self.evicted.lock().unwrap();
        all.idle += evicted.idle;
        all.active += evicted.active;
        self.reports.fetch_add(1, Ordering::SeqCst);
    }
}

/// The notes agree with what the limiter counted itself.
fn agrees<C: Clock>(notes: &Notes, limiter: &KeyedLimiter<u64, TokenBucket, C>) {
    let stats = limiter.stats();
    assert_eq!((notes.total(0), notes.total(1)), (stats.admitted, stats.denied));
    assert_eq!((notes.dropped().idle, notes.dropped().active), (stats.swept, stats.evicted));
}

mod observers {
    use super::*;

    fn observed(quota: Quota) -> (Arc<Notes>, Bucket<u64>) {
        let notes = Arc::new(Notes::default());
        let limiter =
            KeyedLimiter::builder(quota).observer(Arc::clone(&notes)).clock(ManualClock::new()).build();
        (notes, limiter)
    }

    /// Asks in every way there is; what each key was answered goes to `seen`.
    fn ask(limiter: &Bucket<u64>, rng: &mut Rng, keys: u64, seen: &mut HashMap<u64, [u64; 2]>) {
        let (key, n) = (rng.u64(..keys), rng.u64(..4));
        let mut note = |key, admitted: bool| seen.entry(key).or_default()[usize::from(!admitted)] += 1;
        match rng.u8(..8) {
            0 => note(key, limiter.allow(&key)),
            1 => note(key, limiter.allow_n(&key, n)),
            2 => note(key, limiter.check_n(&key, n).is_admitted()),
            3 => {
                let batch: Vec<u64> = (0..rng.usize(..40)).map(|_| rng.u64(..keys)).collect();
                let borrowed: Vec<&u64> = batch.iter().collect();
                limiter.check_many(&borrowed, |index, decision| note(batch[index], decision.is_admitted()));
            }
            4 => {
                let reserved = limiter.reserve_within(&key, n, Duration::from_millis(rng.u64(..2_000)));
                note(key, reserved.is_ok());
                if let Ok(reserved) = reserved {
                    reserved.settle(rng.u64(..6));
                }
            }
            5 => limiter.charge(&key, n),
            6 => limiter.clock().advance(Duration::from_millis(rng.u64(..200))),
            _ if rng.u8(..16) == 0 => limiter.sweep(),
            _ => drop((limiter.peek_n(&key, n), limiter.reset(&key))),
        }
    }

    #[test]
    fn they_see_exactly_what_happened() {
        let mut evictions = Evicted::default();
        for seed in 0..300 {
            let mut rng = Rng::with_seed(seed);
            let at_cap = [AtCap::Evict, AtCap::Refuse, AtCap::Share][rng.usize(..3)];
            let (keys, has_plans) = (1 << rng.u32(0..11), rng.bool());
            let notes = Arc::new(Notes::default());
            let mut builder = KeyedLimiter::<u64>::builder(Quota::per_second(2).burst(5));
            if has_plans {
                builder = builder.quota_of(|key| Quota::per_second(1 + key % 3).burst(4));
            }
            if rng.bool() {
                builder = builder.max_keys(rng.usize(1..300)).at_cap(at_cap);
            }
            let limiter = builder.observer(Arc::clone(&notes)).clock(ManualClock::new()).build();
            let mut seen = HashMap::new();
            for _ in 0..2_000 {
                ask(&limiter, &mut rng, keys, &mut seen);
            }
            assert_eq!(*notes.keys.lock().unwrap(), seen, "seed {seed}");
            agrees(&notes, &limiter);
            evictions.idle += notes.dropped().idle;
            evictions.active += notes.dropped().active;
        }
        assert!(evictions.idle > 10_000 && evictions.active > 10_000, "too little happened: {evictions:?}");
    }

    #[test]
    fn they_see_everything_from_many_threads() {
        let notes = Arc::new(Notes::default());
        let limiter = KeyedLimiter::builder(Quota::per_second(1_000).burst(3))
            .max_keys(500)
            .observer(Arc::clone(&notes))
            .clock(MonotonicClock::new())
            .build();
        let barrier = Barrier::new(8);
        let passed: usize = std::thread::scope(|scope| {
            let one = |thread: u64| {
                let (limiter, barrier) = (limiter.clone(), &barrier);
                move || {
                    let mut rng = Rng::with_seed(thread);
                    barrier.wait();
                    (0..5_000).filter(|_| limiter.allow(&rng.u64(..2_000))).count()
                }
            };
            let handles: Vec<_> = (0..8).map(|thread| scope.spawn(one(thread))).collect();
            handles.into_iter().map(|handle| handle.join().expect("no panic")).sum()
        });
        assert_eq!(notes.total(0), passed as u64);
        assert_eq!(notes.total(0) + notes.total(1), 40_000);
        agrees(&notes, &limiter);
    }

    #[test]
    fn idle_keys_and_those_that_still_count_are_told_apart() {
        let notes = Arc::new(Notes::default());
        let limiter = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(4))
            .max_keys(1_000)
            .observer(Arc::clone(&notes))
            .clock(ManualClock::new())
            .build();
        for key in 0..1_500 {
            assert!(limiter.allow_n(&key, 4));
        }
        assert_eq!((notes.dropped().idle, notes.dropped().active), (0, 500));
        limiter.clock().advance(Duration::from_secs(4));
        limiter.sweep();
        assert_eq!((notes.dropped().idle, notes.dropped().active), (1_000, 500));
        assert!(limiter.is_empty());
    }

    #[test]
    fn a_settlement_and_a_charge_report_whom_they_pushed_out() {
        let notes = Arc::new(Notes::default());
        let limiter = KeyedLimiter::<u64>::builder(Quota::per_hour(1).burst(4))
            .max_keys(1)
            .observer(Arc::clone(&notes))
            .clock(ManualClock::new())
            .build();
        let taken = limiter.reserve(&0).unwrap();
        for key in 1..50 {
            limiter.charge(&key, 4); // pushes the first one out, sooner or later
        }
        taken.settle(3); // and this one of those
        agrees(&notes, &limiter);
        assert_eq!(notes.dropped().active + limiter.len() as u64, 51);
    }

    #[test]
    fn whom_a_gate_pushes_out_is_reported_by_the_next_call() {
        let notes = Arc::new(Notes::default());
        let limiter: Bucket<u64> = KeyedLimiter::builder(Quota::per_hour(1).burst(4))
            .max_keys(1)
            .observer(Arc::clone(&notes))
            .clock(ManualClock::new())
            .build();
        let all = Limiter::builder(Quota::per_hour(1_000)).clock(limiter.clock().clone()).build();
        let passed = (0..100).filter(|key| limiter.key(key).and(&all).allow()).count();
        assert_eq!(passed, 100);
        limiter.sweep();
        assert_eq!(notes.dropped().active + limiter.len() as u64, 100);
        assert_eq!(notes.dropped().active, limiter.stats().evicted);
    }

    #[test]
    fn looking_and_managing_is_not_reported() {
        let (notes, limiter) = observed(Quota::per_hour(1).burst(4));
        assert!(limiter.allow(&1));
        let before = notes.reports.load(Ordering::SeqCst);
        assert!(limiter.peek(&1).is_allowed() && limiter.peek_n(&2, 4).is_allowed());
        limiter.charge(&1, 2);
        limiter.set_quota(Quota::per_hour(2).burst(5));
        limiter.refresh(&1);
        assert!(limiter.reset(&1));
        limiter.sweep(); // nothing is idle
        assert!(limiter.is_empty() && limiter.busiest(5).is_empty() && limiter.most_denied(5).is_empty());
        assert_eq!((before, notes.reports.load(Ordering::SeqCst)), (1, 1));
    }

    #[test]
    fn a_delayed_admission_is_an_admission_and_the_decision_says_how_long() {
        #[derive(Default)]
        struct Delays(Mutex<Vec<Duration>>);
        impl Observer<u64> for Delays {
            fn allowed(&self, _: &u64, decision: &Decision) {
                self.0.lock().unwrap().push(decision.delay());
            }
        }
        let delays = Arc::new(Delays::default());
        let limiter = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(1))
            .observer(Arc::clone(&delays))
            .clock(ManualClock::new())
            .build();
        let taken = [limiter.reserve(&1), limiter.reserve(&1)];
        assert!(taken.iter().all(Result::is_ok));
        assert_eq!(*delays.0.lock().unwrap(), [Duration::ZERO, Duration::from_secs(1)]);
    }

    #[test]
    fn a_wait_is_reported_when_it_is_over() {
        let notes = Arc::new(Notes::default());
        let limiter: Bucket<u64> = KeyedLimiter::builder(Quota::per_second(1).burst(1))
            .longest_queue(2)
            .observer(Arc::clone(&notes))
            .names(10, u64::to_string)
            .clock(ManualClock::new())
            .build();
        let counts = || (notes.total(0), notes.total(1));
        assert!(poll(&mut limiter.wait(&1)).is_ready(), "at once");
        assert_eq!(counts(), (1, 0));
        let [mut first, mut second, mut third] = [limiter.wait(&1), limiter.wait(&1), limiter.wait(&1)];
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        assert_eq!(counts(), (1, 0), "nobody knows yet");
        assert_eq!(outcome(&mut third), Some(WaitError::Full { waiting: 2 }));
        assert_eq!(outcome(&mut limiter.wait_n(&2, 2)), Some(WaitError::Never { cost: 2, limit: 1 }));
        assert_eq!(counts(), (1, 2));
        drop(second); // given up
        let would_take = Duration::from_secs(2);
        let mut hasty = limiter.wait(&1).within(Duration::from_millis(1));
        assert_eq!(outcome(&mut hasty), Some(WaitError::TooLate { would_take }));
        assert_eq!(counts(), (1, 3));
        limiter.clock().advance(Duration::from_secs(1));
        assert!(poll(&mut first).is_ready());
        assert_eq!(counts(), (2, 3));
        let mut late = limiter.wait(&1);
        assert!(poll(&mut late).is_pending());
        limiter.close();
        assert_eq!(outcome(&mut late), Some(WaitError::Closed));
        agrees(&notes, &limiter);
        assert_eq!(counts(), (2, 3));
        let named =
            |named: Vec<Named>| named.into_iter().map(|named| (named.name, named.count)).collect::<Vec<_>>();
        assert_eq!(named(limiter.busiest(9)), [("1".to_owned(), 4), ("2".to_owned(), 1)]);
        assert_eq!(named(limiter.most_denied(9)), [("1".to_owned(), 2), ("2".to_owned(), 1)]);
    }

    #[test]
    fn a_wait_for_which_there_is_no_room_is_a_denial() {
        for at_cap in [AtCap::Refuse, AtCap::Share] {
            let notes = Arc::new(Notes::default());
            let limiter: Bucket<u64> = KeyedLimiter::builder(Quota::per_second(1).burst(1))
                .max_keys(0)
                .at_cap(at_cap)
                .observer(Arc::clone(&notes))
                .clock(ManualClock::new())
                .build();
            assert_eq!(outcome(&mut limiter.wait(&1)), Some(WaitError::Full { waiting: 0 }));
            assert_eq!((notes.total(0), notes.total(1)), (0, 1));
            agrees(&notes, &limiter);
        }
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Why a wait was refused, if it was.
    fn outcome(wait: &mut KeyedWait<'_, u64, TokenBucket, ManualClock>) -> Option<WaitError> {
        match poll(wait) {
            Poll::Ready(Err(error)) => Some(error),
            _ => None,
        }
    }

    /// Asks the limiter it observes about everything, once for each report.
    #[derive(Default)]
    struct Nosy {
        limiter: Mutex<Option<Bucket<u64>>>,
        asked: AtomicU64,
    }

    thread_local!(static ASKING: Cell<bool> = const { Cell::new(false) });

    impl Nosy {
        fn ask(&self) {
            // What it asks is reported to it as well.
            if ASKING.replace(true) {
                return;
            }
            let limiter = self.limiter.lock().unwrap().clone();
            if let Some(limiter) = limiter {
                let asked = self.asked.fetch_add(1, Ordering::SeqCst);
                // All keys, and so all shards, the one that was just asked too.
                for key in (0..300).chain([asked + 1_000]) {
                    let _ = limiter.allow(&key);
                }
                limiter.charge(&asked, 1);
                limiter.sweep();
                assert!(limiter.stats().admitted > 0 && limiter.busiest(3).len() == 3);
            }
            ASKING.set(false);
        }
    }

    impl Observer<u64> for Nosy {
        fn allowed(&self, _: &u64, _: &Decision) {
            self.ask();
        }

        fn denied(&self, _: &u64, _: &Decision) {
            self.ask();
        }

        fn evicted(&self, _: Evicted) {
            self.ask();
        }
    }

    #[test]
    fn one_may_ask_the_limiter() {
        let nosy = Arc::new(Nosy::default());
        let limiter = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(2))
            .max_keys(200)
            .names(10, u64::to_string)
            .observer(Arc::clone(&nosy))
            .clock(ManualClock::new())
            .build();
        *nosy.limiter.lock().unwrap() = Some(limiter.clone());
        for key in 0..100 {
            let _ = limiter.allow_n(&key, 3); // denied
            let _ = limiter.allow(&key);
            limiter.clock().advance(Duration::from_secs(3));
            limiter.sweep(); // evicts
        }
        assert!(nosy.asked.load(Ordering::SeqCst) > 250, "{}", nosy.asked.load(Ordering::SeqCst));
        nosy.limiter.lock().unwrap().take();
    }

    #[test]
    fn one_that_panics_breaks_nothing() {
        struct Panics;
        impl Observer<u64> for Panics {
            fn allowed(&self, _: &u64, _: &Decision) {
                panic!("told of an admission");
            }
            fn evicted(&self, _: Evicted) {
                panic!("told of an eviction");
            }
        }
        let limiter = KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(2))
            .observer(Panics)
            .names(10, u64::to_string)
            .clock(ManualClock::new())
            .build();
        for _ in 0..2 {
            assert!(catch_unwind(AssertUnwindSafe(|| limiter.allow(&1))).is_err());
        }
        assert!(!limiter.allow(&1), "both were taken");
        assert_eq!((limiter.stats().admitted, limiter.busiest(1)[0].count), (2, 3));
        limiter.clock().advance(Duration::from_secs(2));
        assert!(catch_unwind(AssertUnwindSafe(|| limiter.sweep())).is_err());
        assert!(limiter.is_empty());
        assert!(catch_unwind(AssertUnwindSafe(|| limiter.allow(&1))).is_err());
        assert_eq!(limiter.stats().swept, 1);
    }

    #[test]
    fn a_limiter_decides_the_same_with_one_and_without() {
        for seed in 0..50 {
            let mut rng = Rng::with_seed(seed);
            let (notes, watched) = observed(Quota::per_second(3).burst(4));
            let bare: Bucket<u64> =
                KeyedLimiter::builder(watched.quota()).clock(watched.clock().clone()).build();
            for step in 0..2_000 {
                let (key, n) = (rng.u64(..50), rng.u64(..4));
                assert_eq!(watched.check_n(&key, n), bare.check_n(&key, n), "seed {seed}, step {step}");
                assert_eq!(watched.allow(&key), bare.allow(&key), "seed {seed}, step {step}");
                watched.clock().advance(Duration::from_millis(rng.u64(..50)));
            }
            assert_eq!(notes.total(0) + notes.total(1), 4_000);
            assert_eq!(watched.stats(), bare.stats());
        }
    }
}

mod names {
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
                assert!(
                    count - error <= exact,
                    "{stream}: {name} counted {count} - {error}, came {exact} times"
                );
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
        let denials: Vec<_> =
            limiter.most_denied(2).into_iter().map(|n| (n.name, n.count, n.error)).collect();
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
}

mod sweepers {
    use super::*;

    /// Lets others run until `is_so`; fails if that takes more than half a minute.
    fn until(what: &str, is_so: impl Fn() -> bool) {
        let clock = MonotonicClock::new();
        let begin = clock.now();
        while !is_so() {
            assert!(clock.now().since(begin) < Duration::from_secs(30), "not within half a minute: {what}");
            std::thread::yield_now();
        }
    }

    const OFTEN: Duration = Duration::from_millis(4);

    #[test]
    fn one_drops_idle_keys_and_gives_memory_back_without_any_call() {
        let notes = Arc::new(Notes::default());
        let limiter: Bucket<u64> = KeyedLimiter::builder(Quota::per_second(1).burst(10))
            .observer(Arc::clone(&notes))
            .clock(ManualClock::new())
            .build();
        let empty = limiter.bytes();
        let sweeper = limiter.sweeper(OFTEN);
        for key in 0..200_000 {
            assert!(limiter.allow_n(&key, if key < 100 { 10 } else { 1 }));
        }
        assert_eq!(limiter.len(), 200_000, "nothing is idle as long as the clock stands still");
        limiter.clock().advance(Duration::from_secs(1));
        until("idle keys are dropped", || limiter.len() == 100);
        until("they are reported", || notes.dropped().idle == 199_900);
        limiter.clock().advance(Duration::from_secs(9));
        until("the rest is dropped", || limiter.is_empty());
        until("memory is given back", || limiter.bytes() == empty);
        sweeper.stop();
        agrees(&notes, &limiter);
    }

    #[test]
    fn one_clears_up_after_those_who_gave_up_waiting() {
        let limiter: Bucket<u64> =
            KeyedLimiter::builder(Quota::per_second(1).burst(1)).clock(ManualClock::new()).build();
        let _sweeper = limiter.sweeper(OFTEN);
        assert!(limiter.allow(&1));
        let mut wait = limiter.wait(&1);
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(limiter.keys_in_line(), 1);
        drop(wait);
        until("nobody is in line", || limiter.keys_in_line() == 0);
        assert_eq!(limiter.len(), 1, "it still counts");
        limiter.clock().advance(Duration::from_secs(1));
        until("it is dropped", || limiter.is_empty());
    }

    /// A clock that counts how often it is read, which a sweeper does for every shard.
    #[derive(Clone, Debug, Default)]
    struct Counting(Arc<AtomicU64>);

    impl Clock for Counting {
        fn now(&self) -> Tick {
            self.0.fetch_add(1, Ordering::SeqCst);
            Tick::ZERO
        }
    }

    fn counting() -> (Counting, KeyedLimiter<u64, TokenBucket, Counting>) {
        let clock = Counting::default();
        (clock.clone(), KeyedLimiter::builder(Quota::per_hour(1)).clock(clock).build())
    }

    #[test]
    fn one_that_is_dropped_sweeps_no_more_and_does_not_wait_for_its_time() {
        let (clock, limiter) = counting();
        let sweeper = limiter.sweeper(OFTEN);
        until("it sweeps", || clock.0.load(Ordering::SeqCst) > 1_000);
        assert!(sweeper.is_running());
        drop(sweeper);
        let readings = clock.0.load(Ordering::SeqCst);
        pass(10 * OFTEN);
        assert_eq!(clock.0.load(Ordering::SeqCst), readings, "it still sweeps");
        let seldom = limiter.sweeper(Duration::from_secs(86_400)); // it sleeps for 22 minutes between two steps
        until("it has made a step", || clock.0.load(Ordering::SeqCst) > readings);
        pass(10 * OFTEN); // asleep by now
        seldom.stop(); // returns at once, or this test does not
    }

    /// Lets some real time pass.
    fn pass(span: Duration) {
        let clock = MonotonicClock::new();
        let begin = clock.now();
        until("time passes", || clock.now().since(begin) > span);
    }

    #[test]
    fn one_ends_when_the_limiter_is_gone_and_does_not_keep_it() {
        let (clock, limiter) = counting();
        let clone = limiter.clone();
        let sweeper = limiter.sweeper(OFTEN);
        drop(limiter);
        let before = clock.0.load(Ordering::SeqCst);
        until("it goes on for the clone", || clock.0.load(Ordering::SeqCst) > before + 1_000);
        drop(clone);
        until("it ends", || !sweeper.is_running());
        assert_eq!(Arc::strong_count(&clock.0), 1, "the store is gone");
    }

    #[test]
    fn every_shard_gets_its_turn_however_short_the_round() {
        for every in [Duration::ZERO, Duration::from_micros(1), OFTEN, Duration::from_millis(100)] {
            let limiter: Bucket<u64> =
                KeyedLimiter::builder(Quota::per_second(1)).clock(ManualClock::new()).build();
            for key in 0..5_000 {
                assert!(limiter.allow(&key));
            }
            limiter.clock().advance(Duration::from_secs(1));
            let sweeper = limiter.sweeper(every);
            until("all are dropped", || limiter.is_empty());
            sweeper.stop();
        }
    }

    #[test]
    fn one_outlives_the_panics_of_an_observer() {
        struct Panics;
        impl Observer<u64> for Panics {
            fn evicted(&self, _: Evicted) {
                panic!("told of an eviction");
            }
        }
        let limiter: Bucket<u64> = KeyedLimiter::builder(Quota::per_second(1).burst(1))
            .observer(Panics)
            .clock(ManualClock::new())
            .build();
        for key in 0..200 {
            assert!(limiter.allow(&key));
        }
        limiter.clock().advance(Duration::from_secs(1));
        let sweeper = limiter.sweeper(OFTEN);
        until("all are dropped", || limiter.is_empty());
        assert!(sweeper.is_running());
    }

    /// Owns the sweeper, and keeps it in the middle of a sweep until the limiter is gone.
    struct Owner {
        sweeper: Arc<Mutex<Option<Sweeper>>>,
        in_sweep: Arc<Barrier>,
    }

    impl Observer<u64> for Owner {
        fn evicted(&self, _: Evicted) {
            self.in_sweep.wait();
            self.in_sweep.wait();
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            assert!(self.sweeper.lock().unwrap().take().is_some_and(|sweeper| sweeper.is_running()));
        }
    }

    #[test]
    fn one_may_be_dropped_with_the_limiter_on_its_own_thread() {
        let (sweeper, in_sweep) = (Arc::new(Mutex::new(None)), Arc::new(Barrier::new(2)));
        let owner = Owner { sweeper: Arc::clone(&sweeper), in_sweep: Arc::clone(&in_sweep) };
        let limiter: Bucket<u64> =
            KeyedLimiter::builder(Quota::per_second(1)).observer(owner).clock(ManualClock::new()).build();
        assert!(limiter.allow(&1));
        limiter.clock().advance(Duration::from_secs(1));
        *sweeper.lock().unwrap() = Some(limiter.sweeper(OFTEN));
        in_sweep.wait();
        drop(limiter); // the sweeper's thread has the last hand on it
        in_sweep.wait();
        until("all is gone", || Arc::strong_count(&sweeper) == 1);
        assert!(sweeper.lock().expect("nothing panicked").is_none());
    }
}
