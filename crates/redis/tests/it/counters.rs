//! Counters in Redis count as those in process do.

use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Hit, Judgement, MemoryStore, Mode, Rule, Store};
use tollgate::{ManualClock, Quota};
use tollgate_redis::RedisStore;
use tollgate_testkit::Redis;

async fn judge<S: Store>(store: &S, rule: &Rule, mode: Mode, cost: u64) -> Judgement {
    let limit = store.open(rule);
    let answer = store.decide(mode, &[Hit::new(&limit, b"ann").costing(cost)]).await.unwrap();
    rule.judge(mode, &answer.each()[0])
}

async fn probe<S: Store>(store: &S, rule: &Rule) -> Judgement {
    let limit = store.open(rule);
    let answer = store.decide(Mode::Peek, &[Hit::new(&limit, b"ann")]).await.unwrap();
    rule.probe(&answer.each()[0])
}

/// Item 26.1: hits that a counter denies count on, in Lua as in process, and the next window starts at zero.
#[tokio::test]
async fn denied_hits_count_on_until_the_window_ends() {
    let (redis, clock) = (Redis::start(), ManualClock::starting_at(Duration::from_secs(1_794_767_960)));
    let store = RedisStore::builder(&redis.url()).clock(clock.clone()).build().unwrap();
    let rule = Rule::new("web", "all", Quota::per_minute(2)).counting();
    for (left, exceeded) in [(1, false), (0, false), (0, true)] {
        assert_eq!(judge(&store, &rule, Mode::Count, 1).await.decision.remaining(), left);
        assert_eq!(probe(&store, &rule).await.decision.is_admitted(), !exceeded);
    }
    assert_eq!(judge(&store, &rule, Mode::Count, 7).await.over, 7);
    assert!(!judge(&store, &rule, Mode::Peek, 1).await.decision.is_admitted());
    // Item 26.4: another number shares the count, which is ten.
    let larger = Rule::new("web", "all", Quota::per_minute(20)).counting();
    assert_eq!(judge(&store, &larger, Mode::Count, 1).await.decision.remaining(), 9);
    clock.advance(Duration::from_secs(40));
    assert_eq!(judge(&store, &rule, Mode::Count, 1).await.decision.remaining(), 1);
}

#[tokio::test]
async fn random_histories_agree_with_the_store_in_process() {
    let redis = Redis::start();
    let mut rng = Rng::with_seed(26);
    for history in 0..20 {
        let clock = ManualClock::starting_at(Duration::from_secs(1_794_767_960));
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        let store = RedisStore::builder(&redis.url()).clock(clock.clone()).build().unwrap();
        let quota = Quota::per(rng.u64(0..20), Duration::from_secs([1, 60, 3_600][rng.usize(0..3)]));
        let rule = Rule::new("web", format!("history {history}"), quota).counting();
        for _ in 0..60 {
            let longest = quota.period().as_millis() as u64 / 4;
            clock.advance(Duration::from_millis(rng.u64(0..=longest)));
            let (mode, cost) =
                (rng.choice([Mode::Count, Mode::Count, Mode::Refund, Mode::Peek]).unwrap(), rng.u64(1..12));
            let (here, there) =
                (judge(&memory, &rule, mode, cost).await, judge(&store, &rule, mode, cost).await);
            assert_eq!(here, there, "{mode:?} {cost} of {quota}");
            assert_eq!(probe(&memory, &rule).await, probe(&store, &rule).await);
        }
    }
}
