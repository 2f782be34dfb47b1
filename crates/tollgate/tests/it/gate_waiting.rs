//! Waiting at a gate, under a clock that is moved by hand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::{
    Clock, ConcurrencyLimit, Gate, GateWait, Limiter, ManualClock, Member, Permit, Quota, Tick, Timer,
    TokenBucket, WaitError,
};

type Bucket = Limiter<TokenBucket, ManualClock>;

fn bucket(clock: &ManualClock, quota: Quota) -> Bucket {
    Limiter::builder(quota).clock(clock.clone()).build()
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A wait with a waker that counts, and is polled only when woken.
struct Waiting<'a, M: Member> {
    future: Pin<Box<GateWait<'a, M>>>,
    woken: Arc<Counter>,
}

impl<'a, M: Member> Waiting<'a, M> {
    fn new(wait: GateWait<'a, M>) -> Self {
        let mut waiting = Self { future: Box::pin(wait), woken: Arc::default() };
        assert!(waiting.poll().is_none(), "nothing is to be had yet");
        waiting
    }

    fn poll(&mut self) -> Option<Result<Permit<M>, WaitError>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    /// What an executor would do: poll if it was woken.
    fn run(&mut self) -> Option<Result<Permit<M>, WaitError>> {
        if self.woken.0.swap(0, Ordering::SeqCst) == 0 {
            return None;
        }
        self.poll()
    }

    fn granted(&mut self) -> bool {
        self.run().is_some_and(|outcome| outcome.is_ok())
    }
}

fn refused<M: Member>(wait: GateWait<'_, M>) -> WaitError {
    let mut wait = std::pin::pin!(wait);
    match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => error,
        Poll::Ready(Ok(_)) => panic!("it was granted"),
        Poll::Pending => panic!("it lined up"),
    }
}

/// Polls those that were woken until nobody is; in order of arrival, who was served.
fn run_all<M: Member>(waiting: &mut [Waiting<'_, M>]) -> Vec<usize> {
    let mut served = Vec::new();
    loop {
        let before = served.len();
        for (index, one) in waiting.iter_mut().enumerate() {
            if one.granted() {
                served.push(index);
            }
        }
        if served.len() == before {
            return served;
        }
    }
}

#[test]
fn turns_come_in_order_and_when_all_limits_admit() {
    let clock = ManualClock::new();
    // Two a second, and five in a row; then one every two seconds.
    let (second, slow) =
        (bucket(&clock, Quota::per_second(2).burst(1)), bucket(&clock, Quota::per_minute(30).burst(3)));
    let gate = second.and(&slow);
    assert!(gate.allow());
    let mut waiting: Vec<_> = (0..4).map(|_| Waiting::new(gate.wait())).collect();
    assert_eq!(gate.waiting(), 4);
    let mut moments = Vec::new();
    for _ in 0..7_000 {
        clock.advance(millis(1));
        moments.extend(run_all(&mut waiting).into_iter().map(|who| (who, clock.now())));
    }
    // The slow one has two left, the next at 2 s, then every two seconds.
    let at = |ms| Tick::ZERO + millis(ms);
    assert_eq!(moments, [(0, at(500)), (1, at(1_000)), (2, at(2_000)), (3, at(4_000))]);
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn clones_share_one_line_and_other_gates_have_their_own() {
    let clock = ManualClock::new();
    let limits = [bucket(&clock, Quota::per_second(1)), bucket(&clock, Quota::per_second(100).burst(9))];
    let gate = Gate::new(limits.clone());
    let clone = gate.clone();
    assert!(gate.allow());
    let mut waiting = vec![Waiting::new(gate.wait()), Waiting::new(clone.wait()), Waiting::new(gate.wait())];
    assert_eq!((clone.waiting(), Gate::new(limits).waiting()), (3, 0));
    for turn in 0..3 {
        clock.advance(Duration::from_secs(1));
        assert_eq!(run_all(&mut waiting), [turn]);
    }
}

#[test]
fn whoever_gives_up_takes_nothing_and_leaves_its_place() {
    let clock = ManualClock::new();
    let (a, b) =
        (bucket(&clock, Quota::per_second(10).burst(5)), bucket(&clock, Quota::per_second(10).burst(6)));
    let gate = a.and(&b);
    assert!(gate.allow_n(5));
    let large = Waiting::new(gate.wait_n(5));
    let mut small = Waiting::new(gate.wait());
    clock.advance(millis(100));
    assert!(!small.granted(), "nobody slips past the head of the line");
    let before = (a.peek(), b.peek());
    drop(large);
    assert_eq!((a.peek(), b.peek()), before, "it had taken nothing");
    assert!(small.granted(), "one is there, and now it is its turn");
    let (mut first, second) = (Waiting::new(gate.wait()), Waiting::new(gate.wait()));
    drop(second);
    clock.advance(millis(100));
    assert!(first.granted());
    assert_eq!((gate.waiting(), a.remaining(), b.remaining()), (0, 0, 1));
}

#[test]
fn a_woken_waiter_that_gives_up_hands_its_turn_on() {
    let clock = ManualClock::new();
    let (a, b) =
        (bucket(&clock, Quota::per_second(10).burst(1)), bucket(&clock, Quota::per_second(10).burst(1)));
    let gate = a.and(&b);
    assert!(gate.allow());
    let first = Waiting::new(gate.wait());
    let mut second = Waiting::new(gate.wait());
    clock.advance(millis(100));
    assert!(first.woken.0.load(Ordering::SeqCst) > 0);
    drop(first); // woken, and never polled again
    assert!(second.granted());
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_at_once() {
    let clock = ManualClock::new();
    let (a, b) =
        (bucket(&clock, Quota::per_second(10).burst(2)), bucket(&clock, Quota::per_second(1).burst(2)));
    let gate = a.and(&b);
    assert!(gate.allow_n(2));
    let would_take = |ms| WaitError::TooLate { would_take: millis(ms) };
    assert_eq!(refused(gate.wait().within(millis(999))), would_take(1_000));
    let mut first = Waiting::new(gate.wait().within(millis(1_000)));
    let mut second = Waiting::new(gate.wait_n(2));
    // The first at 1 s, the second at 3 s, so this one at 4 s.
    assert_eq!(refused(gate.wait().within(millis(3_999))), would_take(4_000));
    let mut third = Waiting::new(gate.wait().until(Tick::ZERO + millis(4_000)));
    assert_eq!((gate.waiting(), a.remaining(), b.remaining()), (3, 0, 0), "nobody has taken anything");
    clock.advance(millis(1_000));
    assert!(first.granted() && !second.granted());
    clock.advance(millis(2_000));
    assert!(second.granted() && !third.granted());
    assert!(b.allow_n(0) && !b.allow());
    clock.advance(millis(1_000));
    assert!(third.granted());
    assert_eq!(refused(gate.wait_n(3)), WaitError::Never { cost: 3, limit: 2 });
}

#[test]
fn whoever_is_refused_is_told_how_long_it_takes_behind_those_in_line() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1)), bucket(&clock, Quota::per_second(100)));
    let gate = a.and(&b);
    assert!(gate.allow());
    let _line = [(); 3].map(|()| Waiting::new(gate.wait()));
    for patience in [0, 500, 1_000, 3_999] {
        let told = refused(gate.wait().within(millis(patience)));
        assert_eq!(told, WaitError::TooLate { would_take: millis(4_000) }, "within {patience} ms");
    }
    Waiting::new(gate.wait().within(millis(4_000)));
    b.charge(10_000);
    let told = refused(gate.wait().within(millis(4_000)));
    assert!(matches!(told, WaitError::TooLate { would_take } if would_take > Duration::from_secs(99)));
}

#[test]
fn behind_those_in_line_a_limit_that_occurs_twice_takes_twice_as_long() {
    let clock = ManualClock::new();
    let (twice, other) =
        (bucket(&clock, Quota::per_second(1).burst(3)), bucket(&clock, Quota::per_second(9)));
    let gate = twice.and(&other).and(twice.costing(2));
    assert!(gate.allow());
    let _first = Waiting::new(gate.wait());
    let told = refused(gate.wait().within(millis(5_999)));
    assert_eq!(told, WaitError::TooLate { would_take: millis(6_000) });
    let _second = Waiting::new(gate.wait().within(millis(6_000)));
    assert_eq!(refused(gate.wait_n(2)), WaitError::Never { cost: 4, limit: 3 });
}

#[test]
fn what_can_never_be_had_is_told_with_what_it_costs_the_limit() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(10)), bucket(&clock, Quota::per_second(10)));
    let never = |cost| WaitError::Never { cost, limit: 10 };
    assert_eq!(refused(a.costing(50).and(&b).wait()), never(50));
    assert_eq!(refused(b.and(a.costing(50)).wait_n(3)), never(50));
    assert_eq!(refused(a.costing(5).and(&b).wait_n(11)), never(11));
    assert_eq!(refused(a.and(&b).and(a.costing(4)).wait_n(7)), never(11), "it occurs twice");
    let gate = a.costing(5).and(&b);
    assert!(gate.allow_n(10));
    let _head = Waiting::new(gate.wait_n(10));
    assert_eq!(refused(gate.wait_n(12)), never(12), "behind others, too");
}

#[test]
fn a_deadline_that_passes_in_line_ends_the_wait() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1)), bucket(&clock, Quota::per_second(1)));
    let gate = a.and(&b);
    assert!(gate.allow());
    let mut head = Waiting::new(gate.wait());
    let mut behind = Waiting::new(gate.wait().within(millis(2_000)));
    clock.advance(millis(500));
    assert!(b.reserve().is_ok() && b.reserve().is_ok(), "somebody comes in between, twice");
    clock.advance(millis(500));
    assert!(!head.granted());
    clock.advance(millis(1_000));
    assert!(!head.granted() && behind.run().is_none(), "it may still be, at this very moment");
    clock.advance(Duration::from_nanos(1));
    assert_eq!(
        behind.run().unwrap().unwrap_err(),
        WaitError::TooLate { would_take: Duration::from_nanos(2_000_000_001) }
    );
    clock.advance(millis(1_000));
    assert!(head.granted());
    assert_eq!(gate.waiting(), 0);
}

/// How late a head may come, and a nanosecond more.
const TOO_LATE: Duration = Duration::from_nanos(5_000_001);

#[test]
fn a_head_that_does_not_come_stands_in_nobodys_way_once_its_deadline_has_passed() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1)), bucket(&clock, Quota::per_second(100)));
    let gate = a.and(&b);
    assert!(gate.allow());
    let mut head = Waiting::new(gate.wait().within(millis(2_000)));
    let mut second = Waiting::new(gate.wait().within(millis(5_000)));
    let mut third = Waiting::new(gate.wait());
    clock.advance(millis(2_000));
    assert!(!second.granted(), "the head may still come");
    clock.advance(TOO_LATE);
    assert_eq!(gate.waiting(), 2);
    clock.advance(millis(3_000));
    assert!(third.granted(), "nor did the second come");
    for late in [&mut head, &mut second] {
        assert!(matches!(late.run(), Some(Err(WaitError::TooLate { .. }))));
    }
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn whoever_comes_after_one_that_was_turned_away_hears_what_comes_back() {
    let (clock, slots) = (ManualClock::new(), ConcurrencyLimit::new(1));
    let rate = bucket(&clock, Quota::per_second(100));
    let gate = rate.and(&slots);
    let held = slots.try_acquire().expect("it is free");
    let head = Waiting::new(gate.wait().within(millis(2_000)));
    let mut next = Waiting::new(gate.wait());
    clock.advance(millis(2_000) + TOO_LATE);
    assert!(next.run().is_none() && gate.waiting() == 1);
    drop(head);
    assert!(next.run().is_none());
    drop(held);
    assert!(next.granted());
}

#[test]
fn whoever_leaves_the_head_leaves_it_to_one_that_is_not_too_late() {
    let (clock, slots) = (ManualClock::new(), ConcurrencyLimit::new(1));
    let rate = bucket(&clock, Quota::per_second(100));
    let gate = rate.and(&slots);
    let held = slots.try_acquire().expect("it is free");
    let head = Waiting::new(gate.wait());
    let _late = Waiting::new(gate.wait().within(millis(2_000)));
    let mut last = Waiting::new(gate.wait());
    clock.advance(millis(10_000));
    assert_eq!(gate.waiting(), 3);
    drop(head);
    assert_eq!(gate.waiting(), 1);
    assert!(last.run().is_none(), "it is the head now");
    drop(held);
    assert!(last.granted());
}

#[test]
fn whatever_comes_back_wakes_the_head() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_hour(1).burst(2)), bucket(&clock, Quota::per_hour(1).burst(4)));
    let gate = a.and(&b);
    let wait = || Waiting::new(gate.wait());

    let held = a.reserve_n(2).unwrap();
    let mut refunded = wait();
    held.settle(0);
    assert!(refunded.granted(), "a refund");

    let permit = a.and(&b).acquire().unwrap();
    let mut cancelled = wait();
    permit.cancel();
    assert!(cancelled.granted(), "a cancelled permit");

    let mut richer = wait();
    a.set_quota(Quota::per_second(1_000).burst(2));
    assert!(!richer.granted(), "not yet");
    clock.advance(millis(1));
    assert!(richer.granted(), "a new quota");

    a.set_quota(Quota::per_hour(1).burst(2));
    let mut closed = wait();
    b.close();
    assert!(matches!(closed.run(), Some(Err(WaitError::Closed))), "a closed limit");
    assert_eq!(refused(gate.wait()), WaitError::Closed);
}

#[test]
fn whoever_is_turned_away_at_a_limit_makes_room_for_a_gate() {
    let worsen: [fn(&Bucket, &Bucket); 3] =
        [|a, _| a.charge(1), |a, _| assert!(a.reserve().is_ok()), |a, b| assert!(a.and(b).reserve().is_ok())];
    for worsen in worsen {
        let clock = ManualClock::new();
        let (a, b) = (bucket(&clock, Quota::per_second(1).burst(10)), bucket(&clock, Quota::per_second(100)));
        assert!(a.allow_n(10));
        let mut own = Box::pin(a.wait_n(10).within(Duration::from_secs(10)));
        let mut poll_own = || own.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll_own().is_pending());
        let gate = a.and(&b);
        let mut behind = Waiting::new(gate.wait());
        worsen(&a, &b);
        assert!(matches!(poll_own(), Poll::Ready(Err(WaitError::TooLate { .. }))));
        assert!(!behind.granted());
        clock.advance(millis(2_000));
        assert!(behind.granted(), "not after the ten of somebody who has left");
    }
}

#[test]
fn whoever_is_too_late_at_a_limit_makes_room_for_a_gate() {
    let clock = ManualClock::new();
    let (a, b) = (bucket(&clock, Quota::per_second(1).burst(10)), bucket(&clock, Quota::per_second(100)));
    assert!(a.allow_n(10));
    let mut own = Box::pin(a.wait_n(10).within(Duration::from_secs(10)));
    assert!(own.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let gate = a.and(&b);
    let mut behind = Waiting::new(gate.wait());
    clock.set(Tick::ZERO + millis(10_900)); // the timer is late, and rings for nobody
    assert!(!a.allow_n(11), "whoever asks finds that the deadline has passed");
    assert!(behind.granted());
}

#[test]
fn a_slot_that_comes_back_wakes_the_head() {
    let clock = ManualClock::new();
    let rate = bucket(&clock, Quota::per_second(100).burst(10));
    let slots = ConcurrencyLimit::new(1);
    let gate = rate.and(&slots);
    let held = gate.acquire().unwrap();
    let mut waiting = vec![Waiting::new(gate.wait()), Waiting::new(gate.wait())];
    assert_eq!(clock.next_due(), None, "no time is known");
    clock.advance(Duration::from_secs(1));
    assert_eq!((run_all(&mut waiting), rate.remaining()), (vec![], 10), "waiting takes nothing");
    held.release();
    let permit = waiting[0].run().expect("woken").expect("granted");
    assert!(!waiting[1].granted());
    slots.set_limit(2);
    assert!(waiting[1].granted(), "a larger limit, too");
    drop(permit);
    assert_eq!(slots.in_use(), 0);

    let held = slots.try_acquire_n(2).unwrap();
    let mut late = Waiting::new(gate.wait().within(millis(10)));
    clock.advance(millis(10));
    assert!(late.run().is_none());
    clock.advance(Duration::from_nanos(1));
    assert!(matches!(late.run(), Some(Err(WaitError::TooLate { .. }))));
    drop(held);
}

#[test]
fn nobody_slips_past_those_who_wait_at_a_limit_itself() {
    let clock = ManualClock::new();
    let (a, b) =
        (bucket(&clock, Quota::per_second(10).burst(4)), bucket(&clock, Quota::per_second(10).burst(4)));
    assert!(a.allow_n(4));
    let mut own = Box::pin(a.wait_n(4));
    assert!(own.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    clock.advance(millis(200));
    let refused = a.and(&b).check();
    assert_eq!((refused.is_admitted(), refused.retry_after()), (false, Some(millis(300))));
    assert_eq!(b.remaining(), 4);
    let mut waiting = [a.and(&b), a.and(&b)];
    let [gate, _] = &mut waiting;
    let mut at_gate = Waiting::new(gate.wait());
    clock.advance(millis(200));
    assert!(!at_gate.granted());
    assert!(own.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    clock.advance(millis(100));
    assert!(at_gate.granted());

    let slots = ConcurrencyLimit::new(2);
    let held = slots.try_acquire().unwrap();
    let mut own = Box::pin(slots.acquire_n(2));
    assert!(own.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(!slots.and(&b).allow());
    drop(own);
    assert!(slots.and(&b).allow());
    drop(held);
}

#[test]
fn threads_wait_at_a_gate() {
    let (a, b) =
        (Limiter::new(Quota::per_second(20_000).burst(5)), Limiter::new(Quota::per_second(15_000).burst(5)));
    let slots = ConcurrencyLimit::new(2);
    let gate = a.and(&b).and(&slots);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let permit = gate.wait().block().unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.release();
                }
            });
        }
    });
    assert_eq!((gate.waiting(), slots.in_use()), (0, 0));
}

#[test]
fn whoever_has_no_time_is_refused_at_once_though_nobody_knows_when_a_slot_is_free() {
    let (clock, slots) = (ManualClock::new(), ConcurrencyLimit::new(1));
    let limiter = Limiter::builder(Quota::per_second(100)).clock(clock).build();
    let gate = limiter.and(&slots);
    let held = slots.try_acquire().expect("it is free");
    for _ in 0..2 {
        let late = gate.wait().within(Duration::ZERO).block().expect_err("the slot is taken");
        assert_eq!(late, WaitError::TooLate { would_take: Duration::ZERO });
        assert_eq!(late.to_string(), "deadline too soon: not available now");
    }
    drop(held);
    assert!(gate.wait().within(Duration::ZERO).block().is_ok());
}

/// A clock that counts the alarms it is asked for.
#[derive(Clone, Debug, Default)]
struct Counting {
    clock: ManualClock,
    asked: Arc<AtomicUsize>,
}

impl Timer for Counting {
    fn wake_after(&self, delay: Duration, waker: Waker) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.clock.wake_after(delay, waker);
    }
}

#[test]
fn a_wait_that_has_ended_leaves_no_alarm_for_its_deadline() {
    let clock = ManualClock::new();
    let (a, b) =
        (bucket(&clock, Quota::per_second(10).burst(1)), bucket(&clock, Quota::per_second(10).burst(1)));
    let gate = a.and(&b);
    let hour = Duration::from_secs(3_600);
    assert!(gate.allow());
    for _ in 0..100 {
        let mut granted = Waiting::new(gate.wait().within(hour));
        let dropped = Waiting::new(gate.wait().within(hour));
        clock.advance(millis(100));
        assert!(granted.granted());
        drop(dropped);
    }
    clock.advance(millis(1_000));
    assert_eq!(clock.next_due(), None, "nobody waits any more");

    assert!(gate.allow());
    drop(Waiting::new(gate.wait().within(hour)));
    clock.advance(millis(100));
    assert_eq!(clock.next_due(), None, "nobody waits any more");
    assert!(gate.allow());
    let mut refused = Waiting::new(gate.wait().within(hour));
    assert!(a.reserve_n(1).is_ok(), "somebody comes in between");
    a.close();
    assert!(matches!(refused.run(), Some(Err(WaitError::Closed))));
    clock.advance(millis(100));
    assert_eq!(clock.next_due(), None, "nobody waits any more");
}

#[test]
fn gates_that_are_composed_for_one_wait_leave_no_alarms_either() {
    let (clock, slots) = (ManualClock::new(), ConcurrencyLimit::new(1));
    let rate = bucket(&clock, Quota::per_second(10).burst(1));
    for _ in 0..100 {
        let held = slots.try_acquire().expect("it is free");
        let gate = rate.costing(0).and(&slots);
        let mut waiting = Waiting::new(gate.wait().within(Duration::from_secs(3_600)));
        drop(held);
        assert!(waiting.granted());
    }
    clock.advance(millis(1_000));
    assert_eq!(clock.next_due(), None);
}

#[test]
fn a_deadline_that_is_far_off_is_kept_to_the_nanosecond() {
    let (clock, slots) = (ManualClock::new(), ConcurrencyLimit::new(1));
    let rate = bucket(&clock, Quota::per_second(10).burst(1));
    let gate = rate.and(&slots);
    let _held = slots.try_acquire().expect("it is free");
    let mut waiting = Waiting::new(gate.wait().within(Duration::from_secs(3_600)));
    clock.advance(Duration::from_secs(3_600));
    assert!(waiting.run().is_none());
    clock.advance(Duration::from_nanos(1));
    assert!(matches!(waiting.run(), Some(Err(WaitError::TooLate { .. }))));
}

#[test]
fn those_who_wait_for_a_slot_share_one_alarm() {
    let counting = Counting::default();
    let rate = Limiter::builder(Quota::per_second(10).burst(1))
        .clock(counting.clock.clone())
        .timer(counting.clone())
        .build();
    let slots = ConcurrencyLimit::new(1);
    let gate = rate.costing(0).and(&slots);
    for _ in 0..100 {
        let held = slots.try_acquire().expect("it is free");
        let mut waiting = Waiting::new(gate.wait().within(Duration::from_secs(3_600)));
        let mut late = Waiting::new(gate.wait().within(Duration::from_secs(3_599)));
        drop(held);
        assert!(waiting.granted() && late.granted());
        counting.clock.advance(millis(1));
    }
    assert_eq!(counting.asked.load(Ordering::SeqCst), 1, "it rings within a second");
}

/// As at a limiter: whoever comes then is turned away, and so is whoever has a deadline.
#[test]
fn whoever_waits_without_a_deadline_stays_while_a_rate_is_zero() {
    let clock = ManualClock::new();
    let [a, b] = [(); 2].map(|()| bucket(&clock, Quota::per_second(1)));
    let gate = a.and(&b);
    assert!(gate.allow());
    let mut waiting = [Waiting::new(gate.wait()), Waiting::new(gate.wait())];
    let mut patient = Waiting::new(gate.wait().within(millis(60_000)));
    b.set_quota(Quota::per_second(0).burst(1));
    assert_eq!(run_all(&mut waiting), [0; 0]);
    clock.advance(millis(30_000));
    assert_eq!((run_all(&mut waiting), gate.waiting()), (vec![], 3), "nothing came back");
    assert!(matches!(refused(gate.wait()), WaitError::Never { cost: 1, limit: 1 }));
    clock.advance(millis(30_001));
    assert!(matches!(patient.run(), Some(Err(WaitError::TooLate { .. }))));
    b.set_quota(Quota::per_second(1));
    clock.advance(millis(1_000));
    assert_eq!(run_all(&mut waiting), [0]);
    clock.advance(millis(1_000));
    assert_eq!(run_all(&mut waiting), [1]);
}

#[test]
fn whoever_waits_for_more_than_a_limit_has_by_now_is_turned_away() {
    let clock = ManualClock::new();
    let [a, b] = [(); 2].map(|()| bucket(&clock, Quota::per_second(2)));
    let gate = a.and(&b);
    assert!(gate.allow());
    let mut waiting = Waiting::new(gate.wait_n(2));
    b.set_quota(Quota::per_second(1));
    assert!(matches!(waiting.run(), Some(Err(WaitError::Never { cost: 2, limit: 1 }))));
}
