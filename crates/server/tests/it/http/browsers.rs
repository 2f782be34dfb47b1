//! What a page of the web can do with the browser of somebody who runs this service: nothing.

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_server::{Hosts, Keyring, Keys, RlsOptions, Scope, Scopes};

use super::support::{Answer, Site};

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"1/h\"\n";
const CHECK: &str = r#"{"descriptor":{"ip":"1"}}"#;
const RESET: &str = r#"{"descriptor":{"ip":"1"}}"#;

/// A request with these header fields, each with its line end.
fn ask(site: &Site, request: &str, fields: &str, body: &str) -> Answer {
    let length = body.len();
    site.client().ask(&format!("{request} HTTP/1.1\r\n{fields}content-length: {length}\r\n\r\n{body}"))
}

const JSON: &str = "content-type: application/json\r\n";

/// Guards, item 5: a page may send a form or a plain text anywhere, but not JSON, and the browser names the page's origin.
#[test]
fn a_page_of_another_origin_changes_nothing() {
    let site = Site::new(POLICY);
    let host = "host: 127.0.0.1:8080\r\n";
    assert_eq!(ask(&site, "POST /v1/check", &format!("{host}{JSON}"), CHECK).status, 200);
    for path in ["/v1/check", "/v1/settle", "/v1/reset"] {
        let post = format!("POST {path}");
        assert_eq!(ask(&site, &post, host, RESET).status, 415, "{path}");
        let foreign = format!("{host}{JSON}origin: http://attacker.example\r\n");
        let told = ask(&site, &post, &foreign, RESET);
        assert!(told.problem(403).contains("http://attacker.example"), "{path}");
        let opaque = format!("{host}{JSON}origin: null\r\n");
        assert_eq!(ask(&site, &post, &opaque, RESET).status, 403, "{path}");
    }
    assert_eq!(ask(&site, "POST /v1/check", &format!("{host}{JSON}"), CHECK).status, 429, "it was not reset");
    let own = format!("{host}{JSON}origin: http://127.0.0.1:8080\r\n");
    assert_eq!(ask(&site, "POST /v1/reset", &own, RESET).status, 200);
}

/// Guards, item 5: a page whose own name is made to resolve to this machine is of the same origin, but names its own host.
#[test]
fn a_host_that_is_not_ours_is_refused() {
    let site = Site::with(POLICY, |api| api.with_hosts(Hosts::new(["tollgate.internal"])));
    let check = |host: &str| {
        ask(&site, "POST /v1/check", &format!("host: {host}\r\n{JSON}origin: http://{host}\r\n"), CHECK)
    };
    for host in ["attacker.example", "attacker.example:8080", "", "localhost.attacker.example"] {
        assert!(check(host).problem(421).contains("http.hosts"), "{host}");
        assert_eq!(ask(&site, "GET /v1/limits", &format!("host: {host}\r\n"), "").status, 421, "{host}");
    }
    for host in ["localhost:8080", "[::1]:8080", "10.0.0.7", "tollgate.internal"] {
        assert_ne!(check(host).status, 421, "{host}");
    }
    let without_origin = format!("host: attacker.example\r\n{JSON}");
    assert_eq!(
        ask(&site, "POST /v1/check", &without_origin, CHECK).status,
        421,
        "not by the fast path either"
    );
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(ask(&site, &format!("GET {probe}"), "host: attacker.example\r\n", "").status, 200);
    }
}

/// Guards, item 5: `/json` has Envoy's rules for content types, and ours for origins; `/healthcheck` is a probe like the others.
#[test]
fn the_paths_of_envoys_service_are_guarded_too() {
    let policy = format!("domain = \"web\"\n{POLICY}");
    let site = Site::with(&policy, |api| api.rls(RlsOptions::default()));
    let body = r#"{"domain":"web","descriptors":[{"entries":[{"key":"ip","value":"1"}]}]}"#;
    let host = "host: 127.0.0.1:8080\r\n";
    for origin in ["http://attacker.example", "null"] {
        let foreign = format!("{host}origin: {origin}\r\n");
        assert!(ask(&site, "POST /json", &foreign, body).problem(403).contains(origin));
    }
    assert_eq!(ask(&site, "POST /json", "host: attacker.example\r\n", body).status, 421);
    assert_eq!(ask(&site, "POST /json", host, body).status, 200, "nothing was counted before");
    assert_eq!(ask(&site, "POST /json", host, body).status, 429);
    assert_eq!(ask(&site, "GET /healthcheck", "host: attacker.example\r\n", "").status, 200);
}

/// Guards, item 5: a client that proves who it is may name any host.
#[test]
fn a_token_is_enough_whatever_the_host() {
    let keyring = Keyring::new().token("service", b"secret", Scopes::of(&[Scope::Check]));
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    let site =
        Site::on(store, ManualClock::new(), POLICY, |server| server.keys(Keys::new(keyring)), |api| api);
    let fields = format!("host: tollgate.example\r\n{JSON}authorization: Bearer secret\r\n");
    assert_eq!(ask(&site, "POST /v1/check", &fields, CHECK).status, 200);
}

/// Guards, item 10: who is asked must be clear.
#[test]
fn two_hosts_and_none_are_refused() {
    let site = Site::new(POLICY);
    for request in ["GET /healthz", "POST /v1/check"] {
        let two = format!("host: localhost\r\nhost: 127.0.0.1\r\n{JSON}");
        assert_eq!(ask(&site, request, &two, CHECK).problem(400), "two Host headers");
        let none = "missing Host header";
        assert_eq!(ask(&site, request, JSON, CHECK).problem(400), none);
    }
    assert_eq!(site.client().ask("GET /healthz HTTP/1.0\r\n\r\n").status, 200);
}
