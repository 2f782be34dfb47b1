//! `CL.THROTTLE` and `THROTTLE`, call by call.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;

use super::caller::{Reply, command};
use super::serving::{NONE, Serving};

/// What redis-cell does, in numbers that cannot overflow. Where giving back would leave a key better than new it is as new, which
/// is the only thing that redis-cell does not say.
#[derive(Default)]
struct Oracle {
    times: HashMap<usize, i128>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    max_burst: i64,
    count: i64,
    period: i64,
    quantity: i64,
}

impl Oracle {
    fn throttle(&mut self, now: i128, key: usize, call: Call) -> [i64; 5] {
        let interval = i128::from(call.period) * 1_000_000_000 / i128::from(call.count);
        let tolerance = interval * (i128::from(call.max_burst) + 1);
        let increment = interval * i128::from(call.quantity);
        let start = now.max(self.times.get(&key).copied().unwrap_or(now));
        let new = start + increment;
        let is_limited = now < new - tolerance;
        let ttl = if is_limited { start - now } else { new.max(now) - now };
        if !is_limited {
            self.times.insert(key, new.max(now));
        }
        let left = tolerance - ttl;
        let remaining = if left > -interval { left / interval } else { 0 };
        let retry = if is_limited && increment <= tolerance { seconds(new - tolerance - now) } else { -1 };
        [i64::from(is_limited), call.max_burst + 1, remaining.try_into().expect("small"), retry, seconds(ttl)]
    }
}

/// One more if there are whole milliseconds left.
fn seconds(nanos: i128) -> i64 {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    i64::try_from(seconds + i128::from(rest / 1_000_000 > 0)).expect("not so long")
}

/// Round numbers and odd ones; rates above a thousand a second too.
fn some_limit(rng: &mut Rng) -> Call {
    let (counts, periods) = ([1, 2, 3, 7, 10, 30, 60, 100, 997, 5_000, 100_000], [1, 2, 10, 60, 61, 3_600]);
    let max_burst = if rng.u8(..16) == 0 { rng.i64(-3..1) } else { rng.i64(0..20) };
    Call {
        max_burst,
        count: counts[rng.usize(..counts.len())],
        period: periods[rng.usize(..periods.len())],
        quantity: 1,
    }
}

fn some_quantity(rng: &mut Rng) -> i64 {
    match rng.u8(..10) {
        0 => 0,
        1 => rng.i64(-5..0),
        2 => rng.i64(2..25),
        _ => 1,
    }
}

/// From less than a millisecond to an hour, and often just as long as a round limit needs.
fn some_time(rng: &mut Rng) -> Duration {
    match rng.u8(..6) {
        0 => Duration::from_nanos(rng.u64(..2_000_000)),
        1 => Duration::from_secs(rng.u64(..100)),
        2 => Duration::from_millis(rng.u64(1..5) * 500),
        3 => Duration::from_nanos(rng.u64(..10_000_000_000)),
        4 => Duration::from_secs(rng.u64(..4_000)),
        _ => Duration::ZERO,
    }
}

#[test]
fn ten_thousand_sequences_are_answered_as_redis_cell_does() {
    const SEQUENCES: usize = 10_000;
    const STEPS: usize = 40;
    let (serving, mut oracle, mut rng) = (Serving::by(NONE), Oracle::default(), Rng::with_seed(1));
    let mut caller = serving.caller();
    let mut limits: Vec<Call> = (0..SEQUENCES).map(|_| some_limit(&mut rng)).collect();
    let (mut now, mut counts) = (0_i128, [0_u32; 2]);
    for step in 0..STEPS {
        let mut sent = Vec::new();
        for (key, limit) in limits.iter_mut().enumerate() {
            if rng.u8(..6) == 0 {
                *limit = some_limit(&mut rng); // the same key by another limit
            }
            limit.quantity = some_quantity(&mut rng);
            let Call { max_burst, count, period, quantity } = *limit;
            let numbers = [max_burst, count, period, quantity].map(|number| number.to_string());
            let [a, b, c, d] = &numbers;
            let key = format!("key:{key}");
            let mut words =
                vec![&b"CL.THROTTLE"[..], key.as_bytes(), a.as_bytes(), b.as_bytes(), c.as_bytes()];
            if quantity != 1 || rng.bool() {
                words.push(d.as_bytes());
            }
            sent.extend(command(&words));
        }
        std::thread::scope(|scope| {
            let stream = caller.writer();
            scope.spawn(move || stream.send_all(&sent));
            for (key, call) in limits.iter().enumerate() {
                let expected = oracle.throttle(now, key, *call);
                assert_eq!(
                    caller.hear(),
                    Reply::numbers(expected),
                    "step {step}, key {key}, {call:?} at {now}"
                );
                counts[usize::from(expected[0] == 1)] += 1;
            }
        });
        let span = some_time(&mut rng);
        serving.clock.advance(span);
        now += i128::try_from(span.as_nanos()).expect("short");
    }
    assert!(counts.iter().all(|count| *count > 50_000), "allowed and limited: {counts:?}");
}

#[test]
fn the_numbers_of_the_manual() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    assert_eq!(caller.say("CL.THROTTLE user123 15 30 60 1"), Reply::numbers([0, 16, 15, -1, 2]));
    assert_eq!(caller.say("cl.throttle user123 15 30 60 0"), Reply::numbers([0, 16, 15, -1, 2]), "a look");
    assert_eq!(caller.say("CL.THROTTLE user123 15 30 60 17"), Reply::numbers([1, 16, 15, -1, 2]), "never");
    assert_eq!(caller.say("CL.THROTTLE user123 15 30 60 16"), Reply::numbers([1, 16, 15, 2, 2]));
    assert_eq!(caller.say("CL.THROTTLE user123 15 30 60 15"), Reply::numbers([0, 16, 0, -1, 32]));
    assert_eq!(
        caller.say("CL.THROTTLE user123 15 30 60 -1000"),
        Reply::numbers([0, 16, 16, -1, 0]),
        "as new"
    );
    assert_eq!(
        caller.say("CL.THROTTLE other 10 100 60"),
        Reply::numbers([0, 11, 10, -1, 1]),
        "0.6 s are one"
    );
}

#[test]
fn wrong_calls_are_told_as_redis_cell_tells_them() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    let usage = "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    for line in ["CL.THROTTLE", "CL.THROTTLE k 1 1", "CL.THROTTLE k 1 1 1 1 1"] {
        assert_eq!(caller.say(line), Reply::error(usage), "{line}");
    }
    let parse = "Cell error: Store error: Couldn't parse as integer: ";
    for (line, word) in [
        ("CL.THROTTLE k x 1 1", "x"),
        ("CL.THROTTLE k 1 1.5 1", "1.5"),
        ("CL.THROTTLE k 1 1 ", ""),
        ("CL.THROTTLE k 1 1 1 9223372036854775808", "9223372036854775808"),
    ] {
        assert_eq!(caller.say(line), Reply::Error(format!("{parse}{word}")), "{line}");
    }
    let zero = Reply::error("Cell error: Store error: Zero rates are not supported");
    for line in ["CL.THROTTLE k 1 0 1", "CL.THROTTLE k 1 1 0", "CL.THROTTLE k 1 -1 -1"] {
        assert_eq!(caller.say(line), zero, "{line}");
    }
    let fast = "Cell error: Store error: Rates above 1000000000 per second are not supported";
    assert_eq!(caller.say("CL.THROTTLE k 1 2000000000 1"), Reply::error(fast));
    let not_text = caller.ask(&[b"CL.THROTTLE", b"k", b"\xff\r\n", b"1", b"1"]);
    assert_eq!(not_text, Reply::Error(format!("{parse}\u{fffd}  ")));
}

#[test]
fn keys_are_any_bytes() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    for key in [&b""[..], b"\xff\xfe\0\r\n", b"\0", b"a b", &[b'k'; 1_024]] {
        let throttle = [&b"CL.THROTTLE"[..], key, b"0", b"1", b"60"];
        assert_eq!(caller.ask(&throttle), Reply::numbers([0, 1, 0, -1, 60]));
        assert_eq!(caller.ask(&throttle), Reply::numbers([1, 1, 0, 60, 60]), "the same key");
    }
    let long = caller.ask(&[b"CL.THROTTLE", &[b'k'; 1_025], b"0", b"1", b"60"]);
    assert_eq!(long, Reply::error("ERR key is too long: 1025 bytes, the maximum is 1024"));
}

#[test]
fn throttle_is_told_as_clients_of_throttlecrab_read_it() {
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    // Ten at once, ten per minute: one every six seconds.
    for left in (0..10).rev() {
        assert_eq!(caller.say("THROTTLE k 10 10 60"), Reply::numbers([1, 10, left, 60 - 6 * left, 0]));
    }
    assert_eq!(caller.say("throttle k 10 10 60 1"), Reply::numbers([0, 10, 0, 60, 6]));
    serving.clock.advance(Duration::from_millis(500));
    assert_eq!(
        caller.say("THROTTLE k 10 10 60"),
        Reply::numbers([0, 10, 0, 59, 5]),
        "seconds are rounded down"
    );
    assert_eq!(caller.say("THROTTLE k 10 10 60 11"), Reply::numbers([0, 10, 0, 59, -1]), "never");
    assert_eq!(caller.say("CL.THROTTLE k 9 10 60"), Reply::numbers([0, 10, 9, -1, 6]), "a key of its own");
    for (line, told) in [
        ("THROTTLE k 10 10", "ERR wrong number of arguments for 'throttle' command"),
        ("THROTTLE k x 10 60", "ERR value is not an integer or out of range: 'x'"),
        ("THROTTLE k 0 10 60", "ERR max_burst, count and period must be positive"),
        ("THROTTLE k 10 -1 60", "ERR max_burst, count and period must be positive"),
        ("THROTTLE k 10 10 60 -1", "ERR quantity must not be negative"),
        ("THROTTLE k 10 9223372036854775807 1", "ERR count must not be above 1000000000 per second"),
    ] {
        assert_eq!(caller.say(line), Reply::error(told), "{line}");
    }
}

#[test]
fn no_more_pass_after_a_pause_than_the_burst() {
    // throttlecrab lets seventeen pass here.
    let serving = Serving::by(NONE);
    let mut caller = serving.caller();
    caller.say("THROTTLE k 10 10 60");
    serving.clock.advance(Duration::from_millis(53_900));
    let passed =
        (0..30).filter(|_| caller.say("THROTTLE k 10 10 60") != Reply::numbers([0, 10, 0, 60, 6])).count();
    assert_eq!(passed, 10);
    // And a burst of one limits.
    assert_eq!(caller.say("THROTTLE one 1 10 60"), Reply::numbers([1, 1, 0, 6, 0]));
    assert_eq!(caller.say("THROTTLE one 1 10 60"), Reply::numbers([0, 1, 0, 6, 6]));
}
