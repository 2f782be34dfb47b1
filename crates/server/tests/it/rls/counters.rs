//! Limits of Envoy files are counters, as in envoyproxy/ratelimit.

use std::time::Duration;

use tollgate_server::RlsOptions;
use tollgate_server::rls::proto::{Code, RateLimitDescriptor, RateLimitOverride, Unit};

use super::rig::{costing, descriptor, request, rig, rig_with, secs};

/// A token quota, ten an hour, the same in shadow, and two names that replace others.
const FILE: &str = "domain: web
descriptors:
  - key: service
    value: two
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: hourly
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: free
    rate_limit: {unlimited: true, name: free}
  - key: special
    rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: free}]}
";

fn ask(key: &str, value: &str, hits: u64) -> tollgate_server::rls::proto::RateLimitRequest {
    request("web", &[costing(hits, descriptor(&[(key, value)]))])
}

fn with_limit(requests_per_unit: u32, unit: Unit, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into() }),
        ..descriptor
    }
}

/// Item 26.1: two tokens a minute, asked for with an estimate of zero and reported afterwards: the fourth request is denied.
#[tokio::test]
async fn a_quota_that_is_used_up_passes_an_estimate_until_it_is_exceeded() {
    let rig = rig(FILE);
    let (estimate, report) = (ask("service", "two", 0), ask("service", "two", 1));
    let limit = Some((2, Unit::Minute));
    for left in [2, 1, 0] {
        assert_eq!(rig.told(estimate.clone()).await, (Code::Ok, vec![(Code::Ok, limit, left, secs(40))]));
        rig.ask(report.clone()).await.unwrap();
    }
    let over = (Code::OverLimit, vec![(Code::OverLimit, limit, 0, secs(40))]);
    assert_eq!(rig.told(estimate.clone()).await, over);
    rig.clock.advance(Duration::from_secs(40));
    assert_eq!(rig.told(estimate).await.1, [(Code::Ok, limit, 2, secs(60))], "nothing is owed");
}

/// Item 26.1: hits that are returned come off a count beyond the limit.
#[tokio::test]
async fn refunds_come_off_what_was_counted_beyond_the_limit() {
    let rig = rig(FILE);
    assert_eq!(rig.told(ask("hourly", "a", 15)).await.0, Code::OverLimit);
    let back = RateLimitDescriptor { is_negative_hits: true, ..costing(4, descriptor(&[("hourly", "a")])) };
    assert_eq!(rig.told(request("web", &[back])).await.1[0].2, 0);
    assert_eq!(rig.told(ask("hourly", "a", 0)).await.0, Code::OverLimit, "eleven are left of fifteen");
}

/// Item 26.4: an override counts in the counter of its descriptor, whatever its number.
#[tokio::test]
async fn an_override_shares_the_counter_of_its_descriptor() {
    let rig = rig(FILE);
    let hourly = || descriptor(&[("hourly", "a")]);
    assert_eq!(rig.told(ask("hourly", "a", 4)).await.1[0].2, 6);
    let told = rig.told(request("web", &[with_limit(6, Unit::Hour, hourly())])).await;
    assert_eq!(told.1, [(Code::Ok, Some((6, Unit::Hour)), 1, secs(1_240))]);
    assert_eq!(rig.told(request("web", &[with_limit(3, Unit::Hour, hourly())])).await.0, Code::OverLimit);
    assert_eq!(rig.told(ask("hourly", "a", 1)).await.1[0].2, 3);
    // A unit of its own is a window of its own.
    assert_eq!(rig.told(request("web", &[with_limit(3, Unit::Day, hourly())])).await.1[0].2, 2);
    // Without a configured limit, overrides share a counter with each other.
    let alone = |count| request("web", &[with_limit(count, Unit::Hour, descriptor(&[("own", "a")]))]);
    assert_eq!(rig.told(alone(5)).await.1[0].2, 4);
    assert_eq!(rig.told(alone(7)).await.1[0].2, 5);
    assert_eq!(rig.told(alone(2)).await.0, Code::OverLimit);
}

/// Item 26.4: a descriptor that matches nothing has quota.
#[tokio::test]
async fn in_quota_mode_a_descriptor_without_a_limit_passes() {
    let rig = rig_with(FILE, RlsOptions { quota_mode: true, ..RlsOptions::default() });
    let over = costing(11, descriptor(&[("hourly", "a")]));
    let with = |other: &[(&str, &str)]| request("web", &[over.clone(), descriptor(other)]);
    let told = rig.told(with(&[("nobody", "knows")])).await;
    assert_eq!((told.0, told.1[0].0, told.1[1].0), (Code::Ok, Code::OverLimit, Code::Ok));
    assert_eq!(rig.told(request("web", std::slice::from_ref(&over))).await.0, Code::OverLimit);
    assert_eq!(rig.told(with(&[("free", "x")])).await.0, Code::OverLimit, "an unlimited one is no quota");
}

/// Item 26.4: an unlimited limit stays unlimited when another replaces it.
#[tokio::test]
async fn a_replaced_unlimited_limit_has_all_of_it_left() {
    let rig = rig(FILE);
    let both = request("web", &[descriptor(&[("free", "x")]), descriptor(&[("special", "x")])]);
    let free = (Code::Ok, None, u32::MAX, None);
    let special = (Code::Ok, Some((1, Unit::Hour)), 0, secs(1_240));
    assert_eq!(rig.told(both).await, (Code::Ok, vec![free, special]));
}

/// Item 26.4: none of these is an error.
#[tokio::test]
async fn empty_descriptors_empty_keys_and_many_descriptors_are_answered() {
    let rig = rig(FILE);
    let free = (Code::Ok, None, 0, None);
    for entries in [&[][..], &[("", "value")], &[("hourly", "a"), ("", "")]] {
        assert_eq!(rig.told(request("web", &[descriptor(entries)])).await, (Code::Ok, vec![free]));
    }
    let many: Vec<_> = (0..200).map(|number| descriptor(&[("hourly", &number.to_string())])).collect();
    let (overall, statuses) = rig.told(request("web", &many)).await;
    assert_eq!((overall, statuses.len()), (Code::Ok, 200));
    assert!(statuses.iter().all(|status| status.2 == 9));
}

/// Item 26.4: an untouched window ends when the clock's does, in whole seconds.
#[tokio::test]
async fn duration_until_reset_is_the_rest_of_the_window_in_whole_seconds() {
    let rig = rig(FILE);
    rig.clock.advance(Duration::from_millis(300));
    assert_eq!(rig.told(ask("service", "two", 0)).await.1[0].3, secs(40));
    assert_eq!(rig.told(ask("hourly", "a", 1)).await.1[0].3, secs(1_240));
    rig.clock.advance(Duration::from_millis(39_700));
    assert_eq!(rig.told(ask("service", "two", 0)).await.1[0].3, secs(60), "a new one has begun");
}
