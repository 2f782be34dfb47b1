//! The same bytes to a Redis and to us: both find the same commands in them, and the same mistakes.
//!
//! Commands are seen by their answers: `ECHO` repeats its argument byte for byte, and what is no command is repeated with all
//! its arguments. Every stream ends, so nobody waits for the rest of one.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use fastrand::Rng;
use tollgate_testkit::Redis;

use super::caller::{Caller, command};
use super::serving::{NONE, Serving};

const PROTOCOL_ERROR: &str = "-ERR Protocol error: ";
const NO_ARGUMENT: &str = "expected '$'";

/// Everything that is answered to some bytes, until the connection ends.
fn heard(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut caller = Caller::new(address);
    caller.send(sent);
    caller.end();
    caller.rest()
}

/// As text: what is none is told as such by us, and repeated as it is by a Redis.
fn text(heard: &[u8]) -> String {
    String::from_utf8_lossy(heard).into_owned()
}

/// Both, side by side.
struct Both {
    serving: Serving,
    redis: Redis,
}

impl Both {
    fn start() -> Self {
        Self { serving: Serving::by(NONE), redis: Redis::start() }
    }

    /// What we answer, and what the Redis does.
    fn hear(&self, sent: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let redis = (Ipv4Addr::LOCALHOST, self.redis.port()).into();
        (heard(self.serving.address, sent), heard(redis, sent))
    }
}

/// Where we are stricter than a Redis, on purpose: after a mistake nobody knows where the next command begins, and what was meant
/// as an argument could be taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stricter {
    /// A Redis steps over two bytes behind an argument, whatever they are.
    EndOfArgument,
    /// A Redis steps over whatever is behind the `\r` of a length.
    EndOfLength,
    /// A Redis waits for the end of the line before it looks whether that begins with `$`.
    AtOnce,
    /// A Redis takes 2^31 - 1 arguments of half a gigabyte, and 64 KiB of digits to say how many. We have smaller bounds.
    Bounds,
}

/// Why we may say this where a Redis does not.
fn stricter(told: &str) -> Option<Stricter> {
    Some(match told {
        "expected CRLF at the end of a bulk string" => Stricter::EndOfArgument,
        "invalid multibulk length" | "invalid bulk length" => Stricter::EndOfLength,
        told if told.starts_with(NO_ARGUMENT) => Stricter::AtOnce,
        told if told.contains(" are read") => Stricter::Bounds,
        _ => return None,
    })
}

/// Compares what was answered. Why we ended earlier, if we did.
fn compare(sent: &[u8], ours: &[u8], redis: &[u8]) -> Option<Stricter> {
    let shown = sent.escape_ascii();
    let (ours, redis) = (text(ours), text(redis));
    if ours == redis {
        return None;
    }
    let (before, told) = ours.split_once(PROTOCOL_ERROR).unwrap_or_else(|| {
        panic!("both understand it, but not in the same way: {shown}\n ours: {ours}\nredis: {redis}")
    });
    assert!(redis.starts_with(before), "up to the mistake: {shown}\n ours: {ours}\nredis: {redis}");
    let told = told.strip_suffix("\r\n").expect("a whole line, and the last one");
    // The same mistake, perhaps in more words.
    if let Some(theirs) = redis[before.len()..].strip_prefix(PROTOCOL_ERROR) {
        let theirs = theirs.strip_suffix("\r\n").expect("a whole line, and the last one");
        if told.starts_with(theirs) || [told, theirs].iter().all(|told| told.starts_with(NO_ARGUMENT)) {
            return None;
        }
    }
    let why = stricter(told);
    Some(why.unwrap_or_else(|| panic!("no reason is known: {shown}\n ours: {ours}\nredis: {redis}")))
}

/// A stream of commands, some of them not as they should be.
fn stream(rng: &mut Rng) -> Vec<u8> {
    let mut sent = Vec::new();
    for _ in 0..rng.usize(1..6) {
        match rng.u8(..8) {
            0..3 => sent.extend(array(rng)),
            3..6 => sent.extend(line(rng)),
            6 => sent.extend(nothing(rng)),
            _ => sent.extend(wrong(rng)),
        }
    }
    match rng.u8(..4) {
        0 => sent.truncate(rng.usize(..sent.len())),
        1 => change_one(&mut sent, rng),
        _ => {}
    }
    sent
}

/// A command as clients send it.
fn array(rng: &mut Rng) -> Vec<u8> {
    let any: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
    let word: String = (0..rng.usize(..9)).map(|_| rng.char('!'..='~')).collect();
    match rng.u8(..5) {
        0 => command(&[b"PING"]),
        1 => command(&[b"eChO"]),
        2 => command(&[b"NoSuch", word.as_bytes(), b"\"'\\ $*", b""]),
        _ => command(&[b"ECHO", &any]),
    }
}

/// A command as somebody types it.
fn line(rng: &mut Rng) -> Vec<u8> {
    let parts: [&[u8]; 20] = [
        b" ",
        b"\t",
        b"\x0b",
        b"\x0c",
        b"\r",
        b"\"",
        b"'",
        b"\\",
        b"\\x4a",
        b"\\xg1",
        b"\\x4",
        b"\\n\\r\\t",
        b"\\b\\a\\q",
        b"\\'",
        b"\\\"",
        b"a",
        b"b c",
        b"$3",
        b"*1",
        b"\xe4",
    ];
    let mut line =
        [&b"ECHO "[..], b"ECHO \"", b"ECHO '", b"echo\t", b" ECHO x", b""][rng.usize(..6)].to_vec();
    for _ in 0..rng.usize(..7) {
        line.extend_from_slice(parts[rng.usize(..parts.len())]);
    }
    line.extend_from_slice([&b"\"\r\n"[..], b"'\r\n", b"\r\n", b"\n"][rng.usize(..4)]);
    line
}

/// What asks for nothing.
fn nothing(rng: &mut Rng) -> &'static [u8] {
    [&b"\r\n"[..], b"\n", b"  \t\r\n", b"*0\r\n", b"*-1\r\n", b"*-9223372036854775808\r\n"][rng.usize(..6)]
}

/// Lengths that are none, or of too much.
fn wrong(rng: &mut Rng) -> Vec<u8> {
    let lengths = [
        "",
        "-",
        "-0",
        "00",
        "01",
        "+1",
        " 1",
        "1 ",
        "x",
        "1.0",
        "0x1",
        "-1",
        "-2147483649",
        "65",
        "65537",
        "536870912",
        "536870913",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "00000000000000000000000000000000000000000",
        "1\r",
    ];
    let length = lengths[rng.usize(..lengths.len())];
    let mut sent = String::new();
    let _ = match rng.u8(..4) {
        0 => write!(sent, "*{length}\r\n$4\r\nPING\r\n"),
        1 => write!(sent, "*1\r\n${length}\r\nPING\r\n"),
        2 => write!(sent, "*2\r\n$4\r\nECHO\r\n${length}\r\nhello\r\n"),
        _ => write!(sent, "*1\r\n{}4\r\nPING\r\n", rng.char('!'..='~')),
    };
    sent.into_bytes()
}

/// One byte becomes another, but not one that ends a text in C, which is a difference of its own.
fn change_one(sent: &mut [u8], rng: &mut Rng) {
    let place = rng.usize(..sent.len());
    let bytes = b"\r\n *$\"'0159-x\xff";
    sent[place] = bytes[rng.usize(..bytes.len())];
}

#[test]
fn the_same_commands_are_found_in_any_stream() {
    let both = Both::start();
    let mut rng = Rng::with_seed(6);
    let (mut answered, mut wrong, mut strict) = (0, 0, Vec::new());
    for _ in 0..4_000 {
        let sent = stream(&mut rng);
        let (ours, redis) = both.hear(&sent);
        strict.extend(compare(&sent, &ours, &redis));
        wrong += usize::from(text(&redis).contains(PROTOCOL_ERROR));
        answered += usize::from(!redis.is_empty());
    }
    // Otherwise nothing much was compared.
    assert!(answered > 3_000 && wrong > 500, "{answered} answered, {wrong} wrong");
    for why in [Stricter::EndOfArgument, Stricter::EndOfLength, Stricter::AtOnce, Stricter::Bounds] {
        assert!(strict.contains(&why), "{why:?} never came up");
    }
    assert!(strict.len() < 800, "{} streams were ended earlier", strict.len());
}

#[test]
fn a_stream_that_is_cut_anywhere_is_answered_the_same() {
    let both = Both::start();
    let whole = [
        &command(&[b"ECHO", b"a\r\nb"])[..],
        b"ECHO \"x y\"\r\n*0\r\n",
        &command(&[b"nosuch", b"", b"c"]),
        b"*1\r\n$-1\r\n",
    ]
    .concat();
    for cut in 0..=whole.len() {
        let (ours, redis) = both.hear(&whole[..cut]);
        assert_eq!(text(&ours), text(&redis), "cut at {cut}");
    }
}

/// All that differs on purpose, each shown once: what is sent, what a Redis answers, and what we do.
#[test]
fn what_differs_from_a_redis_differs_on_purpose() {
    let both = Both::start();
    let pong = "+PONG\r\n";
    let error = |told: &str| format!("{PROTOCOL_ERROR}{told}\r\n");
    let many = command(&[&[&b"ECHO"[..]; 1][..], &[&b"x"[..]; 64]].concat());
    let long = command(&[b"ECHO", &vec![b'x'; 65_537]]);
    let whole = format!("$65537\r\n{}\r\n", "x".repeat(65_537));
    for (name, sent, redis, ours) in [
        (
            "an argument must end where it says",
            &b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n"[..],
            pong.repeat(2),
            error("expected CRLF at the end of a bulk string"),
        ),
        (
            "a length must end with both bytes of a line's end",
            b"*1\rx$4\rxPING\r\n",
            pong.to_owned(),
            error("invalid multibulk length"),
        ),
        (
            "what is no argument is told before its line has ended",
            b"*1\r\n:",
            String::new(),
            error("expected '$', got ':'"),
        ),
        (
            "what cannot be shown is told by its number",
            b"*1\r\n\x01\r\n",
            error("expected '$', got '\x01'"),
            error("expected '$', got byte 0x01"),
        ),
        (
            "a length has at most 32 digits",
            b"*00000000000000000000000000000000000",
            String::new(),
            error("invalid multibulk length"),
        ),
        (
            "a command has at most 64 arguments",
            &many,
            "-ERR wrong number of arguments for 'echo' command\r\n".to_owned(),
            error("invalid multibulk length: 65 arguments, at most 64 are read"),
        ),
        (
            "an argument has at most 64 KiB",
            &long,
            whole,
            error("invalid bulk length: 65537 bytes, at most 65536 are read"),
        ),
        (
            "a line may contain the byte that ends texts in C",
            b"ECHO a\0b\r\n",
            String::new(),
            "$3\r\na\0b\r\n".to_owned(),
        ),
    ] {
        let (heard_ours, heard_redis) = both.hear(sent);
        assert_eq!((text(&heard_ours), text(&heard_redis)), (ours, redis), "{name}");
    }
}
