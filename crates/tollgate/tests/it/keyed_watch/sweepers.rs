//! A sweeper clears up without any call, and ends when it is dropped.

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
