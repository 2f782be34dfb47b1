//! What limits do to requests.

use tollgate_server::{Outcome, RlsOptions};

use super::proxy::{Setup, World, headers, overriding};

/// As people have it for envoyproxy/ratelimit.
const LIMITS: &str = r"
domain: web
descriptors:
  # Three a minute for each user; ann has five, and the blocked none.
  - key: user
    rate_limit:
      unit: minute
      requests_per_unit: 3
      name: per user
  - key: user
    value: ann
    rate_limit:
      unit: minute
      requests_per_unit: 5
  - key: user
    value: blocked
    rate_limit:
      unit: hour
      requests_per_unit: 0
  # Robots share one threshold, whatever they are called.
  - key: user
    value: bot-*
    share_threshold: true
    rate_limit:
      unit: hour
      requests_per_unit: 2
  # Paths below /static, each by itself.
  - key: path
    value: /static/*
    rate_limit:
      unit: hour
      requests_per_unit: 1
  - key: path
    value: /free
    rate_limit:
      unlimited: true
  # A plan and within it a method.
  - key: plan
    descriptors:
      - key: method
        value: POST
        rate_limit:
          unit: day
          requests_per_unit: 1
      - key: method
        rate_limit:
          unit: day
          requests_per_unit: 2
  - key: trial
    shadow_mode: true
    rate_limit:
      unit: hour
      requests_per_unit: 1
  - key: vip
    rate_limit:
      unit: hour
      requests_per_unit: 4
      replaces:
        - name: per user
  - key: quota-a
    quota_mode: true
    rate_limit:
      unit: hour
      requests_per_unit: 1
  - key: quota-b
    quota_mode: true
    rate_limit:
      unit: hour
      requests_per_unit: 2
";

fn world() -> World {
    let descriptors: [&[&str]; 7] =
        [&["user"], &["path"], &["plan", "method"], &["trial"], &["vip"], &["quota-a"], &["quota-b"]];
    World::start(&Setup {
        limits: LIMITS,
        rate_limits: descriptors.iter().map(|names| headers(names)).collect(),
        denies_on_failure: true,
        options: RlsOptions::default(),
    })
}

#[test]
fn requests_are_limited_as_the_file_says() {
    let world = world();
    assert_eq!(world.statuses(&[], 5), [200; 5], "what has no descriptor is not asked about");
    assert_eq!(world.statuses(&[("x-unknown", "1")], 3), [200; 3]);

    // The most specific one applies, and only that.
    assert_eq!(world.statuses(&[("x-user", "bob")], 5), [200, 200, 200, 429, 429]);
    assert_eq!(world.statuses(&[("x-user", "eve")], 1), [200], "others have their own");
    assert_eq!(world.statuses(&[("x-user", "ann")], 6), [200, 200, 200, 200, 200, 429]);
    assert_eq!(world.statuses(&[("x-user", "blocked")], 1), [429]);

    // Stars, shared and not.
    assert_eq!(world.statuses(&[("x-user", "bot-1")], 1), [200]);
    assert_eq!(world.statuses(&[("x-user", "bot-2")], 2), [200, 429]);
    assert_eq!(world.statuses(&[("x-user", "bot-3")], 1), [429]);
    assert_eq!(world.statuses(&[("x-path", "/static/a")], 2), [200, 429]);
    assert_eq!(world.statuses(&[("x-path", "/static/b")], 2), [200, 429]);
    assert_eq!(world.statuses(&[("x-path", "/free")], 9), [200; 9]);
    assert_eq!(world.statuses(&[("x-path", "/other")], 3), [200; 3]);

    // Nested.
    let post = |plan| [("x-plan", plan), ("x-method", "POST")];
    assert_eq!(world.statuses(&post("gold"), 2), [200, 429]);
    assert_eq!(world.statuses(&post("lead"), 2), [200, 429], "each plan by itself");
    assert_eq!(world.statuses(&[("x-plan", "gold"), ("x-method", "GET")], 3), [200, 200, 429]);
    assert_eq!(world.statuses(&[("x-plan", "gold")], 3), [200; 3], "the file has no limit for a plan alone");
}

#[test]
fn shadows_replacements_and_quotas_do_as_the_file_says() {
    let world = world();
    assert_eq!(world.statuses(&[("x-trial", "1")], 4), [200; 4]);
    let tallies = world.engine.tallies();
    let shadow: u64 = tallies.iter().map(|tallied| tallied.tally.calls(Outcome::ShadowDenied)).sum();
    assert_eq!(shadow, 3, "it would have refused all but the first");

    // Who is a VIP is not limited as a user, and none of those hits count there.
    let vip = [("x-user", "bob"), ("x-vip", "1")];
    assert_eq!(world.statuses(&vip, 5), [200, 200, 200, 200, 429]);
    assert_eq!(world.statuses(&[("x-user", "bob")], 4), [200, 200, 200, 429]);

    // A quota refuses only together with all others that apply.
    assert_eq!(world.statuses(&[("x-quota-a", "alone")], 2), [200, 429]);
    let both = [("x-quota-a", "1"), ("x-quota-b", "1")];
    assert_eq!(world.statuses(&both, 3), [200, 200, 429]);
}

#[test]
fn refused_requests_count_as_the_file_means_it() {
    let world = world();
    // The path is used up; every further request is refused, and counts for its user all the same.
    let both = [("x-user", "bob"), ("x-path", "/static/x")];
    assert_eq!(world.statuses(&both, 3), [200, 429, 429]);
    assert_eq!(world.statuses(&[("x-user", "bob")], 1), [429]);
}

#[test]
fn callers_are_told_what_is_left() {
    let world = world();
    let told = |user: &str| {
        let answer = world.get(&[("x-user", user)]);
        let field = |name: &str| answer.field(name).unwrap_or("-").to_owned();
        (
            answer.status,
            field("x-ratelimit-limit"),
            field("x-ratelimit-remaining"),
            field("x-ratelimit-reset"),
            field("x-envoy-ratelimited"),
        )
    };
    let of = |status, left: &str, limited: &str| {
        (
            status,
            "3, 3;w=60;name=\"per user\"".to_owned(),
            left.to_owned(),
            "40".to_owned(),
            limited.to_owned(),
        )
    };
    for left in ["2", "1", "0"] {
        assert_eq!(told("bob"), of(200, left, "-"));
    }
    assert_eq!(told("bob"), of(429, "0", "true"));
    // The one that is closest to its end is told, with all of them.
    let answer = world.get(&[("x-user", "ann"), ("x-path", "/static/y")]);
    assert_eq!(answer.field("x-ratelimit-limit"), Some("1, 5;w=60, 1;w=3600"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
    assert_eq!(answer.field("x-ratelimit-reset"), Some("1240"));
}

#[test]
fn our_own_fields_come_if_asked_for() {
    let world = World::start(&Setup {
        limits: LIMITS,
        rate_limits: headers(&["user"]),
        denies_on_failure: true,
        options: RlsOptions { headers: true, dynamic_metadata: true, ..RlsOptions::default() },
    });
    let answer = world.get(&[("x-user", "bob")]);
    let field = |name: &str| answer.field(name);
    assert_eq!(
        (field("ratelimit-limit"), field("ratelimit-remaining"), field("ratelimit-reset")),
        (Some("3"), Some("2"), Some("40"))
    );
}

#[test]
fn bytes_that_are_no_text_are_limited_like_any_others() {
    let world = world();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(world.get(&[("x-user", "caf\u{e9}")]).status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

/// Item 26.4: an override from Envoy counts in the counter of the configured limit.
#[test]
fn an_override_shares_the_counter_of_its_descriptor() {
    let world = World::start(&Setup {
        limits: "domain: web\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, requests_per_unit: 5 }\n",
        rate_limits: headers(&["user"]) + &overriding("over", "user"),
        denies_on_failure: true,
        options: RlsOptions::default(),
    });
    assert_eq!(world.statuses(&[("x-user", "ann")], 2), [200; 2]);
    assert_eq!(world.statuses(&[("x-over", "ann")], 2), [200, 429], "the third and the fourth of 3");
    assert_eq!(world.statuses(&[("x-user", "ann")], 2), [200, 429], "the fifth and the sixth of 5");
}
