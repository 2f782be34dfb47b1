//! HTTP/1.1: checks in every mode, what administrators ask, who may ask, `/json` of Envoy, and what is no request.

use super::calls::{Call, callers};
use super::{Dice, Listener, Scene, Script, Wait, cases, texts};
use crate::transcripts::mask::Permits;

const JSON: &str = "content-type: application/json\r\n";
const CHECK: &str = r#"{"descriptor":{"user":"ann"}}"#;
const UNKNOWN_ID: &str = "0123456789abcdef0123456789abcdee";

pub(super) fn scenes() -> Vec<(&'static str, Scene)> {
    let script =
        |flags: &str, seed| Script::new(&format!("--policy=policy.toml {flags}"), Listener::Http, seed);
    let tight = "--http-header-bytes=512 --http-headers=6 --http-checks=3 --http-fields=3 --http-key-bytes=12 --http-body-bytes=256";
    vec![
        ("checks", checks(script("", 1))),
        ("bodies", bodies(script("", 2))),
        ("admin", admin(Script::new("--metrics-compat=none", Listener::Admin, 3))),
        ("json", json(script("--grpc-headers=true --grpc-dynamic-metadata=true", 4), 190)),
        ("json-quota-mode", json(script("--grpc-quota-mode=true", 5), 60)),
        ("json-shadow-mode", json(script("--grpc-shadow-mode=true", 6), 40)),
        ("keys", keys(script("--keys-file=keys.toml", 7))),
        ("paths", paths(script("", 8))),
        ("heads", heads(script("", 9))),
        ("tight", limited(script(tight, 10))),
    ]
}

fn request(method: &str, path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\n{fields}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    request("POST", path, JSON, body.as_bytes())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n")
}

/// The value of a field of a descriptor.
fn value(dice: &mut Dice, field: &str) -> String {
    let values: &[&str] = match field {
        "ip" => &["10.0.0.7", "192.0.2.1", "192.0.2.2", "2001:db8::1", "fd00::7", "nowhere"],
        "path" => &["/api/x", "/api/y", "/login"],
        "account" => &["blocked", "vip", "acme", "initech"],
        "plan" => &["gold", "free", "none"],
        "bytes" => &["1", "100", "600", "0", "many", "1.5"],
        _ => &["ann", "bob", "cyd", "d\u{e4}n", "e e", "f\"f", "", "ann,bob", "7"],
    };
    dice.pick::<str>(values).to_owned()
}

fn descriptor(dice: &mut Dice) -> String {
    let fields = [
        "user", "user", "ip", "log", "counter", "sub", "leaky", "queue", "paced", "tenant", "bytes", "path",
        "account", "plan",
    ];
    let mut names: Vec<&str> = (0..=dice.roll(3)).map(|_| *dice.pick(&fields)).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.iter().map(|name| {
        let value = value(dice, name);
        match dice.roll(8) {
            0 if value == "7" || value == "1" => format!("\"{name}\":{value}"),
            1 => format!(" \"{name}\" : {value:?}"),
            2 => format!("\"\\u{:04x}{}\":{value:?}", name.as_bytes()[0], &name[1..]),
            _ => format!("\"{name}\":{value:?}"),
        }
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

fn target(dice: &mut Dice) -> String {
    if dice.percent(12) {
        let rates = ["3 per 1000d", "5 per 365d burst 2", "4 per 36500d", "0/d", "unlimited"];
        let kinds = ["token-bucket", "leaky-bucket", "leaky-queue", "sliding-window-log"];
        let (rate, kind): (&str, &str) = (dice.pick(&rates), dice.pick(&kinds));
        let windows = ["fixed-window", "sliding-window-counter", "sub-windows"];
        let kind = if rate == rates[2] { dice.pick::<str>(&windows) } else { kind };
        let name = if dice.percent(50) { ",\"name\":\"own\"" } else { "" };
        let kind = if rate == rates[2] || dice.percent(50) {
            format!(",\"algorithm\":{kind:?}")
        } else {
            String::new()
        };
        return format!("\"limit\":{{\"rate\":{rate:?}{name}{kind}}},\"key\":\"k{}\"", dice.roll(3));
    }
    let domain = if dice.percent(20) {
        ["\"domain\":\"web\",", "\"domain\":\"nowhere\",", "\"domain\":\"default\","][dice.roll(3) as usize]
    } else {
        ""
    };
    format!("{domain}\"descriptor\":{}", descriptor(dice))
}

fn check(dice: &mut Dice) -> String {
    let cost = if dice.percent(40) {
        format!(
            ",\"cost\":{}",
            dice.pick::<str>(&["0", "1", "2", "3", "5", "20", "2.0", "18446744073709551615"])
        )
    } else {
        String::new()
    };
    let modes = ["take", "peek", "count", "charge", "refund"];
    let mode =
        if dice.percent(20) { format!(",\"mode\":{:?}", dice.pick::<str>(&modes)) } else { String::new() };
    format!("{{{}{cost}{mode}}}", target(dice))
}

fn checks(mut script: Script) -> Scene {
    for _ in 0..600 {
        let dice = &mut script.dice;
        match dice.roll(100) {
            // It is settled before anything else is given back: that may have been from an account which its key shares with others,
            // by chance, and less would come back.
            0..6 => {
                let body = format!("{{{},\"cost\":{},\"hold\":\"24h\"}}", target(dice), dice.roll(4));
                let actual = format!("{{\"id\":{:?},\"actual\":{}}}", Permits::LAST, dice.roll(4));
                let between = format!("{{{}}}", target(dice));
                for (label, path, body) in
                    [("hold", "check", &body), ("check", "check", &between), ("settle", "settle", &actual)]
                {
                    script.ask(label, post(&format!("/v1/{path}"), body));
                }
            }
            6..12 => {
                let body = format!("{{{}}}", target(dice));
                script.ask("reset", post("/v1/reset", &body));
                script.scene.exchanges.last_mut().unwrap().listener = Listener::Admin;
            }
            12..18 => {
                let list = (0..=dice.roll(3)).map(|_| check(dice)).collect::<Vec<_>>().join(",");
                let body =
                    if dice.percent(50) { format!("[{list}]") } else { format!("{{\"checks\":[{list}]}}") };
                script.ask("batch", post("/v1/check", &body));
            }
            18..22 => {
                let requests: Vec<Vec<u8>> = (0..3).map(|_| post("/v1/check", &check(dice))).collect();
                script.wait("pipelined", Wait::Answers(3), requests.concat());
            }
            22..26 => {
                let request = String::from_utf8(post("/v1/check", &check(dice))).unwrap();
                script.wait(
                    "close",
                    Wait::Close,
                    request.replacen("host: t", "host: t\r\nconnection: close", 1),
                );
            }
            26..30 => {
                let (body, path) = (check(dice), "/v1/check");
                script.ask("no-type", request("POST", path, "", body.as_bytes()));
            }
            _ => {
                let body = check(dice);
                script.ask("check", post("/v1/check", &body));
            }
        }
    }
    script.scene
}

fn bodies(mut script: Script) -> Scene {
    for path in ["/v1/check", "/v1/settle", "/v1/reset", "/json"] {
        script.listener = if path == "/v1/reset" { Listener::Admin } else { Listener::Http };
        // Those of one path say little about the others.
        let is_of = |body: &&String| {
            path == "/v1/check"
                || body.len() < 3
                || body.contains(if path == "/json" {
                    "edge"
                } else if path == "/v1/reset" {
                    "limit\""
                } else {
                    "\"id\""
                })
        };
        for body in texts("http bodies").iter().filter(is_of) {
            script.ask("body", post(path, body));
        }
        for body in [
            &b" "[..],
            b"\n\n{\n\"descriptor\" :\n  {]",
            b"\xff\xfe",
            b"\0\0",
            b"{\"descriptor\":{\"user\":\"\xff\"}}",
            b"{\"\xc3\x28\":1}",
        ] {
            script.ask("bytes", request("POST", path, JSON, body));
        }
        for body in [
            format!("{{\"descriptor\":{}", "{\"a\":".repeat(300)),
            "[".repeat(300),
            format!("{{\"domain\":\"{}\",\"descriptor\":{{}}}}", "d".repeat(1025)),
        ] {
            script.ask("long", post(path, &body));
        }
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonp",
            "",
            "Application/JSON; charset=utf-8",
            "application/json;",
            "application/problem+json",
        ] {
            script.ask("type", request("POST", path, &format!("content-type: {kind}\r\n"), CHECK.as_bytes()));
        }
        script.ask("query", post(&format!("{path}?domain=a"), CHECK));
    }
    script.listener = Listener::Http;
    let list = |count: usize| format!("[{}]", vec![r#"{"descriptor":{}}"#; count].join(","));
    script.ask("many", post("/v1/check", &list(1001)));
    let fields = |count: usize| (0..count).map(|at| format!("\"f{at}\":\"\"")).collect::<Vec<_>>().join(",");
    for count in [32, 33] {
        script.ask("wide", post("/v1/check", &format!("{{\"descriptor\":{{{}}}}}", fields(count))));
    }
    for _ in 0..150 {
        // No limit of the caller's own: with another period its window may end at any moment.
        let good =
            format!("{{\"cost\":2,\"descriptor\":{},\"mode\":\"peek\"}}", descriptor(&mut script.dice));
        let spoilt = script.spoil(good.as_bytes(), 2, b"\"{}[],:x0-\\ \xff");
        script.ask("spoilt", request("POST", "/v1/check", JSON, &spoilt));
    }
    script.scene
}

/// With the policy that is built in. Each key is asked once: its limits count in seconds.
fn admin(mut script: Script) -> Scene {
    for path in ["/v1/limits", "/v1/keys/top", "/v1/policy"] {
        for query in texts("http queries") {
            script.ask("query", get(&format!("{path}{query}")));
        }
    }
    let of_limits = [
        "?after=default+per-ip",
        "?after=default%20per-ip&count=1",
        "?after=nothing",
        "?after=",
        "?after=z+z",
        "?after=%ff+x",
    ];
    for query in of_limits {
        script.ask("after", get(&format!("/v1/limits{query}")));
    }
    for query in ["?by=asked", "?by=denied", "?by=denied&count=1", "?by=nothing", "?by="] {
        script.ask("by", get(&format!("/v1/keys/top{query}")));
    }
    script.ask("metrics", get("/metrics"));
    script.listener = Listener::Http;
    for body in [
        r#"{"descriptor":{"user":"once"},"cost":11}"#,
        r#"{"descriptor":{"ip":"192.0.2.77"},"cost":21}"#,
        r#"{"descriptor":{"user":"up","bytes":"1"}}"#,
    ] {
        script.ask("once", post("/v1/check", body));
    }
    script.listener = Listener::Admin;
    for path in ["/v1/keys/top?count=3", "/v1/keys/top?by=denied", "/v1/limits?count=3", "/metrics"] {
        script.ask("later", get(path));
    }
    script.scene
}

fn json(mut script: Script, count: usize) -> Scene {
    for number in 0..count {
        let call = Call::random(&mut script.dice, number);
        let fields = if script.dice.percent(50) { JSON } else { "" };
        script.ask("json", request("POST", "/json", fields, call.json().as_bytes()));
    }
    script.ask("healthcheck", get("/healthcheck"));
    script.scene
}

fn keys(mut script: Script) -> Scene {
    let refund = r#"{"descriptor":{"user":"ann"},"mode":"refund"}"#;
    let (charge, hold) = (refund.replace("refund", "charge"), r#"{"descriptor":{"user":"ann"},"hold":"1h"}"#);
    let batch = format!("[{CHECK},{refund}]");
    let settle = format!("{{\"id\":{UNKNOWN_ID:?},\"actual\":1}}");
    let envoy = Call::new("edge", &[("remote_address", "10.0.0.1")]);
    let mut negative = Call::new("edge", &[("remote_address", "10.0.0.1")]);
    negative.descriptors[0].is_negative = true;
    let (envoy, negative) = (envoy.json(), negative.json());
    let posts = [
        ("/v1/check", CHECK),
        ("/v1/check", refund),
        ("/v1/check", &charge),
        ("/v1/check", hold),
        ("/v1/check", &batch),
        ("/v1/check", "{"),
        ("/v1/settle", &settle),
        ("/v1/settle", "{}"),
        ("/json", &envoy),
        ("/json", &negative),
        ("/json", "{"),
    ];
    for (caller, fields) in callers() {
        script.listener = Listener::Http;
        for (path, body) in posts {
            script.ask(caller, request("POST", path, &format!("{JSON}{fields}"), body.as_bytes()));
        }
        script.listener = Listener::Admin;
        script.ask(caller, request("POST", "/v1/reset", &format!("{JSON}{fields}"), CHECK.as_bytes()));
        for path in ["/v1/limits?count=1", "/v1/keys/top?count=1", "/v1/policy", "/healthz", "/readyz"] {
            script.ask(caller, request("GET", path, &fields, b""));
        }
        if !matches!(caller, "operator" | "everything") {
            script.ask(caller, request("GET", "/metrics", &fields, b""));
        }
    }
    script.scene
}

fn paths(mut script: Script) -> Scene {
    let known = texts("http paths");
    let unknown = [
        "/",
        "/v2/check",
        "/v1/check/",
        "/V1/CHECK",
        "//v1/check",
        "/v1/../v1/check",
        "/%761/check",
        "/v1",
        "*",
    ];
    for listener in [Listener::Http, Listener::Admin] {
        script.listener = listener;
        for path in known.iter().map(String::as_str).chain(unknown) {
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
                let is_measured =
                    (path, listener) == ("/metrics", Listener::Admin) && matches!(method, "GET" | "HEAD");
                if !is_measured && (listener == Listener::Http || known.iter().any(|known| known == path)) {
                    let body = if matches!(method, "POST" | "PUT") { CHECK } else { "" };
                    script.ask("path", request(method, path, JSON, body.as_bytes()));
                }
            }
        }
    }
    script.listener = Listener::Http;
    for target in [
        "http://t/healthz",
        "http://other/v1/check",
        "/healthz?x=1",
        "/healthz?",
        "/healthz#here",
        "/readyz?%zz",
        "/openapi.json?x",
    ] {
        script.ask("target", get(target));
    }
    script.scene
}

fn heads(mut script: Script) -> Scene {
    for head in cases("http heads") {
        script.wait("head", Wait::Cut, head);
        script.fresh();
    }
    for (count, length) in
        [(62, 1), (63, 1), (64, 1), (127, 1), (128, 1), (1, 15_000), (1, 17_000), (1, 40_000), (4, 15_000)]
    {
        let fields = format!("x: {}\r\n", "y".repeat(length)).repeat(count);
        script.wait("large", Wait::Cut, format!("GET /healthz HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
        script.wait("large", Wait::Cut, request("POST", "/v1/check", &fields, CHECK.as_bytes()));
    }
    for length in [1_000, 16_000, 20_000, 70_000] {
        script.wait("line", Wait::Cut, format!("GET /{} HTTP/1.1\r\nhost: t\r\n\r\n", "p".repeat(length)));
    }
    let ask = post("/v1/check", CHECK);
    script.wait("pipelined", Wait::Answers(8), ask.repeat(8));
    script.wait("pipelined", Wait::Answers(3), [&ask, get("/healthz").as_bytes(), &ask].concat());
    script.wait("pipelined", Wait::Answers(3), [&ask, &post("/v1/check", "{")[..], &ask].concat());
    script.wait("pipelined", Wait::Close, [&ask, &b"nonsense\r\n\r\n"[..], &ask].concat());
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\n{JSON}content-length: {}\r\n\r\n",
        CHECK.len()
    );
    script.ask("continue", head.as_str());
    script.ask("continue", CHECK);
    let whole = post("/v1/check", CHECK);
    for _ in 0..130 {
        let spoilt = script.spoil(&whole, 2, b"\0\r\n :\x7f\xff;,\"");
        script.wait("spoilt", Wait::Cut, spoilt);
    }
    let get =
        format!("{}{}", get("/healthz").trim_end(), "\r\nuser-agent: someone/1.0\r\naccept: */*\r\n\r\n");
    for _ in 0..50 {
        let spoilt = script.spoil(get.as_bytes(), 2, b"\0\r\n :\x7f\xff;,\"");
        script.wait("spoilt", Wait::Cut, spoilt);
    }
    script.scene
}

/// Just what may be sent where little may be, and a little more.
fn limited(mut script: Script) -> Scene {
    let field = |length: usize| format!("x: {}\r\n", "y".repeat(length));
    for count in 1..9 {
        script.wait(
            "fields",
            Wait::Cut,
            format!("GET /healthz HTTP/1.1\r\nhost: t\r\n{}\r\n", "x: y\r\n".repeat(count)),
        );
        script.wait(
            "fields",
            Wait::Cut,
            request("POST", "/v1/check", &"x: y\r\n".repeat(count), CHECK.as_bytes()),
        );
    }
    for length in [300, 400, 440, 460, 470, 480, 490, 500, 600, 1100] {
        script.wait("field", Wait::Cut, format!("GET /healthz HTTP/1.1\r\nhost: t\r\n{}\r\n", field(length)));
        script.wait("field", Wait::Cut, request("POST", "/v1/check", &field(length), CHECK.as_bytes()));
    }
    for length in [200, 255, 256, 257, 300, 1000] {
        let body = format!("{CHECK}{}", " ".repeat(length - CHECK.len()));
        script.wait("body", Wait::Cut, post("/v1/check", &body));
        let chunks = format!(
            "POST /v1/check HTTP/1.1\r\nhost: t\r\n{JSON}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        );
        script.wait("chunks", Wait::Cut, chunks);
        script.wait("json", Wait::Cut, post("/json", &body));
    }
    for count in 1..6 {
        let list = vec![r#"{"descriptor":{"log":"l"}}"#; count].join(",");
        script.ask("list", post("/v1/check", &format!("[{list}]")));
        let fields: Vec<String> = (0..count).map(|at| format!("\"f{at}\":1")).collect();
        script.ask("wide", post("/v1/check", &format!("{{\"descriptor\":{{{}}}}}", fields.join(","))));
    }
    for length in 10..15 {
        for text in ["x".repeat(length), "\u{df}".repeat(length)] {
            script.ask("value", post("/v1/check", &format!("{{\"descriptor\":{{\"user\":{text:?}}}}}")));
            script.ask("name", post("/v1/check", &format!("{{\"descriptor\":{{{text:?}:1}}}}")));
            script.ask("domain", post("/v1/check", &format!("{{\"domain\":{text:?},\"descriptor\":{{}}}}")));
            script.ask(
                "key",
                post("/v1/check", &format!("{{\"limit\":{{\"rate\":\"9 per 1000d\"}},\"key\":{text:?}}}")),
            );
        }
    }
    script.scene
}
