//! Several `tollgate serve` that share one Redis, and what they do without it.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{Service, policy, run, until};
use serde_json::{Value, json};
use tollgate::{Clock, MonotonicClock};
use tollgate_testkit::{Redis, RedisCluster, free_port};

/// Nothing comes back while a test runs, and each limit has its own way when the store is away.
const LIMITS: &str = "\
[limit.shared]\nkey = \"user\"\nrate = \"100/d\"\n\n\
[limit.open]\nkey = \"open\"\nrate = \"1/d\"\non_store_failure = \"allow\"\n\n\
[limit.closed]\nkey = \"closed\"\nrate = \"50/d\"\non_store_failure = \"deny\"\n";

/// One of a fleet. It waits for Redis longer than it would: a machine with other things to do may be slow.
fn serve(policy: &Path, url: &str) -> Service {
    let arguments = ["--policy", policy.to_str().unwrap(), "--redis-timeout=10s"];
    Service::start_with(&arguments, &[("TOLLGATE_STORE", url)])
}

/// What a check is answered: the status and the JSON.
fn check(service: &Service, body: &Value) -> (u16, Value) {
    let (status, text) = crate::support::ask(service.http, "POST", "/v1/check", &body.to_string());
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// The status, and who decided.
fn ask(service: &Service, field: &str, who: &str) -> (u16, String) {
    let (status, answer) = check(service, &json!({"descriptor": {field: who}}));
    let basis = answer["limits"][0]["basis"].as_str().expect("a limit applies").to_owned();
    assert_eq!(answer["degraded"], basis != "store", "{answer}");
    (status, basis)
}

/// What is left of a limit, as a service sees it.
fn left(service: &Service, user: &str) -> u64 {
    let (_, answer) = check(service, &json!({"descriptor": {"user": user}, "mode": "peek", "cost": 0}));
    answer["remaining"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

fn metric(service: &Service, name: &str) -> u64 {
    let text = service.get("/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn by_store() -> (u16, String) {
    (200, "store".to_owned())
}

#[test]
fn two_services_admit_exactly_the_limit_between_them() {
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let services = [serve(&path, &redis.url()), serve(&path, &redis.url())];
    let admitted: Vec<u32> = thread::scope(|scope| {
        let hammer = |service| {
            let (mut admitted, mut refused) = (0, 0);
            while refused < 10 {
                match ask(service, "user", "ann") {
                    (200, basis) if basis == "store" => admitted += 1,
                    (429, basis) if basis == "store" => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
            admitted
        };
        let threads = services.each_ref().map(|service| [0, 1].map(|_| scope.spawn(move || hammer(service))));
        threads.into_iter().flatten().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(admitted.iter().sum::<u32>(), 100, "{admitted:?}");
    assert_eq!(left(&services[0], "bob"), 100);
    // Over the other protocol, from the same counters.
    let refused = services[1].redis("TG.CHECK user ann");
    assert!(
        refused.contains("$7\r\nallowed\r\n:0\r\n") && refused.contains("$8\r\ndegraded\r\n:0\r\n"),
        "{refused}"
    );
}

#[test]
fn what_is_held_settled_given_back_and_reset_by_one_is_seen_by_the_other() {
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let [one, two] = [serve(&path, &redis.url()), serve(&path, &redis.url())];
    let ann = |more: Value| {
        let mut body = json!({"descriptor": {"user": "ann"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let (status, held) = check(&one, &ann(json!({"cost": 60, "hold": "1min"})));
    assert_eq!((status, left(&two, "ann")), (200, 40), "{held}");
    let settled = crate::support::ask(
        one.http,
        "POST",
        "/v1/settle",
        &json!({"id": held["id"], "actual": 15}).to_string(),
    );
    assert_eq!((settled.0, left(&two, "ann")), (200, 85), "{settled:?}");
    assert_eq!(check(&two, &ann(json!({"cost": 5, "mode": "refund"}))).0, 200);
    assert_eq!(left(&one, "ann"), 90);
    assert_eq!(check(&one, &ann(json!({"cost": 30, "mode": "charge"}))).0, 200);
    assert_eq!(left(&two, "ann"), 60);
    assert_eq!(check(&two, &ann(json!({"cost": 61}))).0, 429);
    assert_eq!(crate::support::ask(two.admin, "POST", "/v1/reset", &ann(json!({})).to_string()).0, 200);
    assert_eq!(left(&one, "ann"), 100);
    let top: Value = serde_json::from_str(&two.get("/v1/keys/top?by=denied")).unwrap();
    assert_eq!(top["keys"][0]["key"], "ann", "{top}");
    until("both know of each other", || [&one, &two].iter().all(|it| metric(it, "tollgate_nodes") == 2));
    assert_eq!(metric(&one, "tollgate_backend_up"), 1);
}

/// Answers, item 14: whatever the store and the protocol, settling tokens leaves the limit of requests alone.
#[test]
fn settling_tokens_does_not_charge_requests() {
    const LIMITS: &str = "[limit.per-key]\nkey = \"key\"\nrate = [\"10/d\", \"100/w\"]\n\n\
                          [limit.llm-tokens]\nkey = \"key\"\nrate = \"10000/d\"\ncost = \"tokens\"\n";
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    for url in ["memory", &redis.url()] {
        let service = serve(&path, url);
        let left = || -> Vec<u64> {
            let peek = json!({"descriptor": {"key": "k", "tokens": 0}, "cost": 0, "mode": "peek"});
            let limits = check(&service, &peek).1["limits"].clone();
            limits.as_array().unwrap().iter().map(|limit| limit["remaining"].as_u64().unwrap()).collect()
        };
        for (place, actual) in [json!(640), json!({"tokens": 640})].into_iter().enumerate() {
            let body = json!({"descriptor": {"key": "k", "tokens": 900}, "hold": "1min"});
            let id = check(&service, &body).1["id"].clone();
            let body = json!({"id": id, "actual": actual}).to_string();
            assert_eq!(crate::support::ask(service.http, "POST", "/v1/settle", &body).0, 200, "{url}");
            let calls = place as u64 + 1;
            assert_eq!(left(), [10 - calls, 100 - calls, 10_000 - 640 * calls], "{url}: {actual}");
        }
        for (place, actual) in ["640", "FIELDS tokens 640"].into_iter().enumerate() {
            let held = service.redis("TG.CHECK HOLD 60 key k tokens 900");
            let (_, id) = held.split_once("\r\nid\r\n$32\r\n").unwrap_or_else(|| panic!("{held}"));
            assert!(service.redis(&format!("TG.SETTLE {} {actual}", &id[..32])).starts_with(":1\r\n"));
            let calls = place as u64 + 3;
            assert_eq!(left(), [10 - calls, 100 - calls, 10_000 - 640 * calls], "{url}: {actual}");
        }
    }
}

/// Answers, item 15: while Redis is away nothing is charged, given back, settled or held, and a settlement can be sent again.
#[test]
fn writes_wait_for_redis() {
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let (port, url) = (redis.port(), redis.url());
    let service = serve(&path, &url);
    let held = check(&service, &json!({"descriptor": {"user": "ann"}, "cost": 60, "hold": "10min"})).1;
    let settle = || {
        let body = json!({"id": held["id"], "actual": 80}).to_string();
        crate::support::ask(service.http, "POST", "/v1/settle", &body)
    };
    drop(redis);
    let write = |more: Value| {
        let mut body = json!({"descriptor": {"user": "ann"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = check(&service, &body);
        assert!(status == 503 && answer.get("id").is_none(), "{answer}");
        answer["retry_safe"].as_bool().expect("it says whether it is safe to try again")
    };
    // The first one may have been sent before the connection was found broken.
    until("nothing is sent any more", || write(json!({"mode": "charge"})));
    assert!(write(json!({"mode": "refund"})) && write(json!({"hold": "1min"})));
    for act in ["CHARGE", "REFUND", "HOLD 60"] {
        let answer = service.redis(&format!("TG.CHECK {act} user ann"));
        assert!(answer.starts_with("-ERR store unavailable, no cost was applied"), "{answer}");
    }
    let (status, answer) = settle();
    assert!(status == 503 && answer.contains("\"retry_safe\":true"), "{answer}");
    assert_eq!(metric(&service, "tollgate_permits"), 1);
    assert_eq!(ask(&service, "user", "ann"), (200, "local".to_owned()), "to take is to fall back");

    let _redis = Redis::start_on(port, &[]);
    until("it is settled", || settle().0 == 200);
    until("it decides again", || ask(&service, "user", "bob") == by_store());
    assert_eq!((settle().0, left(&service, "ann")), (404, 80), "once; this Redis knows only the 20 more");
}

#[test]
fn when_redis_is_killed_every_limit_has_its_way_and_when_it_is_back_all_is_exact() {
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let (port, url) = (redis.port(), redis.url());
    let [one, two] = [serve(&path, &url), serve(&path, &url)];
    until("both know of each other", || [&one, &two].iter().all(|it| metric(it, "tollgate_nodes") == 2));
    assert_eq!(ask(&one, "user", "ann"), by_store());
    drop(redis);
    assert_eq!(ask(&one, "open", "x"), (200, "allow".to_owned()));
    assert_eq!(ask(&one, "open", "x"), (200, "allow".to_owned()));
    assert_eq!(ask(&one, "closed", "x"), (429, "deny".to_owned()));
    // Each has half of it.
    for service in [&one, &two] {
        let shares = (0..60).filter(|_| ask(service, "user", "ann") == (200, "local".to_owned()));
        assert_eq!(shares.count(), 50);
    }
    let marked = one.redis("TG.CHECK open x");
    assert!(marked.contains("$8\r\ndegraded\r\n:1\r\n"), "{marked}");
    let counted = |outcome: &str| {
        metric(
            &one,
            &format!("tollgate_decisions_total{{domain=\"default\",limit=\"shared\",outcome=\"{outcome}\"}}"),
        )
    };
    assert_eq!((counted("error_local_allowed"), counted("error_local_denied")), (50, 10));
    assert_eq!((metric(&one, "tollgate_backend_up"), metric(&one, "tollgate_nodes")), (0, 2));
    let log = one.log();
    let told = log.matches("store unavailable, applying on_store_failure").count();
    assert!((1..30).contains(&told), "some seventy decisions, told once a second: {log}");

    let (_redis, clock) = (Redis::start_on(port, &[]), MonotonicClock::new());
    let back = clock.now();
    until("it is asked again", || ask(&one, "user", "ann") == by_store());
    // A second is what is promised; a machine with other things to do is given some more.
    let took = clock.now().since(back);
    assert!(took < Duration::from_secs(3), "{took:?}");
    until("the other, too", || ask(&two, "user", "ann") == by_store());
    let rest = left(&one, "ann");
    assert_eq!((ask(&two, "user", "ann"), left(&one, "ann")), (by_store(), rest - 1), "one counter again");
    // Answers, item 29: the log says once that Redis is back.
    until("it is told", || one.log().contains("Redis responds again"));
    assert_eq!(one.log().matches("Redis responds again").count(), 1, "{}", one.log());
}

/// Answers, item 24: callers' keys are hashed in Redis unless a setting says otherwise, and a prefix keeps a fleet apart from others.
#[test]
fn keys_are_hashed_unless_they_are_to_be_clear_and_a_prefix_keeps_them_apart() {
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let serve = |settings: &[&str]| {
        let arguments = ["--policy", path.to_str().unwrap(), "--redis-timeout=10s"];
        Service::start_with(&[&arguments, settings].concat(), &[("TOLLGATE_STORE", &redis.url())])
    };
    let hashed = serve(&[]);
    assert_eq!(ask(&hashed, "user", "ann@example.org"), by_store());
    let keys = redis.ask(&["KEYS", "tg2:{*"]);
    assert!(keys.lines().count() == 1 && !keys.contains("ann"), "{keys}");
    let clear = serve(&["--redis-prefix=shop:", "--redis-keys=clear"]);
    assert_eq!((ask(&clear, "user", "ann@example.org"), left(&clear, "ann@example.org")), (by_store(), 99));
    let keys = redis.ask(&["KEYS", "shop:tg2:{*"]);
    assert!(keys.lines().count() == 1 && keys.ends_with("=ann@example.org"), "{keys}");
}

/// Answers, item 24: a setting says how long a lease lasts, within bounds.
#[test]
fn a_lease_lasts_as_long_as_the_setting_says() {
    let fast = "[limit.fast]\nkey = \"user\"\nrate = \"1000/s\"\n";
    let (redis, (_keep, path)) = (Redis::start(), policy(fast));
    let (policy, url) = (path.to_str().unwrap(), redis.url());
    let lease_lasts = |time| {
        let flags = ["--policy", policy, "--store", &url, "--redis-lease=20", "--redis-timeout=10s", time];
        let service = Service::start(&flags);
        for _ in 0..3 {
            ask(&service, "user", "ann");
        }
        service.signal("KILL"); // so that nothing is returned
        // The key stays as long as the lease: after a second this limit is as good as unused.
        let lasts: i64 = redis.ask(&["PTTL", &redis.ask(&["KEYS", "*:{*"])]).parse().unwrap_or(0);
        redis.ask(&["FLUSHALL"]);
        lasts
    };
    let (long, short) = (lease_lasts("--redis-lease-time=30s"), lease_lasts("--redis-lease-time=100ms"));
    assert!((20_000..=31_100).contains(&long) && short <= 1_100, "{long} and {short} ms");
    for bad in ["--redis-lease-time=31s", "--redis-lease-time=99ms"] {
        let (code, _, err) = run(&["serve", bad]);
        assert!(code == 2 && err.contains("redis.lease_time must be from 100ms to 30s"), "{bad}: {err}");
    }
}

/// Answers, item 24: what cannot be read of the files of secrets is named, and nothing that stands in them is shown.
#[test]
fn secrets_for_redis_come_from_files_and_are_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "hunter2\n").unwrap();
    let (secret, missing) = (secret.to_str().unwrap(), "/nowhere/at/all");
    let sentinel = "--store=redis+sentinel://127.0.0.1:1/main";
    let cases: [(&[&str], &str); 5] = [
        (
            &[sentinel, "--redis-sentinel-password-file", missing],
            "--redis-sentinel-password-file: the file cannot be read: No such file",
        ),
        (
            &["--store=redis://127.0.0.1:1", "--redis-sentinel-password-file", secret],
            "a user or password for Sentinels needs an address with redis+sentinel:",
        ),
        (
            &["--store=rediss://127.0.0.1:1", "--redis-tls-certificate", secret],
            "redis.tls_certificate needs redis.tls_key",
        ),
        (
            &["--store=rediss://127.0.0.1:1", "--redis-tls-certificate", secret, "--redis-tls-key", secret],
            "the certificate or its key cannot be read",
        ),
        (
            &["--store=redis://127.0.0.1:1", "--redis-tls-certificate", secret, "--redis-tls-key", secret],
            "use rediss://",
        ),
    ];
    for (arguments, why) in cases {
        let (code, out, err) = run(&[&["serve"], arguments].concat());
        assert!(code == 2 && err.contains(why), "{arguments:?}: {err}");
        assert!(!(out + &err).contains("hunter2"), "{arguments:?}");
    }
}

#[test]
fn while_redis_does_not_move_nobody_waits_for_long() {
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let service = Service::start(&["--policy", path.to_str().unwrap(), "--store", &redis.url()]);
    until("it is asked", || ask(&service, "user", "ann") == by_store());
    let signal = |name: &str| {
        let told = Command::new("kill").args([name, &redis.process().to_string()]).status();
        assert!(told.unwrap().success());
    };
    signal("-STOP");
    let clock = MonotonicClock::new();
    let begin = clock.now();
    for _ in 0..40 {
        assert_eq!(ask(&service, "user", "ann"), (200, "local".to_owned()));
    }
    // Five of them wait for 25 ms each, and some probes. If each waited it would be a second, and for an answer forever.
    let took = clock.now().since(begin);
    assert!(took < Duration::from_secs(20), "{took:?}");
    signal("-CONT");
    until("it is asked again", || ask(&service, "user", "ann") == by_store());
}

#[test]
fn it_starts_without_redis_and_finds_it_when_it_comes() {
    let ((_keep, path), port) = (policy(LIMITS), free_port());
    let service = serve(&path, &format!("redis://:secret@127.0.0.1:{port}"));
    let log = service.log();
    assert!(
        log.contains("Redis is unavailable") && log.contains(&format!("redis://…@127.0.0.1:{port}")),
        "{log}"
    );
    assert!(!log.contains("secret"), "{log}");
    assert_eq!(ask(&service, "user", "ann"), (200, "local".to_owned()));
    let _redis = Redis::start_on(port, &["--requirepass", "secret"]);
    until("it is found", || ask(&service, "user", "bob") == by_store());
    assert_eq!(left(&service, "ann"), 100, "what was decided without it is not counted there");
}

#[test]
fn redis_is_spoken_to_in_secret_if_it_can_be_trusted() {
    let (folder, (_keep, path)) = (tempfile::tempdir().unwrap(), policy(LIMITS));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) =
        (file("cert.pem", pair.cert.pem()), file("key.pem", pair.signing_key.serialize_pem()));
    let port = free_port().to_string();
    let settings = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-auth-clients", "no"],
    ];
    let _redis = Redis::start_with(settings.as_flattened());
    let serve = |trusted: &str| {
        let mut command = crate::support::tollgate();
        command.args(["serve", "--http-address=127.0.0.1:0", "--redis-timeout=10s"]);
        command.args(["--resp-address=none", "--grpc-address=none", "--admin-address=none"]);
        command.arg("--policy").arg(&path).args(["--store", &format!("rediss://localhost:{port}")]);
        Service::of(command.env("SSL_CERT_FILE", trusted))
    };
    assert_eq!(ask(&serve(&certificate), "user", "ann"), by_store());
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let service = serve(&file("other.pem", stranger));
    assert_eq!(ask(&service, "user", "ann"), (200, "local".to_owned()));
    assert!(service.log().contains("certificate"), "{}", service.log());
}

/// Answers, item 24: Redis may ask for a certificate, and is shown the one in the settings.
#[test]
fn redis_is_shown_a_certificate_if_it_asks_for_one() {
    let (folder, (_keep, path)) = (tempfile::tempdir().unwrap(), policy(LIMITS));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) =
        (file("cert.pem", pair.cert.pem()), file("key.pem", pair.signing_key.serialize_pem()));
    let port = free_port().to_string();
    let settings = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &certificate],
        ["--tls-auth-clients", "yes"],
    ];
    let _redis = Redis::start_with(settings.as_flattened());
    let serve = |more: &[&str]| {
        let mut command = crate::support::tollgate();
        command.args(["serve", "--http-address=127.0.0.1:0", "--redis-timeout=10s"]);
        command.args(["--resp-address=none", "--grpc-address=none", "--admin-address=none"]);
        command.arg("--policy").arg(&path).args(["--store", &format!("rediss://localhost:{port}")]);
        Service::of(command.args(more).env("SSL_CERT_FILE", &certificate))
    };
    let with = ["--redis-tls-certificate", &certificate, "--redis-tls-key", &key];
    assert_eq!(ask(&serve(&with), "user", "ann"), by_store());
    assert_eq!(ask(&serve(&[]), "user", "ann"), (200, "local".to_owned()));
}

/// Guards, item 7: in Redis a limit that a caller supplies is state of its key, so no number of them leaves the others without.
#[test]
fn no_number_of_supplied_limits_is_too_many_with_redis() {
    const COUNT: usize = 70_000;
    /// Each waits for Redis after every command; together they share its round trips.
    const CONNECTIONS: usize = 100;
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let service = serve(&path, &redis.url());
    let accepted = &|connection: usize| {
        let rates = (1..=COUNT).skip(connection).step_by(CONNECTIONS);
        let commands: Vec<String> = rates.map(|rate| format!("TG.ALLOW key {rate}/s")).collect();
        let replies = service.redis(&commands.join("\r\n"));
        assert!(!replies.contains('-'), "{replies}");
        replies.matches(":1\r\n").count()
    };
    let total: usize = thread::scope(|scope| {
        let connections: Vec<_> =
            (0..CONNECTIONS).map(|index| scope.spawn(move || accepted(index))).collect();
        connections.into_iter().map(|connection| connection.join().unwrap()).sum()
    });
    assert_eq!(total, COUNT);
}

#[test]
fn what_is_borrowed_is_shown_and_given_back_at_the_end() {
    let (redis, (_keep, path)) = (Redis::start(), policy(LIMITS));
    let borrowing = |url: &str| {
        let policy = path.to_str().unwrap();
        Service::start(&["--policy", policy, "--store", url, "--redis-timeout=10s", "--redis-lease=20"])
    };
    let [one, two] = [borrowing(&redis.url()), borrowing(&redis.url())];
    for _ in 0..30 {
        assert_eq!(ask(&one, "user", "ann"), by_store());
    }
    until("both are counted", || metric(&one, "tollgate_lease_shortfall_tokens") == 40);
    let spent = metric(&one, "tollgate_lease_ended_tokens_total{outcome=\"spent\"}");
    assert!((1..30).contains(&spent), "the first at least asked for more: {spent}");
    one.signal("TERM");
    let (code, log) = one.end();
    assert!(code == Some(0) && log.contains("returned leased tokens to Redis"), "{log}");
    let admitted = (0..100).filter(|_| ask(&two, "user", "ann").0 == 200).count();
    assert_eq!(admitted, 70, "all that the other did not use, and no more");
}

#[test]
fn a_cluster_serves_as_well() {
    let (cluster, (_keep, path)) = (RedisCluster::start(3), policy(LIMITS));
    let [one, two] = [serve(&path, &cluster.url()), serve(&path, &cluster.url())];
    for user in ["ann", "bob", "cat", "dan"] {
        assert_eq!(ask(&one, "user", user), by_store());
        assert_eq!((ask(&two, "user", user), left(&one, user)), (by_store(), 98));
    }
}

#[test]
fn snapshots_are_for_the_store_in_memory() {
    let (code, _, err) = run(&["serve", "--store=redis://127.0.0.1:1", "--snapshot-folder=here"]);
    assert!(code == 2 && err.contains("--snapshot-folder needs the in-memory store"), "{err}");
}

// Guards, item 9: what a process remembers while Redis is away is within `memory.max_bytes`, and is measured.
#[test]
fn while_redis_is_away_the_local_state_keeps_to_the_memory_cap() {
    const MOST: u64 = 1 << 20;
    let ((_keep, path), port) = (policy(LIMITS), free_port());
    let url = format!("redis://127.0.0.1:{port}");
    let policy = path.to_str().unwrap();
    let service = Service::start(&["--policy", policy, "--store", &url, "--memory-max-bytes=1MiB"]);
    let commands: Vec<String> = (0..100_000).map(|user| format!("TG.CHECK user {user}")).collect();
    for some in commands.chunks(1_000) {
        let replies = service.redis(&some.join("\r\n"));
        assert_eq!(replies.matches("degraded\r\n:1\r\n").count(), some.len(), "all were decided here");
    }
    let (keys, bytes) =
        (metric(&service, "tollgate_fallback_keys"), metric(&service, "tollgate_fallback_bytes"));
    assert!(keys > 10_000 && bytes > MOST / 4, "{keys} keys in {bytes} bytes");
    assert!(bytes <= MOST, "{keys} keys in {bytes} bytes");
}
