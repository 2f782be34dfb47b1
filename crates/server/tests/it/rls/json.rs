//! The same in JSON.

use serde_json::{Value, json};
use tollgate_server::RlsOptions;
use tollgate_server::rls::should_rate_limit_json;

use super::rig::rig;

const WEB: &str = "domain = \"web\"\nalgorithm = \"fixed-window\"\n[limit.per-ip]\nkey = \"ip\"\nrate = \"3/min\"\n[limit.staff]\nmatch.role = \"staff\"\nrate = \"unlimited\"\n";

async fn post(body: &str) -> Vec<(u16, Value)> {
    let rig = rig(WEB);
    let mut clerk = rig.engine.clerk();
    let mut answers = Vec::new();
    for body in body.lines() {
        let (status, answer) =
            should_rate_limit_json(&mut clerk, RlsOptions::default(), body.as_bytes()).await;
        answers.push((status.as_u16(), serde_json::from_slice(&answer).unwrap()));
    }
    answers
}

fn status(code: &str, left: Option<u32>) -> Value {
    let mut status = json!({
        "code": code,
        "currentLimit": { "requestsPerUnit": 3, "unit": "MINUTE", "name": "per-ip" },
        "durationUntilReset": "40s",
    });
    if let Some(left) = left {
        status["limitRemaining"] = left.into();
    }
    status
}

#[tokio::test]
async fn it_is_decided_and_told_as_proto3_says() {
    let ask =
        r#"{"domain": "web", "descriptors": [{"entries": [{"key": "ip", "value": "1"}]}], "hitsAddend": 2}"#;
    let answers = post(&format!("{ask}\n{ask}")).await;
    assert_eq!(answers[0], (200, json!({ "overallCode": "OK", "statuses": [status("OK", Some(1))] })));
    assert_eq!(
        answers[1],
        (429, json!({ "overallCode": "OVER_LIMIT", "statuses": [status("OVER_LIMIT", Some(1))] }))
    );
    let free = r#"{"domain":"web","descriptors":[{"entries":[{"key":"role","value":"staff"}]},{"entries":[{"key":"x"}]}]}"#;
    let statuses = json!([{ "code": "OK", "limitRemaining": u32::MAX }, { "code": "OK" }]);
    assert_eq!(post(free).await, [(200, json!({ "overallCode": "OK", "statuses": statuses }))]);
}

#[tokio::test]
async fn names_units_and_numbers_may_be_written_in_each_of_their_ways() {
    let ask = |inner: &str| {
        format!(r#"{{"domain":"web","descriptors":[{{"entries":[{{"key":"ip","value":"1"}}],{inner}}}]}}"#)
    };
    let ways = [
        ask(r#""hitsAddend":"2""#),
        ask(r#""hits_addend":2"#),
        ask(r#""hitsAddend":2,"limit":null,"isNegativeHits":null"#),
        r#"{"domain":"web","hits_addend":2,"descriptors":[{"entries":[{"key":"ip","value":"1"}]}]}"#
            .to_owned(),
        r#"{"domain":"web","hitsAddend":"2","descriptors":[{"entries":[{"key":"ip","value":"1"}]}]}"#
            .to_owned(),
    ];
    for way in ways {
        assert_eq!(post(&way).await[0].1["statuses"][0]["limitRemaining"], 1, "{way}");
    }
    let look = ask(r#""hitsAddend":"0""#);
    assert_eq!(post(&look).await[0].1["statuses"][0]["limitRemaining"], 3);
    let back = format!("{}\n{}", ask(r#""hitsAddend":3"#), ask(r#""hitsAddend":2,"is_negative_hits":true"#));
    assert_eq!(post(&back).await[1].1["statuses"][0]["limitRemaining"], 2);
    for limit in [
        r#""limit":{"requestsPerUnit":7,"unit":"HOUR"}"#,
        r#""limit":{"requestsPerUnit":7.0,"unit":"HOUR"}"#,
        r#""limit":{"requests_per_unit":"7","unit":3}"#,
    ] {
        let told = &post(&ask(limit)).await[0].1["statuses"][0]["currentLimit"];
        assert_eq!(*told, json!({ "requestsPerUnit": 7, "unit": "HOUR" }), "{limit}");
    }
}

/// Item 26.4: the body is the name of the status, as upstream answers.
#[tokio::test]
async fn what_makes_no_sense_is_a_bad_request() {
    let bodies = [
        "",
        "[]",
        r#"{"domian":"web"}"#,
        r#"{"domain":"web"}"#,
        r#"{"descriptors":[{"entries":[{"key":"ip","value":"1"}]}]}"#,
        r#"{"domain":"web","descriptors":[{"entries":[{"key":"a","valeu":"b"}]}]}"#,
    ];
    let rig = rig(WEB);
    let mut clerk = rig.engine.clerk();
    for body in bodies {
        let (status, answer) =
            should_rate_limit_json(&mut clerk, RlsOptions::default(), body.as_bytes()).await;
        assert_eq!((status.as_u16(), &*String::from_utf8_lossy(&answer)), (400, "Bad Request\n"), "{body}");
    }
}
