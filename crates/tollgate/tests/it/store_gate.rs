//! Limiters and gates over a store.

use std::error::Error;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::store::{
    Answer, Busy, Denied, Gate, Hit, Limiter, MemoryStore, Mode, Rule, Store, StoreError, Top, Usage,
};
use tollgate::{Kind, ManualClock, Quota};

type Manual = MemoryStore<ManualClock>;

fn manual() -> (ManualClock, Manual) {
    let clock = ManualClock::new();
    (clock.clone(), MemoryStore::builder().clock(clock).build())
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// What is decided in process is there at once.
fn now<F: Future>(future: F) -> F::Output {
    match poll(&mut pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn left(answer: &Answer) -> Vec<u64> {
    answer.each().iter().map(|said| said.decision.remaining()).collect()
}

#[test]
fn a_limiter_has_the_verbs_of_one_in_process() -> Result<(), StoreError> {
    let (clock, store) = manual();
    let limiter = Limiter::new(&store, &Rule::new("d", "n", Quota::per_second(10)));
    assert!(now(limiter.allow("ann"))?);
    assert_eq!(left(&now(limiter.check_n("ann", 4))?), [5]);
    assert_eq!(left(&now(limiter.peek("ann"))?), [4]);
    assert_eq!(left(&now(limiter.charge("ann", 7))?), [0]);
    let refused = now(limiter.check("ann"))?;
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(300)), "two are owed, and one is wanted");
    assert_eq!(left(&now(limiter.refund("ann", 5))?), [3]);
    clock.advance(Duration::from_secs(1));
    assert!(now(limiter.check_n("ann", 10))?.is_admitted());
    assert!(!now(limiter.allow("ann"))? && now(limiter.allow("bob"))?);
    assert!(now(limiter.reset("ann"))? && !now(limiter.reset("cid"))?);
    assert_eq!(left(&now(limiter.check("ann"))?), [9]);
    let elsewhere = Limiter::new(&store, &Rule::new("d", "n", Quota::per_second(10)));
    assert_eq!(left(&now(elsewhere.check("ann"))?), [8], "equal rules are the same limit");
    Ok(())
}

#[test]
fn a_gate_takes_of_all_its_limits_or_of_none() -> Result<(), StoreError> {
    let (_, store) = manual();
    let wide = Rule::new("d", "wide", Quota::per_minute(100));
    let narrow = Rule::new("d", "narrow", Quota::per_minute(10));
    let gate = Gate::new(&store, [&wide, &narrow]);
    assert!(now(gate.allow(["ann", ""]))?);
    assert_eq!(left(&now(gate.check_n([("ann", 50), ("", 5)]))?), [49, 4]);
    let refused = now(gate.check_n([("ann", 1), ("", 5)]))?;
    assert!(!refused.is_admitted());
    assert_eq!(refused.decided_by().unwrap().hit, 1);
    assert_eq!(left(&now(gate.peek(["ann", ""]))?), [48, 3], "nothing was taken of the other");
    assert_eq!(left(&now(gate.check(["bob", ""]))?), [99, 3]);
    assert_eq!(left(&now(gate.charge_n([("ann", 49), ("", 3)]))?), [0, 0]);
    assert_eq!(left(&now(gate.refund_n([("ann", 9), ("", 1)]))?), [9, 1]);
    assert_eq!(now(gate.reset(["ann", "nobody"]))?, [true, false]);
    assert_eq!(left(&now(gate.peek_n([("ann", 0), ("", 0)]))?), [100, 1]);
    Ok(())
}

#[test]
fn a_permit_is_settled_with_what_it_cost() -> Result<(), Box<dyn Error>> {
    let (_, store) = manual();
    let rules = [("a", 100), ("b", 10)].map(|(name, n)| Rule::new("d", name, Quota::per_minute(n)));
    let gate = Gate::new(&store, rules.each_ref());
    let permit = now(gate.acquire_n([("k", 60), ("k", 6)]))?;
    assert_eq!(left(permit.answer()), [40, 4]);
    let Err(Denied::ByLimit(refused)) = now(gate.acquire_n([("k", 1), ("k", 5)])) else { panic!() };
    assert_eq!(refused.decided_by().unwrap().hit, 1);
    now(permit.settle([25, 7]))?;
    assert_eq!(left(&now(gate.peek_n([("k", 0), ("k", 0)]))?), [75, 3]);
    drop(now(gate.acquire_n([("k", 5), ("k", 3)]))?);
    assert_eq!(left(&now(gate.peek_n([("k", 0), ("k", 0)]))?), [70, 0], "what is not settled stays taken");
    Ok(())
}

#[test]
fn whoever_waits_goes_on_when_it_was_told_to() {
    let (clock, store) = manual();
    let limiter = Limiter::new(&store, &Rule::new("d", "n", Quota::per_second(2))).clock(clock.clone());
    assert_eq!(left(&now(limiter.wait_n("k", 2, Duration::ZERO)).unwrap()), [0]);
    let mut first = pin!(limiter.wait("k", Duration::from_secs(10)));
    let mut second = pin!(limiter.wait("k", Duration::from_secs(1)));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    clock.advance(Duration::from_nanos(499_999_999));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    clock.advance(Duration::from_nanos(1));
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(_))), "there is no line");
    assert!(poll(&mut first).is_pending());
    clock.advance(Duration::from_millis(500));
    assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
}

#[test]
fn a_wait_that_is_too_long_is_refused_at_once() {
    let (clock, store) = manual();
    let limiter = Limiter::new(&store, &Rule::new("d", "n", Quota::per_second(2))).clock(clock.clone());
    assert!(now(limiter.wait_n("k", 2, Duration::ZERO)).is_ok());
    let refused = now(limiter.wait("k", Duration::from_millis(499))).unwrap_err();
    assert_eq!(refused.to_string(), "limit reached: retry after 500ms");
    let refused = now(limiter.wait_n("k", 3, Duration::MAX)).unwrap_err();
    assert_eq!(refused.to_string(), "never allowed: the cost exceeds a limit, or a rate is zero");
    // Somebody else was faster, and now it would be too late.
    let mut slow = pin!(limiter.wait("k", Duration::from_millis(900)));
    assert!(poll(&mut slow).is_pending());
    clock.advance(Duration::from_millis(500));
    assert!(now(limiter.allow("k")).unwrap());
    assert!(matches!(poll(&mut slow), Poll::Ready(Err(Denied::ByLimit(answer)))
        if answer.retry_after() == Some(Duration::from_millis(500))));
}

#[test]
fn a_queue_is_waited_for() {
    let (clock, store) = manual();
    let rule = Rule::new("d", "n", Quota::per_second(1).burst(5)).with_kind(Kind::LeakyQueue);
    let limiter = Limiter::new(&store, &rule).clock(clock.clone());
    assert!(now(limiter.wait("k", Duration::ZERO)).is_ok());
    let mut next = pin!(limiter.wait("k", Duration::ZERO));
    assert!(poll(&mut next).is_pending());
    clock.advance(Duration::from_millis(999));
    assert!(poll(&mut next).is_pending());
    clock.advance(Duration::from_millis(1));
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
}

/// A store that is not there.
#[derive(Clone)]
struct Away(Manual);

fn away<T>() -> Result<T, StoreError> {
    Err(StoreError::transient("it is away"))
}

impl Store for Away {
    type Limit = <Manual as Store>::Limit;
    type Permit = <Manual as Store>::Permit;

    fn open(&self, rule: &Rule) -> Self::Limit {
        self.0.open(rule)
    }

    async fn decide(&self, _: Mode, _: &[Hit<'_, Self::Limit>]) -> Result<Answer, StoreError> {
        away()
    }

    async fn acquire(
        &self,
        _: &[Hit<'_, Self::Limit>],
    ) -> Result<(Answer, Option<Self::Permit>), StoreError> {
        away()
    }

    fn settle(&self, _: &mut Self::Permit, _: &[u64]) -> impl Future<Output = Result<(), StoreError>> + Send {
        ready(away())
    }

    async fn reset(&self, _: &Self::Limit, _: &[u8]) -> Result<bool, StoreError> {
        away()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        away()
    }

    async fn busiest(&self, _: Top, _: usize) -> Result<Vec<Busy>, StoreError> {
        away()
    }
}

#[test]
fn a_store_that_cannot_tell_is_no_refusal() {
    let limiter = Limiter::new(&Away(manual().1), &Rule::new("d", "n", Quota::per_second(2)));
    assert!(now(limiter.allow("k")).is_err() && now(limiter.reset("k")).is_err());
    for denied in [now(limiter.acquire("k", 1)).map(drop), now(limiter.wait("k", Duration::MAX)).map(drop)] {
        let denied = denied.unwrap_err();
        assert_eq!(denied.to_string(), "store unavailable");
        assert_eq!(denied.source().unwrap().to_string(), "it is away");
    }
}
