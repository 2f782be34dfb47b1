//! TLS, on every listener.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;

use tollgate_server::rls::proto::Code;

use super::{CHECK, request, start, status};
use crate::support::certificates::{Authority, Caller, Files, Signed};
use crate::support::grpc::Call;
use crate::support::{Service, connect, run, until};

const ANN: &[(&str, &str)] = &[("user", "ann")];

/// Who of http, grpc, resp and admin answers a caller as it should.
fn answering(service: &Service, caller: &Caller) -> [bool; 4] {
    let check = caller.say(service.http, &request("POST", "/v1/check", CHECK, None));
    let metrics = caller.say(service.admin, &request("GET", "/metrics", "", None));
    let redis = caller.say(service.resp, "TG.CHECK user ann\r\nQUIT\r\n");
    let envoy = Call::new("default", ANN).ask(service.grpc, Some(caller));
    [
        check.is_ok_and(|answer| status(&answer) == 200),
        envoy.is_ok_and(|answer| answer.overall_code() == Code::Ok),
        redis.is_ok_and(|answer| answer.contains("allowed\r\n:1\r\n") && answer.ends_with("+OK\r\n")),
        metrics.is_ok_and(|answer| status(&answer) == 200 && answer.contains("tollgate_decisions_total")),
    ]
}

#[test]
fn everything_is_spoken_over_tls_and_nothing_without_it() {
    let files = Files::new();
    let service = start(&files.flags(false));
    assert_eq!(answering(&service, &files.caller(None)), [true; 4]);
    for address in [service.http, service.grpc, service.resp, service.admin] {
        assert_eq!(plain(address), "", "{address}");
    }
    assert!(Call::new("default", ANN).ask(service.grpc, None).is_err());
    assert_eq!(answering(&service, &files.caller(None)), [true; 4], "and it goes on");
    for line in ["http  https://", "grpc  grpcs://", "resp  rediss://", "admin https://"] {
        assert!(service.greeting.contains(line), "{}", service.greeting);
    }
}

/// What is answered to somebody who does not encrypt, but for an alert: that is of TLS, and tells nothing.
fn plain(address: SocketAddr) -> String {
    let mut stream = connect(address).unwrap();
    stream.write_all(b"PING\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // which the other end may cut off
    match answer[..] {
        [21, 3, _, 0, 2, _, _] => String::new(),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

/// Answers, item 25: a client certificate that is missing, or signed by somebody else, is a failed authentication.
#[test]
fn certificates_that_prove_nothing_are_failed_authentications() {
    let files = Files::new();
    let service = start(&files.flags(true));
    let known = files.caller(Some(files.theirs.sign("ann.internal")));
    let stranger = files.caller(Some(Authority::new().sign("ann.internal")));
    for caller in [&files.caller(None), &stranger] {
        let refused = caller.say(service.http, &request("POST", "/v1/check", CHECK, None));
        assert!(!refused.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")));
    }
    until("both are counted", || {
        let metrics = known.say(service.admin, &request("GET", "/metrics", "", None)).unwrap();
        metrics.contains("tollgate_authentication_failures_total{protocol=\"http\"} 2\n")
    });
    service.tells("\"proof\":\"certificate\"");
}

#[test]
fn where_a_certificate_is_required_only_a_good_one_opens_anything() {
    let files = Files::new();
    let service = start(&files.flags(true));
    let with = |shown: Signed| answering(&service, &files.caller(Some(shown)));
    assert_eq!(answering(&service, &files.caller(None)), [false; 4], "none");
    assert_eq!(with(Authority::new().sign("a.internal")), [false; 4], "of an authority that nobody trusts");
    assert_eq!(with(files.theirs.sign_expired("a.internal")), [false; 4], "expired");
    assert_eq!(with(files.theirs.sign("a.internal")), [true; 4]);
}

#[test]
fn certificates_are_exchanged_without_a_restart_and_bad_ones_are_not_taken() {
    let files = Files::new();
    let service = start(&files.flags(true));
    let (old, new) = (files.theirs.sign("a.internal"), Authority::new());
    let health = |name: &'static str, shown: &Signed| {
        let answer = files.caller(Some(shown.clone())).say_to(
            name,
            service.http,
            &request("GET", "/healthz", "", None),
        );
        answer.is_ok_and(|answer| status(&answer) == 200)
    };
    assert!(health("localhost", &old) && !health("other.internal", &old));
    files.write_certificate("other.internal");
    until("it has the other name", || health("other.internal", &old));
    assert!(!health("localhost", &old), "and not the one before");
    service.tells("reloaded certificates");

    fs::write(files.path("cert.pem"), "nonsense").unwrap();
    service.tells("cert.pem: no certificate found");
    let told = "cannot load certificates, keeping the previous ones";
    service.tells(told);
    assert!(health("other.internal", &old), "the last good one is used on");

    files.write_certificate("localhost");
    fs::write(files.path("clients.pem"), new.pem()).unwrap();
    until("other callers are trusted", || health("localhost", &new.sign("b.internal")));
    assert!(!health("localhost", &old), "and those before are not");
    service.signal("HUP");
    service.tells("certificates unchanged");
}

#[test]
fn a_folder_of_certificates_that_is_swapped_is_read_again() {
    let files = Files::new();
    for (version, name) in [("..1", "localhost"), ("..2", "other.internal")] {
        let (certificate, key) = files.ours.sign(name);
        fs::create_dir(files.path(version)).unwrap();
        fs::write(files.path(version).join("tls.crt"), certificate).unwrap();
        fs::write(files.path(version).join("tls.key"), key).unwrap();
    }
    std::os::unix::fs::symlink("..1", files.path("..data")).unwrap();
    let at = |name: &str| files.path("..data").join(name).display().to_string();
    let service =
        start(&[format!("--tls-certificate={}", at("tls.crt")), format!("--tls-key={}", at("tls.key"))]);
    std::os::unix::fs::symlink("..2", files.path("..tmp")).unwrap();
    fs::rename(files.path("..tmp"), files.path("..data")).unwrap();
    let health = request("GET", "/healthz", "", None);
    let caller = files.caller(None);
    until("it has the other name", || caller.say_to("other.internal", service.http, &health).is_ok());
}

#[test]
fn files_that_cannot_be_used_start_nothing() {
    let files = Files::new();
    fs::write(files.path("key.pem"), files.ours.sign("localhost").1).unwrap();
    let flags = files.flags(false);
    let (code, out, err) = run(&["serve", &flags[0], &flags[1]]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("error: cannot load TLS files: "), "{err}");
    assert!(err.contains("cert.pem: the certificate does not match the key: "), "{err}");
    let (code, out, err) = run(&["serve", &flags[0]]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("error: tls.certificate needs tls.key"), "{err}");
}
