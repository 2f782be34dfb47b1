//! Whatever makes no sense is refused with what was wrong and where, and never allowed.

use serde_json::json;

use super::support::Site;

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n";
const AMOUNT: &str = "a whole number from 0 to 18446744073709551615";
const MEMBERS: &str = "`domain`, `descriptor`, `limit`, `key`, `cost`, `mode`, `hold`";

/// What is wrong with a check, and at which column of its one line.
fn wrong(body: &str) -> (String, u64) {
    let site = Site::new(POLICY);
    let answer = site.check(body);
    let detail = answer.problem(400);
    assert_eq!(answer.json()["line"], 1, "{body}");
    (detail, answer.json()["column"].as_u64().unwrap())
}

#[test]
fn members_are_known_and_stand_there_once() {
    let (detail, column) = wrong(r#"{"descriptor":{},"costt":1}"#);
    assert_eq!((detail, column), (format!("unknown field `costt`, expected one of {MEMBERS}"), 24));
    assert_eq!(wrong(r#"{"cost":1,"cost":1,"descriptor":{}}"#), ("duplicate field `cost`".to_owned(), 16));
    assert_eq!(wrong(r#"{"descriptor":{},"descriptor":{}}"#).0, "duplicate field `descriptor`");
    assert_eq!(wrong(r#"{"descriptor":{"a":"1","a":"2"}}"#).0, "duplicate field `a`");
    assert_eq!(wrong(r#"{"checks":[],"checks":[]}"#).0, "duplicate field `checks`");
    assert_eq!(wrong(r#"{"checks":[],"cost":1}"#).0, "`cost` cannot be combined with `checks`");
    assert_eq!(
        wrong(r#"{"cost":1,"checks":[]}"#).0,
        format!("unknown field `checks`, expected one of {MEMBERS}")
    );
    assert_eq!(
        wrong(r#"{"limit":{"rate":"1/s","burst":3},"key":"a"}"#).0,
        "unknown field `burst`, expected one of `rate`, `name`, `algorithm`"
    );
    assert_eq!(wrong(r#"{"limit":{"rate":"1/s","rate":"1/s"},"key":"a"}"#).0, "duplicate field `rate`");
}

#[test]
fn costs_are_whole_numbers_that_fit() {
    let cost = |text: &str| wrong(&format!(r#"{{"descriptor":{{}},"cost":{text}}}"#)).0;
    assert_eq!(cost("-1"), format!("invalid value: integer `-1`, expected {AMOUNT}"));
    assert_eq!(
        cost("-9223372036854775808"),
        format!("invalid value: integer `-9223372036854775808`, expected {AMOUNT}")
    );
    assert_eq!(
        cost("18446744073709551616"),
        format!("invalid value: floating point `1.8446744073709552e+19`, expected {AMOUNT}")
    );
    assert_eq!(cost("1.5"), format!("invalid value: floating point `1.5`, expected {AMOUNT}"));
    assert_eq!(cost("\"1\""), format!("invalid type: string \"1\", expected {AMOUNT}"));
    for odd in ["9007199254740992.0", "1e16", "-1.0", "0.5", "1e-1"] {
        assert!(cost(odd).starts_with("invalid value: floating point"), "{odd}");
    }
    assert_eq!(cost("null"), format!("invalid type: null, expected {AMOUNT}"));
    assert_eq!(cost("[1]"), format!("invalid type: sequence, expected {AMOUNT}"));
    assert_eq!(cost("1e400"), "number out of range");
    assert_eq!(cost("+1"), "expected value");
    assert_eq!(cost("01"), "invalid number");
    assert_eq!(cost("NaN"), "expected value");
}

#[test]
fn modes_and_holds_are_known() {
    let with = |more: &str| wrong(&format!(r#"{{"descriptor":{{}},{more}}}"#)).0;
    assert_eq!(
        with(r#""mode":"Take""#),
        "unknown `mode` \"Take\"; expected one of take, peek, count, charge, refund"
    );
    assert_eq!(with(r#""mode":1"#), "`mode` must be a name such as \"take\", not the number 1");
    for (value, shown) in [
        ("30", "the number 30"),
        ("-1", "the number -1"),
        ("1.5", "the number 1.5"),
        ("true", "true"),
        ("null", "null"),
        ("[30]", "a list"),
        ("{}", "an object"),
    ] {
        let hold = with(&format!(r#""hold":{value}"#));
        assert_eq!(hold, format!("`hold` must be a duration such as \"30s\", not {shown}"));
    }
    assert_eq!(wrong(r#"{"domain":5,"descriptor":{}}"#).0, "`domain` must be a string, not the number 5");
    let hold = |text: &str| {
        format!("`hold` must be a duration such as \"30s\" or \"1.5min\", at most \"24h\", not {text:?}")
    };
    for text in
        ["", "30", "s 1", "-1s", "0s", "24h1s", "25h", "1s burst 2", "9223372036854775807s", "1 fortnight"]
    {
        assert_eq!(with(&format!(r#""hold":"{text}""#)), hold(text));
    }
    assert_eq!(with(r#""hold":"1s","mode":"peek""#), "`hold` needs the mode `take`");
}

#[test]
fn it_is_said_whose_state_is_meant() {
    let nothing = "expected `descriptor`, or `limit` and `key`";
    assert_eq!(wrong("{}").0, nothing);
    assert_eq!(wrong(r#"{"domain":"a","cost":1}"#).0, nothing);
    assert_eq!(wrong(r#"{"limit":{"rate":"1/s"}}"#).0, "missing field `key`");
    assert_eq!(wrong(r#"{"key":"a"}"#).0, "missing field `limit`");
    assert_eq!(wrong(r#"{"limit":{},"key":"a"}"#).0, "missing field `rate`");
    let both = "`descriptor` cannot be combined with `limit` or `key`";
    assert_eq!(wrong(r#"{"descriptor":{},"limit":{"rate":"1/s"},"key":"a"}"#).0, both);
    assert_eq!(wrong(r#"{"descriptor":{},"key":"a"}"#).0, both);
    assert_eq!(
        wrong(r#"{"domain":"d","limit":{"rate":"1/s"},"key":"a"}"#).0,
        "`domain` needs a `descriptor`"
    );
}

#[test]
fn a_limit_of_the_callers_own_must_make_sense() {
    let own = |limit: &str| wrong(&format!(r#"{{"limit":{limit},"key":"a"}}"#)).0;
    assert_eq!(
        own(r#"{"rate":"10"}"#),
        "`rate`: quota \"10\": missing period after \"10\"; expected for example 10/s or 10 per 10s"
    );
    assert_eq!(
        own(r#"{"rate":"18446744073709551616/s"}"#),
        "`rate`: quota \"18446744073709551616/s\": 18446744073709551616 is too large; the largest number is 18446744073709551615"
    );
    assert_eq!(own(r#"{"rate":10}"#), "`rate` must be a rate such as \"10/s burst 20\", not the number 10");
    assert!(own(r#"{"rate":"1/s","algorithm":"gcra"}"#).starts_with("`algorithm`: "));
    for name in ["", "a b", "größe", "\\u0000"] {
        let shown: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
        assert_eq!(
            own(&format!(r#"{{"rate":"1/s","name":"{name}"}}"#)),
            format!("`name` must consist of letters, digits and signs such as - _ . : /, not {shown:?}")
        );
    }
    assert_eq!(
        own(&format!(r#"{{"rate":"1/s","name":"{}"}}"#, "n".repeat(129))),
        "`name` has 129 characters; the maximum is 128"
    );
    assert_eq!(
        own("\"1/s\""),
        "invalid type: string \"1/s\", expected a limit, such as {\"rate\": \"10/s burst 20\"}"
    );
}

#[test]
fn what_is_too_much_is_named() {
    let site = Site::limited(POLICY, |limits| {
        (limits.fields, limits.key_length, limits.checks) = (3, 8, 2);
    });
    let fields = |count: usize| (0..count).map(|at| format!("\"f{at}\":\"\"")).collect::<Vec<_>>().join(",");
    let check = |fields: String| format!(r#"{{"descriptor":{{{fields}}}}}"#);
    assert_eq!(site.check(&check(fields(3))).status, 200);
    assert_eq!(site.check(&check(fields(4))).problem(400), "too many fields: the maximum is 3");
    let value = |value: &str| check(format!("\"ip\":\"{value}\""));
    assert_eq!(site.check(&value("12345678")).status, 200);
    assert_eq!(site.check(&value("ßßßßßßßß")).status, 200);
    assert_eq!(
        site.check(&value("123456789")).problem(400),
        "a field value has 9 characters; the maximum is 8"
    );
    assert_eq!(
        site.check(&value("ßßßßßßßßß")).problem(400),
        "a field value has 9 characters; the maximum is 8"
    );
    assert_eq!(
        site.check(&check("\"long name\":1".to_owned())).problem(400),
        "a field name has 9 characters; the maximum is 8"
    );
    assert_eq!(
        site.check(r#"{"domain":"my domain","descriptor":{}}"#).problem(400),
        "`domain` has 9 characters; the maximum is 8"
    );
    assert_eq!(
        site.check(r#"{"limit":{"rate":"1/s"},"key":"123456789"}"#).problem(400),
        "`key` has 9 characters; the maximum is 8"
    );
    let list = |count: usize| format!("[{}]", vec![r#"{"descriptor":{}}"#; count].join(","));
    assert_eq!(site.check(&list(2)).status, 200);
    assert_eq!(site.check(&list(3)).problem(400), "too many checks: the maximum is 2");
    let default = Site::new(POLICY);
    assert_eq!(default.check(&list(1_001)).problem(400), "too many checks: the maximum is 1000");
}

#[test]
fn nothing_of_a_list_is_decided_if_one_cannot_be_read() {
    let site = Site::new(POLICY);
    let good = r#"{"descriptor":{"ip":"1"}}"#;
    let answer = site.check(&format!("[\n{good},\n {{\"descriptor\":{{\"ip\":null}}}}\n]"));
    assert_eq!(answer.problem(400), "invalid type: null, expected a string, a whole number, true or false");
    assert_eq!((&answer.json()["line"], &answer.json()["column"]), (&json!(3), &json!(25)));
    assert_eq!([(); 2].map(|()| site.check(good).status), [200, 200]);
}

#[test]
fn whatever_is_no_json_is_refused() {
    let site = Site::new(POLICY);
    for (body, detail) in [
        ("", "the body is empty; expected JSON"),
        (" ", "EOF while parsing a value"),
        ("{", "EOF while parsing an object"),
        (r#"{"descriptor":{"ip":"1"}"#, "EOF while parsing an object"),
        (r#"{"descriptor":{"ip":"1"}}x"#, "trailing characters"),
        (r#"{"descriptor":{"ip":"1"}}{}"#, "trailing characters"),
        (r#"{"descriptor":{"ip":"1",}}"#, "trailing comma"),
        ("{'descriptor':{}}", "key must be a string"),
        (r#"{"descriptor":{"ip":"\ud800"}}"#, "unexpected end of hex escape"),
        ("null", "invalid type: null, expected a check, or a list of checks"),
        ("true", "invalid type: boolean `true`, expected a check, or a list of checks"),
        ("1", "invalid type: integer `1`, expected a check, or a list of checks"),
        ("\"take\"", "invalid type: string \"take\", expected a check, or a list of checks"),
        ("[1]", "invalid type: integer `1`, expected a check"),
        ("[[]]", "invalid type: sequence, expected a check"),
        (
            r#"{"descriptor":[]}"#,
            "invalid type: sequence, expected a descriptor, such as {\"ip\": \"10.0.0.7\"}",
        ),
        (r#"{"descriptor":{"a":{}}}"#, "invalid type: map, expected a string, a whole number, true or false"),
        (
            r#"{"descriptor":{"a":1.5}}"#,
            "invalid value: floating point `1.5`, expected a string, a whole number, true or false",
        ),
        ("<check/>", "expected value"),
    ] {
        assert_eq!(site.check(body).problem(400), detail, "{body}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(site.check(&deep).problem(400), "invalid type: sequence, expected a check");
    let deep = format!(r#"{{"descriptor":{}"#, r#"{"a":"#.repeat(100_000));
    assert!(site.check(&deep).problem(400).starts_with("invalid type: map"));
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let site = Site::new(POLICY);
    for bytes in [
        &b"{\"descriptor\":{\"ip\":\"\xff\"}}"[..],
        b"\xff\xfe",
        b"{\"descriptor\":{\"\xc3\x28\":\"1\"}}",
        b"\0\0\0\0",
    ] {
        let mut client = site.client();
        client.send(
            format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", bytes.len())
                .as_bytes(),
        );
        client.send(bytes);
        let detail = client.answer().problem(400);
        assert!(["invalid unicode code point", "expected value"].contains(&detail.as_str()), "{detail}");
        assert_eq!(client.get("/healthz").status, 200, "the connection goes on");
    }
}

#[test]
fn settlements_must_make_sense() {
    let site = Site::new(POLICY);
    let id = "0123456789abcdef0123456789abcdef";
    for (body, detail) in [
        ("{}".to_owned(), "missing field `id`"),
        (format!(r#"{{"id":"{id}"}}"#), "missing field `actual`"),
        (
            format!(r#"{{"id":"{id}","actual":-1}}"#),
            &format!("invalid value: integer `-1`, expected {AMOUNT}"),
        ),
        (format!(r#"{{"id":"{id}","id":"{id}","actual":1}}"#), "duplicate field `id`"),
        (format!(r#"{{"id":"{id}","actual":1,"actual":1}}"#), "duplicate field `actual`"),
        (format!(r#"{{"id":"{id}","cost":1}}"#), "unknown field `cost`, expected `id` or `actual`"),
        (r#"{"id":"xyz","actual":1}"#.to_owned(), "`id`: a hold id has 32 hexadecimal digits"),
        ("[]".to_owned(), "invalid type: sequence, expected an object with `id` and `actual`"),
    ] {
        assert_eq!(site.post("/v1/settle", &body).problem(400), detail, "{body}");
    }
    let unknown = site.post("/v1/settle", &format!(r#"{{"id":"{id}","actual":18446744073709551615}}"#));
    assert!(unknown.problem(404).starts_with("Unknown hold id: "));
}

#[test]
fn paths_methods_and_parameters_are_known() {
    let site = Site::new(POLICY);
    assert_eq!(
        site.get("/v2/check").problem(404),
        "unknown path \"/v2/check\"; expected one of /v1/check, /v1/settle, /v1/reset, /v1/limits, /v1/keys/top, /v1/policy, \
         /openapi.json, /healthz, /readyz, /metrics"
    );
    assert_eq!(site.get("/v1/check/").status, 404);
    for (method, path, allow) in [
        ("GET", "/v1/check", "POST"),
        ("PUT", "/v1/check", "POST"),
        ("DELETE", "/v1/settle", "POST"),
        ("OPTIONS", "/v1/reset", "POST"),
        ("POST", "/v1/limits", "GET, HEAD"),
        ("TRACE", "/healthz", "GET, HEAD"),
        ("BREW", "/metrics", "GET, HEAD"),
    ] {
        let answer = site
            .client()
            .ask(&format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n"));
        assert_eq!(answer.problem(405), format!("method not allowed; use {allow}"));
        assert_eq!(answer.field("allow"), Some(allow));
    }
    assert_eq!(site.post("/v1/check?domain=a", "{}").problem(400), "this path takes no parameters");
}

#[test]
fn a_body_must_be_json_by_its_content_type_too() {
    let site = Site::new(POLICY);
    let body = r#"{"descriptor":{"ip":"1"}}"#;
    let ask = |content_type: &str| {
        let length = body.len();
        site.client().ask(&format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    };
    assert_eq!(ask("application/json").status, 200);
    assert_eq!(ask("Application/JSON; charset=utf-8").status, 200);
    for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        assert_eq!(
            ask(other).problem(415),
            format!("unsupported content type {other:?}: send content-type: application/json")
        );
    }
    let bare = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    let without = "no content type: send content-type: application/json";
    assert_eq!(site.client().ask(bare).problem(415), without);
}
