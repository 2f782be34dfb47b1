//! What clients say when they connect, and asking by policy.

use std::time::Duration;

use tollgate_server::{Keyring, Keys, Scope, Scopes};

use super::caller::{Caller, Reply};
use super::serving::{NONE, Serving};

/// What `HELLO` answers a caller in whichever version.
fn greeting(version: i64, id: i64) -> Vec<(Reply, Reply)> {
    let text = Reply::text;
    vec![
        (text("server"), text("redis")),
        (text("version"), text("7.2.0")),
        (text("proto"), Reply::Integer(version)),
        (text("id"), Reply::Integer(id)),
        (text("mode"), text("standalone")),
        (text("role"), text("master")),
        (text("modules"), Reply::Array(Vec::new())),
    ]
}

fn ok() -> Reply {
    Reply::Status("OK".to_owned())
}

#[test]
fn hello_chooses_the_version() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    let flat =
        |pairs: Vec<(Reply, Reply)>| Reply::Array(pairs.into_iter().flat_map(|(a, b)| [a, b]).collect());
    assert_eq!(caller.say("HELLO"), flat(greeting(2, 1)));
    assert_eq!(caller.say("hello 3"), Reply::Map(greeting(3, 1)));
    assert_eq!(caller.say("HELLO"), Reply::Map(greeting(3, 1)));
    assert_eq!(caller.say("HELLO 3 SETNAME me"), Reply::Map(greeting(3, 1)));
    assert_eq!(caller.say("CLIENT GETNAME"), Reply::text("me"));
    assert_eq!(caller.say("HELLO 2 AUTH default anything"), flat(greeting(2, 1)));
    for (line, told) in [
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO 1", "NOPROTO unsupported protocol version"),
        ("HELLO x", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 AUTH somebody else", "WRONGPASS invalid username-password pair or user is disabled."),
        ("HELLO 3 AUTH default", "ERR Syntax error in HELLO option 'AUTH'"),
        ("HELLO 3 SETNAME", "ERR Syntax error in HELLO option 'SETNAME'"),
        ("HELLO 3 NAME x", "ERR Syntax error in HELLO option 'NAME'"),
    ] {
        assert_eq!(caller.say(line), Reply::error(told), "{line}");
    }
    assert_eq!(caller.say("RESET"), Reply::Status("RESET".to_owned()));
    assert_eq!(caller.say("CLIENT GETNAME"), Reply::Null);
    assert_eq!(serving.caller().say("CLIENT ID"), Reply::Integer(2));
}

#[test]
fn what_every_redis_answers() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    for (line, reply) in [
        ("PING", Reply::Status("PONG".to_owned())),
        ("ping hi", Reply::text("hi")),
        ("ECHO hi", Reply::text("hi")),
        ("SELECT 0", ok()),
        ("SELECT 1", Reply::error("ERR DB index is out of range")),
        ("SELECT x", Reply::error("ERR value is not an integer or out of range")),
        ("CLIENT SETNAME me", ok()),
        ("CLIENT GETNAME", Reply::text("me")),
        ("CLIENT SETINFO lib-name redis-py", ok()),
        ("CLIENT SETINFO LIB-VER 8.1.0", ok()),
        ("CLIENT SETINFO lib-x 8.1.0", Reply::error("ERR Unrecognized option 'lib-x'")),
        ("CLIENT NO-EVICT ON", ok()),
        ("CLIENT NO-TOUCH off", ok()),
        ("CLIENT NO-TOUCH maybe", Reply::error("ERR syntax error")),
        ("CLIENT SETNAME", Reply::error("ERR wrong number of arguments for 'client|setname' command")),
        ("CLIENT", Reply::error("ERR wrong number of arguments for 'client' command")),
        (
            "CLIENT MAINT_NOTIFICATIONS ON",
            Reply::error("ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."),
        ),
        ("COMMAND", Reply::Array(Vec::new())),
        ("COMMAND COUNT", Reply::Integer(25)),
        ("COMMAND DOCS ping", Reply::Array(Vec::new())),
        ("COMMAND INFO ping get", Reply::Array(vec![Reply::Null, Reply::Null])),
        ("COMMAND X", Reply::error("ERR unknown subcommand 'X'. Try COMMAND HELP.")),
        ("CONFIG GET save", Reply::Array(vec![Reply::text("save"), Reply::text("")])),
        ("CONFIG GET appendonly x", Reply::Array(vec![Reply::text("appendonly"), Reply::text("no")])),
        ("CONFIG GET x", Reply::Array(Vec::new())),
        ("CONFIG GET", Reply::error("ERR wrong number of arguments for 'config|get' command")),
        ("CONFIG SET save x", Reply::error("ERR unknown subcommand 'SET'. Try CONFIG HELP.")),
        ("CLUSTER SLOTS", Reply::error("ERR This instance has cluster support disabled")),
        ("READONLY", Reply::error("ERR This instance has cluster support disabled")),
        ("PING a b", Reply::error("ERR wrong number of arguments for 'ping' command")),
        ("GET a b", Reply::error("ERR unknown command 'GET', with args beginning with: 'a' 'b' ")),
        (
            "FROBNICATE.EVERYTHING",
            Reply::error("ERR unknown command 'FROBNICATE.EVERYTHING', with args beginning with: "),
        ),
        (
            "AUTH x",
            Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            ),
        ),
        ("AUTH default x", ok()),
        ("AUTH me x", Reply::error("WRONGPASS invalid username-password pair or user is disabled.")),
        ("AUTH", Reply::error("ERR wrong number of arguments for 'auth' command")),
    ] {
        assert_eq!(caller.say(line), reply, "{line}");
    }
    let spaces = caller.ask(&[b"CLIENT", b"SETNAME", b"a b"]);
    assert_eq!(
        spaces,
        Reply::error("ERR Client names cannot contain spaces, newlines or special characters.")
    );
    let Reply::Bulk(info) = caller.say("INFO server") else { panic!("no text") };
    let info = String::from_utf8(info).expect("text");
    for line in ["redis_version:7.2.0", "redis_mode:standalone", "loading:0", "limits:1"] {
        assert!(info.split("\r\n").any(|told| told == line), "{line} in {info}");
    }
    assert_eq!(caller.say("QUIT"), ok());
    assert_eq!(caller.hear(), Reply::End);
}

#[test]
fn the_time_is_the_servers() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    let Reply::Array(before) = caller.say("TIME") else { panic!("two numbers") };
    serving.clock.advance(Duration::from_millis(90_000_001));
    let Reply::Array(after) = caller.say("TIME") else { panic!("two numbers") };
    let micros = |reply: &[Reply]| match reply {
        [Reply::Bulk(seconds), Reply::Bulk(micros)] => {
            let number = |text: &[u8]| String::from_utf8_lossy(text).parse::<u128>().expect("a number");
            number(seconds) * 1_000_000 + number(micros)
        }
        _ => panic!("{reply:?}"),
    };
    assert_eq!(micros(&after) - micros(&before), 90_000_001_000);
}

#[test]
fn commands_come_many_at_once_and_by_hand() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    assert!(caller.send(b"PING\r\n\r\n*0\r\n*-1\r\nECHO \"a\\x41\\n\"\n*1\r\n$4\r\nping\r\n  echo 'it\\'s'  \r\nQUIT\r\nPING\r\n"));
    let rest = String::from_utf8(caller.rest()).expect("text");
    assert_eq!(rest, "+PONG\r\n$3\r\naA\n\r\n+PONG\r\n$4\r\nit's\r\n+OK\r\n");
}

const POLICY: &str = r#"
[limit.per-ip]
key = "ip"
rate = "2/min"

[limit.tokens]
domain = "llm"
key = "user"
rate = ["100/min", "1000/h"]
cost = "tokens"
on_bad_value = "deny"

[limit.bytes]
domain = "files"
key = "user"
rate = "10/s burst 100"
"#;

fn check(caller: &mut Caller, line: &str) -> (bool, Reply, i64, i64, i64) {
    let reply = caller.say(line);
    let number = |name: &str| match reply.field(name) {
        Reply::Integer(number) => *number,
        other => panic!("{name}: {other:?}"),
    };
    let is_allowed = match reply.field("allowed") {
        Reply::Integer(allowed) => *allowed == 1,
        Reply::Boolean(allowed) => *allowed,
        other => panic!("{other:?}"),
    };
    let limit = reply.field("limit").clone();
    (is_allowed, limit, number("remaining"), number("retry_after_ms"), number("reset_after_ms"))
}

#[test]
fn a_policy_decides() {
    let serving = Serving::by(POLICY);
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut caller = serving.caller();
        caller.say(hello);
        let (ask, limit) = (format!("TG.CHECK ip {}", &hello[6..]), Reply::text("per-ip"));
        assert_eq!(check(&mut caller, &ask), (true, limit.clone(), 1, 0, 30_000));
        assert_eq!(check(&mut caller, &ask), (true, limit.clone(), 0, 0, 60_000));
        assert_eq!(check(&mut caller, &ask), (false, limit, 0, 30_000, 60_000));
        let free = caller.say("TG.CHECK planet mars");
        assert_eq!([free.field("limit"), free.field("rate"), free.field("remaining")], [&Reply::Null; 3]);
        assert_eq!(free.field("retry_after_ms"), &Reply::Integer(0));
    }
    let mut caller = serving.caller();
    caller.say("HELLO 3");
    let refused = caller.say("TG.CHECK ip 3");
    assert_eq!(
        (refused.field("allowed"), refused.field("rate")),
        (&Reply::Boolean(false), &Reply::text("2/min"))
    );
}

#[test]
fn a_limit_that_comes_with_the_call_answers_yes_or_no() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    let (yes, no) = (Reply::Integer(1), Reply::Integer(0));
    for (line, told) in [
        ("TG.ALLOW ann 2/min", &yes),
        ("tg.allow ann 2/min 1", &yes),
        ("TG.ALLOW ann 2/min", &no),
        ("TG.ALLOW ann 2/min 0", &yes), // nothing is always allowed
        ("TG.ALLOW bob 2/min 3", &no),
        ("TG.ALLOW bob 2/min 18446744073709551615", &no),
        ("TG.ALLOW bob 2/min 2", &yes), // what was refused took nothing
        ("TG.ALLOW ann 3/min", &yes),   // another limit has another state
        ("TG.ALLOW ann unlimited 1000000", &yes),
        ("TG.ALLOW ann 0/s", &no),
    ] {
        assert_eq!(&caller.say(line), told, "{line}");
    }
    serving.clock.advance(Duration::from_secs(30));
    assert_eq!(caller.say("TG.ALLOW ann 2/min"), yes);
    assert_eq!(caller.say("TG.ALLOW ann 2/min"), no);
    for (line, told) in [
        ("TG.RESET ALLOW ann 7/min", &no),
        ("TG.RESET ALLOW nobody 2/min", &no),
        ("TG.RESET ALLOW ann 2/min", &yes),
        ("TG.RESET ALLOW ann 2/min", &no),
        ("TG.ALLOW ann 2/min 2", &yes),
    ] {
        assert_eq!(&caller.say(line), told, "{line}");
    }
    caller.say("HELLO 3");
    assert_eq!(caller.say("TG.ALLOW ann 2/min"), Reply::Boolean(false));
    assert_eq!(caller.say("TG.ALLOW cid 2/min"), Reply::Boolean(true));
}

#[test]
fn a_check_does_what_it_is_told() {
    let serving = Serving::by(POLICY);
    let mut caller = serving.caller();
    let bytes = Reply::text("bytes");
    let mut ask = |options: &str| check(&mut caller, &format!("TG.CHECK DOMAIN files {options} user ann"));
    assert_eq!(ask("COST 40"), (true, bytes.clone(), 60, 0, 4_000));
    assert_eq!(ask("COST 40 PEEK"), (true, bytes.clone(), 20, 0, 8_000), "what would be");
    assert_eq!(ask("COST 0 PEEK"), (true, bytes.clone(), 60, 0, 4_000), "and is not");
    assert_eq!(ask("COST 61"), (false, bytes.clone(), 60, 100, 4_000), "nothing is taken");
    assert_eq!(ask("COST 101"), (false, bytes.clone(), 60, -1, 4_000), "never");
    assert_eq!(ask("COST 10 REFUND"), (true, bytes.clone(), 70, 0, 3_000));
    assert_eq!(ask("COST 100 CHARGE"), (true, bytes.clone(), 0, 0, 13_000));
    assert_eq!(ask("COST 1"), (false, bytes.clone(), 0, 3_100, 13_000), "until that is paid off");
    serving.clock.advance(Duration::from_secs(13));
    assert_eq!(ask("COST 99 FIELDS"), (true, bytes.clone(), 1, 0, 9_900));
    assert_eq!(ask("COST 5 COUNT"), (false, bytes, 0, 500, 10_000), "takes what is left");
}

#[test]
fn what_is_held_is_settled_once() {
    let serving = Serving::by(POLICY);
    let mut caller = serving.caller();
    let held = caller.say("TG.CHECK DOMAIN files COST 80 HOLD 60 user ann");
    let Reply::Bulk(permit) = held.field("id").clone() else { panic!("{held:?}") };
    assert_eq!(caller.ask(&[b"TG.SETTLE", &permit, b"30"]), Reply::Integer(1));
    assert_eq!(caller.ask(&[b"TG.SETTLE", &permit, b"0"]), Reply::Integer(0), "once");
    assert_eq!(check(&mut caller, "TG.CHECK DOMAIN files COST 0 user ann").2, 70);
    let refused = caller.say("TG.CHECK DOMAIN files COST 80 HOLD 60 user ann");
    assert_eq!(refused.field("id"), &Reply::Null);
    let held = caller.say("TG.CHECK DOMAIN files COST 10 HOLD 60 user ann");
    let Reply::Bulk(late) = held.field("id").clone() else { panic!("{held:?}") };
    serving.clock.advance(Duration::from_secs(61));
    assert_eq!(caller.ask(&[b"TG.SETTLE", &late, b"0"]), Reply::Integer(0), "too late");
    for line in ["TG.SETTLE", "TG.SETTLE x", "TG.SETTLE x 1 2", "TG.SETTLE x FIELDS"] {
        assert_eq!(caller.say(line), Reply::error("ERR wrong number of arguments for 'tg.settle' command"));
    }
    let unknown = "ERR a hold id has 32 hexadecimal digits";
    assert_eq!(caller.say("TG.SETTLE x 1"), Reply::error(unknown));
    let number = "ERR actual cost must be a whole number from 0 to 18446744073709551615, not '-1'";
    assert_eq!(caller.ask(&[b"TG.SETTLE", &permit, b"-1"]), Reply::error(number));
}

/// Answers, item 14: `TG.SETTLE id n` and `TG.SETTLE id FIELDS name n …` settle the limits whose cost is meant.
#[test]
fn settle_by_number_and_by_field() {
    let serving = Serving::by(
        "[limit.requests]\nkey = \"key\"\nrate = \"9/h\"\n[limit.tokens]\nkey = \"key\"\nrate = \"9000/h\"\ncost = \"tokens\"\n\
         [limit.bytes]\nkey = \"key\"\nrate = \"7000/h\"\ncost = \"bytes\"\nmatch.bytes = \"*\"\n",
    );
    let mut caller = serving.caller();
    let mut hold = |fields: &str| {
        let held = caller.say(&format!("TG.CHECK HOLD 60 key k {fields}"));
        let Reply::Bulk(id) = held.field("id").clone() else { panic!("{held:?}") };
        String::from_utf8(id).unwrap()
    };
    let [one, two, three] = [hold("tokens 900"), hold("tokens 900"), hold("tokens 900 bytes 50")]
        .map(|id| format!("TG.SETTLE {id}"));
    for (line, answer) in [
        (format!("{one} 640"), Reply::Integer(1)),
        (format!("{two} FIELDS tokens 640"), Reply::Integer(1)),
        (
            format!("{three} 640"),
            Reply::error(
                r#"ERR limits read their cost from several fields; settle each of "tokens", "bytes""#,
            ),
        ),
        (
            format!("{three} FIELDS tokns 640"),
            Reply::error(
                r#"ERR no limit reads its cost from field "tokns"; the cost fields of this hold are "tokens", "bytes""#,
            ),
        ),
        (format!("{three} FIELDS tokens"), Reply::error("ERR field 'tokens' has no value")),
        (format!("{three} FIELDS tokens 1 tokens 2"), Reply::error("ERR duplicate field 'tokens'")),
        (
            format!("{three} FIELDS tokens x"),
            Reply::error("ERR actual cost must be a whole number from 0 to 18446744073709551615, not 'x'"),
        ),
        (format!("{three} FIELDS bytes 10 tokens 20"), Reply::Integer(1)),
    ] {
        assert_eq!(caller.say(&line), answer, "{line}");
    }
    let mut left = |fields: &str| check(&mut caller, &format!("TG.CHECK PEEK COST 0 key k {fields}")).2;
    assert_eq!(left("tokens 9001"), 9_000 - 640 - 640 - 20);
    assert_eq!(left("tokens 0 bytes 7001"), 7_000 - 10);
    assert_eq!(left("tokens 0 bytes 0"), 9 - 3, "each call stays one request");
}

/// Answers, item 16: over the protocol of Redis, a call that no limit applies to is refused if its domain says so.
#[test]
fn unmatched_calls_are_refused_if_their_domain_says_so() {
    let serving = Serving::by("unmatched = \"deny\"\n[limit.per-ip]\nkey = \"ip\"\nrate = \"9/h\"\n");
    let mut caller = serving.caller();
    let answer = caller.say("TG.CHECK ipp 7");
    assert_eq!((answer.field("allowed"), answer.field("limit")), (&Reply::Integer(0), &Reply::Null));
    assert_eq!(answer.field("retry_after_ms"), &Reply::Integer(-1));
    assert_eq!(caller.say("TG.CHECK DOMAIN nope ip 7").field("allowed"), &Reply::Integer(1));
    assert_eq!(caller.say("TG.CHECK ip 7").field("allowed"), &Reply::Integer(1));
}

#[test]
fn what_was_used_can_be_forgotten() {
    let serving = Serving::by(POLICY);
    let mut caller = serving.caller();
    assert_eq!(caller.say("TG.RESET DOMAIN files user ann"), Reply::Integer(0));
    assert_eq!(check(&mut caller, "TG.CHECK DOMAIN files COST 100 user ann").2, 0);
    assert_eq!(caller.say("TG.RESET DOMAIN files FIELDS user ann"), Reply::Integer(1));
    assert_eq!(check(&mut caller, "TG.CHECK DOMAIN files COST 100 user ann").2, 0);
    let options = Reply::error("ERR tg.reset accepts only the options DOMAIN and FIELDS");
    assert_eq!(caller.say("TG.RESET PEEK user ann"), options);
    assert_eq!(caller.say("TG.RESET COST 2 user ann"), options);
}

#[test]
fn decisions_and_connections_are_measured() {
    let serving = Serving::by(POLICY);
    let mut caller = serving.caller();
    let commands = b"TG.CHECK ip 1\r\nCL.THROTTLE k 1 1 1\r\nPING\r\nTHROTTLE k 1 1 1\r\nTG.ALLOW k 0/s\r\n";
    assert!(caller.send(commands));
    for _ in 0..5 {
        caller.hear();
    }
    caller.say("PING"); // so that the batch before is over
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let text = runtime.block_on(serving.metrics.text(&serving.engine));
    for line in [
        "tollgate_decision_duration_seconds_count{protocol=\"resp\"} 4",
        "tollgate_connections{protocol=\"resp\"} 1",
        "tollgate_decisions_total{domain=\"@cl.throttle\",limit=\"\",outcome=\"allowed\"} 1",
        "tollgate_decisions_total{domain=\"@tg.allow\",limit=\"\",outcome=\"denied\"} 1",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
    }
}

#[test]
fn mistakes_decide_nothing() {
    let serving = Serving::by(POLICY);
    let mut caller = serving.caller();
    let long = format!("TG.ALLOW {} 1/s", "k".repeat(1_025));
    let endless = format!("TG.ALLOW k {}", "1".repeat(60_000));
    let cost =
        |cost: &str| format!("ERR cost must be a whole number from 0 to 18446744073709551615, not '{cost}'");
    for (line, told) in [
        ("TG.ALLOW", "ERR wrong number of arguments for 'tg.allow' command"),
        ("TG.ALLOW k", "ERR wrong number of arguments for 'tg.allow' command"),
        ("TG.ALLOW k 1/s 1 1", "ERR wrong number of arguments for 'tg.allow' command"),
        ("TG.ALLOW k 1/s -1", &cost("-1")),
        ("TG.ALLOW k 1/s 1.5", &cost("1.5")),
        ("TG.ALLOW k 1/s 18446744073709551616", &cost("18446744073709551616")),
        (
            "TG.ALLOW k 10",
            "ERR quota \"10\": missing period after \"10\"; expected for example 10/s or 10 per 10s",
        ),
        ("TG.ALLOW k \u{fffd}", "ERR quota \"\u{fffd}\": expected a number such as 10, found \"\u{fffd}\""),
        (
            &endless,
            &format!("ERR limit must be a rate such as 10/s or 600/min burst 50, not '{}'", "1".repeat(128)),
        ),
        (
            "TG.RESET ALLOW k 10",
            "ERR quota \"10\": missing period after \"10\"; expected for example 10/s or 10 per 10s",
        ),
        (&long, "ERR key is too long: 1025 bytes, the maximum is 1024"),
        ("TG.CHECK", "ERR wrong number of arguments for 'tg.check' command"),
        ("TG.CHECK ip", "ERR field 'ip' has no value"),
        (
            "TG.CHECK DOMAIN llm user ann tokens many",
            "ERR limit \"tokens\": the cost in the field \"tokens\" is not a whole number from 0 to 18446744073709551615",
        ),
    ] {
        assert_eq!(caller.say(line), Reply::error(told), "{line}");
    }
    assert!(caller.send(b"TG.ALLOW k \"\\xff\"\r\n"));
    let unreadable =
        Reply::error("ERR limit must be a rate such as 10/s or 600/min burst 50, not '\u{fffd}'");
    assert_eq!(caller.hear(), unreadable);
    assert_eq!(check(&mut caller, "TG.CHECK DOMAIN llm user ann tokens 7").2, 93);
}

#[test]
fn the_limits_and_what_came_of_them() {
    let serving = Serving::by(POLICY);
    let mut caller = serving.caller();
    for _ in 0..3 {
        caller.say("TG.CHECK ip 1");
    }
    let Reply::Array(all) = caller.say("TG.LIMITS") else { panic!("a list") };
    assert_eq!(all.len(), 3);
    let per_ip = all.iter().find(|limit| limit.field("name") == &Reply::text("per-ip")).expect("it is there");
    assert_eq!(per_ip.field("domain"), &Reply::text("default"));
    assert_eq!(per_ip.field("algorithm"), &Reply::text("token-bucket"));
    assert_eq!(per_ip.field("rates"), &Reply::Array(vec![Reply::text("2/min")]));
    assert_eq!((per_ip.field("allowed"), per_ip.field("denied")), (&Reply::Integer(2), &Reply::Integer(1)));
    for (line, count) in [
        ("TG.LIMITS 1", 2),
        ("TG.LIMITS 1 1", 1),
        ("TG.LIMITS 9", 0),
        ("TG.LIMITS 0 18446744073709551615", 3),
    ] {
        let Reply::Array(page) = caller.say(line) else { panic!("a list") };
        assert_eq!(page.len(), count, "{line}");
    }
    assert_eq!(caller.say("TG.LIMITS -1"), Reply::error("ERR offset must be a whole number, not '-1'"));
    assert_eq!(
        caller.say("TG.LIMITS 1 2 3"),
        Reply::error("ERR wrong number of arguments for 'tg.limits' command")
    );
}

#[test]
fn a_token_is_the_password() {
    let keyring =
        Keyring::new().token("ci", b"s3cret", Scopes::of(&[Scope::Check])).token("ops", b"root", Scopes::ALL);
    let keys = Keys::new(keyring);
    let serving = Serving::with_keys(POLICY, keys.clone());
    let mut caller = serving.caller();
    let unknown = Reply::error("NOAUTH Authentication required.");
    for line in ["PING", "CL.THROTTLE k 1 1 1", "TG.CHECK ip 1", "TG.ALLOW k 1/s", "INFO", "NO.SUCH"] {
        assert_eq!(caller.say(line), unknown, "{line}");
    }
    let Reply::Error(hello) = caller.say("HELLO 3") else { panic!("an error") };
    assert!(
        hello.starts_with("NOAUTH HELLO must be called with the client already authenticated"),
        "{hello}"
    );
    let wrong = Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(caller.say("AUTH guess"), wrong);
    assert_eq!(caller.say("HELLO 3 AUTH default guess"), wrong);
    assert_eq!(caller.say("AUTH s3cret"), ok());
    assert_eq!(caller.say("PING"), Reply::Status("PONG".to_owned()));
    assert_eq!(caller.say("CL.THROTTLE k 1 1 1"), Reply::numbers([0, 2, 1, -1, 1]));
    assert_eq!(caller.say("TG.ALLOW k 1/s"), Reply::Integer(1));
    let admin = |name: &str| Reply::Error(format!("NOPERM '{name}' needs the scope admin"));
    assert_eq!(caller.say("TG.LIMITS"), admin("tg.limits"));
    assert_eq!(caller.say("INFO"), admin("info"));
    assert_eq!(caller.say("TG.RESET ip 1"), admin("tg.reset"));
    let negative = Reply::error("NOPERM a negative quantity needs the scope settle");
    assert_eq!(caller.say("CL.THROTTLE k 1 1 1 -1"), negative);
    let settle = Reply::error("NOPERM REFUND and CHARGE need the scope settle");
    for line in ["TG.CHECK REFUND ip 1", "TG.CHECK CHARGE ip 1"] {
        assert_eq!(caller.say(line), settle, "{line}");
    }
    assert!(matches!(caller.say("TG.SETTLE x 1"), Reply::Error(told) if told.contains("scope settle")));
    assert!(matches!(caller.say("HELLO 3 AUTH anybody root"), Reply::Map(_)));
    assert!(matches!(caller.say("TG.LIMITS"), Reply::Array(_)));
    // Keys that are taken away count no more, for those who are connected either.
    keys.set(Keyring::new());
    assert_eq!(caller.say("PING"), unknown);
    assert_eq!(caller.say("RESET"), Reply::Status("RESET".to_owned()));
}

// Guards, item 6: a limit that a caller supplies never reaches the state of a policy's limit, whatever it is called.
#[test]
fn tg_allow_does_not_touch_a_limit_of_the_policy_with_the_same_name() {
    let serving = Serving::by("[limit.\"1/h\"]\ndomain = \"tg.allow\"\nkey = \"ip\"\nrate = \"1/h\"\n");
    let mut caller = serving.caller();
    assert_eq!([1, 0].map(|_| caller.say("TG.ALLOW 10.0.0.7 1/h")), [1, 0].map(Reply::Integer));
    let by_policy = [1, 0].map(|_| check(&mut caller, "TG.CHECK DOMAIN tg.allow ip 10.0.0.7").0);
    assert_eq!(by_policy, [true, false]);
}
