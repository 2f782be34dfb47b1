//! Counters in process: what envoyproxy/ratelimit counts, and how a limit is judged by it.

use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Hit, Judgement, MemoryStore, Mode, Rule, Store, Top};
use tollgate::{ManualClock, Quota};

type Memory = MemoryStore<ManualClock>;

/// 2026-11-15 18:39:20 UTC: the minute has 40 s left.
const EVENING: Duration = Duration::from_secs(1_794_767_960);

fn memory() -> (Memory, ManualClock) {
    let clock = ManualClock::starting_at(EVENING);
    (MemoryStore::builder().clock(clock.clone()).names(16).build(), clock)
}

fn decide(store: &Memory, rule: &Rule, mode: Mode, cost: u64) -> Judgement {
    let limit = store.open(rule);
    let answer = store.decide(mode, &[Hit::new(&limit, b"ann").costing(cost)]).into_inner().unwrap();
    rule.judge(mode, &answer.each()[0])
}

fn is_exceeded(store: &Memory, rule: &Rule) -> bool {
    let limit = store.open(rule);
    let answer = store.decide(Mode::Peek, &[Hit::new(&limit, b"ann")]).into_inner().unwrap();
    !rule.probe(&answer.each()[0]).decision.is_admitted()
}

/// Item 26.1: a limit is exceeded once the count is above it; denied hits count on.
#[test]
fn judge_denies_once_the_count_exceeds_the_limit() {
    let (store, _) = memory();
    let rule = Rule::new("web", "all", Quota::per_minute(3)).counting();
    for left in [2, 1, 0] {
        assert_eq!(decide(&store, &rule, Mode::Count, 1).decision.remaining(), left);
        assert!(!is_exceeded(&store, &rule), "exactly used up is not exceeded");
    }
    let denied = decide(&store, &rule, Mode::Count, 4);
    assert_eq!((denied.over, denied.decision.remaining()), (4, 0));
    assert_eq!(denied.decision.retry_after(), None, "four never fit");
    assert!(is_exceeded(&store, &rule));
    // Seven were counted: five returned leave two.
    assert!(decide(&store, &rule, Mode::Refund, 5).decision.is_admitted());
    assert_eq!(decide(&store, &rule, Mode::Peek, 1).decision.remaining(), 0);
    let denied = decide(&store, &rule, Mode::Count, 2);
    assert_eq!((denied.over, denied.decision.retry_after()), (1, Some(Duration::from_secs(40))));
}

/// Item 26.1: what a window counted beyond the limit is not owed by the next one.
#[test]
fn a_window_starts_at_zero_whatever_the_one_before_counted() {
    let (store, clock) = memory();
    let rule = Rule::new("web", "all", Quota::per_minute(3)).counting();
    assert_eq!(decide(&store, &rule, Mode::Count, 1_000_000).over, 999_997);
    clock.advance(Duration::from_secs(40));
    assert!(!is_exceeded(&store, &rule));
    assert_eq!(decide(&store, &rule, Mode::Count, 1).decision.remaining(), 2);
}

/// Item 26.1: a limit of zero is exceeded by the first hit.
#[test]
fn a_limit_of_zero_denies_every_hit_and_counts_it() {
    let (store, _) = memory();
    let none = Rule::new("web", "none", Quota::per_minute(0)).counting();
    assert!(!is_exceeded(&store, &none));
    assert_eq!(decide(&store, &none, Mode::Count, 2).over, 2);
    assert!(is_exceeded(&store, &none));
}

/// Item 26.4: the number of a limit is no part of its counter.
#[test]
fn counters_that_differ_only_in_their_number_share_a_count() {
    let (store, _) = memory();
    let rule = |count| Rule::new("web", "all", Quota::per_minute(count)).counting();
    assert_eq!(decide(&store, &rule(10), Mode::Count, 4).decision.remaining(), 6);
    assert_eq!(decide(&store, &rule(3), Mode::Count, 1).over, 1);
    assert_eq!(decide(&store, &rule(20), Mode::Count, 1).decision.remaining(), 14);
    let hourly = Rule::new("web", "all", Quota::per_hour(10)).counting();
    assert_eq!(decide(&store, &hourly, Mode::Count, 1).decision.remaining(), 9, "another unit counts apart");
}

#[test]
fn busiest_knows_the_keys_that_a_counter_denied() {
    let (store, _) = memory();
    let rule = Rule::new("web", "all", Quota::per_minute(1)).counting();
    for _ in 0..3 {
        let _ = decide(&store, &rule, Mode::Count, 1);
    }
    let denied = store.busiest(Top::Denied, 1).into_inner().unwrap();
    assert_eq!(denied.iter().map(|busy| busy.count).collect::<Vec<_>>(), [2]);
}

/// A counter as one would write it down: a window and its count.
#[derive(Default)]
struct Plain {
    window: u64,
    count: u64,
}

#[test]
fn random_histories_agree_with_a_plain_counter() {
    let mut rng = Rng::with_seed(26);
    for _ in 0..200 {
        let (store, clock) = memory();
        let (limit, period) = (rng.u64(0..20), [1, 60, 3_600][rng.usize(0..3)]);
        let rule = Rule::new("web", "all", Quota::per(limit, Duration::from_secs(period))).counting();
        let (mut now, mut plain) = (EVENING, Plain::default());
        for _ in 0..50 {
            let span = Duration::from_millis(rng.u64(0..=(1_000 * period / 4)));
            clock.advance(span);
            now += span;
            if plain.window != now.as_secs() / period {
                plain = Plain { window: now.as_secs() / period, count: 0 };
            }
            let cost = rng.u64(1..12);
            match rng.u32(0..8) {
                0 => {
                    assert_eq!(is_exceeded(&store, &rule), plain.count > limit);
                }
                1 => {
                    let _ = decide(&store, &rule, Mode::Refund, cost);
                    plain.count = plain.count.saturating_sub(cost);
                }
                _ => {
                    plain.count += cost;
                    let told = decide(&store, &rule, Mode::Count, cost);
                    assert_eq!(told.decision.is_admitted(), plain.count <= limit);
                    assert_eq!(told.decision.remaining(), limit.saturating_sub(plain.count));
                    assert_eq!(told.over, cost.min(plain.count.saturating_sub(limit)));
                    let end = Duration::from_secs((plain.window + 1) * period).checked_sub(now).unwrap();
                    assert_eq!(told.decision.reset_after(), Some(end));
                }
            }
        }
    }
}
