//! What operators see and do.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::Quota;
use tollgate::store::Mode;
use tollgate_policy::Policy;
use tollgate_server::{Family, Origin, Own, RlsOptions, Scope, Scopes};

use super::support::Site;

const TWO: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n\
                   [limit.all]\nrate = \"5/min\"\nmode = \"shadow\"\n";

fn status_of(site: &Site, ip: &str) -> u16 {
    site.check(&format!(r#"{{"descriptor":{{"ip":"{ip}"}}}}"#)).status
}

#[test]
fn a_descriptor_is_reset_for_all_limits_that_apply() {
    let site = Site::new(TWO);
    assert_eq!([200, 200, 429].map(|_| status_of(&site, "1")), [200, 200, 429]);
    assert_eq!(status_of(&site, "2"), 200);
    let answer = site.post("/v1/reset", r#"{"descriptor":{"ip":"1"}}"#);
    let reset = |name: &str, rate: &str, known: bool| json!({"domain": "default", "name": name, "rates": [rate], "known": known});
    let mut shown = answer.json()["reset"].as_array().unwrap().clone();
    shown.sort_by_key(|one| one["name"].to_string());
    assert_eq!(
        (answer.status, shown),
        (200, vec![reset("all", "5/min", true), reset("per-ip", "2/min", true)])
    );
    assert_eq!([200, 200, 429].map(|_| status_of(&site, "1")), [200, 200, 429]);
    assert_eq!(status_of(&site, "2"), 200, "others are left alone");
    assert_eq!(status_of(&site, "2"), 429);
    let unknown = site.post("/v1/reset", r#"{"descriptor":{"ip":"never seen"}}"#).json();
    let known: Vec<_> = unknown["reset"].as_array().unwrap().iter().map(|one| one["known"] == true).collect();
    assert_eq!(known.iter().filter(|known| **known).count(), 1, "all, but not the ip: {unknown}");
}

#[test]
fn a_limit_of_the_callers_own_is_reset_for_a_key() {
    let site = Site::new(TWO);
    let own = r#"{"limit":{"rate":"1/h","name":"own"},"key":"k"}"#;
    assert_eq!([(); 2].map(|()| site.check(own).status), [200, 429]);
    let answer = site.post("/v1/reset", own);
    assert_eq!(
        answer.json(),
        json!({"reset": [{"domain": "@http", "name": "own", "rates": ["1/h"], "known": true}]})
    );
    assert_eq!([(); 2].map(|()| site.check(own).status), [200, 429]);
    let detail = site.post("/v1/reset", r#"{"descriptor":{},"cost":1}"#).problem(400);
    assert_eq!(detail, "unknown field `cost`, expected one of `domain`, `descriptor`, `limit`, `key`");
}

#[test]
fn limits_are_listed_with_what_they_counted() {
    let site = Site::new(
        "[limit.per-ip]\nkey = \"ip\"\nrate = [\"2/min\", \"10/h\"]\non_store_failure = \"deny\"\ncost = \"bytes\"\n\
         overrides = [{ field = \"plan\", rates = { gold = \"99/min\" } }]\n",
    );
    for status in [200, 200, 429, 429] {
        assert_eq!(status_of(&site, "1"), status);
    }
    let counters = |allowed: u64, denied: u64| {
        json!({"allowed": allowed, "denied": denied, "shadow_denied": 0, "error_allowed": 0, "error_denied": 0,
               "error_local_allowed": 0, "error_local_denied": 0})
    };
    assert_eq!(
        site.get("/v1/limits").json(),
        json!({"limits": [{
            "domain": "default", "name": "per-ip", "mode": "enforce", "algorithm": "token-bucket",
            "rates": ["2/min", "10/h"], "overrides": [{"field": "plan", "value": "gold", "rates": ["99/min"]}],
            "match": [], "when": [], "entries": [], "key": ["ip"], "cost": "bytes",
            "on_store_failure": "deny", "on_bad_value": "default", "calls": counters(2, 2), "hits": counters(2, 2), "near": 1,
        }], "next": null})
    );
}

/// Answers, item 29: a limit is listed with its conditions, and each override with its field and value, in order.
#[test]
fn limits_are_listed_with_conditions_and_overrides() {
    let site = Site::new(
        "[limit.uploads]\nmatch.method = [\"PUT\", \"P*\"]\nmatch.path = \"/files/*\"\nwhen = \"descriptors[0].user != 'root'\"\nkey = \"user\"\nrate = \"2/min\"\n\
         overrides = [{ field = \"tenant\", rates = { acme = [\"9/s\", \"99/h\"] } }, { field = \"plan\", rates = { gold = \"99/min\" } }]\n",
    );
    let limit = &site.get("/v1/limits").json()["limits"][0];
    assert_eq!(
        limit["match"],
        json!([{"field": "method", "condition": "is \"PUT\" or like \"P*\""}, {"field": "path", "condition": "like \"/files/*\""}])
    );
    assert_eq!(limit["when"], json!(["descriptors[0].user != 'root'"]));
    assert_eq!(
        limit["overrides"],
        json!([
            {"field": "tenant", "value": "acme", "rates": ["9/s", "99/h"]},
            {"field": "plan", "value": "gold", "rates": ["99/min"]},
        ])
    );
}

#[test]
fn limits_are_listed_in_pages() {
    let policy: Vec<String> = (0..25).map(|at| format!("[limit.l{at:02}]\nrate = \"1/s\"\n")).collect();
    let site = Site::new(&policy.concat());
    let (mut names, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = site.get(&format!("/v1/limits?count=10{after}")).json();
        pages += 1;
        names.extend(
            page["limits"].as_array().unwrap().iter().map(|limit| limit["name"].as_str().unwrap().to_owned()),
        );
        let Value::String(next) = &page["next"] else { break };
        after = format!("&after={}", next.replace(' ', "%20"));
    }
    assert_eq!(pages, 3);
    assert_eq!(names, (0..25).map(|at| format!("l{at:02}")).collect::<Vec<_>>());
    assert_eq!(site.get("/v1/limits?after=default+l24").json(), json!({"limits": [], "next": null}));
    assert_eq!(
        site.get("/v1/limits?after=default+l12x&count=1").json()["limits"][0]["name"],
        "l13",
        "one that is gone"
    );
    for (query, detail) in [
        ("count=0", "expected a whole number from 1 to 1000, found \"0\""),
        ("count=1001", "expected a whole number from 1 to 1000, found \"1001\""),
        (
            "count=18446744073709551616",
            "expected a whole number from 1 to 1000, found \"18446744073709551616\"",
        ),
        (
            "after=l01",
            "expected a domain, a space and a name, as in `next` of the previous page, found \"l01\"",
        ),
        ("page=2", "unknown parameter; expected after or count"),
    ] {
        let answer = site.get(&format!("/v1/limits?{query}"));
        assert_eq!(answer.problem(400), detail);
        assert_eq!(answer.json()["parameter"], query.split('=').next().unwrap());
    }
}

#[test]
fn the_busiest_keys_are_told() {
    let site = Site::new("[limit.per-ip]\nkey = \"ip\"\nrate = \"1/h\"\n");
    for (ip, times) in [("a", 3), ("b", 2), ("c", 1)] {
        (0..times).for_each(|_| assert!(status_of(&site, ip) <= 429));
    }
    let top = |query: &str| {
        let json = site.get(&format!("/v1/keys/top{query}")).json();
        let keys = json["keys"].as_array().unwrap().iter();
        let keys = keys.map(|one| (one["key"].as_str().unwrap().to_owned(), one["count"].as_u64().unwrap()));
        (json["by"].as_str().unwrap().to_owned(), keys.collect::<Vec<_>>())
    };
    let pairs = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect::<Vec<_>>()
    };
    assert_eq!(top(""), ("asked".to_owned(), pairs(&[("a", 3), ("b", 2), ("c", 1)])));
    assert_eq!(top("?by=denied&count=1"), ("denied".to_owned(), pairs(&[("a", 2)])));
    let one = &site.get("/v1/keys/top").json()["keys"][0];
    assert_eq!(
        (&one["domain"], &one["limit"], &one["error"]),
        (&json!("default"), &json!("per-ip"), &json!(0))
    );
    for count in [5, 6] {
        let own = Own::fixed(Family::new("@mine"), Quota::per_second(count));
        (0..10).for_each(|_| _ = site.engine.clerk().decide_own_now(Mode::Take, own, b"d", 1));
    }
    let json = site.get("/v1/keys/top?count=2").json();
    let mut limits = [0, 1].map(|at| json["keys"][at]["limit"].as_str().unwrap());
    limits.sort_unstable();
    assert_eq!(limits, ["5/s", "6/s"], "a limit that was brought along is told by its quota: {json}");
    assert_eq!(site.get("/v1/keys/top?by=name").problem(400), "expected asked or denied, found \"name\"");
}

#[test]
fn the_policys_history_is_told() {
    let site = Site::new(TWO);
    let shown = json!({"origin": "limits.toml", "hash": "c0ffee", "since": "1970-01-01T00:00:00Z", "loads": 1,
                       "failures": 0, "problem": null, "limits": 2});
    assert_eq!(site.get("/v1/policy").json(), shown);
    site.clock.advance(Duration::from_secs(90));
    site.engine.load_failed("line 3 is odd");
    let shown = site.get("/v1/policy").json();
    assert_eq!((&shown["failures"], &shown["loads"]), (&json!(1), &json!(1)));
    assert_eq!(shown["problem"], json!({"at": "1970-01-01T00:01:30Z", "text": "line 3 is odd"}));
    let policy = Policy::parse("limits.toml", "[limit.only]\nrate = \"1/s\"\n").unwrap();
    site.engine.load(policy, Origin { name: "limits.toml".to_owned(), hash: "beef".to_owned() });
    let shown = json!({"origin": "limits.toml", "hash": "beef", "since": "1970-01-01T00:01:30Z", "loads": 2,
                       "failures": 1, "problem": null, "limits": 1});
    assert_eq!(site.get("/v1/policy").json(), shown);
}

#[test]
fn health_and_readiness_are_told() {
    let site = Site::new(TWO);
    for path in ["/healthz", "/readyz"] {
        let answer = site.get(path);
        assert_eq!((answer.status, answer.json()), (200, json!({"status": "ok"})));
    }
}

#[test]
fn a_listener_may_serve_some_scopes_only() {
    let site = Site::with(TWO, |api| api.scopes(Scopes::of(&[Scope::Check])));
    assert_eq!(status_of(&site, "1"), 200);
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(site.get(path).status, 200, "{path}");
    }
    for path in ["/v1/limits", "/v1/keys/top", "/v1/policy", "/metrics"] {
        let detail = site.get(path).problem(404);
        assert_eq!(
            detail,
            format!("{path:?} is not served on this listener. Use the admin listener (`admin.address`).")
        );
    }
    let settle = site.post("/v1/settle", "{}").problem(404);
    assert_eq!(
        settle,
        "\"/v1/settle\" is not served on this listener. Use the HTTP listener (`http.address`)."
    );
    assert_eq!(site.post("/v1/reset", r#"{"descriptor":{"ip":"1"}}"#).status, 404);
    assert_eq!(
        site.get("/json").problem(404),
        "unknown path \"/json\"; expected one of /v1/check, /openapi.json, /healthz, /readyz"
    );
}

#[test]
fn every_path_of_the_document_is_there_and_no_other() {
    let site = Site::with(TWO, |api| api.rls(RlsOptions::default()));
    let document = site.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let described: Vec<_> = document["paths"].as_object().unwrap().iter().collect();
    for (path, methods) in &described {
        for (method, word) in [("get", "GET"), ("post", "POST")] {
            let answer = site
                .client()
                .ask(&format!("{word} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n"));
            let is_described = methods.get(method).is_some();
            // As in envoyproxy/ratelimit, /json answers GET as it answers POST.
            assert_eq!(answer.status == 405, !is_described && *path != "/json", "{word} {path}: {answer:?}");
            let statuses = methods[if is_described { method } else { "none" }]["responses"].as_object();
            assert!(
                statuses.is_none_or(|known| known.contains_key(&answer.status.to_string())),
                "{word} {path}: {answer:?}"
            );
        }
    }
    let missing = site.get("/nowhere").problem(404);
    let paths: Vec<&str> = missing.split("expected one of ").last().unwrap().split(", ").collect();
    assert_eq!(paths.len(), described.len());
    for (path, _) in described {
        assert!(paths.contains(&path.as_str()), "{path}");
    }
}
