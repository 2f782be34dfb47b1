//! What those who run the service can see: logs of decisions and of changes, metrics, readiness.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;
use tollgate_testkit::Redis;

use crate::support::{Service, answer, ask, connect, policy, request, run, until};

const TWO: &str = "[limit.users]\nkey = \"user\"\nrate = \"2/d\"\n";
const ANN: &str = r#"{"user": "ann-of-the-keys"}"#;

fn start(flags: &[&str]) -> (tempfile::TempDir, Service) {
    let (folder, path) = policy(TWO);
    let service = Service::start(&[&["--policy", path.to_str().unwrap()][..], flags].concat());
    (folder, service)
}

/// The entries of one of the logs in JSON.
fn entries(service: &Service, target: &str) -> Vec<Value> {
    let log = service.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == target).collect()
}

/// Waits until there are so many entries, and returns them.
fn entries_at_least(service: &Service, target: &str, count: usize) -> Vec<Value> {
    until(&format!("{target} has {count} entries"), || entries(service, target).len() >= count);
    entries(service, target)
}

/// A request with a token, and the status of its answer.
fn with_token(service: &Service, path: &str, token: &str) -> u16 {
    let address = if path == "/v1/check" { service.http } else { service.admin };
    let request = request("POST", path, &format!("{{\"descriptor\": {ANN}}}"));
    let request = request.replacen("host:", &format!("authorization: Bearer {token}\r\nhost:"), 1);
    let mut stream = connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    answer(&mut stream).0
}

/// The text of a metric's value.
fn metric(service: &Service, name: &str) -> String {
    let text = service.get("/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

fn count(service: &Service, name: &str) -> u64 {
    metric(service, name).parse().expect("a whole number")
}

fn gauge(service: &Service, name: &str) -> f64 {
    metric(service, name).parse().expect("a number")
}

/// Replaces a file at once, so that it is never read half written.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

/// Answers, item 25: denied calls are logged on request, as one JSON object a line, with digests in place of keys.
#[test]
fn decision_log_has_denied_calls_with_hashed_keys() {
    let (_keep, service) = start(&["--log-decisions=denied"]);
    assert_eq!([0; 4].map(|_| service.check(ANN)), [200, 200, 429, 429]);
    let denied = entries_at_least(&service, "tollgate::decision", 2);
    assert_eq!(denied.len(), 2, "{denied:?}");
    for entry in &denied {
        for (name, expected) in
            [("outcome", "denied"), ("protocol", "http"), ("domain", "default"), ("limit", "users")]
        {
            assert_eq!(entry[name], expected, "{entry}");
        }
        assert_eq!((&entry["cost"], &entry["remaining"]), (&Value::from(1), &Value::from(0)), "{entry}");
        assert!(entry["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{entry}");
        assert_eq!(entry["key"].as_str().map(str::len), Some(16), "{entry}");
        assert_eq!(entry["key"], denied[0]["key"], "one key has one digest");
    }
    assert!(!service.log().contains("ann-of-the-keys"), "{}", service.log());
}

/// Answers, item 25: all calls over every protocol can be logged, with their keys as they are, or none, or a part of them.
#[test]
fn decision_log_follows_its_settings() {
    let sizes = "[limit.sizes]\nmatch.size = { absent = false }\ncost = \"size\"\nrate = \"9/d\"\non_bad_value = \"deny\"\n";
    let (_keep, path) = policy(&[TWO, sizes].concat());
    let all =
        Service::start(&["--policy", path.to_str().unwrap(), "--log-decisions=all", "--log-keys=clear"]);
    assert_eq!(all.check(ANN), 200);
    assert!(all.redis("TG.ALLOW somebody 1/h").starts_with(":1"));
    assert!(all.redis("TG.CHECK PEEK user ann").contains("allowed"));
    let entries_of_all = entries_at_least(&all, "tollgate::decision", 2);
    let told: Vec<_> = entries_of_all
        .iter()
        .map(|entry| {
            ["protocol", "limit", "key", "outcome"].map(|name| entry[name].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [["http", "users", "ann-of-the-keys", "allowed"], ["resp", "1/h", "somebody", "allowed"]];
    assert_eq!(told, expected.map(|entry| entry.map(str::to_owned)), "and a look is no call");

    assert_eq!(all.check("{\"usr\": \"ann\"}"), 200);
    let unmatched = entries_at_least(&all, "tollgate::decision", 3).pop().unwrap();
    assert_eq!((&unmatched["domain"], &unmatched["limit"]), (&"default".into(), &Value::Null), "{unmatched}");

    let bad = r#"{"domain":"default","descriptors":[{"entries":[{"key":"size","value":"x"}]}]}"#;
    assert_eq!(ask(all.http, "POST", "/json", bad).0, 429);
    let denied = entries_at_least(&all, "tollgate::decision", 4).pop().unwrap();
    assert_eq!((&denied["outcome"], &denied["limit"]), (&"denied".into(), &Value::Null), "{denied}");
    assert_eq!(all.check("{\"size\": \"x\"}"), 400);
    assert!(all.redis("TG.CHECK size x").starts_with('-'));
    let entries = entries_at_least(&all, "tollgate::decision", 6);
    for (entry, protocol) in entries[4..].iter().zip(["http", "resp"]) {
        assert_eq!((&entry["outcome"], &entry["protocol"]), (&"denied".into(), &protocol.into()), "{entry}");
        let denied = format!("tollgate_calls_total{{protocol=\"{protocol}\",outcome=\"denied\"}}");
        assert!(count(&all, &denied) >= 1, "{denied}");
    }

    for (flags, fewest, most) in [
        (&[][..], 0, 0),
        (&["--log-decisions=all", "--log-decisions-one-in=1000000000"], 0, 0),
        // The chance that all or none of 100 are chosen is 2^-99.
        (&["--log-decisions=all", "--log-decisions-one-in=2"], 1, 99),
    ] {
        let (_keep, service) = start(flags);
        for _ in 0..100 {
            service.check(ANN);
        }
        service.signal("TERM");
        let (_, log) = service.end();
        let logged = log.matches("tollgate::decision").count();
        assert!((fewest..=most).contains(&logged), "{flags:?}: {logged} logged");
    }
}

const KEYS: &str = "\
[token.app]\nsecret = \"asks and does no more\"\nscopes = [\"check\"]\n\
[token.operator]\nsecret = \"looks and resets only\"\nscopes = [\"admin\"]\n";

/// Answers, item 25: resets, reloads, changes of keys and failed authentications say who, what, when and from where.
#[test]
fn audit_log_says_who_did_what_and_from_where() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.toml");
    fs::write(&keys, KEYS).unwrap();
    let (limits, service) = start(&[&format!("--keys-file={}", keys.display())]);
    assert_eq!(with_token(&service, "/v1/check", "asks and does no more"), 200);
    assert_eq!(with_token(&service, "/v1/reset", "looks and resets only"), 200);
    let audit = |count| entries_at_least(&service, "tollgate::audit", count);
    let reset = &audit(1)[0];
    for (name, expected) in [
        ("action", "reset"),
        ("who", "token operator"),
        ("from", "127.0.0.1"),
        ("protocol", "http"),
        ("domain", "default"),
        ("limit", "users"),
    ] {
        assert_eq!(reset[name], expected, "{reset}");
    }
    assert!(reset["known"] == true && reset["timestamp"].is_string(), "{reset}");

    assert_eq!(with_token(&service, "/v1/check", "guessed, but not well"), 401);
    let failed = &audit(2)[1];
    for (name, expected) in [("action", "authentication"), ("result", "failed"), ("from", "127.0.0.1")] {
        assert_eq!(failed[name], expected, "{failed}");
    }

    let changed = KEYS
        .replace("asks and does no more", "guessed, but not well")
        .replace("token.operator", "token.boss");
    replace(&keys, &changed);
    let changes = &audit(3)[2];
    assert_eq!(
        (&changes["what"], &changes["result"]),
        (&Value::from("keys"), &Value::from("loaded")),
        "{changes}"
    );
    assert_eq!(
        changes["changes"], "changed token app, added token boss, removed token operator",
        "{changes}"
    );
    assert_eq!(changes["from"], keys.to_str().unwrap());

    replace(&limits.path().join("limits.toml"), "[limit.users]\nrate = \"odd\"\n");
    let refused = &audit(4)[3];
    assert_eq!(
        (&refused["what"], &refused["result"]),
        (&Value::from("policy"), &Value::from("refused")),
        "{refused}"
    );
    for secret in ["asks and does", "looks and resets", "guessed, but", "ann-of-the-keys"] {
        assert!(!service.log().contains(secret), "{secret}");
    }
}

/// Answers, item 25: a thousand failed authentications are counted, and few of them are logged.
#[test]
fn failed_authentications_are_counted_and_do_not_flood_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.toml");
    fs::write(&keys, format!("anonymous = [\"metrics\"]\n{KEYS}")).unwrap();
    let (_keep, service) = start(&[&format!("--keys-file={}", keys.display())]);
    let guesses = "AUTH guess\r\n".repeat(1_000);
    assert_eq!(service.redis(&guesses).matches("-WRONGPASS ").count(), 1_000);
    assert_eq!(with_token(&service, "/v1/check", "guess"), 401);
    assert_eq!(count(&service, "tollgate_authentication_failures_total{protocol=\"resp\"}"), 1_000);
    assert_eq!(count(&service, "tollgate_authentication_failures_total{protocol=\"http\"}"), 1);
    let errors = |protocol: &str, reason: &str| {
        count(
            &service,
            &format!("tollgate_request_errors_total{{protocol=\"{protocol}\",reason=\"{reason}\"}}"),
        )
    };
    assert_eq!((errors("resp", "unauthenticated"), errors("http", "unauthenticated")), (1_000, 1));
    let logged = entries_at_least(&service, "tollgate::audit", 11).len();
    assert!(logged <= 100, "{logged} entries");
}

/// Answers, item 25: requests that are not served are counted by reason, and so are resets and refused connections.
#[test]
fn request_errors_are_counted_by_reason() {
    let (_keep, service) = start(&["--max-connections-per-address=4", "--log-level=debug"]);
    for (method, path, body, expected) in [
        ("POST", "/v1/check", "{", 400),
        ("GET", "/v1/check", "", 405),
        ("GET", "/nowhere", "", 404),
        ("POST", "/v1/settle", r#"{"id": "00000000000000000000000000000000", "actual": 1}"#, 404),
    ] {
        assert_eq!(ask(service.http, method, path, body).0, expected, "{method} {path}");
    }
    assert!(service.redis("NONSENSE").starts_with("-ERR unknown command"));
    assert_eq!(ask(service.admin, "POST", "/v1/reset", &format!("{{\"descriptor\": {ANN}}}")).0, 200);
    let errors = |protocol: &str, reason: &str| {
        count(
            &service,
            &format!("tollgate_request_errors_total{{protocol=\"{protocol}\",reason=\"{reason}\"}}"),
        )
    };
    assert_eq!(
        ["bad_request", "method_not_allowed", "not_found"].map(|reason| errors("http", reason)),
        [1, 1, 2]
    );
    assert_eq!(errors("resp", "bad_request"), 1);
    assert_eq!(count(&service, "tollgate_resets_total"), 1);
    service.tells("request failed protocol=\"http\"");
    service.tells("requests failed protocol=\"resp\"");
    let _kept: Vec<_> = (0..8).map(|_| service.connect()).collect();
    let refused =
        "tollgate_connections_refused_total{protocol=\"http\",reason=\"max_connections_per_address\"}";
    until("some are refused", || count(&service, refused) >= 4);
}

/// Answers, item 28: calls are counted once each by protocol and outcome, and metrics say which program runs and how it fares.
#[test]
fn metrics_count_calls_and_tell_of_the_process() {
    let (folder, service) = start(&[]);
    assert_eq!([0; 3].map(|_| service.check(ANN)), [200, 200, 429]);
    assert!(service.redis("TG.CHECK user bob").contains("allowed"));
    let calls = |protocol: &str, outcome: &str| {
        count(&service, &format!("tollgate_calls_total{{protocol=\"{protocol}\",outcome=\"{outcome}\"}}"))
    };
    assert_eq!((calls("http", "allowed"), calls("http", "denied")), (2, 1));
    assert_eq!((calls("resp", "allowed"), calls("resp", "denied"), calls("grpc", "allowed")), (1, 0, 0));
    let text = service.get("/metrics");
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("tollgate_build_info{{version=\"{version}\",")), "{text}");
    assert!(!text.contains("rule="), "{text}");
    assert_eq!(count(&service, "tollgate_config_last_reload_successful"), 1);
    let loaded = gauge(&service, "tollgate_config_last_reload_success_timestamp_seconds");
    assert!(loaded > 1.7e9, "{loaded}");
    replace(&folder.path().join("limits.toml"), "[limit.users]\nrate = \"odd\"\n");
    until("the mistake is seen", || count(&service, "tollgate_config_last_reload_successful") == 0);
    if cfg!(target_os = "linux") {
        assert!(gauge(&service, "process_resident_memory_bytes") > 1e6);
        assert!(gauge(&service, "process_cpu_seconds_total") < 60.0);
        assert!(gauge(&service, "process_open_fds") >= 4.0);
        assert!(gauge(&service, "process_open_fds") < gauge(&service, "process_max_fds"));
        let started = gauge(&service, "process_start_time_seconds");
        assert!((started - loaded).abs() < 60.0, "{started} {loaded}");
    }
}

/// Answers, item 28: a scraper that accepts plain text gets the older format, with each family named like its samples.
#[test]
fn metrics_are_plain_text_where_that_is_accepted() {
    let (_keep, service) = start(&[]);
    let scrape = |accept: &str| {
        let request =
            request("GET", "/metrics", "").replacen("host:", &format!("accept: {accept}\r\nhost:"), 1);
        let mut stream = connect(service.admin).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        std::io::read_to_string(stream).unwrap()
    };
    let plain = scrape("text/plain");
    assert!(plain.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{plain}");
    assert!(plain.contains("# TYPE tollgate_calls_total counter\ntollgate_calls_total{"), "{plain}");
    assert!(plain.contains("# TYPE tollgate_build_info gauge\n") && !plain.contains("# EOF"), "{plain}");
    let open =
        scrape("application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1");
    assert!(
        open.contains("\r\ncontent-type: application/openmetrics-text; ") && open.ends_with("# EOF\n"),
        "{open}"
    );
}

/// Answers, items 27 and 28: without Redis the service says at `/readyz` that it is not ready, if it is told to, and metrics say how the store fares.
#[test]
fn readiness_and_metrics_follow_redis() {
    let (redis, (_keep, path)) = (Redis::start(), policy(TWO));
    let flags = ["--policy", path.to_str().unwrap(), "--redis-timeout=10s"];
    let url = redis.url();
    let plain = Service::start_with(&flags, &[("TOLLGATE_STORE", &url)]);
    let follows = Service::start_with(
        &[&flags[..], &["--http-ready-needs-store=true"]].concat(),
        &[("TOLLGATE_STORE", &url)],
    );
    let ready = |service: &Service| ask(service.http, "GET", "/readyz", "").0;
    assert_eq!((ready(&plain), ready(&follows)), (200, 200));
    assert_eq!(follows.check(ANN), 200);
    assert!(count(&follows, "tollgate_store_duration_seconds_count") >= 1);
    assert!(count(&follows, "tollgate_store_calls_total{outcome=\"answered\"}") >= 1);
    assert_eq!(count(&follows, "tollgate_store_calls_total{outcome=\"late\"}"), 0);
    assert_eq!(count(&follows, "tollgate_store_breaker_open"), 0);
    let port = redis.port();
    drop(redis);
    until("it is not ready", || ready(&follows) == 503);
    assert_eq!((ready(&plain), ask(follows.http, "GET", "/healthz", "").0), (200, 200));
    until("the breaker is open", || {
        follows.check(ANN);
        count(&follows, "tollgate_store_breaker_open") == 1
    });
    let _redis = Redis::start_on(port, &[]);
    until("it is ready again", || ready(&follows) == 200);
}

/// Answers, item 27: with a policy that cannot be loaded the service is not ready, if it is told to say so.
#[test]
fn readiness_follows_the_policy() {
    let (plain_folder, plain) = start(&[]);
    let (folder, follows) = start(&["--http-ready-needs-policy=true"]);
    let ready = |service: &Service| ask(service.http, "GET", "/readyz", "").0;
    assert_eq!((ready(&plain), ready(&follows)), (200, 200));
    for folder in [&plain_folder, &folder] {
        replace(&folder.path().join("limits.toml"), "[limit.users]\nrate = \"odd\"\n");
    }
    plain.tells("cannot load the policy");
    until("it is not ready", || ready(&follows) == 503);
    assert_eq!((ready(&plain), follows.check(ANN)), (200, 200));
    replace(&folder.path().join("limits.toml"), TWO);
    until("it is ready again", || ready(&follows) == 200);
}

/// Answers, item 27: on SIGTERM `/readyz` answers 503 for a settable time, in which everything else is served, before the listeners close.
#[test]
fn readiness_ends_before_the_listeners_close() {
    let (_keep, service) = start(&["--drain-delay=1h"]);
    service.signal("TERM");
    until("it is not ready", || ask(service.http, "GET", "/readyz", "").0 == 503);
    assert_eq!((service.check(ANN), ask(service.http, "GET", "/healthz", "").0), (200, 200));
    service.tells("serving until the delay ends");
    service.signal("TERM");
    let (code, log) = service.end();
    assert_eq!(code, Some(0), "the second signal ends the delay: {log}");

    let (_keep, service) = start(&["--drain-delay=300ms"]);
    service.signal("TERM");
    let (code, log) = service.end();
    let (delayed, drained) = (log.find("serving until the delay ends"), log.find("draining connections"));
    assert!(
        code == Some(0) && delayed.is_some() && delayed < drained,
        "one signal, and the delay runs out: {log}"
    );
}

/// Front door, item 6: operations documents every metric that is exported, with and without Redis.
#[test]
fn every_metric_is_in_the_operations_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md");
    let page = fs::read_to_string(page).unwrap();
    let redis = Redis::start();
    let store = format!("--store=redis://127.0.0.1:{}", redis.port());
    let with_redis = [&*store, "--redis-lease=10"];
    for flags in [&with_redis[..0], &with_redis[..]] {
        let (_keep, service) = start(flags);
        service.check(ANN);
        let text = service.get("/metrics");
        let help = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
        let names: Vec<&str> = help.filter_map(|line| line.split(' ').next()).collect();
        assert!(names.len() > 20, "{text}");
        // A counter is on the page with the suffix of its samples, and so is an info metric.
        let is_described = |name: &str| {
            ["", "_total", "_info"].iter().any(|suffix| page.contains(&format!("`{name}{suffix}`")))
        };
        let missing: Vec<&&str> = names.iter().filter(|name| !is_described(name)).collect();
        assert!(missing.is_empty(), "docs/operate.md does not describe {missing:?}");
    }
}

/// Answers, item 29: a port in use is one line, without a backtrace.
#[test]
fn a_port_in_use_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (code, out, err) = run(&["serve", "--log-level=warn", &format!("--http-address={address}")]);
    assert_eq!((code, out.as_str()), (1, ""));
    let start = format!("error: cannot listen on {address} (--http-address): ");
    assert!(err.starts_with(&start) && err.lines().count() == 1, "{err}");
}

/// Front door, item 9: with `--log-format json`, errors before the log starts are JSON lines as well.
#[test]
fn start_up_errors_are_json_lines_with_log_format_json() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--http-address={}", taken.local_addr().unwrap());
    for (flags, status, message) in [
        (&["--workers=many"][..], 2, "--workers: expected a whole number from 0 to 1024, found \"many\""),
        (&["--wokers=1"], 2, "unexpected argument '--wokers' found"),
        (&["--policy=no/such.toml"], 1, "no/such.toml: cannot be read: "),
        (&["--tls-certificate=cert.pem"], 2, "tls.certificate needs tls.key"),
        (&["--admin-address=none", "--log-level=error", &address], 1, "cannot listen on 127.0.0.1:"),
    ] {
        for format in [&["--log-format=json"][..], &["--log-format", "json"]] {
            let (code, out, err) = run(&[&["serve"], format, flags].concat());
            assert_eq!((code, out.as_str(), err.lines().count()), (status, "", 1), "{err}");
            let line: Value = serde_json::from_str(&err).unwrap_or_else(|error| panic!("{error}: {err}"));
            assert_eq!(line["level"], "ERROR", "{err}");
            assert!(line["message"].as_str().is_some_and(|text| text.starts_with(message)), "{err}");
        }
        let (code, _, err) = run(&[&["serve"], flags].concat());
        assert!(code == status && err.starts_with(&format!("error: {message}")), "{err}");
    }
    let mut command = crate::support::tollgate();
    command.args(["serve", "--workers=many"]).env("TOLLGATE_LOG_FORMAT", "json");
    let err = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(serde_json::from_str::<Value>(&err).is_ok(), "{err}");
}

/// Answers, item 29: a snapshot that cannot be read is kept when the next one is saved, and the log says where.
#[test]
fn a_corrupt_snapshot_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let flag = format!("--snapshot-folder={}", folder.path().display());
    let bad = folder.path().join("token-bucket.snapshot");
    fs::write(&bad, "no snapshot").unwrap();
    let (_keep, service) = start(&[&flag]);
    assert_eq!(service.check(ANN), 200);
    let aside = folder.path().join("token-bucket.snapshot.unreadable");
    service.tells(aside.to_str().unwrap());
    service.signal("TERM");
    assert_eq!(service.end().0, Some(0));
    assert_eq!(fs::read_to_string(aside).unwrap(), "no snapshot");
    assert!(bad.exists(), "the counters are saved");
}

/// Answers, item 29: `INFO` is understood in capitals, and every `HELP` that an error names is there.
#[test]
fn info_and_help_answer_over_the_redis_protocol() {
    let (_keep, service) = start(&[]);
    for info in ["INFO", "info", "INFO SERVER"] {
        assert!(service.redis(info).contains("redis_version:"), "{info}");
    }
    let client = service.redis("CLIENT SETNAME me\r\nCLIENT INFO");
    assert!(client.contains(" name=me db=0 resp=2\n"), "{client}");
    for command in ["CLIENT", "client", "COMMAND", "CONFIG"] {
        let help = service.redis(&format!("{command} HELP"));
        let start = format!(
            "+{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n",
            command.to_uppercase()
        );
        assert!(help.starts_with('*') && help.contains(&start), "{help}");
        assert!(help.ends_with("+HELP\r\n+    Print this help.\r\n+OK\r\n"), "{help}");
    }
}
