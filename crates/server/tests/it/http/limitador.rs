//! limitador's HTTP API.

use serde_json::{Value, json};
use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_server::{Compat, HttpApi, Keyring, Keys, Metrics, Scope, Scopes};

use super::support::{Answer, Site};

const TOYS: &str = r#"
    algorithm = "fixed-window"
    domain = "toystore"
    [limit.toys]
    match."req.method" = "POST"
    key = ["user", "app"]
    rate = "3/min"
    limitador = { name = "Toys per user", id = "toys", once = true }
    [limit.all]
    when = "descriptors[0].path != '/free'"
    rate = "100/h"
    limitador.once = true
"#;

fn site() -> Site {
    Site::with(TOYS, HttpApi::limitador)
}

fn body(user: &str, delta: u64) -> String {
    json!({
        "namespace": "toystore",
        "values": { "req.method": "POST", "user": user, "app": "a", "path": "/toys" },
        "delta": delta,
    })
    .to_string()
}

fn told(answer: &Answer) -> (u16, Option<&str>, &str) {
    (answer.status, answer.field("content-type"), &answer.body)
}

/// Item 26.8: decisions are statuses, and the body is null.
#[test]
fn check_report_and_check_and_report_answer_as_limitador() {
    let site = site();
    let ok = (200, Some("application/json"), "null");
    let over = (429, Some("application/json"), "null");
    for _ in 0..5 {
        assert_eq!(told(&site.post("/check", &body("ann", 3))), ok, "a check takes nothing");
    }
    assert_eq!(told(&site.post("/check", &body("ann", 4))), over);
    assert_eq!(told(&site.post("/check_and_report", &body("ann", 2))), ok);
    assert_eq!(told(&site.post("/check_and_report", &body("ann", 2))), over);
    assert_eq!(told(&site.post("/check_and_report", &body("ann", 1))), ok, "what is denied takes nothing");
    assert_eq!(told(&site.post("/report", &body("bob", 50))), ok, "a report is never refused");
    assert_eq!(told(&site.post("/check", &body("bob", 1))), over);
    let elsewhere = r#"{"namespace": "elsewhere", "values": {}, "delta": 1, "more": true}"#;
    assert_eq!(told(&site.post("/check_and_report", elsewhere)), ok);
}

/// Item 26.9: the fields of draft 03 are sent if the body asks for them.
#[test]
fn response_headers_adds_the_fields_of_draft_03() {
    let site = site();
    let ask = |path: &str, wanted: &str| {
        let body = body("ann", 1).replacen('{', &format!(r#"{{"response_headers": "{wanted}", "#), 1);
        site.post(path, &body)
    };
    let fields = |answer: &Answer| {
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
            .map(|name| answer.field(name).unwrap_or_default().to_owned())
    };
    let limits = "3, 3;w=60;name=\"Toys per user\", 100;w=3600";
    for (path, left) in [("/check_and_report", "2"), ("/check", "1"), ("/report", "1")] {
        assert_eq!(fields(&ask(path, "DraftVersion03")), [limits, left, "60"], "{path}");
    }
    assert_eq!(fields(&ask("/check_and_report", "NONE")), ["", "", ""]);
    assert_eq!(fields(&site.post("/check", &body("ann", 1))), ["", "", ""]);
}

/// Item 26.8: bad requests have limitador's statuses.
#[test]
fn bad_requests_are_answered_400_404_and_405() {
    let site = site();
    for bad in [
        "",
        "null",
        "{}",
        r#"{"namespace": "a", "values": {}}"#,
        r#"{"namespace": "a", "values": {}, "delta": -1}"#,
        r#"{"namespace": "a", "values": {"a": 1}, "delta": 1}"#,
        r#"{"namespace": 1, "values": {}, "delta": 1}"#,
    ] {
        assert_eq!(site.post("/check", bad).status, 400, "{bad}");
    }
    let many: serde_json::Map<String, Value> = (0..33).map(|n| (format!("f{n}"), json!("x"))).collect();
    let many = json!({ "namespace": "a", "values": many, "delta": 1 }).to_string();
    assert!(site.post("/check", &many).problem(400).contains("more than 32 values"));
    let long = json!({ "namespace": "a", "values": { "a": "x".repeat(1025) }, "delta": 1 }).to_string();
    assert!(site.post("/check", &long).problem(400).contains("more than 1024 characters"));
    for path in ["/", "/v1/check", "/limits", "/limits/", "/counters/", "/checks", "/status/"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    assert_eq!(site.get("/check").problem(405), "method not allowed; use POST");
    assert_eq!(site.post("/limits/toystore", "{}").status, 405);
    let plain =
        "POST /check HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(site.client().ask(plain).status, 400);
}

/// Item 26.8: limits are shown as in limitador's files.
#[test]
fn limits_of_a_namespace_are_shown_as_in_limitadors_files() {
    let site = site();
    let toys = json!({
        "id": "toys", "namespace": "toystore", "max_value": 3, "seconds": 60, "name": "Toys per user",
        "conditions": ["descriptors[0]['req.method'] == 'POST'"],
        "variables": ["descriptors[0]['user']", "descriptors[0]['app']"],
    });
    let all = json!({
        "id": null, "namespace": "toystore", "max_value": 100, "seconds": 3600, "name": null,
        "conditions": ["descriptors[0].path != '/free'"], "variables": [],
    });
    let shown = site.get("/limits/toystore");
    let mut limits = shown.json().as_array().unwrap().clone();
    limits.sort_by_key(|limit| limit["max_value"].as_u64());
    assert_eq!((shown.status, limits), (200, vec![toys, all]));
    assert_eq!(site.get("/limits/elsewhere").json(), json!([]));
    assert_eq!(site.get("/limits/toy%73tore").json(), shown.json());
    assert_eq!(site.get("/limits/%zz").status, 400);
}

/// Item 26.8: counters are shown once they have counted.
#[test]
fn counters_of_a_namespace_are_shown_with_what_is_left() {
    let site = site();
    assert_eq!(site.get("/counters/toystore").json(), json!([]));
    site.post("/check_and_report", &body("ann,b", 2));
    let shown = site.get("/counters/toystore").json();
    let find = |most: u64| {
        let all = shown.as_array().unwrap();
        all.iter().find(|counter| counter["limit"]["max_value"] == most).unwrap().clone()
    };
    assert_eq!(shown.as_array().unwrap().len(), 2, "{shown}");
    let toys = find(3);
    let variables = json!({ "descriptors[0]['user']": "ann,b", "descriptors[0]['app']": "a" });
    assert_eq!((&toys["set_variables"], &toys["remaining"]), (&variables, &json!(1)));
    assert_eq!(toys["expires_in_seconds"], 60);
    let all = find(100);
    assert_eq!((&all["set_variables"], &all["remaining"]), (&json!({}), &json!(98)));
    site.clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(site.get("/counters/toystore").json().as_array().unwrap().len(), 1);
    assert_eq!(site.get("/counters/elsewhere").json(), json!([]));
}

/// Item 26.8: the status counts reloads.
#[test]
fn status_counts_reloads_and_failures_since() {
    let site = site();
    let version = || {
        let status = site.get("/status").json();
        (status["config_version"].as_u64().unwrap(), status["config_err_since"].as_u64().unwrap())
    };
    assert_eq!(version(), (0, 0));
    site.engine.load_failed("odd");
    site.engine.load_failed("odd");
    assert_eq!(version(), (0, 2));
    let policy = tollgate_policy::Policy::parse("limits.toml", TOYS).unwrap();
    site.engine.load(policy, tollgate_server::Origin::default());
    assert_eq!(version(), (1, 0));
    let status = site.get("/status").json();
    for name in ["started_at", "config_applied_at"] {
        let time = status[name].as_str().unwrap();
        assert!(time.contains('T') && !time.ends_with('Z'), "{time}");
    }
}

/// Item 26.9: metrics count each call once, those without a limit too.
#[test]
fn metrics_count_check_and_report_once_for_each_call() {
    let count = |has_limit_names| {
        let compat = Compat::Limitador { has_limit_names };
        let site = Site::with(TOYS, |_| HttpApi::new(Metrics::new().compat(compat)).limitador());
        for delta in [2, 1, 1] {
            site.post("/check_and_report", &body("ann", delta));
        }
        site.post("/check_and_report", r#"{"namespace": "elsewhere", "values": {}, "delta": 7}"#);
        site.post("/check", &body("bob", 1));
        site.post("/report", &body("bob", 1));
        site.get("/metrics").body
    };
    let metrics = count(false);
    for line in [
        "authorized_calls{limitador_namespace=\"toystore\"} 2\n",
        "authorized_hits{limitador_namespace=\"toystore\"} 3\n",
        "limited_calls{limitador_namespace=\"toystore\"} 1\n",
        "authorized_calls{limitador_namespace=\"elsewhere\"} 1\n",
        "authorized_hits{limitador_namespace=\"elsewhere\"} 7\n",
        "limitador_up 1\n",
        "datastore_partitioned 0\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let named = "limited_calls{limitador_namespace=\"toystore\",limit_name=\"Toys per user\"} 1\n";
    assert!(!metrics.contains("limit_name"), "{metrics}");
    assert!(count(true).contains(named));
}

/// Item 26.8: the access rules are those of the HTTP listener.
#[test]
fn access_rules_hold_for_every_path() {
    let keyring = Keyring::new()
        .token("proxy", b"asks", Scopes::of(&[Scope::Check]))
        .token("biller", b"settles", Scopes::of(&[Scope::Settle]))
        .token("ops", b"m4ster", Scopes::of(&[Scope::Admin]));
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    let shape = |server: tollgate_server::Server<_>| server.keys(Keys::new(keyring));
    let site = Site::on(store, ManualClock::new(), TOYS, shape, HttpApi::limitador);
    let ask = |method: &str, path: &str, fields: &str, body: &str| {
        let length = body.len();
        site.client().ask(&format!(
            "{method} {path} HTTP/1.1\r\n{fields}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    };
    let call = body("ann", 1);
    let with_token = |token: &str| format!("host: localhost\r\nauthorization: Bearer {token}\r\n");
    for (method, path, token) in [
        ("POST", "/check", "asks"),
        ("POST", "/check_and_report", "asks"),
        ("POST", "/report", "settles"),
        ("GET", "/limits/toystore", "m4ster"),
        ("GET", "/counters/toystore", "m4ster"),
        ("GET", "/metrics", "m4ster"),
    ] {
        assert_eq!(ask(method, path, "host: localhost\r\n", &call).status, 401, "{path}");
        assert_eq!(ask(method, path, &with_token(token), &call).status, 200, "{path}");
        let other = if token == "asks" { "settles" } else { "asks" };
        assert_eq!(ask(method, path, &with_token(other), &call).status, 403, "{path}");
    }
    assert_eq!(ask("GET", "/status", "host: localhost\r\n", "").status, 200);
    let foreign = "host: localhost\r\norigin: http://attacker.example\r\n";
    assert_eq!(ask("POST", "/check", foreign, &call).status, 403);
    let open = self::site();
    let unknown = "GET /limits/toystore HTTP/1.1\r\nhost: attacker.example\r\n\r\n";
    assert_eq!(open.client().ask(unknown).status, 421);
}

/// Item 26.8: a listener that others can reach without keys serves what services need.
#[test]
fn scopes_of_the_listener_leave_out_what_is_for_administrators() {
    let services = Scopes::of(&[Scope::Check, Scope::Hold, Scope::Settle]);
    let site = Site::with(TOYS, |api| api.scopes(services).limitador());
    assert_eq!(site.post("/check", &body("ann", 1)).status, 200);
    assert_eq!(site.get("/status").status, 200);
    for path in ["/limits/toystore", "/counters/toystore", "/metrics"] {
        assert!(site.get(path).problem(404).contains("keys.file"), "{path}");
    }
}
