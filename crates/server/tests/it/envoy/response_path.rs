//! Costs that are only known when the response is there.

use tollgate_server::RlsOptions;

use super::proxy::{Setup, World};

const LIMITS: &str =
    "domain: web\ndescriptors:\n  - key: user\n    rate_limit: { unit: day, requests_per_unit: 10 }\n";

/// Looks when the request comes, and counts what the response says that it used.
const LOOK_THEN_COUNT: &str = r#"
- actions:
  - request_headers: { header_name: x-user, descriptor_key: user }
  hits_addend: { number: 0 }
- actions:
  - request_headers: { header_name: x-user, descriptor_key: user }
  hits_addend: { format: "%RESP(x-used)%" }
  apply_on_stream_done: true
"#;

/// Takes as much as the request says.
const SAID_BEFORE: &str = r#"
- actions:
  - request_headers: { header_name: x-user, descriptor_key: user }
  hits_addend: { format: "%REQ(x-cost)%" }
"#;

fn world(rate_limits: &str) -> World {
    World::start(&Setup {
        limits: LIMITS,
        rate_limits: rate_limits.trim().to_owned(),
        denies_on_failure: true,
        options: RlsOptions::default(),
    })
}

#[test]
fn what_a_response_used_counts_for_the_requests_after_it() {
    let world = world(LOOK_THEN_COUNT);
    let left = |world: &World, uses: &str| {
        let answer = world.get(&[("x-user", "ann"), ("x-use", uses)]);
        (answer.status, answer.field("x-ratelimit-remaining").unwrap_or("-").to_owned())
    };
    assert_eq!(left(&world, "4"), (200, "10".to_owned()));
    // It is counted after the response is out, so the caller may be faster.
    let ten = (200, "10".to_owned());
    let counted = (0..600).find_map(|_| {
        std::thread::park_timeout(std::time::Duration::from_millis(50));
        Some(left(&world, "0")).filter(|told| *told != ten)
    });
    assert_eq!(counted, Some((200, "6".to_owned())));
    assert_eq!(
        left(&world, "7"),
        (200, "6".to_owned()),
        "it has happened, though it was more than there was"
    );
    world.wait_for(&[("x-user", "ann"), ("x-use", "0")], 429);
    assert_eq!(world.statuses(&[("x-user", "bob"), ("x-use", "0")], 2), [200; 2]);
}

/// Item 26.1: of two tokens a day, three requests are allowed that ask with an estimate of zero and report one each.
#[test]
fn a_token_quota_passes_until_it_is_exceeded() {
    let limits =
        "domain: web\ndescriptors:\n  - key: user\n    rate_limit: { unit: day, requests_per_unit: 2 }\n";
    let world = World::start(&Setup {
        limits,
        rate_limits: LOOK_THEN_COUNT.trim().to_owned(),
        denies_on_failure: true,
        options: RlsOptions::default(),
    });
    let ann = |uses: &str| world.get(&[("x-user", "ann"), ("x-use", uses)]);
    // What a response used is counted after the response is out, so the caller waits until it is.
    let wait_until_left = |left: &str| {
        let is_left = |_| {
            std::thread::park_timeout(std::time::Duration::from_millis(50));
            ann("0").field("x-ratelimit-remaining") == Some(left)
        };
        assert!((0..600).any(is_left), "{left} were never left");
    };
    assert_eq!(ann("1").status, 200);
    wait_until_left("1");
    assert_eq!(ann("1").status, 200);
    wait_until_left("0");
    assert_eq!(ann("1").status, 200, "the quota is used up, and not exceeded");
    world.wait_for(&[("x-user", "ann"), ("x-use", "0")], 429);
}

#[test]
fn a_request_may_say_what_it_costs() {
    let world = world(SAID_BEFORE);
    let cost = |hits| world.get(&[("x-user", "ann"), ("x-cost", hits)]).status;
    assert_eq!([cost("6"), cost("4"), cost("1")], [200, 200, 429]);
}
