//! An observer is told what happened, once, and with no lock held.

use super::*;

fn observed(quota: Quota) -> (Arc<Notes>, Bucket<u64>) {
    let notes = Arc::new(Notes::default());
    let limiter = KeyedLimiter::builder(quota).observer(Arc::clone(&notes)).clock(ManualClock::new()).build();
    (notes, limiter)
}

/// Asks in every way there is; what each key was answered goes to `seen`.
fn ask(limiter: &Bucket<u64>, rng: &mut Rng, keys: u64, seen: &mut HashMap<u64, [u64; 2]>) {
    let (key, n) = (rng.u64(..keys), rng.u64(..4));
    let mut note = |key, admitted: bool| seen.entry(key).or_default()[usize::from(!admitted)] += 1;
    match rng.u8(..9) {
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
        5 => _ = limiter.charge(&key, n),
        6 => limiter.clock().advance(Duration::from_millis(rng.u64(..200))),
        7 => note(key, Gate::new(limiter.key(&key)).check_n(n).is_admitted()),
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
        limiter.sweep(); // whom the last gate pushed out is reported by now
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

/// A gate that is refused by others denies a key nothing.
#[test]
fn what_a_gate_decides_about_a_key_is_reported() {
    let (notes, limiter) = observed(Quota::per_hour(1).burst(2));
    let all = Limiter::builder(Quota::per_hour(3)).clock(limiter.clock().clone()).build();
    let passed = [1, 1, 1, 2, 2].map(|key| limiter.key(&key).and(&all).allow());
    assert_eq!(passed, [true, true, false, true, false]);
    assert_eq!(*notes.keys.lock().unwrap(), HashMap::from([(1, [2, 1]), (2, [1, 0])]));
    agrees(&notes, &limiter);
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
    let slots = ConcurrencyLimit::new(1);
    let gate = limiter.key(&2).and(&slots);
    assert!(catch_unwind(AssertUnwindSafe(|| gate.acquire())).is_err());
    assert_eq!((slots.in_use(), limiter.remaining(&2)), (0, 1), "it counts as used");
}

#[test]
fn a_limiter_decides_the_same_with_one_and_without() {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let (notes, watched) = observed(Quota::per_second(3).burst(4));
        let bare: Bucket<u64> = KeyedLimiter::builder(watched.quota()).clock(watched.clock().clone()).build();
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
