//! What a limiter promises to those who wait, whatever comes in between: turns that nobody picks up, changes of quota, late alarms,
//! looks ahead, returns in any order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, mpsc};

use super::*;

fn at_ms(ms: u64) -> Tick {
    Tick::ZERO + millis(ms)
}

/// A bucket of four.
#[test]
fn a_turn_handed_on_after_a_change_of_quota_is_not_worth_more_than_is_left_of_it() {
    let quota = Quota::per_second(4).burst(4);
    let (limiter, clock) = bucket(quota);
    assert!(limiter.allow_n(4));
    let first = Waiting::new(limiter.wait_n(4));
    let mut second = Waiting::new(limiter.wait_n(4));
    clock.advance(millis(1_000));
    assert!(first.was_woken(), "granted, not seen");
    clock.advance(millis(500)); // two of the four are back
    limiter.set_quota(quota); // the same
    drop(first);
    let mut history = Vec::new();
    if let Some(Ok(turn)) = second.poll() {
        history.push(Operation::at(turn.act_time().as_nanos(), 4));
    }
    while limiter.allow() {
        history.push(Operation::at(clock.now().as_nanos(), 1));
    }
    let worst = largest_excess(quota, &history).unwrap();
    assert!(!worst.is_violation(), "{worst:?} {history:?}");
}

#[test]
fn whoever_comes_after_a_turn_that_was_handed_on_is_served_on_time() {
    let (limiter, clock) = bucket(Quota::per_second(10).burst(5));
    assert!(limiter.allow_n(5));
    let first = Waiting::new(limiter.wait_n(5));
    let mut second = Waiting::new(limiter.wait_n(5));
    let mut small = Waiting::new(limiter.wait_n(1));
    clock.advance(millis(500));
    assert!(first.was_woken());
    drop(first);
    assert!(second.granted(), "handed on");
    clock.advance(millis(100)); // one is there
    assert_eq!(limiter.peek_within(1, Duration::MAX).delay(), millis(100), "the small one counted as served");
    assert!(small.granted(), "late: next alarm at {:?}", clock.next_due());
}

#[test]
fn a_look_ahead_changes_nobodys_deadline() {
    let (limiter, _clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let gone = Waiting::new(limiter.wait());
    let _a = Waiting::new(limiter.wait());
    let _b = Waiting::new(limiter.wait());
    drop(gone);
    let before = limiter.check().retry_after();
    drop(Waiting::new(limiter.wait())); // somebody gives up
    let _ = limiter.peek_at(at_ms(1_000_000)); // a look, which takes nothing
    assert_eq!(limiter.check().retry_after(), before);
    let mut wait = Box::pin(limiter.wait().within(Duration::from_secs(10)));
    let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "{polled:?}");
}

#[test]
fn a_look_says_what_a_check_then_says_though_the_alarm_is_late() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let _a = Waiting::new(limiter.wait());
    let _b = Waiting::new(limiter.wait().within(Duration::from_secs(60)));
    clock.set(at_ms(10_000)); // nothing has rung yet
    let seen = limiter.peek();
    let told = limiter.check();
    assert_eq!(seen, told);
}

#[test]
fn a_deadline_is_judged_right_though_the_alarm_is_late() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let _a = Waiting::new(limiter.wait());
    let _b = Waiting::new(limiter.wait());
    let _ = limiter.check(); // projects
    clock.set(at_ms(10_000)); // nothing has rung yet
    let mut wait = Box::pin(limiter.wait().within(Duration::ZERO));
    let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(WaitError::TooLate { .. }))), "{polled:?}");
}

#[test]
fn a_full_queue_whose_head_is_due_has_room() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Quota::per_second(1)).clock(clock.clone()).longest_queue(1).build();
    assert!(limiter.allow());
    let _a = Waiting::new(limiter.wait());
    clock.set(at_ms(1_500));
    let mut wait = Box::pin(limiter.wait());
    let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "{polled:?}");
}

/// A reservation goes ahead of it.
#[test]
fn nobody_waits_longer_than_until_its_deadline() {
    let (limiter, clock) = bucket(Quota::per_hour(1).burst(1));
    assert!(limiter.allow());
    let hour = Duration::from_secs(3_600);
    let _a = Waiting::new(limiter.wait());
    let b = Waiting::new(limiter.wait().within(2 * hour));
    clock.set(Tick::ZERO + hour + hour / 2); // the machine slept for half an hour
    clock.advance(Duration::ZERO);
    let known = b.was_woken(); // B can be had at 2:30 at the earliest, and has time until 2:00
    clock.advance_to(Tick::ZERO + 2 * hour + millis(10));
    assert!(b.was_woken(), "known at once: {known}; not even told ten milliseconds after its deadline");
}

/// A waker that asks the limiter.
struct Asks(Bucket, Mutex<Option<mpsc::Sender<usize>>>);
impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let waiting = self.0.waiting();
        if let Some(tell) = self.1.lock().unwrap().as_ref() {
            let _ = tell.send(waiting);
        }
    }
}

#[test]
fn whoever_is_woken_may_ask_the_limiter_at_once() {
    let (limiter, _clock) = bucket(Quota::per_hour(1).burst(1));
    let other = Limiter::builder(Quota::per_hour(1)).clock(limiter.clock().clone()).build();
    assert!(limiter.allow());
    let (tell, told) = mpsc::channel();
    let asks = Arc::new(Asks(limiter.clone(), Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&asks));
    std::thread::spawn(move || {
        let gate = limiter.and(&other);
        let hasty = Waiting::new(limiter.wait().within(Duration::from_secs(3_600)));
        let mut at_gate = Box::pin(gate.wait());
        assert!(at_gate.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        limiter.charge(1); // hasty is turned away, and the gate told
        assert!(hasty.was_woken());
        assert!(at_gate.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *asks.1.lock().unwrap() = Some(tell);
        drop(hasty); // before it saw that it was
        std::mem::forget(at_gate);
        std::mem::forget(gate);
    });
    assert_ne!(told.recv_timeout(Duration::from_secs(5)), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
}

#[test]
fn a_locked_cell_that_was_put_is_not_the_one_that_was_prepared() {
    use tollgate::cell::{Cell, LockedCell};
    use tollgate::{Ask, SlidingCounter};
    let cell = LockedCell::new(SlidingCounter::new(Quota::per_second(10)));
    let _ = cell.take(Tick::ZERO, Ask::now(5));
    let prepared = cell.quick_prepare(Tick::ZERO, Ask::now(1)).unwrap();
    cell.put(tollgate_core::Counts::default());
    let plan = prepared.taking.unwrap().plan;
    let held = cell.hold(&plan);
    if held {
        cell.commit(plan);
    }
    let remaining = cell.quick_peek(Tick::ZERO, Ask::now(0)).unwrap().remaining();
    assert!(!held, "and {remaining} are left of ten");
}

#[test]
fn slots_that_nobody_has_been_promised_on_top_of_come_back() {
    let (limiter, _clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let reserved: Vec<_> = (0..30).map(|_| limiter.reserve_n(1).unwrap()).collect();
    for newest in reserved.into_iter().rev() {
        newest.cancel();
    }
    assert_eq!(limiter.check().retry_after(), Some(Duration::from_secs(1)));
}

#[test]
fn two_slots_come_back_newest_first() {
    let (limiter, _clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let (first, second) = (limiter.reserve_n(1).unwrap(), limiter.reserve_n(1).unwrap());
    second.cancel();
    first.cancel(); // nobody was promised anything on top of it
    assert_eq!(limiter.check().retry_after(), Some(Duration::from_secs(1)));
}

/// Four turns lie unseen, one of them for long; all are dropped at one moment.
fn late_and_in_time(returned: impl Fn(&mut Waiting<'_>)) -> (Quota, Vec<Operation>) {
    let quota = Quota::per_second(4).burst(4);
    let (limiter, clock) = bucket(quota);
    assert!(limiter.allow_n(4));
    let mut line: Vec<_> = (0..20).map(|_| Some(Waiting::new(limiter.wait()))).collect();
    let mut history = Vec::new();
    for (index, one) in line.iter_mut().enumerate().take(8) {
        clock.advance(millis(250));
        assert!(one.as_ref().unwrap().was_woken());
        if ![1, 5, 6, 7].contains(&index) {
            let turn = one.take().unwrap().poll().unwrap().unwrap();
            history.push(Operation::at(turn.act_time().as_nanos(), 1));
        }
    }
    clock.advance(millis(125));
    drop(line[1].take()); // granted at 500, and it is 2125: goes to the next, late
    for one in &mut line[5..8] {
        returned(one.as_mut().unwrap());
        drop(one.take());
    }
    clock.advance(millis(125));
    for one in line[8..].iter_mut().flatten() {
        if let Some(Ok(turn)) = one.poll() {
            history.push(Operation::at(turn.act_time().as_nanos(), 1));
        }
    }
    (quota, history)
}

#[test]
fn turns_that_are_dropped_late_and_in_time_keep_the_bound_together() {
    let (quota, history) = late_and_in_time(|_| ());
    let worst = largest_excess(quota, &history).unwrap();
    assert!(!worst.is_violation(), "{worst:?}");
}

#[test]
fn turns_that_are_dropped_late_and_reservations_that_come_back_keep_the_bound_together() {
    let (quota, history) = late_and_in_time(|one| one.poll().unwrap().unwrap().settle(0));
    let worst = largest_excess(quota, &history).unwrap();
    assert!(!worst.is_violation(), "{worst:?}");
}

/// A timer that knows how many alarms are with it.
#[derive(Clone, Debug, Default)]
struct Counting {
    clock: ManualClock,
    set: Arc<AtomicUsize>,
}

impl Counting {
    fn limiter(&self, quota: Quota) -> Bucket {
        Limiter::builder(quota).clock(self.clock.clone()).timer(self.clone()).build()
    }

    fn alarms(&self) -> usize {
        self.set.load(Ordering::SeqCst)
    }
}

impl Timer for Counting {
    fn wake_after(&self, delay: Duration, waker: Waker) {
        self.set.fetch_add(1, Ordering::SeqCst);
        self.clock.wake_after(delay, Waker::from(Arc::new(Counted(waker, Arc::clone(&self.set)))));
    }
}

struct Counted(Waker, Arc<AtomicUsize>);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn waits_that_a_new_quota_ends_leave_no_alarms() {
    let timer = Counting::default();
    let limiter = timer.limiter(Quota::per_second(1));
    assert!(limiter.allow());
    for round in 0..1_000 {
        limiter.set_quota(Quota::per_day(1));
        let mut waiting = Waiting::new(limiter.wait());
        limiter.set_quota(Quota::per_second(1_000));
        timer.clock.advance(Duration::from_secs(1));
        assert!(waiting.granted());
        while limiter.allow() {}
        assert!(timer.alarms() <= 2, "{} alarms after {round} rounds", timer.alarms());
    }
}

#[test]
fn a_quota_that_goes_up_and_down_sets_few_alarms_however_long_somebody_waits() {
    let timer = Counting::default();
    let limiter = timer.limiter(Quota::per_day(1));
    assert!(limiter.allow());
    let mut waiting = Waiting::new(limiter.wait());
    timer.clock.advance(Duration::from_secs(3_600));
    for round in 0..1_000 {
        limiter.set_quota(Quota::per_second(1));
        limiter.set_quota(Quota::per_day(1));
        timer.clock.advance(Duration::from_secs(1)); // when it would have been due
        assert!(timer.alarms() <= 2, "{} alarms after {round} rounds", timer.alarms());
    }
    limiter.set_quota(Quota::per_second(1));
    timer.clock.advance(Duration::from_secs(1));
    assert!(waiting.granted());
}

#[test]
fn limiters_that_nobody_waits_for_any_more_leave_no_alarms() {
    let timer = Counting::default();
    for _ in 0..1_000 {
        let limiter = timer.limiter(Quota::per_day(1));
        assert!(limiter.allow());
        drop(Waiting::new(limiter.wait()));
    }
    timer.clock.advance(Duration::from_secs(1));
    assert_eq!(timer.alarms(), 0);
}

#[test]
fn a_turn_that_is_far_off_comes_at_its_moment() {
    let timer = Counting::default();
    let limiter = timer.limiter(Quota::per_day(1));
    assert!(limiter.allow());
    let mut waiting = Waiting::new(limiter.wait());
    let day = Duration::from_secs(86_400);
    timer.clock.advance_to(Tick::ZERO + day.checked_sub(Duration::from_nanos(1)).unwrap());
    assert!(!waiting.was_woken() && timer.alarms() == 1);
    timer.clock.advance(Duration::from_nanos(1));
    assert!(waiting.granted() && timer.alarms() == 0);
}

#[test]
fn an_alarm_rings_when_it_is_due_by_the_clock_whatever_time_was_told() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let mut first = Waiting::new(limiter.wait());
    let mut second = Waiting::new(limiter.wait());
    limiter.set_quota(Quota::per_second(0).burst(1));
    clock.advance(Duration::from_secs(10));
    limiter.set_quota_at(Quota::per_second(1).burst(1), at_ms(5_000)); // read before something took long
    clock.advance(Duration::ZERO);
    assert!(first.granted(), "due at six, and it is ten; next alarm {:?}", clock.next_due());
    clock.advance(Duration::from_secs(1));
    assert!(second.granted());
}

#[test]
fn a_reset_serves_those_who_wait_as_far_as_a_fresh_limiter_does() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(2));
    assert!(limiter.allow_n(2));
    let mut line: Vec<_> = (0..3).map(|_| Waiting::new(limiter.wait())).collect();
    limiter.charge(u64::MAX);
    clock.advance(Duration::from_secs(86_400));
    assert!(line.iter().all(|one| !one.was_woken()));
    limiter.reset();
    assert!(line[0].granted() && line[1].granted() && !line[2].was_woken());
    clock.advance(Duration::from_secs(1));
    assert!(line[2].granted());
}

#[test]
fn a_turn_from_before_a_reset_goes_to_nobody_else() {
    let (limiter, clock) = bucket(Quota::per_second(1).burst(1));
    assert!(limiter.allow());
    let unseen = Waiting::new(limiter.wait());
    let (mut second, third) = (Waiting::new(limiter.wait()), Waiting::new(limiter.wait()));
    clock.advance(Duration::from_secs(1));
    assert!(unseen.was_woken());
    limiter.reset();
    assert!(second.granted());
    drop(unseen);
    assert!(!third.was_woken(), "one was there after the reset, and is taken");
}

#[test]
fn a_reset_is_told_to_gates() {
    let (limiter, clock) = bucket(Quota::per_hour(1).burst(1));
    let other = Limiter::builder(Quota::per_second(10)).clock(clock).build();
    assert!(limiter.allow());
    let (gate, woken) = (limiter.and(&other), Arc::new(Counter::default()));
    let waker = Waker::from(Arc::clone(&woken));
    let mut wait = Box::pin(gate.wait());
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    limiter.reset();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn a_change_of_quota_keeps_no_state_that_may_be_large() {
    use tollgate::cell::{Cell, LockedCell};
    use tollgate::{Ask, SlidingLog};
    let cell = LockedCell::new(SlidingLog::new(Quota::per_second(10)));
    let _ = cell.take(Tick::ZERO, Ask::now(4));
    let retuned = cell.retune(Tick::ZERO, Quota::per_second(5));
    assert_eq!((retuned.old.1, retuned.new.1), Default::default(), "a limiter keeps eight of these");
    cell.open();
    assert_eq!(cell.quick_peek(Tick::ZERO, Ask::now(0)).unwrap().remaining(), 1);
}

/// A timer that panics the first time.
#[derive(Debug, Default)]
struct Unreliable {
    clock: ManualClock,
    has_panicked: AtomicBool,
}

impl Timer for Unreliable {
    fn wake_after(&self, delay: Duration, waker: Waker) {
        assert!(self.has_panicked.swap(true, Ordering::SeqCst), "a timer that panics: expected in this test");
        self.clock.wake_after(delay, waker);
    }
}

#[test]
fn a_timer_that_panics_leaves_nobody_in_line_who_is_gone() {
    let timer = Unreliable::default();
    let clock = timer.clock.clone();
    let limiter = Limiter::builder(Quota::per_second(1)).clock(clock.clone()).timer(timer).build();
    assert!(limiter.allow());
    let mut wait = Box::pin(limiter.wait());
    let poll = || wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
    drop(wait);
    assert_eq!(limiter.waiting(), 0);
    let mut next = Waiting::new(limiter.wait());
    clock.advance(Duration::from_secs(1));
    assert!(next.granted(), "there is an alarm for it, and nobody before it");
}
