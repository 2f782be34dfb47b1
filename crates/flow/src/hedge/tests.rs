use std::cell::{Cell, RefCell};
use std::future::pending;

use tollgate::ManualClock;

use super::*;
use crate::retry::Transient;
use crate::{Fault, Retry};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told(Again, &'static str);

impl Transient for Told {
    fn again(&self) -> Again {
        self.0
    }
}

/// A handler that answers, or fails, after so many milliseconds.
type Handler = (u64, Result<&'static str, Told>);

const fn good(ms: u64, name: &'static str) -> Handler {
    (ms, Ok(name))
}

const fn bad(ms: u64, name: &'static str) -> Handler {
    (ms, Err(Told(Again::Later, name)))
}

/// What came of it, when each copy was started and when it was over, in milliseconds.
async fn race<J: Judge<Told>>(
    hedge: &Hedge<J>,
    handlers: impl IntoIterator<Item = Handler>,
) -> (Result<&'static str, AllFailed<Told>>, Vec<u64>, u64) {
    let time = Time::tokio();
    let starts = RefCell::new(Vec::new());
    let answer = hedge
        .run(handlers, |(ms, answer)| {
            starts.borrow_mut().push(time.now().as_nanos() / 1_000_000);
            let sleep = time.sleep(Duration::from_millis(ms));
            async move {
                sleep.await;
                answer
            }
        })
        .await;
    (answer, starts.into_inner(), time.now().as_nanos() / 1_000_000)
}

fn free(delay_ms: u64) -> Hedge {
    Hedge::new().after(Duration::from_millis(delay_ms)).unbudgeted()
}

#[tokio::test(start_paused = true)]
async fn a_quick_answer_needs_no_copy() {
    let (answer, starts, end) = race(&free(50), [good(20, "a"), good(1, "b")]).await;
    assert_eq!((answer, starts, end), (Ok("a"), vec![0], 20));
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_is_overtaken_by_the_second() {
    let (answer, starts, end) = race(&free(50), [good(900, "a"), good(20, "b")]).await;
    assert_eq!((answer, starts, end), (Ok("b"), vec![0, 50], 70));
}

#[tokio::test(start_paused = true)]
async fn each_further_copy_comes_after_another_delay() {
    let handlers = [good(900, "a"), good(900, "b"), good(900, "c"), good(5, "d"), good(5, "e")];
    let (answer, starts, end) = race(&free(50), handlers).await;
    assert_eq!((answer, starts, end), (Ok("d"), vec![0, 50, 100, 150], 155));
}

#[tokio::test(start_paused = true)]
async fn the_first_can_still_win_after_the_second_was_started() {
    let (answer, starts, end) = race(&free(50), [good(60, "a"), good(20, "b")]).await;
    assert_eq!((answer, starts, end), (Ok("a"), vec![0, 50], 60));
}

#[tokio::test(start_paused = true)]
async fn of_two_answers_at_once_the_earlier_copy_wins() {
    let (answer, ..) = race(&free(50), [good(70, "a"), good(20, "b")]).await;
    assert_eq!(answer, Ok("a"));
}

#[tokio::test(start_paused = true)]
async fn all_at_once_the_fastest_of_ten_wins() {
    let handlers = (0..10).map(|n| good(100 - 10 * n, if n == 9 { "last" } else { "other" }));
    let (answer, starts, end) = race(&Hedge::new().at_once(), handlers).await;
    assert_eq!((answer, starts, end), (Ok("last"), vec![0; 10], 10));
}

#[tokio::test(start_paused = true)]
async fn all_at_once_within_a_budget_starts_what_it_pays_for() {
    let budget = HedgeBudget::new(1.0);
    (0..2).for_each(|_| budget.deposit());
    let hedge = Hedge::new().at_once().budget(budget);
    let (answer, starts, _) = race(&hedge, std::iter::repeat_n(good(10, "x"), 10)).await;
    // Two were saved up, and the call itself earns a third; the first copy is free.
    assert_eq!((answer, starts), (Ok("x"), vec![0; 4]));
}

#[tokio::test(start_paused = true)]
async fn a_failure_does_not_win_and_starts_the_next_at_once() {
    let (answer, starts, end) = race(&free(50), [bad(10, "a"), good(20, "b")]).await;
    assert_eq!((answer, starts, end), (Ok("b"), vec![0, 10], 30));
    // The delay counts from the copy that was started last.
    let (answer, starts, end) = race(&free(50), [bad(10, "a"), good(200, "b"), good(20, "c")]).await;
    assert_eq!((answer, starts, end), (Ok("c"), vec![0, 10, 60], 80));
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_second_leaves_the_first_running() {
    let (answer, starts, end) = race(&free(50), [good(100, "a"), bad(10, "b")]).await;
    assert_eq!((answer, starts, end), (Ok("a"), vec![0, 50], 100));
}

#[tokio::test(start_paused = true)]
async fn when_all_fail_every_error_is_there_in_the_order_of_failing() {
    let (answer, starts, end) = race(&free(50), [bad(100, "a"), bad(10, "b"), bad(60, "c")]).await;
    let failed = answer.unwrap_err();
    let names: Vec<_> = failed.errors.iter().map(|told| told.1).collect();
    assert_eq!((names, starts, end), (vec!["b", "a", "c"], vec![0, 50, 60], 120));
    assert_eq!(failed.into_last().unwrap().1, "c");
}

#[tokio::test(start_paused = true)]
async fn no_handler_is_an_error_and_costs_nothing() {
    let (answer, starts, end) = race(&free(50), []).await;
    assert_eq!((answer, starts, end), (Err(AllFailed { errors: vec![] }), vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn endless_handlers_that_all_fail_end_after_ten_copies() {
    let (answer, starts, _) = race(&free(0), std::iter::repeat(bad(0, "x"))).await;
    assert_eq!((answer.unwrap_err().errors.len(), starts.len()), (10, 10));
    let (answer, starts, _) = race(&free(0).copies(3), std::iter::repeat(bad(0, "x"))).await;
    assert_eq!((answer.unwrap_err().errors.len(), starts.len()), (3, 3));
    let (_, starts, _) = race(&Hedge::new().at_once().copies(0), std::iter::repeat(bad(0, "x"))).await;
    assert_eq!(starts.len(), 1, "there is always a first");
}

#[tokio::test(start_paused = true)]
async fn a_push_back_starts_no_further_copy_but_those_on_their_way_may_win() {
    for again in [Again::Never, Again::After(SECOND)] {
        let refused: Handler = (10, Err(Told(again, "no")));
        let (answer, starts, _) = race(&free(50), [refused, good(1, "b")]).await;
        assert_eq!((answer.unwrap_err().errors, starts.len()), (vec![Told(again, "no")], 1));
        let (answer, starts, _) = race(&free(50), [good(200, "a"), refused, good(1, "c")]).await;
        assert_eq!((answer, starts.len()), (Ok("a"), 2));
    }
    let stubborn = free(50).judge(|_: &Told| Again::Later);
    let refused: Handler = (10, Err(Told(Again::Never, "no")));
    assert_eq!(race(&stubborn, [refused, good(1, "b")]).await.0, Ok("b"));
}

#[tokio::test(start_paused = true)]
async fn with_the_budget_exhausted_the_call_goes_on_with_what_it_has() {
    let hedge = Hedge::new().after(50 * MS);
    let (answer, starts, end) = race(&hedge, [good(900, "a"), good(20, "b")]).await;
    assert_eq!((answer, starts, end), (Ok("a"), vec![0], 900));
    let (answer, starts, _) = race(&hedge, [bad(10, "a"), good(20, "b")]).await;
    assert_eq!((answer.unwrap_err().errors.len(), starts.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn without_another_handler_nothing_is_paid() {
    let budget = HedgeBudget::new(1.0);
    let hedge = Hedge::new().after(50 * MS).budget(budget.clone());
    let (slow, _, _) = race(&hedge, [good(900, "a")]).await;
    let (failed, _, _) = race(&hedge, [bad(10, "a")]).await;
    assert!(slow.is_ok() && failed.is_err());
    assert_eq!(budget.balance(), 2, "what the two calls earned");
}

#[tokio::test(start_paused = true)]
async fn what_loses_and_what_is_cancelled_while_hedging_is_dropped() {
    let (held, time) = (Arc::new(()), Time::tokio());
    let hang = |is_good: bool| {
        let guard = Arc::clone(&held);
        async move {
            if is_good {
                return Ok::<_, Told>(());
            }
            pending::<()>().await;
            drop(guard);
            unreachable!("it hangs")
        }
    };
    free(50).run([false, false, true], hang).await.unwrap();
    assert_eq!(Arc::strong_count(&held), 1, "the losers are gone");

    let hedge = free(50);
    let mut call = Box::pin(hedge.run([false, false, false], hang));
    assert!(time.timeout(120 * MS, call.as_mut()).await.is_err());
    assert_eq!(Arc::strong_count(&held), 4, "three copies on their way");
    drop(call);
    assert_eq!(Arc::strong_count(&held), 1);
}

/// Calls that all take or fail in the same way, ten at a time; how many copies they made.
async fn outage(hedge: &Hedge, calls: u32, handler: Handler) -> u32 {
    let copies = Cell::new(0);
    let time = Time::tokio();
    for _ in 0..calls {
        let asked = hedge.run(std::iter::repeat_n(handler, 10), |(ms, answer)| {
            copies.set(copies.get() + 1);
            let sleep = time.sleep(Duration::from_millis(ms));
            async move {
                sleep.await;
                answer
            }
        });
        let _ = asked.await;
    }
    copies.get()
}

#[tokio::test(start_paused = true)]
async fn in_a_full_outage_copies_add_at_most_5_percent() {
    // 20 000 calls at 30 ms each are ten minutes.
    assert_eq!(outage(&Hedge::new(), 20_000, bad(30, "down")).await, 21_000);
    assert_eq!(outage(&Hedge::new(), 20_000, bad(0, "refused")).await, 21_000);
}

#[tokio::test(start_paused = true)]
async fn in_a_brown_out_copies_add_at_most_5_percent() {
    assert_eq!(outage(&Hedge::new().after(50 * MS), 6_000, good(100, "slow")).await, 6_300);
    assert_eq!(outage(&free(50), 100, good(100, "slow")).await, 200, "without a budget each is sent twice");
}

#[tokio::test(start_paused = true)]
async fn the_delay_is_the_longest_until_a_window_is_known_and_then_its_95th_percentile() {
    let hedge = Hedge::new();
    assert_eq!(hedge.delay(), 10 * SECOND);
    // 200 calls of 1 to 100 ms: the second hundred is over a second after the window opened, and more than a hundred.
    for n in 0..200_u64 {
        assert_eq!(race(&hedge, [good(1 + n % 100, "a")]).await.0, Ok("a"));
    }
    // 5.05 s for each hundred; the window closes with the first call that makes it a hundred.
    let delay = hedge.delay();
    assert!(delay >= 95 * MS && delay <= Duration::from_micros(95_951), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn the_delay_stays_within_its_bounds() {
    for (ms, least, most, expected) in [(1, 20, 50, 20), (500, 20, 50, 50), (30, 30, 30, 30)] {
        let hedge = Hedge::new().between(least * MS, most * MS);
        assert_eq!(hedge.delay(), most * MS);
        outage(&hedge, 1_000, good(ms, "a")).await;
        assert_eq!(hedge.delay(), expected * MS);
    }
}

#[test]
fn bounds_out_of_order_are_refused() {
    let hedge = || Hedge::with_time(Time::of(ManualClock::new())).between(2 * MS, MS);
    let panic = std::panic::catch_unwind(hedge).unwrap_err();
    let message = panic.downcast_ref::<&str>().expect("a plain message");
    assert_eq!(*message, "the least delay of a hedge is more than the most");
}

#[tokio::test(start_paused = true)]
async fn a_first_that_was_overtaken_counts_with_the_time_it_had() {
    // One call in ten has a first copy of 10 s, overtaken by a second of 10 ms. Were those left out, the percentile would
    // be 20 ms; were they waited for, 10 s. They count as the delay and 10 ms: more than the delay, as they should.
    let hedge = Hedge::new().between(MS, 100 * MS).unbudgeted();
    for n in 0..1_000 {
        let first = if n % 10 == 0 { good(10_000, "slow") } else { good(20, "a") };
        let winner = if n % 10 == 0 { "b" } else { "a" };
        assert_eq!(race(&hedge, [first, good(10, "b")]).await.0, Ok(winner));
    }
    assert_eq!(hedge.delay(), 100 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_percentile_once_found_is_kept_while_hedging() {
    // Times from 1 to 100 ms, evenly; hedging cuts the slowest short, and the percentile must not sink for it.
    let hedge = Hedge::new().unbudgeted();
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        assert!(race(&hedge, [good(rng.u64(1..=100), "a"), good(1, "b")]).await.0.is_ok());
    }
    let delay = hedge.delay();
    assert!(delay > 90 * MS && delay < 99 * MS, "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn with_one_straggler_in_fifty_the_tail_is_cut_for_less_than_5_percent_more() {
    let (hedge, mut rng) = (Hedge::new(), fastrand::Rng::with_seed(7));
    let mut draw = || if rng.u8(..50) == 0 { good(800, "slow") } else { good(rng.u64(10..=30), "quick") };
    let (mut times, mut copies) = (Vec::new(), 0);
    for _ in 0..5_000 {
        let (answer, starts, took) = race(&hedge, [draw(), draw()]).await;
        assert!(answer.is_ok());
        copies += starts.len();
        times.push(took);
    }
    times.sort_unstable();
    // Of the first two hundred calls, all that is known is that nothing is known: four of them may well take 800 ms.
    assert!(times[4_950] < 70, "p99 is {} ms, without hedging 800", times[4_950]);
    assert!(copies > 5_000 && copies <= 5_250, "{copies}");
}

#[tokio::test]
async fn a_call_can_be_made_in_a_task_of_its_own() {
    let hedge = Hedge::new().at_once();
    let call = async move {
        hedge.run(1..=3, async |n| if n == 2 { Ok(n) } else { Err(Told(Again::Later, "")) }).await
    };
    assert_eq!(tokio::spawn(call).await.unwrap(), Ok(2));
}

#[tokio::test(start_paused = true)]
async fn failures_and_calls_dropped_early_do_not_count() {
    let (hedge, time) = (Hedge::new(), Time::tokio());
    outage(&hedge, 500, bad(5, "down")).await;
    for _ in 0..500 {
        assert!(time.timeout(5 * MS, race(&hedge, [good(900, "a")])).await.is_err());
    }
    assert_eq!(hedge.delay(), 10 * SECOND, "nothing is known");
    for _ in 0..200 {
        assert!(time.timeout(20 * SECOND, race(&hedge, [good(60_000, "a")])).await.is_err());
    }
    assert_eq!(hedge.delay(), 10 * SECOND, "it is known to be longer than the longest");
    assert!(hedge.known().p95().is_some_and(|p95| p95 >= 20 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn clones_share_what_is_known_and_the_budget() {
    let hedge = Hedge::new();
    let clone = hedge.clone();
    outage(&hedge, 400, good(10, "a")).await;
    assert_eq!(clone.delay(), hedge.delay());
    assert!(clone.delay() < 11 * MS);
    assert_eq!(clone.budget.as_ref().map(HedgeBudget::balance), Some(10));
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_around_a_hedge() {
    let (retry, hedge, round) = (Retry::new().tries(3), free(50), Cell::new(0));
    let answer = retry
        .run(async |attempt| {
            round.set(attempt.number);
            let answer = if attempt.number < 3 { bad(5, "busy") } else { good(5, "back") };
            race(&hedge, [answer, answer]).await.0
        })
        .await;
    assert_eq!((answer.unwrap(), round.get()), ("back", 3));
}

#[test]
fn when_all_failed_the_words_and_the_fault_say_so() {
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
    let failed = |n| AllFailed { errors: std::iter::repeat_with(late).take(n).collect() };
    assert_eq!(failed(0).to_string(), "no handler for the request");
    assert_eq!(failed(1).to_string(), "the only copy of the request failed");
    assert_eq!(failed(3).to_string(), "all 3 copies of the request failed");
    assert_eq!(std::error::Error::source(&failed(3)).unwrap().to_string(), "timed out");
    assert_eq!((failed(3).again(), failed(0).again()), (Again::Later, Again::Never));

    let told = |again| Told(again, "");
    let mixed = AllFailed { errors: vec![told(Again::After(SECOND)), told(Again::Never)] };
    assert_eq!(mixed.again(), Again::After(SECOND));

    let last = Fault::new("the replica does not answer");
    let id = last.id();
    let fault = Fault::from(AllFailed { errors: vec![Fault::new("busy"), last] });
    assert_eq!((fault.id(), fault.context().collect::<Vec<_>>()), (id, vec![("copies", "2")]));
    assert_eq!(Fault::from(AllFailed::<Fault> { errors: vec![] }).again(), Again::Never);
}
