//! The queue, under a clock that is moved by hand: every grant has one right moment.

mod order;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::{
    AnyAlgorithm, Clock, Kind, Limiter, ManualClock, Quota, Reservation, Tick, Timer, TokenBucket, Wait,
    WaitError,
};
use tollgate_sim::history::{Operation, largest_excess};

type Bucket = Limiter<TokenBucket, ManualClock>;
type Outcome = Result<Reservation<TokenBucket, ManualClock>, WaitError>;

fn bucket(quota: Quota) -> (Bucket, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder(quota).clock(clock.clone()).build(), clock)
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A wait with a waker that counts.
struct Waiting<'a> {
    future: Pin<Box<Wait<'a, TokenBucket, ManualClock>>>,
    woken: Arc<Counter>,
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<'a> Waiting<'a> {
    fn new(wait: Wait<'a, TokenBucket, ManualClock>) -> Self {
        let mut waiting = Self { future: Box::pin(wait), woken: Arc::default() };
        assert!(waiting.poll().is_none(), "nothing is to be had yet");
        waiting
    }

    fn poll(&mut self) -> Option<Outcome> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn was_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst) > 0
    }

    fn granted(&mut self) -> bool {
        self.was_woken() && self.poll().is_some_and(|outcome| outcome.is_ok())
    }
}

fn now_or_error(wait: Wait<'_, TokenBucket, ManualClock>) -> Result<(), WaitError> {
    let mut wait = std::pin::pin!(wait);
    match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome.map(drop),
        Poll::Pending => panic!("it lined up"),
    }
}

#[test]
fn turns_come_in_order_and_on_time() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(1));
    assert!(limiter.allow());
    let mut waiting: Vec<_> = (0..5).map(|_| Waiting::new(limiter.wait())).collect();
    for turn in 0..5 {
        clock.advance(millis(100).checked_sub(Duration::from_nanos(1)).unwrap());
        assert!(waiting.iter().skip(turn).all(|other| !other.was_woken()), "turn {turn}: nobody is early");
        clock.advance(Duration::from_nanos(1));
        assert!(waiting[turn].granted(), "turn {turn}");
        assert!(waiting.iter().skip(turn + 1).all(|other| !other.was_woken()), "turn {turn}: nobody else");
    }
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn one_alarm_serves_the_whole_queue() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(1));
    assert!(limiter.allow());
    let _waiting: Vec<_> = (0..100).map(|_| Waiting::new(limiter.wait())).collect();
    clock.advance(millis(350));
    assert_eq!(limiter.waiting(), 97);
    assert_eq!(clock.next_due(), Some(Tick::ZERO + millis(400)));
}

#[test]
fn a_jump_of_the_clock_still_serves_everybody_at_their_moment() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(1));
    assert!(limiter.allow());
    let mut waiting: Vec<_> = (0..5).map(|_| Waiting::new(limiter.wait())).collect();
    clock.advance(Duration::from_secs(60));
    let acts: Vec<_> = waiting.iter_mut().map(|one| one.poll().unwrap().unwrap().act_time()).collect();
    assert_eq!(acts, [100, 200, 300, 400, 500].map(|ms| Tick::ZERO + millis(ms)));
}

#[test]
fn whoever_gives_up_leaves_its_place_to_those_behind() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(5));
    assert!(limiter.allow_n(5));
    let large = Waiting::new(limiter.wait_n(5));
    let mut small = Waiting::new(limiter.wait());
    clock.advance(millis(100));
    assert!(!small.was_woken(), "nobody slips past the head of the queue");
    drop(large);
    assert!(small.granted(), "the token is there, and now it is its turn");
}

#[test]
fn a_grant_that_nobody_picks_up_goes_to_the_next() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(1));
    assert!(limiter.allow());
    let first = Waiting::new(limiter.wait());
    let mut second = Waiting::new(limiter.wait());
    clock.advance(millis(100));
    assert!(first.was_woken() && !second.was_woken());
    drop(first); // granted, but never polled again
    assert!(second.granted());
    assert!(!limiter.allow(), "one token, one grant");
}

#[test]
fn several_grants_dropped_in_one_instant_are_all_handed_on() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(4));
    assert!(limiter.allow_n(4));
    let mut waiting: Vec<_> = (0..8).map(|_| Waiting::new(limiter.wait())).collect();
    let late = waiting.split_off(4);
    // All four tokens come back at one moment, as they do when the timer is late.
    clock.set(Tick::ZERO + millis(400));
    clock.advance(Duration::ZERO);
    assert!(waiting.iter().all(Waiting::was_woken));
    assert!(late.iter().all(|one| !one.was_woken()));
    waiting.swap(0, 2); // in no particular order
    drop(waiting);
    let mut late = late;
    assert!(late.iter_mut().all(Waiting::granted), "four were dropped, four others got them");
    assert!(!limiter.allow());
}

#[test]
fn nobody_slips_past_those_who_wait() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(2));
    assert!(limiter.allow_n(2));
    let mut pair = Waiting::new(limiter.wait_n(2));
    clock.advance(millis(100));
    assert!(!limiter.allow(), "one token is there, but it is spoken for");
    let refused = limiter.check();
    // 100 ms more until the pair, another 100 ms for this one.
    assert_eq!(refused.retry_after(), Some(millis(200)));
    clock.advance(millis(100));
    assert!(pair.granted());
    clock.advance(millis(100));
    assert!(limiter.allow());
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_at_once() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(2));
    assert!(limiter.allow_n(2));
    let mut ahead = Waiting::new(limiter.wait_n(2));
    let error = now_or_error(limiter.wait().within(millis(299)));
    assert_eq!(error, Err(WaitError::TooLate { would_take: millis(300) }));
    let mut fits = Waiting::new(limiter.wait().within(millis(300)));
    assert_eq!(limiter.waiting(), 2, "the refused one never lined up");
    clock.advance(millis(200));
    assert!(ahead.granted());
    clock.advance(millis(100));
    assert!(fits.granted());
}

#[test]
fn a_lower_quota_re_times_everybody() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(1));
    assert!(limiter.allow());
    let mut first = Waiting::new(limiter.wait());
    let mut patient = Waiting::new(limiter.wait());
    let mut hasty = Waiting::new(limiter.wait().within(millis(300)));
    clock.advance(millis(50)); // half a token
    limiter.set_quota(Quota::per_second(1).burst(1));
    assert!(hasty.was_woken(), "three half seconds are too late");
    assert!(
        matches!(hasty.poll(), Some(Err(WaitError::TooLate { would_take })) if would_take == millis(50 + 2_500))
    );
    clock.advance(millis(499));
    assert!(!first.was_woken());
    clock.advance(millis(1));
    assert!(first.granted());
    clock.advance(millis(1_000));
    assert!(patient.granted());
}

#[test]
fn a_higher_quota_re_times_everybody() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let mut first = Waiting::new(limiter.wait());
    let mut second = Waiting::new(limiter.wait());
    clock.advance(millis(500));
    limiter.set_quota(Quota::per_second(10).burst(1));
    clock.advance(millis(50));
    assert!(first.granted(), "half a token was there, the other half took 50 ms");
    clock.advance(millis(100));
    assert!(second.granted());
}

#[test]
fn a_quota_too_small_for_a_waiter_tells_it_so() {
    let (limiter, _clock) = bucket(Quota::per_second(10).burst(5));
    assert!(limiter.allow_n(5));
    let mut large = Waiting::new(limiter.wait_n(5));
    limiter.set_quota(Quota::per_second(10).burst(4));
    assert!(large.was_woken());
    assert!(matches!(large.poll(), Some(Err(WaitError::Never { cost: 5, limit: 4 }))));
}

#[test]
fn a_rate_of_zero_pauses_those_who_wait() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(1));
    assert!(limiter.allow());
    let mut paused = Waiting::new(limiter.wait());
    limiter.set_quota(Quota::per_second(0).burst(1));
    clock.advance(Duration::from_secs(3_600));
    assert!(!paused.was_woken());
    limiter.set_quota(Quota::per_second(10).burst(1));
    clock.advance(millis(100));
    assert!(paused.granted());
}

#[test]
fn unlimited_lets_everybody_go() {
    let (limiter, _clock) = bucket(Quota::per_day(1));
    assert!(limiter.allow());
    let mut waiting: Vec<_> = (0..3).map(|_| Waiting::new(limiter.wait())).collect();
    limiter.set_quota(Quota::UNLIMITED);
    assert!(waiting.iter_mut().all(Waiting::granted));
    assert!(limiter.allow_n(u64::MAX));
}

#[test]
fn what_can_never_be_had_is_refused_at_once() {
    let (limiter, _clock) = bucket(Quota::per_second(10).burst(5));
    let never = WaitError::Never { cost: 6, limit: 5 };
    assert_eq!(now_or_error(limiter.wait_n(6)), Err(never));
    assert_eq!(never.to_string(), "cost 6 exceeds the limit of 5");
    assert!(limiter.allow_n(5), "nothing was taken");
    let _somebody = Waiting::new(limiter.wait());
    assert_eq!(now_or_error(limiter.wait_n(6)), Err(never), "also when others are in line");

    let (dry, _clock) = bucket(Quota::per_second(0).burst(1));
    assert!(dry.allow());
    let never = now_or_error(dry.wait()).unwrap_err();
    assert_eq!(never.to_string(), "cost 1 can never be allowed: the rate is zero, or the debt is too large");
}

#[test]
fn a_full_queue_refuses_at_once() {
    let limiter = Limiter::builder(Quota::per_second(1)).clock(ManualClock::new()).longest_queue(2).build();
    assert!(limiter.allow());
    let _first = Waiting::new(limiter.wait());
    let second = Waiting::new(limiter.wait());
    assert_eq!(now_or_error(limiter.wait()), Err(WaitError::Full { waiting: 2 }));
    let never = WaitError::Never { cost: 2, limit: 1 };
    assert_eq!(now_or_error(limiter.wait_n(2)), Err(never), "trying again would not help");
    drop(second);
    let _third = Waiting::new(limiter.wait());
}

#[test]
fn closing_wakes_everybody_with_an_error() {
    let (limiter, clock) = bucket(Quota::per_second(1));
    assert!(limiter.allow());
    let mut waiting: Vec<_> = (0..3).map(|_| Waiting::new(limiter.wait())).collect();
    limiter.close();
    for one in &mut waiting {
        assert!(one.was_woken());
        assert!(matches!(one.poll(), Some(Err(WaitError::Closed))));
    }
    assert_eq!(now_or_error(limiter.wait()), Err(WaitError::Closed));
    clock.advance(Duration::from_secs(1));
    assert!(limiter.allow(), "only waiting has ended");
}

#[test]
fn those_who_gave_up_do_not_fill_the_queue() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let mut head = Waiting::new(limiter.wait());
    for _ in 0..10_000 {
        drop(Waiting::new(limiter.wait()));
    }
    assert_eq!(limiter.waiting(), 1);
    clock.advance(Duration::from_secs(1));
    assert!(head.granted());
}

#[test]
fn giving_back_serves_the_queue() {
    let (limiter, _clock) = bucket(Quota::per_second(1).burst(3));
    let used = limiter.reserve_n(3).unwrap();
    let mut waiting = Waiting::new(limiter.wait_n(2));
    used.settle(1);
    assert!(waiting.granted());
}

#[test]
fn what_was_too_little_is_charged() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(5));
    limiter.reserve_n(2).unwrap().settle(8);
    // 8 of 5: three owed, so one more is there in 400 ms.
    assert_eq!(limiter.peek().retry_after(), Some(millis(400)));
    clock.advance(millis(400));
    assert!(limiter.allow());
}

#[test]
fn every_algorithm_can_be_waited_for() {
    for kind in Kind::ALL {
        let clock = ManualClock::new();
        let limiter: Limiter<AnyAlgorithm, _> =
            Limiter::builder(Quota::per_second(4).burst(4)).kind(kind).clock(clock.clone()).build();
        let granted = Arc::new(AtomicUsize::new(0));
        let mut waits: Vec<_> = (0..12).map(|_| Box::pin(limiter.wait())).collect();
        let mut context = Context::from_waker(Waker::noop());
        while !waits.is_empty() {
            waits.retain_mut(|wait| match wait.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => {
                    outcome.unwrap_or_else(|error| panic!("{kind}: {error}"));
                    granted.fetch_add(1, Ordering::SeqCst);
                    false
                }
                Poll::Pending => true,
            });
            if let Some(due) = clock.next_due() {
                clock.advance_to(due);
            }
        }
        // Twelve at 4/s: at least 2 s by any of them, and none takes more than 4.
        let took = clock.now().since(Tick::ZERO);
        assert!((Duration::from_secs(2)..=Duration::from_secs(4)).contains(&took), "{kind} took {took:?}");
        assert_eq!(granted.load(Ordering::SeqCst), 12, "{kind}");
    }
}

#[test]
fn a_thread_can_wait() {
    let limiter = Limiter::new(Quota::per_second(1_000).burst(1));
    for _ in 0..5 {
        limiter.wait().block().unwrap();
    }
    let error = limiter.wait_n(2).block().unwrap_err();
    assert_eq!(error, WaitError::Never { cost: 2, limit: 1 });
}

#[test]
fn a_late_alarm_admits_nobody_for_free() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(3));
    assert!(limiter.allow_n(3));
    let mut waiting = Waiting::new(limiter.wait());
    clock.set(Tick::ZERO + Duration::from_secs(10)); // long past due, and nothing has rung
    let admitted = (0..100).filter(|_| limiter.allow()).count();
    assert!(waiting.granted(), "whoever was due went first");
    assert_eq!(admitted, 2, "three were there, one of them for the one in line");

    let _head = Waiting::new(limiter.wait());
    clock.set(Tick::ZERO + Duration::from_secs(20));
    let admitted = (0..100).filter(|_| limiter.check().is_allowed()).count();
    assert_eq!(admitted, 2);
}

#[test]
fn a_grant_dropped_late_is_not_handed_on_as_if_no_time_had_passed() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let first = Waiting::new(limiter.wait());
    let mut second = Waiting::new(limiter.wait());
    let mut third = Waiting::new(limiter.wait());
    clock.advance(millis(1_900)); // the first was granted at one second
    drop(first);
    let act = second.poll().expect("its turn").expect("in time").act_time();
    clock.advance(millis(2_000));
    let next = third.poll().expect("its turn").expect("in time").act_time();
    assert!(next.since(act) >= Duration::from_secs(1), "{act} and {next} are too close");
}

/// A bucket of eight that is always nearly empty, and a line that never ends: what lies unseen for three times as long as the
/// bucket takes to fill is dropped all at once.
fn dropped_after_three_fillings(unseen: usize) -> (usize, Vec<Operation>) {
    let (limiter, clock) = bucket(Quota::per_second(8).burst(8));
    assert!(limiter.allow_n(8));
    let mut line: VecDeque<_> = (0..200).map(|_| Waiting::new(limiter.wait())).collect();
    clock.advance(millis(125)); // from the first grant on the bucket is watched
    let _ = line.pop_front().expect("in line").poll().expect("its turn").expect("in time");
    clock.advance(millis(125 * unseen as u64));
    let lost: Vec<_> = line.drain(..unseen).collect();
    assert!(lost.iter().all(Waiting::was_woken));
    let mut served = Vec::new();
    for _ in 0..24 {
        clock.advance(millis(125));
        collect(&mut line, &mut served);
    }
    let before = served.len();
    drop(lost);
    collect(&mut line, &mut served);
    let handed_on = served.len() - before;
    for _ in 0..24 {
        clock.advance(millis(125));
        collect(&mut line, &mut served);
    }
    (handed_on, served)
}

/// Picks up what was granted.
fn collect(line: &mut VecDeque<Waiting<'_>>, served: &mut Vec<Operation>) {
    while let Some(turn) = line.front_mut().and_then(Waiting::poll) {
        served.push(Operation::at(turn.expect("in time").act_time().as_nanos(), 1));
        line.pop_front();
    }
}

#[test]
fn in_a_busy_line_a_turn_goes_to_the_next_however_long_it_lay_unseen() {
    let (handed_on, served) = dropped_after_three_fillings(2);
    assert_eq!((handed_on, served.len()), (2, 48 + 2));
}

#[test]
fn many_turns_that_lay_unseen_break_no_bound() {
    let (handed_on, served) = dropped_after_three_fillings(8);
    assert_eq!(handed_on, 2, "a quarter of the burst");
    let worst = largest_excess(Quota::per_second(8).burst(8), &served).expect("somebody was served");
    assert!(!worst.is_violation(), "{worst:?}");
}

#[test]
fn a_reservation_that_goes_ahead_tells_those_it_makes_late() {
    let (limiter, clock) = bucket(Quota::per_second(1));
    assert!(limiter.allow());
    let mut hasty = Waiting::new(limiter.wait().within(millis(1_500)));
    let mut patient = Waiting::new(limiter.wait());
    let _ahead = limiter.reserve_n(1).unwrap();
    assert!(
        matches!(hasty.poll(), Some(Err(WaitError::TooLate { would_take })) if would_take == millis(2_000))
    );
    clock.advance(millis(2_000));
    assert!(patient.granted());
}

#[test]
fn a_deadline_is_judged_by_how_things_stand_now() {
    let (limiter, clock) = bucket(Quota::per_second(1));
    assert!(limiter.allow());
    let too_late = WaitError::TooLate { would_take: Duration::from_secs(1) };
    assert_eq!(now_or_error(limiter.wait().within(millis(500))), Err(too_late));
    clock.advance(Duration::from_secs(1));
    assert!(limiter.allow(), "taken while nobody was in line");
    assert_eq!(now_or_error(limiter.wait().within(millis(500))), Err(too_late));
}

#[test]
fn whoever_is_found_past_its_deadline_is_refused() {
    let (limiter, clock) = bucket(Quota::per_second(1));
    assert!(limiter.allow());
    let mut waiting = Waiting::new(limiter.wait().within(Duration::from_secs(1)));
    clock.set(Tick::ZERO + Duration::from_secs(3_600)); // the machine slept
    clock.advance(Duration::ZERO);
    assert!(matches!(waiting.poll(), Some(Err(WaitError::TooLate { .. }))));
}

#[test]
fn whoever_is_found_past_its_deadline_is_told_how_long_it_would_have_taken() {
    let (limiter, clock) = bucket(Quota::per_second(1));
    assert!(limiter.allow());
    let mut first = Waiting::new(limiter.wait());
    let mut second = Waiting::new(limiter.wait().within(millis(2_000)));
    clock.set(Tick::ZERO + millis(2_500)); // the machine slept
    clock.advance(Duration::ZERO);
    assert!(first.granted());
    let told = second.poll().expect("it is too late").unwrap_err();
    assert_eq!(told, WaitError::TooLate { would_take: millis(3_500) });
}

#[test]
fn a_closed_limiter_lets_nobody_wait_even_if_there_is_something_to_have() {
    let (limiter, _clock) = bucket(Quota::per_second(10));
    limiter.close();
    assert!(limiter.is_closed());
    assert_eq!(now_or_error(limiter.wait()), Err(WaitError::Closed));
    assert!(limiter.allow());
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics: expected in this test");
    }
}

#[test]
fn a_waker_that_panics_stops_nobody_else() {
    let limiter = Limiter::new(Quota::per_second(100).burst(1));
    assert!(limiter.allow());
    let waker = Waker::from(Arc::new(Panics));
    let mut bad = Box::pin(limiter.wait());
    assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    limiter.wait().block().expect("behind it, on the same timer");
    Limiter::new(Quota::per_second(100).burst(1)).wait().block().expect("on another limiter");
}

/// A clock that shows, by its witness, whether whoever holds it is still there.
#[derive(Clone, Debug)]
struct Witnessed {
    clock: ManualClock,
    _witness: Arc<()>,
}

impl Clock for Witnessed {
    fn now(&self) -> Tick {
        self.clock.now()
    }
}

#[test]
fn a_dropped_limiter_is_not_kept_by_its_alarm() {
    let (clock, witness) = (ManualClock::new(), Arc::new(()));
    let witnessed = Witnessed { clock: clock.clone(), _witness: Arc::clone(&witness) };
    let limiter = Limiter::builder(Quota::per_day(1)).clock(witnessed).timer(clock.clone()).build();
    assert!(limiter.allow());
    let mut wait = Box::pin(limiter.wait());
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(wait);
    drop(limiter);
    assert_eq!(clock.next_due(), Some(Tick::ZERO + Duration::from_secs(1)), "the alarm is still set");
    assert_eq!(Arc::strong_count(&witness), 1, "and the limiter is gone");
    clock.advance(Duration::from_secs(1)); // rings for nobody
    assert_eq!(clock.next_due(), None);
}

#[test]
fn a_small_burst_is_served_at_its_full_rate() {
    // A timer that likes to rest for longer than the bucket lasts must not cost tokens.
    #[derive(Clone, Debug)]
    struct Lazy(ManualClock);
    impl Timer for Lazy {
        fn wake_after(&self, delay: Duration, waker: Waker) {
            self.0.wake_after(delay, waker);
        }
        fn granularity(&self) -> Duration {
            millis(10)
        }
    }
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Quota::per_second(1_000).burst(1))
        .clock(clock.clone())
        .timer(Lazy(clock.clone()))
        .build();
    assert!(limiter.allow());
    let _line: Vec<_> = (0..100).map(|_| Waiting::new(limiter.wait())).collect();
    clock.advance(millis(50));
    assert_eq!(limiter.waiting(), 50);
}

#[cfg(feature = "tokio")]
#[test]
fn a_runtime_that_goes_away_does_not_take_the_time_with_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let limiter = runtime.block_on(async {
        Limiter::builder(Quota::per_second(50).burst(1)).clock(tollgate::TokioClock::new()).build()
    });
    assert!(limiter.allow());
    drop(runtime);
    limiter.wait().block().expect("by the process's own timer");
}

#[test]
fn a_look_says_what_a_reservation_would_that_goes_ahead_of_those_who_wait() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let _in_line = Waiting::new(limiter.wait());
    for (patience, at_ms) in [(500, 0), (1_000, 100), (0, 200), (5_000, 300)] {
        clock.set(Tick::ZERO + millis(at_ms));
        let seen = limiter.peek_within(1, millis(patience));
        let told = limiter.reserve_within(1, millis(patience)).map(|reserved| reserved.decision());
        assert_eq!(seen, told.unwrap_or_else(|refused| refused.0), "{patience} ms");
    }
}
