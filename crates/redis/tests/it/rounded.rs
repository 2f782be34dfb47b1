//! Quotas whose numbers do not fit a double: what is admitted stays within the bound, and close to it.
#![allow(clippy::cast_precision_loss, reason = "sums are compared to some digits")]

use std::time::Duration;

use crate::kit::Both;
use fastrand::Rng;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Kind, Quota};
use tollgate_sim::bound::Bound;
use tollgate_sim::history::Operation;
use tollgate_testkit::Redis;

/// Takes whatever there is at each of many moments, and tries for one more.
async fn take_all(both: &Both, rule: &Rule, steps: u32) -> Vec<Operation> {
    let (limit, mut rng, mut taken) = (both.redis.open(rule), Rng::with_seed(7), Vec::new());
    let period = u64::try_from(rule.quotas()[0].period().as_micros()).unwrap();
    for _ in 0..steps {
        both.clock.advance(Duration::from_micros(rng.u64(..period / 20)));
        let hit = Hit::new(&limit, b"k");
        let left = both.redis.decide(Mode::Peek, &[hit.costing(0)]).await.unwrap().decision().remaining();
        for cost in [left, 1] {
            let answer = both.redis.decide(Mode::Take, &[hit.costing(cost)]).await.unwrap();
            if cost > 0 && answer.is_admitted() {
                taken.push(Operation::at(both.now().as_nanos(), cost));
            }
        }
    }
    taken
}

fn sum(taken: &[Operation]) -> f64 {
    taken.iter().map(|operation| operation.cost as f64).sum()
}

#[tokio::test]
async fn a_bucket_gives_what_its_rate_says_to_a_millionth_and_never_more() {
    let redis = Redis::start();
    for (number, quota) in
        [Quota::per_day(999_999_999), Quota::per_hour(99_999_999_977)].into_iter().enumerate()
    {
        let both = Both::new(&redis, number as u64);
        let rule = Rule::new("d", "n", quota);
        let taken = take_all(&both, &rule, 200).await;
        assert_eq!(Bound::of(Kind::TokenBucket, quota).check(&taken), Ok(()), "{quota}");
        let passed = both.now().as_nanos() as f64 / quota.period().as_nanos() as f64;
        let most = quota.burst_size() as f64 + passed * quota.count() as f64;
        // The bucket was full at the beginning, and what came since the first look has been taken.
        assert!(
            sum(&taken) > most * (1.0 - 1e-6) - 0.06 * quota.count() as f64,
            "{quota}: {} of {most}",
            sum(&taken)
        );
    }
}

#[tokio::test]
async fn windows_stay_within_their_bounds() {
    let redis = Redis::start();
    for kind in
        [Kind::LeakyBucket, Kind::PacedWindow, Kind::SlidingCounter, Kind::FixedWindow, Kind::SubWindows]
    {
        let quota = Quota::per_day(999_999_999_937);
        let both = Both::new(&redis, 0);
        let taken = take_all(&both, &Rule::new("d", "n", quota).with_kind(kind), 100).await;
        assert_eq!(Bound::of(kind, quota).check(&taken), Ok(()), "{kind}");
        let enough = if kind == Kind::LeakyBucket { 100.0 } else { quota.count() as f64 };
        assert!(sum(&taken) > enough, "{kind}: {taken:?}");
    }
}
