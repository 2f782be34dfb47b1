//! What callers see when the service is gone and comes back.

use tollgate_server::RlsOptions;

use super::proxy::{Setup, World, headers};

const LIMITS: &str =
    "domain: web\ndescriptors:\n  - key: user\n    rate_limit: { unit: day, requests_per_unit: 1 }\n";

fn world(denies_on_failure: bool) -> World {
    let options = RlsOptions::default();
    World::start(&Setup { limits: LIMITS, rate_limits: headers(&["user"]), denies_on_failure, options })
}

#[test]
fn an_envoy_that_fails_open_lets_all_pass_until_we_are_back() {
    let mut world = world(false);
    assert_eq!(world.statuses(&[("x-user", "a")], 2), [200, 429]);
    world.kill();
    assert_eq!(world.statuses(&[("x-user", "a")], 3), [200; 3]);
    world.revive();
    world.wait_for(&[("x-user", "a")], 429);
    assert_eq!(world.statuses(&[("x-user", "b")], 2), [200, 429]);
}

#[test]
fn an_envoy_that_fails_closed_lets_none_pass_until_we_are_back() {
    let mut world = world(true);
    assert_eq!(world.statuses(&[("x-user", "a")], 1), [200]);
    world.kill();
    assert_eq!(world.statuses(&[("x-user", "b")], 3), [500; 3]);
    assert_eq!(world.statuses(&[], 1), [200], "what is not limited is not asked about");
    world.revive();
    world.wait_for(&[("x-user", "b")], 200);
    assert_eq!(world.statuses(&[("x-user", "a")], 1), [429], "what was counted before still counts");
}

/// Answers, item 13: an Envoy that fails open denies a caller whose headers together are more than the service reads.
#[test]
fn a_caller_with_a_long_header_does_not_make_envoy_fail_open() {
    // Twenty descriptors with the same header of 55 KiB are more than 1 MiB.
    let rate_limits = headers(&["user"]).repeat(20);
    let options = RlsOptions::default();
    let world = World::start(&Setup { limits: LIMITS, rate_limits, denies_on_failure: false, options });
    let long = "v".repeat(55 * 1024);
    assert_eq!(world.statuses(&[("x-user", &long)], 2), [429; 2]);
}
