//! Deciding.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::Site;

const PER_IP: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n";
const ANN: &str = r#"{"descriptor":{"ip":"10.0.0.7"}}"#;

#[test]
fn two_a_minute_are_allowed_and_the_third_learns_when_to_come_back() {
    let site = Site::new(PER_IP);
    let mut client = site.client();
    let finding = |allowed: bool, remaining: u64, retry_after: Value, reset_after: Value| {
        json!({
            "domain": "default", "name": "per-ip", "quota": 0, "allowed": allowed, "cost": 1, "limit": 2,
            "remaining": remaining, "retry_after": retry_after, "reset_after": reset_after,
            "shadow": false, "basis": "store",
        })
    };
    let decision = |allowed: bool, remaining: u64, retry_after: Value, reset_after: Value| {
        json!({
            "allowed": allowed, "decided_by": "per-ip", "limit": 2, "remaining": remaining,
            "retry_after": retry_after, "reset_after": reset_after, "delay": 0, "degraded": false,
            "limits": [finding(allowed, remaining, retry_after, reset_after)],
        })
    };
    let first = client.check(ANN);
    assert_eq!((first.status, first.json()), (200, decision(true, 1, json!(0), json!(30))));
    assert_eq!(first.field("content-type"), Some("application/json"));
    assert_eq!(first.field("ratelimit"), Some(r#""per-ip";r=1;t=30"#));
    assert_eq!(first.field("ratelimit-policy"), Some(r#""per-ip";q=2;w=60"#));
    assert_eq!(first.field("retry-after"), None);
    let second = client.check(ANN);
    assert_eq!((second.status, second.json()), (200, decision(true, 0, json!(0), json!(60))));
    let third = client.check(ANN);
    assert_eq!((third.status, third.json()), (429, decision(false, 0, json!(30), json!(60))));
    assert_eq!(third.field("retry-after"), Some("30"));
    assert_eq!(third.field("ratelimit"), Some(r#""per-ip";r=0;t=30"#));

    site.clock.advance(Duration::from_millis(29_750));
    let fourth = client.check(ANN);
    assert_eq!((fourth.status, fourth.json()), (429, decision(false, 0, json!(0.25), json!(30.25))));
    assert_eq!(fourth.field("retry-after"), Some("1"), "whole seconds, and never none");
    site.clock.advance(Duration::from_millis(250));
    assert_eq!(client.check(ANN).status, 200);
}

#[test]
fn others_have_a_share_of_their_own() {
    let site = Site::new(PER_IP);
    for ip in ["1", "2", "3"] {
        for status in [200, 200, 429] {
            assert_eq!(site.check(&format!(r#"{{"descriptor":{{"ip":"{ip}"}}}}"#)).status, status);
        }
    }
}

#[test]
fn every_mode_does_what_it_says() {
    let site = Site::new("[limit.all]\nrate = \"10/h\"\nalgorithm = \"fixed-window\"\n");
    let mut client = site.client();
    let mut ask = |mode: &str, cost: u64| {
        let answer = client.check(&format!(r#"{{"descriptor":{{}},"mode":"{mode}","cost":{cost}}}"#));
        (answer.status, answer.json()["remaining"].as_u64().unwrap())
    };
    assert_eq!(ask("take", 3), (200, 7));
    assert_eq!(ask("peek", 7), (200, 0), "what it would leave");
    assert_eq!(ask("peek", 8), (429, 7));
    assert_eq!(ask("take", 0), (200, 7), "nothing was taken by looking");
    assert_eq!(ask("refund", 2), (200, 9));
    assert_eq!(ask("charge", 10), (200, 0));
    assert_eq!(ask("take", 1), (429, 0));
    assert_eq!(ask("refund", u64::MAX), (200, 10));
    assert_eq!(ask("count", 11), (429, 0), "what does not fit uses up what is left");
    assert_eq!(ask("take", 1), (429, 0));
}

#[test]
fn a_cost_above_the_limit_is_refused_for_good() {
    let site = Site::new(PER_IP);
    for cost in [3, i64::MAX as u64, u64::MAX] {
        let answer = site.check(&format!(r#"{{"descriptor":{{"ip":"1"}},"cost":{cost}}}"#));
        assert_eq!((answer.status, &answer.json()["retry_after"]), (429, &Value::Null), "{cost}");
        assert_eq!(answer.field("retry-after"), None);
    }
    assert_eq!(site.check(r#"{"descriptor":{"ip":"1"},"cost":2}"#).status, 200, "refusals took nothing");
}

#[test]
fn a_limit_can_be_brought_along() {
    let site = Site::new(PER_IP);
    let ask = |rate: &str, more: &str, key: &str| {
        let answer = site.check(&format!(r#"{{"limit":{{"rate":"{rate}"{more}}},"key":"{key}"}}"#));
        (answer.status, answer.json()["remaining"].as_u64())
    };
    assert_eq!(ask("10/s burst 2", "", "alice"), (200, Some(1)));
    assert_eq!(ask("10/s burst 2", "", "alice"), (200, Some(0)));
    assert_eq!(ask("10/s burst 2", "", "alice"), (429, Some(0)));
    assert_eq!(ask("10/s burst 2", "", "bob"), (200, Some(1)));
    assert_eq!(ask("10/s burst 2", r#","name":"other""#, "alice"), (200, Some(1)), "another limit");
    assert_eq!(ask("3/h", r#","algorithm":"fixed-window""#, "alice"), (200, Some(2)));
    assert_eq!(ask("unlimited", "", "alice"), (200, None));
    let answer = site.check(r#"{"limit":{"rate":"10/s burst 2","name":"mine"},"key":"eve"}"#);
    assert_eq!(answer.field("ratelimit"), Some(r#""mine";r=1;t=1"#));
    assert_eq!(answer.json()["limits"][0]["domain"], "@http");
}

/// Answers, item 16: over HTTP, a call that no limit applies to is refused if its domain says so, and is measured.
#[test]
fn unmatched_calls_are_refused_if_their_domain_says_so() {
    let site = Site::new("unmatched = \"deny\"\n[limit.per-ip]\nkey = \"ip\"\nrate = \"9/h\"\n");
    for body in [r#"{"descriptor":{"ipp":"7"}}"#, r#"{"descriptor":{}}"#] {
        let answer = site.check(body);
        assert_eq!(answer.status, 429, "{body}");
        let json = answer.json();
        assert_eq!(
            (&json["allowed"], &json["decided_by"], &json["limits"]),
            (&json!(false), &json!(null), &json!([]))
        );
        assert_eq!((&json["retry_after"], answer.field("retry-after")), (&json!(null), None));
    }
    assert_eq!(site.check(r#"{"domain":"nope","descriptor":{"ip":"7"}}"#).status, 200);
    let text = site.get("/metrics").body;
    for line in [
        "tollgate_unmatched_calls_total{domain=\"default\"} 2",
        "tollgate_unmatched_calls_total{domain=\"@unknown\"} 1",
        "tollgate_bad_values_total{domain=\"default\",limit=\"per-ip\"} 0",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
    }
}

/// Answers, item 14: over HTTP, `actual` is a number for the cost that the call stated, or an object of cost fields.
#[test]
fn settle_by_number_and_by_field() {
    let site = Site::new(
        "[limit.requests]\nkey = \"key\"\nrate = \"9/h\"\n[limit.tokens]\nkey = \"key\"\nrate = \"9000/h\"\ncost = \"tokens\"\n",
    );
    let hold = || {
        let held = site.check(r#"{"descriptor":{"key":"k","tokens":900},"hold":"1min"}"#).json();
        held["id"].as_str().expect("it is held").to_owned()
    };
    let settle =
        |id: &str, actual: &str| site.post("/v1/settle", &format!(r#"{{"id":"{id}","actual":{actual}}}"#));
    let left = || -> Vec<u64> {
        let peek = r#"{"descriptor":{"key":"k","tokens":0},"cost":0,"mode":"peek"}"#;
        let limits = site.check(peek).json()["limits"].clone();
        limits.as_array().unwrap().iter().map(|limit| limit["remaining"].as_u64().unwrap()).collect()
    };
    assert_eq!(settle(&hold(), "640").json(), json!({"settled": true}));
    assert_eq!(left(), [8, 8_360]);
    assert_eq!(settle(&hold(), r#"{"tokens":640.0}"#).json(), json!({"settled": true}));
    assert_eq!(left(), [7, 7_720]);
    let id = hold();
    let wrong = settle(&id, r#"{"tokens":1,"tokns":2}"#);
    assert_eq!(
        wrong.problem(400),
        r#"no limit reads its cost from field "tokns"; the cost fields of this hold are "tokens""#
    );
    assert_eq!(wrong.json()["pointer"], "/actual/tokns");
    for (actual, detail) in [
        (r#"{"tokens":1,"tokens":2}"#, "duplicate field `tokens`"),
        (
            r#"{"tokens":-1}"#,
            "invalid value: integer `-1`, expected a whole number from 0 to 18446744073709551615",
        ),
        (
            r#""640""#,
            "invalid type: string \"640\", expected a whole number from 0 to 18446744073709551615, \
             or an object with such a number for each cost field",
        ),
    ] {
        assert_eq!(settle(&id, actual).problem(400), detail, "{actual}");
    }
    assert_eq!(settle(&id, "{}").json(), json!({"settled": true}), "as it was taken");
    assert_eq!(left(), [6, 6_820]);
}

#[test]
fn what_is_held_is_settled_with_what_it_cost() {
    let site = Site::new("[limit.tokens]\nkey = \"user\"\nrate = \"100/h\"\nalgorithm = \"fixed-window\"\n");
    let hold = |cost: u64| {
        let body = format!(r#"{{"descriptor":{{"user":"ann"}},"cost":{cost},"hold":"30s"}}"#);
        let json = site.check(&body).json();
        (json["id"].as_str().map(str::to_owned), json["remaining"].as_u64().unwrap())
    };
    let settle =
        |id: &str, actual: u64| site.post("/v1/settle", &format!(r#"{{"id":"{id}","actual":{actual}}}"#));
    let left = || hold(0).1;

    let (id, remaining) = hold(60);
    assert_eq!(remaining, 40);
    let answer = settle(id.as_ref().unwrap(), 10);
    assert_eq!((answer.status, answer.json()), (200, json!({"settled": true})));
    assert_eq!(left(), 90);
    assert!(settle(id.as_ref().unwrap(), 0).problem(404).contains("settled, expired"));
    assert_eq!(left(), 90, "nothing comes back twice");

    let (id, _) = hold(20);
    assert_eq!(settle(&id.unwrap(), 50).status, 200);
    assert_eq!(left(), 40, "what cost more is charged");

    assert_eq!(hold(41), (None, 40), "what was refused is not held");
    let (id, _) = hold(5);
    site.clock.advance(Duration::from_secs(30));
    assert!(settle(&id.unwrap(), 0).problem(404).contains("settled, expired"));
    assert_eq!(left(), 35, "it stays as it was taken");
}

#[test]
fn limits_in_shadow_only_tell() {
    let site = Site::new("[limit.all]\nrate = \"9/h\"\n[limit.strict]\nrate = \"1/h\"\nmode = \"shadow\"\n");
    let told = |body: &str| {
        let answer = site.check(body);
        let json = answer.json();
        let limits: Vec<_> = json["limits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|limit| {
                (
                    limit["name"].as_str().unwrap().to_owned(),
                    limit["shadow"] == true,
                    limit["allowed"] == true,
                )
            })
            .collect();
        assert_eq!(answer.field("ratelimit").unwrap().matches("strict").count(), 0);
        (answer.status, json["decided_by"].as_str().unwrap().to_owned(), limits)
    };
    let (all, strict) = ("all".to_owned(), "strict".to_owned());
    let first = (200, all.clone(), vec![(all.clone(), false, true), (strict.clone(), true, true)]);
    assert_eq!(told(r#"{"descriptor":{}}"#), first);
    let second = (200, all.clone(), vec![(all.clone(), false, true), (strict, true, false)]);
    assert_eq!(told(r#"{"descriptor":{}}"#), second);
}

#[test]
fn the_tightest_of_several_limits_decides() {
    let site = Site::new(
        "[limit.per-user]\nkey = \"user\"\nrate = [\"2/s\", \"3/h\"]\n[limit.all]\nrate = \"100/s\"\n",
    );
    let body = r#"{"descriptor":{"user":"ann"}}"#;
    let first = site.check(body);
    assert_eq!(first.json()["decided_by"], "per-user");
    assert_eq!(first.json()["limits"].as_array().unwrap().len(), 3);
    let policy = first.field("ratelimit-policy").unwrap().to_owned();
    for name in [r#""per-user 2/s";q=2;w=1"#, r#""per-user 3/h";q=3;w=3600"#, r#""all";q=100;w=1"#] {
        assert!(policy.contains(name), "{policy}");
    }
    assert_eq!(site.check(body).status, 200);
    site.clock.advance(Duration::from_secs(1));
    assert_eq!(site.check(body).status, 200);
    let refused = site.check(body);
    assert_eq!((refused.status, &refused.json()["decided_by"]), (429, &json!("per-user")));
    assert_eq!(
        refused.json()["retry_after"],
        1_199,
        "a third of an hour after the first, which was a second ago"
    );
}

#[test]
fn numbers_and_booleans_are_taken_by_their_text() {
    let site = Site::new("[limit.a]\nkey = \"v\"\nrate = \"1/h\"\n");
    for (value, text) in [
        ("7", "7"),
        ("-3", "-3"),
        ("true", "true"),
        ("false", "false"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        assert_eq!(site.check(&format!(r#"{{"descriptor":{{"v":{value}}}}}"#)).status, 200);
        assert_eq!(site.check(&format!(r#"{{"descriptor":{{"v":"{text}"}}}}"#)).status, 429, "{value}");
    }
    assert_eq!(site.check(r#"{"descriptor":{"v":7.0}}"#).status, 429, "which is 7");
    assert_eq!(site.check(r#"{"descriptor":{"v":"8"},"cost":1e0}"#).status, 200);
    assert_eq!(site.check(r#"{"descriptor":{"v":"\u0061\n"}}"#).status, 200);
    assert_eq!(site.check(r#"{"descriptor":{"v":"a\u000a"}}"#).status, 429, "escapes are undone");
}

#[test]
fn whoever_no_limit_applies_to_is_allowed_and_told_so() {
    let site = Site::new(PER_IP);
    for body in [r#"{"descriptor":{}}"#, r#"{"domain":"elsewhere","descriptor":{"ip":"1"}}"#] {
        let answer = site.check(body);
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.json(),
            json!({
                "allowed": true, "decided_by": null, "limit": null, "remaining": null, "retry_after": 0,
                "reset_after": 0, "delay": 0, "degraded": false, "limits": [],
            })
        );
        assert_eq!(answer.field("ratelimit"), None);
    }
}

#[test]
fn a_queue_says_how_long_to_wait() {
    let site = Site::new("[limit.queue]\nrate = \"2/s burst 4\"\nalgorithm = \"leaky-queue\"\n");
    let delays: Vec<Value> =
        (0..3).map(|_| site.check(r#"{"descriptor":{}}"#).json()["delay"].clone()).collect();
    assert_eq!(delays, [json!(0), json!(0.5), json!(1)]);
}

#[test]
fn checks_of_a_list_are_decided_one_after_the_other() {
    let site = Site::new(PER_IP);
    let list = format!(
        r#"[{ANN},{{"descriptor":{{"ip":"other"}}}},{ANN},{ANN},{{"limit":{{"rate":"1/h"}},"key":"k"}}]"#
    );
    let answer = site.check(&list);
    assert_eq!((answer.status, answer.field("ratelimit")), (200, None));
    let seen = |answer: &Value| {
        let items = answer.as_array().unwrap().iter();
        items.map(|one| (one["allowed"] == true, one["remaining"].as_u64().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(seen(&answer.json()), [(true, 1), (true, 1), (true, 0), (false, 0), (true, 0)]);
    let again = site.check(&format!(r#"{{"checks":{list}}}"#));
    assert_eq!(seen(&again.json()), [(false, 0), (true, 0), (false, 0), (false, 0), (false, 0)]);
    let none = site.check("[]");
    assert_eq!((none.status, none.body.as_str()), (200, "[]"));
    let many = vec![r#"{"limit":{"rate":"600/h"},"key":"many"}"#; 1_000].join(",");
    let answer = site.check(&format!("[{many}]"));
    assert_eq!(answer.json().as_array().unwrap().iter().filter(|one| one["allowed"] == true).count(), 600);
}

#[test]
fn one_of_a_list_that_makes_no_sense_has_a_problem_in_its_place() {
    let site = Site::new("[limit.bytes]\nrate = \"10/h\"\ncost = \"bytes\"\non_bad_value = \"deny\"\n");
    let answer = site
        .check(r#"[{"descriptor":{"bytes":4}},{"descriptor":{"bytes":"many"}},{"descriptor":{"bytes":6}}]"#);
    let json = answer.json();
    assert_eq!((answer.status, &json[0]["allowed"], &json[2]["allowed"]), (200, &json!(true), &json!(true)));
    assert_eq!((&json[1]["status"], &json[1]["pointer"]), (&json!(400), &json!("/1/descriptor")));
    let alone = site.check(r#"{"descriptor":{"bytes":"-1"}}"#);
    assert!(alone.problem(400).contains(r#"limit "bytes": the cost in the field "bytes""#));
    assert_eq!(alone.json()["pointer"], "/descriptor");
}

// Guards, item 6: a limit that a caller supplies never reaches the state of a policy's limit, whatever it is called.
#[test]
fn a_supplied_limit_does_not_touch_a_limit_of_the_policy_with_the_same_name() {
    let site = Site::new("[limit.per-ip]\ndomain = \"http\"\nkey = \"ip\"\nrate = \"1/h\"\n");
    let supplied = r#"{"limit":{"name":"per-ip","rate":"1/h"},"key":"10.0.0.7"}"#;
    let by_policy = r#"{"domain":"http","descriptor":{"ip":"10.0.0.7"}}"#;
    assert_eq!([(); 2].map(|()| site.check(supplied).status), [200, 429]);
    assert_eq!([(); 2].map(|()| site.check(by_policy).status), [200, 429]);
    assert_eq!(site.check(supplied).json()["limits"][0]["domain"], "@http");
}
