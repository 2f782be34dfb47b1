//! Law 8 over the whole life of a state: as much is admitted as the exact fraction says, never more, and never less by more
//! than the last token.

use std::time::Duration;

use tollgate_core::{AnyAlgorithm, Kind, Quota, TokenBucket};
use tollgate_sim::laws;
use tollgate_sim::subject::Held;

/// Admissions after which a rate counts as proven; slow ones reach the end of time (2^59 ns) before.
const MANY: u128 = 2_000_000_000;

/// `no_drift` compares with the exact fraction at every step, so the error in the end is below one token in all.
fn admitted(quota: Quota) -> u128 {
    let mut bucket = Held::new(TokenBucket::new(quota));
    laws::no_drift(&mut bucket, quota, MANY, 1).unwrap_or_else(|broken| panic!("{broken}"))
}

#[test]
fn slow_rates_are_exact_until_the_end_of_time() {
    let years_18 = 1_u128 << 59;
    let day = 86_400_000_000_000;
    // All but the last refill of the bucket fits before the end.
    assert!(admitted(Quota::per_day(1).burst(100)) > years_18 / day - 100);
    assert!(admitted(Quota::per_minute(7).burst(1_000)) > years_18 * 7 / 60_000_000_000 - 1_000);
    assert!(admitted(Quota::every(Duration::from_secs(31_536_000)).burst(2)) >= 16);
}

#[test]
fn three_a_second_are_exact_over_a_billion() {
    assert!(admitted(Quota::per_second(3).burst(1_000_000)) > 1_000_000_000);
}

#[test]
fn rates_no_whole_interval_can_express_are_exact() {
    for per_second in [30_000_000, 300_000_000, 600_000_000, 1_000_000_000] {
        for burst in [2, 1_000, 1_000_000] {
            let quota = Quota::per_second(per_second).burst(burst);
            let most = if burst == 2 { 2_000_000 } else { MANY };
            let mut bucket = Held::new(TokenBucket::new(quota));
            assert!(
                laws::no_drift(&mut bucket, quota, most, 1).is_ok_and(|admitted| admitted >= most),
                "{quota}"
            );
        }
    }
}

#[test]
fn odd_rates_are_never_above_and_within_one_below() {
    for (count, seconds) in [(101, 1), (17, 60), (999_983, 3_600), (123_456_789, 1), (999_999_937, 1)] {
        let quota = Quota::per(count, Duration::from_secs(seconds)).burst(100_000);
        assert!(admitted(quota) > 1_000_000, "{quota}");
    }
}

#[test]
fn a_rate_of_its_own_drawn_at_random_is_exact() {
    let mut rng = fastrand::Rng::with_seed(11);
    for seed in 0..2_000 {
        let period = Duration::from_nanos(rng.u64(1..10_000_000_000));
        let quota = Quota::per(rng.u64(1..100_000), period).burst(rng.u64(2..10_000));
        let mut bucket = Held::new(AnyAlgorithm::new(Kind::TokenBucket, quota));
        let run = laws::no_drift(&mut bucket, quota, 1_000_000, seed);
        assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}
