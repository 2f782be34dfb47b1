//! gRPC: decisions in every mode, who may ask, the services beside it, and calls that cannot be read.

use super::calls::{Call, Descriptor, bytes, callers, number};
use super::{Listener, Scene, Script, texts};

const DECIDE: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const TYPE: &str = "content-type: application/grpc\r\n";

pub(super) fn scenes() -> Vec<(&'static str, Scene)> {
    let script =
        |flags: &str, seed| Script::new(&format!("--policy=policy.toml {flags}"), Listener::Grpc, seed);
    let told = "--grpc-headers=true --grpc-dynamic-metadata=true";
    vec![
        ("decisions", decisions(script("", 1), 750)),
        ("told", decisions(script(told, 2), 300)),
        ("quota-mode", decisions(script("--grpc-quota-mode=true", 3), 150)),
        ("shadow-mode", decisions(script("--grpc-shadow-mode=true --grpc-headers=true", 4), 100)),
        ("keys", keys(script("--keys-file=keys.toml", 5))),
        ("services", services(script("", 6))),
        ("malformed", malformed(script("", 7))),
    ]
}

fn call(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("POST {path}\r\n{fields}te: trailers\r\n\r\n").as_bytes(), body].concat()
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

fn decide(message: &[u8]) -> Vec<u8> {
    call(DECIDE, TYPE, &frame(message))
}

fn decisions(mut script: Script, count: usize) -> Scene {
    for number in 0..count {
        let call = Call::random(&mut script.dice, number);
        script.ask("decide", decide(&call.proto()));
    }
    script.scene
}

fn keys(mut script: Script) -> Scene {
    for (caller, fields) in callers() {
        let fields = format!("{TYPE}{fields}");
        for number in 0..14 {
            let mut asked = Call::random(&mut script.dice, number);
            asked.descriptors[0].is_negative = number % 5 == 4;
            script.ask(caller, call(DECIDE, &fields, &frame(&asked.proto())));
        }
        let rest: [(&str, &[u8]); 6] = [
            (HEALTH, &frame(b"")),
            (HEALTH, &frame(&bytes(1, b"nothing"))),
            (REFLECTION, &frame(&bytes(7, b""))),
            ("/nothing/At", &frame(b"")),
            (DECIDE, b""),
            (DECIDE, b"\0\0\0\0\x02\x0a"),
        ];
        for (path, body) in rest {
            script.ask(caller, call(path, &fields, body));
        }
    }
    script.scene
}

fn services(mut script: Script) -> Scene {
    for path in
        [HEALTH, "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/", "/grpc.health.v1.Health/check"]
    {
        for service in [
            "",
            "envoy.service.ratelimit.v3.RateLimitService",
            "ratelimit",
            "grpc.health.v1.Health",
            "d\u{e4}n",
            "x",
        ] {
            let asked = if service.is_empty() { Vec::new() } else { bytes(1, service.as_bytes()) };
            script.ask("health", call(path, TYPE, &frame(&asked)));
        }
    }
    for path in [REFLECTION, ALPHA] {
        let symbols = [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.health.v1.Health.Check",
            "nothing",
            "",
        ];
        for symbol in symbols {
            script.ask("symbol", call(path, TYPE, &frame(&bytes(4, symbol.as_bytes()))));
        }
        for asked in [
            bytes(7, b""),
            bytes(3, b"nothing.proto"),
            bytes(6, b"nothing"),
            bytes(5, &bytes(1, b"nothing")),
            Vec::new(),
        ] {
            script.ask("reflection", call(path, TYPE, &frame(&asked)));
        }
        script.ask(
            "reflection",
            call(path, TYPE, &[frame(&bytes(7, b"")), frame(&bytes(4, b"nothing"))].concat()),
        );
        script.ask("reflection", call(path, TYPE, &frame(b"\xff")));
        script.ask("reflection", call(path, TYPE, b"\x01\0\0\0\0"));
    }
    let asked = Call::new("edge", &[("remote_address", "10.0.0.1")]).proto();
    for path in texts("grpc paths") {
        for body in [&b""[..], &frame(b""), &frame(&asked), b"\x01\0\0\0\0", b"no frame"] {
            script.ask("unknown", call(&path, TYPE, body));
        }
    }
    // Fields beside those that gRPC asks for, and other methods.
    for fields in [
        "",
        "content-type: application/json\r\n",
        "content-type: application/grpc+proto\r\n",
        "content-type: application/grpc-web\r\n",
        "content-type: text/plain\r\n",
        "content-type: application/grpc\r\ngrpc-timeout: 1S\r\n",
        "content-type: application/grpc\r\ngrpc-timeout: soon\r\n",
        "content-type: application/grpc\r\ngrpc-encoding: gzip\r\n",
        "content-type: application/grpc\r\ngrpc-accept-encoding: gzip\r\n",
        "content-type: application/grpc\r\nx-name-bin: AAAA\r\nx-name: value\r\n",
        "content-type: application/grpc\r\nuser-agent: grpc-go/1.60.0\r\n",
        "content-type: application/grpc\r\ncontent-length: 43\r\n",
    ] {
        for path in [DECIDE, HEALTH, "/nothing/At"] {
            let body = if path == DECIDE { frame(&asked) } else { frame(b"") };
            let fields =
                if path == DECIDE { fields } else { fields.trim_end_matches("content-length: 43\r\n") };
            script.ask("fields", call(path, fields, &body));
        }
    }
    for method in ["GET", "PUT", "OPTIONS"] {
        for path in [DECIDE, HEALTH, "/nothing/At"] {
            let request = call(path, TYPE, &frame(&asked));
            script.ask("method", [method.as_bytes(), &request[4..]].concat());
        }
    }
    script.scene
}

/// Messages that read well and make no sense.
fn senseless() -> Vec<Vec<u8>> {
    let of = |domain: &str, descriptors: Vec<Descriptor>| {
        Call { domain: domain.to_owned(), descriptors, hits: 0 }.proto()
    };
    let one = |key: &str, value: &str| Descriptor::new(&[(key, value)]);
    let many = |count: usize| (0..count).map(|_| one("user", "many")).collect::<Vec<_>>();
    let wide = |count: usize| Descriptor {
        entries: vec![("k".to_owned(), "v".to_owned()); count],
        ..Descriptor::default()
    };
    let limited = |unit| Descriptor { limit: Some((1, unit)), ..one("unit", &unit.to_string()) };
    let hits = |hits| Descriptor { hits: Some(hits), ..one("remote_address", "hits") };
    let mut all = vec![
        Vec::new(),
        of("", vec![one("user", "a")]),
        of("edge", Vec::new()),
        of("edge", vec![Descriptor::default()]),
        of("edge", vec![one("user", "a"), Descriptor::default()]),
        of("edge", vec![one("", "a")]),
        of("edge", vec![one("user", "")]),
        of("edge", many(100)[..100].iter().map(|_| one("nothing", "x")).collect()),
        of("edge", many(101)),
        of("edge", vec![wide(64)]),
        of("edge", vec![wide(65)]),
        of(&"d".repeat(1024), vec![one("user", "a")]),
        of(&"d".repeat(1025), vec![one("user", "a")]),
        of("edge", vec![one(&"k".repeat(1024), "a")]),
        of("edge", vec![one(&"k".repeat(1025), "a")]),
        of("edge", vec![one("user", &"v".repeat(65_536))]),
        of("edge", vec![one("user", &"v".repeat(65_537))]),
        of("edge", vec![Descriptor::new(&[("sized", "x"), ("bytes", "many")])]),
        of("edge", vec![one("user", "a"), Descriptor::new(&[("sized", "x"), ("bytes", "-1")])]),
        of("edge", vec![Descriptor::new(&[("sized", "x"), ("bytes", "18446744073709551616")])]),
        // Not UTF-8: a domain, a key and a value.
        [bytes(1, b"\xff"), bytes(2, &one("user", "a").proto())].concat(),
        [bytes(1, b"edge"), bytes(2, &bytes(1, &[bytes(1, b"k\xff"), bytes(2, b"v")].concat()))].concat(),
        [
            bytes(1, b"edge"),
            bytes(2, &bytes(1, &[bytes(1, b"remote_address"), bytes(2, b"\xff\xfe")].concat())),
        ]
        .concat(),
        // Fields that are not known, and some twice.
        [of("edge", vec![one("remote_address", "u")]), number(99, 7), bytes(100, b"new")].concat(),
        [bytes(1, b"nowhere"), of("edge", vec![one("remote_address", "t")])].concat(),
        [of("edge", vec![one("remote_address", "w")]), number(3, u64::MAX)].concat(),
        [of("edge", vec![one("remote_address", "s")]), b"\x1c".to_vec()].concat(),
    ];
    all.extend([0, 1, 6, 7, 8, 99, u64::MAX].map(|unit| of("edge", vec![limited(unit)])));
    all.extend([0, 1, 6, u64::from(u32::MAX), u64::MAX].map(|count| of("edge", vec![hits(count)])));
    all
}

fn malformed(mut script: Script) -> Scene {
    for message in senseless() {
        script.ask("senseless", decide(&message));
    }
    let good = Call {
        domain: "edge".to_owned(),
        descriptors: vec![
            Descriptor {
                limit: Some((3, 6)),
                hits: Some(2),
                ..Descriptor::new(&[("path", "/own"), ("remote_address", "10.0.0.9")])
            },
            Descriptor { is_negative: true, ..Descriptor::new(&[("window", "m")]) },
        ],
        hits: 1,
    };
    let message = Call::new("edge", &[("window", "cut")]).proto();
    let whole = frame(&message);
    for cut in 0..whole.len() {
        script.ask("cut", call(DECIDE, TYPE, &whole[..cut]));
    }
    for cut in 0..message.len() {
        script.ask("short", decide(&message[..cut]));
    }
    let framed = [
        [&whole[..], &whole].concat(),
        [&whole[..], b"\0"].concat(),
        [b"\x01", &whole[1..]].concat(),
        [b"\x02", &whole[1..]].concat(),
        [b"\xff", &whole[1..]].concat(),
        b"\0\0\0\0\0".to_vec(),
        b"\0\0\0\0\x01".to_vec(),
        b"\0\xff\xff\xff\xff".to_vec(),
        b"\0\0\x10\0\x01".to_vec(),
        frame(&bytes(1, &b"x".repeat(1024 * 1024))),
        frame(&bytes(9, &b"x".repeat(1024 * 1024 - 4))),
        b"\x01\0\0\0\0".to_vec(),
        message.clone(),
        b"{\"domain\":\"edge\"}".to_vec(),
    ];
    for body in framed {
        script.ask("framed", call(DECIDE, TYPE, &body));
    }
    for length in 0..message.len() as u8 + 3 {
        script.ask("length", call(DECIDE, TYPE, &[b"\0\0\0\0", &[length][..], &message].concat()));
    }
    // Every field with every type of the wire, which mostly is not its own.
    for path in [&[][..], &[2], &[2, 1], &[2, 2], &[2, 3]] {
        for tag in (0..5u64).flat_map(|field| (0..8).map(move |kind| field << 3 | kind)) {
            let inner = [&[tag as u8][..], b"\x02ab"].concat();
            let message = path.iter().rev().fold(inner, |inner, field| bytes(*field, &inner));
            script.ask("typed", decide(&[bytes(1, b"nowhere"), message].concat()));
        }
    }
    // An override of a spoilt call would have a window of its own, which may end at any moment: they are of a domain without limits.
    let plain = Call { domain: "none".to_owned(), ..good }.proto();
    for _ in 0..120 {
        let spoilt = script.spoil(&plain, 3, b"\0\x01\x08\x0a\x12\x1a\x22\x7f\x80\xff");
        script.ask("spoilt", decide(&spoilt));
    }
    script.scene
}
