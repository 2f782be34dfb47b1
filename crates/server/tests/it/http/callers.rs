//! Who may do what.

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_server::{Keyring, Keys, Scope, Scopes};

use super::support::{Answer, Manual, Site};

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"100/h\"\n";

fn site(keyring: Keyring) -> Site<Manual> {
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    Site::on(store, ManualClock::new(), POLICY, |server| server.keys(Keys::new(keyring)), |api| api)
}

fn check(site: &Site, authorization: &str, mode: &str) -> Answer {
    let body = format!(r#"{{"descriptor":{{"ip":"1"}},"mode":"{mode}"}}"#);
    let length = body.len();
    site.client().ask(&format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{authorization}content-length: {length}\r\n\r\n{body}"
    ))
}

fn get(site: &Site, path: &str, authorization: &str) -> Answer {
    site.client().ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}\r\n"))
}

#[test]
fn a_token_opens_what_it_has_the_scope_for() {
    let keyring = Keyring::new().token("ci", b"s3cret", Scopes::of(&[Scope::Check])).token(
        "ops",
        b"m4ster",
        Scopes::ALL,
    );
    let site = site(keyring);
    let (ci, ops) = ("authorization: Bearer s3cret\r\n", "authorization: bearer m4ster\r\n");
    let nobody = check(&site, "", "take");
    assert_eq!(
        nobody.problem(401),
        "the scope check is required: send authorization: Bearer TOKEN with a token that has it"
    );
    assert_eq!(nobody.field("www-authenticate"), Some("Bearer"));
    for wrong in ["guess", "", "s3cret2", "S3CRET", "\u{fe}"] {
        let answer = check(&site, &format!("authorization: Bearer {wrong}\r\n"), "take");
        assert_eq!(answer.status, 401, "{wrong}");
    }
    assert_eq!(check(&site, "authorization: Basic czNjcmV0\r\n", "take").status, 401);
    assert_eq!(check(&site, ci, "take").status, 200);
    assert_eq!(get(&site, "/v1/limits", ci).problem(403), "the scope admin is required");
    assert_eq!(get(&site, "/v1/limits", ops).status, 200);
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(get(&site, path, "").status, 200, "{path} is open to all");
    }
}

#[test]
fn to_give_back_needs_more_than_to_check() {
    let keyring = Keyring::new().with_anonymous(Scopes::of(&[Scope::Check])).token(
        "billing",
        b"b",
        Scopes::of(&[Scope::Settle]),
    );
    let site = site(keyring);
    for mode in ["take", "peek", "count"] {
        assert_eq!(check(&site, "", mode).status, 200, "{mode}");
    }
    for mode in ["charge", "refund"] {
        assert_eq!(check(&site, "", mode).problem(403), "the scope settle is required");
        assert_eq!(check(&site, "authorization: Bearer b\r\n", mode).status, 200, "{mode}");
    }
    let list = r#"[{"descriptor":{}},{"descriptor":{},"mode":"refund"}]"#;
    assert_eq!(site.check(list).status, 403);
    assert_eq!(
        site.check(r#"{"descriptor":{"ip":"1"},"mode":"peek","cost":0}"#).json()["remaining"],
        98,
        "two, and nothing else"
    );
}

// Guards, item 8: to hold needs the scope hold, in a list of checks too.
#[test]
fn to_hold_needs_more_than_to_check() {
    let keyring = Keyring::parse(
        "anonymous = [\"check\"]\n[token.holds]\nsecret = \"holds-0123456789\"\nscopes = [\"hold\"]\n",
    );
    let site = site(keyring.unwrap());
    let ask = |authorization: &str, body: &str| {
        let length = body.len();
        site.client().ask(&format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{authorization}content-length: {length}\r\n\r\n{body}"
        ))
    };
    let one = r#"{"descriptor":{"ip":"1"},"hold":"1min"}"#;
    let list = r#"[{"descriptor":{"ip":"1"}},{"descriptor":{"ip":"1"},"hold":"1min"}]"#;
    for body in [one, list] {
        assert_eq!(ask("", body).problem(403), "the scope hold is required");
        assert_eq!(site.engine.held(), 0);
    }
    assert_eq!(ask("authorization: Bearer holds-0123456789\r\n", one).status, 200);
    assert_eq!(site.engine.held(), 1);
    let left = site.check(r#"{"descriptor":{"ip":"1"},"mode":"peek","cost":0}"#).json();
    assert_eq!(left["remaining"], 99, "what was refused took nothing");
}
