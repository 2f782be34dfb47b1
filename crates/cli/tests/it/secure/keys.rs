//! Who may do what: tokens and certificates, on every listener.

use std::fs;
use std::path::PathBuf;

use tonic::Code;

use super::{CHECK, request, start, status};
use crate::support::certificates::Files;
use crate::support::grpc::Call;
use crate::support::{Service, connect, run, until};

const KEYS: &str = r#"
[token.asker]
secret = "asks and does no more"
scopes = ["check"]

[token.biller]
secret = "asks, and settles too"
scopes = ["check", "settle"]

[token.operator]
secret = "looks and resets only"
scopes = ["admin"]

[token.scraper]
secret = "reads-metrics-and-no-more"
scopes = ["metrics"]

[certificate.gateway]
dns = "gateway.internal"
scopes = ["check"]
"#;
const ASKER: Option<&str> = Some("asks and does no more");
const BILLER: Option<&str> = Some("asks, and settles too");
const OPERATOR: Option<&str> = Some("looks and resets only");
const SCRAPER: Option<&str> = Some("reads-metrics-and-no-more");
const GUESS: Option<&str> = Some("guessed, but not well");

fn keys(text: &str) -> (tempfile::TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    fs::write(&path, text).unwrap();
    let flag = format!("--keys-file={}", path.display());
    (folder, path, flag)
}

/// The status of a request at the listener for services, or else for those who run it.
fn http(service: &Service, method: &str, path: &str, body: &str, token: Option<&str>) -> u16 {
    let is_admin = matches!(path, "/metrics" | "/v1/reset" | "/v1/limits" | "/v1/keys/top" | "/v1/policy");
    let mut stream = connect(if is_admin { service.admin } else { service.http }).unwrap();
    std::io::Write::write_all(&mut stream, request(method, path, body, token).as_bytes()).unwrap();
    crate::support::answer(&mut stream).0
}

#[test]
fn over_http_a_token_opens_what_it_has_the_scope_for() {
    let (_keep, _, flag) = keys(KEYS);
    let service = start(&[flag]);
    let refund = r#"{"descriptor": {"user": "ann"}, "mode": "refund"}"#;
    for (token, checks, refunds, resets, scrapes) in [
        (None, 401, 401, 401, 401),
        (GUESS, 401, 401, 401, 401),
        (ASKER, 200, 403, 403, 403),
        (BILLER, 200, 200, 403, 403),
        (OPERATOR, 403, 403, 200, 200),
    ] {
        assert_eq!(http(&service, "POST", "/v1/check", CHECK, token), checks, "{token:?} checks");
        assert_eq!(http(&service, "POST", "/v1/check", refund, token), refunds, "{token:?} gives back");
        assert_eq!(http(&service, "POST", "/v1/reset", CHECK, token), resets, "{token:?} resets");
        assert_eq!(http(&service, "GET", "/metrics", "", token), scrapes, "{token:?} scrapes");
        assert_eq!(http(&service, "GET", "/healthz", "", token), 200, "{token:?} looks whether it runs");
    }
    let envoy = r#"{"domain": "default", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
    assert_eq!(http(&service, "POST", "/json", envoy, None), 401);
    assert_eq!(http(&service, "POST", "/json", envoy, ASKER), 200);
}

/// Answers, item 26: the scope `metrics` opens `/metrics` and nothing else, on any listener.
#[test]
fn metrics_scope_opens_nothing_but_metrics() {
    let (_keep, _, flag) = keys(KEYS);
    let service = start(&[flag]);
    assert_eq!(http(&service, "GET", "/metrics", "", SCRAPER), 200);
    for path in ["/v1/limits", "/v1/keys/top", "/v1/policy"] {
        assert_eq!(http(&service, "GET", path, "", SCRAPER), 403, "{path}");
    }
    for path in ["/v1/check", "/v1/settle", "/v1/reset", "/json"] {
        assert_eq!(http(&service, "POST", path, CHECK, SCRAPER), 403, "{path}");
    }
    let redis =
        service.redis("AUTH reads-metrics-and-no-more\r\nPING\r\nINFO\r\nTG.LIMITS\r\nTG.CHECK user ann");
    let noauth = "-NOAUTH Authentication required.\r\n";
    assert_eq!(redis, format!("+OK\r\n{}+OK\r\n", noauth.repeat(4)));
    let answer = Call::new("default", &[("user", "ann")]).token(SCRAPER).ask(service.grpc, None);
    assert_eq!(answer.unwrap_err().code(), Code::PermissionDenied);
}

#[test]
fn over_the_protocol_of_redis_a_token_is_a_password() {
    let (_keep, _, flag) = keys(KEYS.replace("asks and does no more", "asks-and-does-no-more").as_str());
    let service = start(&[flag]);
    let unknown = service.redis("TG.CHECK user ann");
    assert_eq!(unknown, "-NOAUTH Authentication required.\r\n+OK\r\n");
    let wrong = service.redis("AUTH guess\r\nTG.CHECK user ann");
    assert!(wrong.starts_with("-WRONGPASS ") && wrong.contains("\r\n-NOAUTH "), "{wrong}");
    let known = service.redis("AUTH asks-and-does-no-more\r\nTG.CHECK user ann\r\nTG.RESET user ann");
    assert!(known.starts_with("+OK\r\n") && known.contains("allowed\r\n:1\r\n"), "{known}");
    assert!(known.contains("-NOPERM 'tg.reset' needs the scope admin"), "{known}");
    let hello = service.redis("HELLO 3 AUTH anybody asks-and-does-no-more\r\nTG.CHECK user ann");
    assert!(hello.starts_with("%7\r\n") && hello.contains("allowed\r\n#t\r\n"), "{hello}");
}

#[test]
fn over_grpc_a_token_is_a_field() {
    let (_keep, _, flag) = keys(KEYS);
    let service = start(&[flag]);
    for (token, expected) in [
        (None, Code::Unauthenticated),
        (GUESS, Code::Unauthenticated),
        (OPERATOR, Code::PermissionDenied),
        (ASKER, Code::Ok),
    ] {
        let answer = Call::new("default", &[("user", "ann")]).token(token).ask(service.grpc, None);
        assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), expected, "{token:?}");
    }
}

#[test]
fn a_certificate_opens_what_its_name_has_the_scope_for() {
    let (files, (_keep, _, flag)) = (Files::new(), keys(KEYS));
    let service = start(&[files.flags(false), vec![flag]].concat());
    let named = |name: &str| files.caller(Some(files.theirs.sign(name)));
    let (gateway, other, nobody) = (named("gateway.internal"), named("other.internal"), files.caller(None));
    let check = |token| request("POST", "/v1/check", CHECK, token);
    for (caller, expected) in [(&gateway, 200), (&other, 401), (&nobody, 401)] {
        assert_eq!(status(&caller.say(service.http, &check(None)).unwrap()), expected);
        assert_eq!(status(&caller.say(service.http, &check(BILLER)).unwrap()), 200, "a token adds to it");
        let metrics = status(&caller.say(service.admin, &request("GET", "/metrics", "", None)).unwrap());
        assert_eq!(metrics, if expected == 200 { 403 } else { 401 }, "who is known is not asked who it is");
        let redis = caller.say(service.resp, "TG.CHECK user ann\r\nQUIT\r\n").unwrap();
        assert_eq!(redis.starts_with("-NOAUTH "), expected == 401, "{redis}");
        let envoy = Call::new("default", &[("user", "ann")]).ask(service.grpc, Some(caller));
        let code = if expected == 200 { Code::Ok } else { Code::Unauthenticated };
        assert_eq!(envoy.map_or_else(|status| status.code(), |_| Code::Ok), code);
    }
}

#[test]
fn keys_are_exchanged_without_a_restart_and_bad_ones_are_not_taken() {
    let (_keep, path, flag) = keys(KEYS);
    let service = start(&[flag]);
    let check = |token| http(&service, "POST", "/v1/check", CHECK, token);
    assert_eq!((check(ASKER), check(GUESS)), (200, 401));
    fs::write(&path, KEYS.replace(ASKER.unwrap(), GUESS.unwrap())).unwrap();
    until("the other token is known", || check(GUESS) == 200);
    assert_eq!(check(ASKER), 401, "and the one before is not");
    service.tells("reloaded keys");

    fs::write(&path, KEYS.replace("scopes = [\"check\"]", "scopes = [\"chekc\"]")).unwrap();
    service.tells("cannot load keys, keeping the previous ones");
    service.tells("a scope must be one of");
    assert_eq!((check(GUESS), check(ASKER)), (200, 401));
    for secret in [GUESS, ASKER].into_iter().flatten() {
        assert!(!service.log().contains(secret), "secrets are not logged");
    }
}

#[test]
fn keys_that_cannot_be_used_start_nothing() {
    let (_keep, path, flag) = keys("[token.a]\nsecret = \"short\"\nscopes = []\n");
    let (code, out, err) = run(&["serve", &flag]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("error: cannot read keys file "), "{err}");
    assert!(err.contains("keys.toml:2:10: token.a: secret must have at least 16 characters"), "{err}");
    fs::remove_file(&path).unwrap();
    let (code, _, err) = run(&["serve", &flag]);
    assert!(code == 1 && err.contains("keys.toml: No such file"), "{err}");
}

#[test]
fn what_does_not_protect_anybody_is_warned_of() {
    let (_keep, _, flag) = keys(KEYS);
    let service = start(&[flag.as_str(), "--http-address=0.0.0.0:0"]);
    service.tells("tokens are sent unencrypted");
    service.tells("keys.file lists certificates, but TLS client certificates are off");
    let (_keep, _, flag) = keys("[token.a]\nsecret = \"0123456789abcdef\"\nscopes = []\n");
    let here = start(&[flag]);
    here.tells("listening");
    assert!(!here.log().contains("WARN"), "{}", here.log());
}

// Guards, item 8: to hold needs the scope hold, and the listeners for services serve it.
#[test]
fn to_hold_needs_a_scope_of_its_own() {
    let holder = Some("asks-and-holds-permits");
    let (_keep, _, flag) = keys(
        "[token.asker]\nsecret = \"asks-and-does-no-more\"\nscopes = [\"check\"]\n\
         [token.holder]\nsecret = \"asks-and-holds-permits\"\nscopes = [\"check\", \"hold\"]\n",
    );
    let service = start(&[flag]);
    let hold = r#"{"descriptor": {"user": "ann"}, "hold": "1min"}"#;
    let check = |token| http(&service, "POST", "/v1/check", hold, token);
    assert_eq!((check(Some("asks-and-does-no-more")), check(holder)), (403, 200));
    let refused = service.redis("AUTH asks-and-does-no-more\r\nTG.CHECK HOLD 60 user ann");
    assert!(refused.contains("-NOPERM HOLD needs the scope hold"), "{refused}");
    let held = service.redis("AUTH asks-and-holds-permits\r\nTG.CHECK HOLD 60 user ann");
    assert!(held.contains("\r\nid\r\n$32\r\n"), "{held}");
}
