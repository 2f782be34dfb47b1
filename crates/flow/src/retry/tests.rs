use std::cell::{Cell, RefCell};
use std::io::{Error, ErrorKind};

use proptest::prelude::*;
use tollgate::ManualClock;

use super::*;
use crate::{Ended, Fault};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// An error that says what it was told to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told(Again);

impl Transient for Told {
    fn again(&self) -> Again {
        self.0
    }
}

const LATER: Told = Told(Again::Later);

/// Without jitter, so that times can be computed by hand: 500, 750, 1125 ms and so on.
fn plain() -> Retry {
    Retry::new().backoff(Backoff::new().jitter(Jitter::None))
}

async fn failing<J: Judge<Told>, N: Notify<Told>>(retry: &Retry<J, N>, error: Told) -> GaveUp<Told> {
    retry.run(async |_| Err::<(), _>(error)).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_success_is_returned_and_nothing_is_tried_again() {
    let calls = Cell::new(0);
    let answer = plain()
        .run(|attempt| {
            calls.set(calls.get() + 1);
            async move { Ok::<_, Told>((attempt.number, attempt.elapsed)) }
        })
        .await;
    assert_eq!(answer, Ok((1, Duration::ZERO)));
    assert_eq!(calls.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn tries_come_after_the_waits_of_the_schedule() {
    let seen = RefCell::new(Vec::new());
    let answer = plain()
        .run(|attempt| {
            seen.borrow_mut().push((attempt.number, attempt.elapsed));
            async move { if attempt.number < 4 { Err(LATER) } else { Ok(attempt.number) } }
        })
        .await;
    assert_eq!(answer, Ok(4));
    assert_eq!(seen.into_inner(), [(1, Duration::ZERO), (2, 500 * MS), (3, 1_250 * MS), (4, 2_375 * MS)]);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_ends_it_at_once() {
    let gave_up = failing(&plain(), Told(Again::Never)).await;
    let expected =
        GaveUp { why: Why::Permanent, error: Some(Told(Again::Never)), tries: 1, took: Duration::ZERO };
    assert_eq!(gave_up, expected);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_knows_is_tried_again() {
    assert_eq!(failing(&plain().tries(3), Told(Again::Unknown)).await.tries, 3);
}

#[tokio::test(start_paused = true)]
async fn there_are_no_more_tries_than_allowed() {
    let gave_up = failing(&plain().tries(3), LATER).await;
    assert_eq!(gave_up, GaveUp { why: Why::Tries, error: Some(LATER), tries: 3, took: 1_250 * MS });
    assert_eq!(failing(&plain().tries(1), LATER).await.tries, 1);
    assert_eq!(failing(&plain().tries(0), LATER).await.tries, 1, "there is always a first");
}

#[tokio::test(start_paused = true)]
async fn by_default_it_goes_on_for_15_minutes() {
    // 24 waits, as `Backoff` tests: 12 of the curve, 12 of a minute. The curve takes (500 · 1.5^12 - 500) / 0.5 ms.
    let gave_up = failing(&plain(), LATER).await;
    assert_eq!((gave_up.why, gave_up.tries), (Why::Elapsed, 25));
    // tokio sleeps in whole milliseconds, rounded up.
    let least = 128_746 + 12 * 60_000;
    assert!((least..=least + 12).contains(&gave_up.took.as_millis()), "{:?}", gave_up.took);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_the_tries_themselves_counts() {
    let time = Time::tokio();
    let retry = plain().backoff(Backoff::new().jitter(Jitter::None).total(10 * SECOND));
    let slow = async |_: Attempt| {
        time.sleep(6 * SECOND).await;
        Err::<(), _>(LATER)
    };
    let gave_up = retry.run(slow).await.unwrap_err();
    // The second begins at 6.5 s; a third would begin at 13.25 s.
    assert_eq!((gave_up.why, gave_up.tries, gave_up.took), (Why::Elapsed, 2, 12_500 * MS));
}

#[tokio::test(start_paused = true)]
async fn a_stated_wait_is_kept_and_the_jitter_comes_on_top() {
    let stated = Told(Again::After(30 * SECOND));
    assert_eq!(failing(&plain().tries(2), stated).await.took, 30 * SECOND);
    for seed in 0..20 {
        let took = failing(&Retry::new().seeded(seed).tries(2), stated).await.took;
        // tokio wakes at whole milliseconds, never early.
        assert!(took >= 30 * SECOND && took <= 30_501 * MS, "{took:?}");
    }
    // Shorter than the schedule's own wait, it changes nothing.
    assert_eq!(failing(&plain().tries(2), Told(Again::After(MS))).await.took, 500 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_stated_wait_beyond_the_total_ends_it_at_once() {
    let gave_up = failing(&plain(), Told(Again::After(901 * SECOND))).await;
    assert_eq!((gave_up.why, gave_up.tries, gave_up.took), (Why::Elapsed, 1, Duration::ZERO));
    let gave_up = failing(&plain(), Told(Again::After(Duration::MAX))).await;
    assert_eq!((gave_up.why, gave_up.tries), (Why::Elapsed, 1));
}

#[tokio::test(start_paused = true)]
async fn the_budget_exhausted_ends_it() {
    let half = Allowance { share: 0.5, per_second: 0, ..Allowance::default() };
    let retry = plain().budget(RetryBudget::of(Time::tokio(), half));
    // Two calls share the one retry that they earn together: the first asks for it when it has half.
    let (first, second) = tokio::join!(failing(&retry, LATER), failing(&retry, LATER));
    assert_eq!(first, GaveUp { why: Why::Budget, error: Some(LATER), tries: 1, took: Duration::ZERO });
    assert_eq!(second, GaveUp { why: Why::Budget, error: Some(LATER), tries: 2, took: 500 * MS });
}

#[tokio::test(start_paused = true)]
async fn without_a_budget_there_is_no_such_end() {
    let none = Allowance { share: 0.0, per_second: 0, ..Allowance::default() };
    let retry = plain().budget(RetryBudget::of(Time::tokio(), none)).tries(5);
    assert_eq!(failing(&retry, LATER).await.why, Why::Budget);
    assert_eq!(failing(&retry.unbudgeted(), LATER).await.why, Why::Tries);
}

#[tokio::test(start_paused = true)]
async fn what_ends_for_another_reason_costs_the_budget_nothing() {
    let budget =
        RetryBudget::of(Time::tokio(), Allowance { share: 1.0, per_second: 0, ..Allowance::default() });
    let retry = plain().budget(budget.clone()).tries(1);
    failing(&retry, LATER).await;
    failing(&retry, Told(Again::Never)).await;
    failing(&retry.tries(9), Told(Again::After(Duration::MAX))).await;
    assert_eq!(budget.balance(), 3, "a credit of each call, none of them used");
}

#[tokio::test(start_paused = true)]
async fn each_failure_is_told_with_what_comes_next() {
    let told = RefCell::new(Vec::new());
    let retry = plain()
        .tries(3)
        .judge(|error: &&str| if *error == "busy" { Again::Later } else { Again::Never })
        .notify(|setback: &Setback<'_, &'static str>| {
            told.borrow_mut().push((setback.number, setback.elapsed, *setback.error, setback.next));
        });
    retry.run(async |_| Err::<(), _>("busy")).await.unwrap_err();
    retry.run(async |_| Err::<(), _>("gone")).await.unwrap_err();
    let expected = [
        (1, Duration::ZERO, "busy", Ok(500 * MS)),
        (2, 500 * MS, "busy", Ok(750 * MS)),
        (3, 1_250 * MS, "busy", Err(Why::Tries)),
        (1, Duration::ZERO, "gone", Err(Why::Permanent)),
    ];
    assert_eq!(*told.borrow(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_waits_the_same() {
    let took = async |seed| failing(&Retry::new().seeded(seed).tries(10), LATER).await.took;
    assert_eq!(took(1).await, took(1).await);
    assert_ne!(took(1).await, took(2).await);
}

#[tokio::test(start_paused = true)]
async fn clones_do_not_draw_the_same_jitter() {
    let retry = Retry::new().seeded(1).tries(10);
    let (a, b) = (retry.clone(), retry);
    assert_ne!(failing(&a, LATER).await.took, failing(&b, LATER).await.took);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_shorter_than_the_next_backoff_ends_it_at_once() {
    let scope = Scope::new(Time::tokio()).within(SECOND);
    let gave_up = failing(&plain().within(&scope), LATER).await;
    // The second try is at 500 ms; the third would be at 1250 ms.
    let why = Why::Ended(Ended::TooShort { needed: 750 * MS, left: 500 * MS });
    assert_eq!(gave_up, GaveUp { why, error: Some(LATER), tries: 2, took: 500 * MS });
}

#[tokio::test(start_paused = true)]
async fn a_backoff_that_would_end_with_the_deadline_leaves_no_time_for_a_try() {
    let scope = Scope::new(Time::tokio()).within(500 * MS);
    let gave_up = failing(&plain().within(&scope), LATER).await;
    assert_eq!((gave_up.tries, gave_up.took), (1, Duration::ZERO));
    let scope = Scope::new(Time::tokio()).within(501 * MS);
    assert_eq!(failing(&plain().within(&scope), LATER).await.tries, 2);
}

#[tokio::test(start_paused = true)]
async fn a_stated_wait_beyond_the_deadline_ends_it_at_once() {
    let scope = Scope::new(Time::tokio()).within(10 * SECOND);
    let gave_up = failing(&plain().within(&scope), Told(Again::After(20 * SECOND))).await;
    let why = Why::Ended(Ended::TooShort { needed: 20 * SECOND, left: 10 * SECOND });
    assert_eq!((gave_up.why, gave_up.tries, gave_up.took), (why, 1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_backing_off_it_ends_at_once() {
    let time = Time::tokio();
    let scope = Scope::new(time.clone());
    let cancel = async {
        time.sleep(700 * MS).await; // the second wait is from 500 to 1250 ms
        scope.cancel();
    };
    let retry = plain().within(&scope);
    let (gave_up, ()) = tokio::join!(failing(&retry, LATER), cancel);
    let why = Why::Ended(Ended::Cancelled);
    assert_eq!(gave_up, GaveUp { why, error: Some(LATER), tries: 2, took: 700 * MS });
}

#[tokio::test(start_paused = true)]
async fn the_scope_ends_a_try_that_hangs() {
    let scope = Scope::new(Time::tokio()).within(2 * SECOND);
    let hang = async |attempt: Attempt| match attempt.number {
        1 => Err(LATER),
        _ => std::future::pending::<Result<(), Told>>().await,
    };
    let gave_up = plain().within(&scope).run(hang).await.unwrap_err();
    let why = Why::Ended(Ended::Deadline);
    assert_eq!(gave_up, GaveUp { why, error: Some(LATER), tries: 2, took: 2 * SECOND });
}

#[tokio::test(start_paused = true)]
async fn in_a_scope_that_has_ended_there_is_no_try_at_all() {
    let scope = Scope::new(Time::tokio());
    scope.cancel();
    let gave_up = failing(&plain().within(&scope), LATER).await;
    let expected = GaveUp { why: Why::Ended(Ended::Cancelled), error: None, tries: 0, took: Duration::ZERO };
    assert_eq!(gave_up, expected);
    assert_eq!(gave_up.again(), Again::Never);
}

#[tokio::test(start_paused = true)]
async fn a_scope_without_a_deadline_allows_any_wait() {
    let endless = Backoff::new().jitter(Jitter::None).total(Duration::MAX);
    let retry = plain().backoff(endless).within(&Scope::new(Time::tokio()));
    assert_eq!(retry.leaves_room(Duration::MAX), Ok(()));
}

#[test]
fn the_number_of_tries_does_not_overflow() {
    let retry = Retry::with_time(Time::of(ManualClock::new()));
    let mut work: Work<'_, _, _, Told> = Work::begin(&retry);
    work.tries = u32::MAX - 1;
    assert_eq!(work.next_attempt().unwrap().number, u32::MAX);
    assert_eq!(work.next_attempt().unwrap().number, u32::MAX);
    assert!(work.failed(LATER).is_ok());
    let bounded = retry.clone().tries(u32::MAX);
    assert_eq!(bounded.next(u32::MAX, Again::Later, Duration::ZERO, &mut work.schedule), Err(Why::Tries));
    assert!(bounded.next(u32::MAX - 1, Again::Later, Duration::ZERO, &mut work.schedule).is_ok());
}

#[tokio::test(start_paused = true)]
async fn dropping_it_drops_the_try_it_is_in_and_makes_no_other() {
    let (begun, held) = (Cell::new(0), Arc::new(()));
    let retry = plain();
    let time = Time::tokio();
    let hanging = |_: Attempt| {
        begun.set(begun.get() + 1);
        let guard = Arc::clone(&held);
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok::<(), Told>(())
        }
    };
    assert!(time.timeout(SECOND, retry.run(hanging)).await.is_err());
    assert_eq!((begun.get(), Arc::strong_count(&held)), (1, 1));

    // While it backs off.
    let tries = Cell::new(0);
    let counted = async |_: Attempt| {
        tries.set(tries.get() + 1);
        Err::<(), _>(LATER)
    };
    assert!(time.timeout(600 * MS, retry.run(counted)).await.is_err());
    time.sleep(60 * SECOND).await;
    assert_eq!(tries.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn in_ten_minutes_of_full_outage_retries_add_a_fifth_and_ten_a_second() {
    // 100 calls a second, each of which tries up to five times: four times as much again, were it not for the budget.
    let (time, retry) = (Time::tokio(), Retry::new().seeded(7).tries(5));
    let begun = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..60_000 {
        let (retry, begun) = (retry.clone(), Arc::clone(&begun));
        calls.spawn(async move {
            let refused = || {
                begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                std::future::ready(Err::<(), _>(LATER))
            };
            retry.run(|_| refused()).await.unwrap_err().why
        });
        time.sleep(10 * MS).await;
    }
    let (mut exhausted, mut in_all) = (0, 0);
    while let Some(why) = calls.join_next().await {
        in_all += 1;
        exhausted += u32::from(why.unwrap() == Why::Budget);
    }
    let retries = begun.load(std::sync::atomic::Ordering::Relaxed) - 60_000;
    let most = 60_000 / 5 + 10 * time.now().since(Tick::ZERO).as_secs() + 100;
    assert!(retries <= most + 10, "{retries} retries, {most} allowed, and those of a second just begun");
    assert!(retries + 110 >= most, "{retries} of {most}: the budget is there to be used");
    assert_eq!(in_all, 60_000);
    assert!(exhausted > 50_000, "{exhausted}");
}

#[test]
fn a_closure_judges_errors_of_others() {
    let judge = |error: &std::num::ParseIntError| Again::of(error);
    assert_eq!(judge.judge(&"x".parse::<u8>().unwrap_err()), Again::Unknown);
    assert_eq!(Itself.judge(&Error::from(ErrorKind::TimedOut)), Again::Later);
    assert_eq!(Itself.judge(&Fault::new("no").try_again(Again::Never)), Again::Never);
}

#[test]
fn giving_up_says_why_in_words() {
    let error = Some(Error::from(ErrorKind::TimedOut));
    let gave_up = GaveUp { why: Why::Tries, error, tries: 3, took: 1_250 * MS };
    assert_eq!(gave_up.to_string(), "gave up after 3 tries in 1.2s: no tries left");
    assert_eq!(std::error::Error::source(&gave_up).unwrap().to_string(), "timed out");
    assert_eq!((gave_up.again(), Again::of(&gave_up)), (Again::Later, Again::Later));
    let once = GaveUp::<Error> { why: Why::Permanent, error: None, tries: 1, took: Duration::ZERO };
    assert_eq!(once.to_string(), "gave up after 1 try in 0.0ns: trying again will not help");
}

#[test]
fn a_fault_that_was_given_up_is_the_last_one_and_knows_how_often() {
    let last = Fault::new("the database does not answer").try_again(Again::Later);
    let id = last.id();
    let gave_up = GaveUp { why: Why::Budget, error: Some(last), tries: 3, took: 1_500 * MS };
    let fault = Fault::from(gave_up);
    assert_eq!((fault.id(), fault.again()), (id, Again::Later));
    let context: Vec<_> = fault.context().collect();
    let because = ("gave up because", "too many calls are being retried");
    assert_eq!(context, [("tries", "3"), ("took", "1.5s"), because]);
}

#[test]
fn what_was_given_up_before_the_first_try_was_over_says_why_the_scope_ended() {
    let ended = Why::Ended(Ended::Deadline);
    let gave_up = GaveUp::<Error> { why: ended, error: None, tries: 1, took: SECOND };
    assert_eq!(gave_up.to_string(), "gave up after 1 try in 1.0s: deadline exceeded");
    assert_eq!((gave_up.again(), Again::of(&gave_up)), (Again::Later, Again::Later));
    let fault = Fault::from(GaveUp::<Fault> { why: ended, error: None, tries: 1, took: SECOND });
    assert!(!fault.is_unexpected() && fault.to_string().starts_with("deadline exceeded"), "{fault}");
}

proptest! {
    #[test]
    fn however_it_fails_it_ends_within_its_limits(
        tries in 1..20_u32, total_ms in 0..100_000_u64, waits_ms in prop::collection::vec(0..20_000_u64, 1..20), seed: u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let gave_up = runtime.block_on(async {
            let total = Duration::from_millis(total_ms);
            let retry = Retry::new().tries(tries).seeded(seed).backoff(Backoff::new().total(total));
            let wait = |number: u32| Duration::from_millis(waits_ms[number as usize % waits_ms.len()]);
            retry.run(async |attempt| Err::<(), _>(Told(Again::After(wait(attempt.number))))).await.unwrap_err()
        });
        prop_assert!(gave_up.tries <= tries);
        // tokio sleeps in whole milliseconds, rounded up.
        prop_assert!(gave_up.took <= Duration::from_millis(total_ms + 20));
        prop_assert!(gave_up.why != Why::Tries || gave_up.tries == tries);
        let stated: u64 = (1..gave_up.tries).map(|number| waits_ms[number as usize % waits_ms.len()]).sum();
        prop_assert!(gave_up.took >= Duration::from_millis(stated));
    }
}
