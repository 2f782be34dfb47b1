//! Whatever is sent: nothing crashes, hangs, or is allowed by mistake.

use std::io::Read;
use std::net::TcpStream;
use std::thread;

use fastrand::Rng;

use super::caller::{Caller, Reply, command};
use super::serving::{NONE, Serving};

/// Somebody else is served, and by a limit that works.
fn still_serves(serving: &Serving) {
    let mut caller = serving.caller();
    assert_eq!(caller.say("PING"), Reply::Status("PONG".to_owned()));
    let key = format!("{:032x}", fastrand::u128(..));
    let line = format!("CL.THROTTLE {key} 0 1 60");
    assert_eq!(caller.say(&line), Reply::numbers([0, 1, 0, -1, 60]));
    assert_eq!(caller.say(&line), Reply::numbers([1, 1, 0, 60, 60]));
}

#[test]
fn the_largest_numbers_in_every_place() {
    // With I for 2^63 - 1, `THROTTLE k I 1 I I` ends the actor of throttlecrab for good.
    let serving = Serving::by(NONE);
    let numbers = [i64::MIN, -1, 0, 1, 2, i64::MAX - 1, i64::MAX].map(|number| number.to_string());
    let mut caller = serving.caller();
    let mut asked = 0;
    for name in ["CL.THROTTLE", "THROTTLE"] {
        for burst in &numbers {
            for count in &numbers {
                for period in &numbers {
                    for quantity in &numbers {
                        let key = format!("{asked}");
                        let line = format!("{name} {key} {burst} {count} {period} {quantity}");
                        for _again in 0..3 {
                            is_sane(name, &caller.say(&line), [burst, count, period, quantity]);
                        }
                        asked += 1;
                    }
                }
            }
        }
    }
    assert_eq!(asked, 2 * 7_usize.pow(4));
    still_serves(&serving);
}

/// Numbers that make sense, or a mistake that is named. What is more than the limit is never allowed, and what is left is never
/// refused.
fn is_sane(name: &str, reply: &Reply, arguments: [&str; 4]) {
    let numbers = match reply {
        Reply::Error(told) => return assert!(!told.is_empty()),
        Reply::Array(numbers) => numbers.iter().map(|number| match number {
            Reply::Integer(number) => i128::from(*number),
            other => panic!("{other:?}"),
        }),
        other => panic!("{other:?}"),
    };
    let [first, limit, remaining, ..] = numbers.collect::<Vec<_>>()[..] else { panic!("{reply:?}") };
    let is_allowed = if name == "THROTTLE" { first == 1 } else { first == 0 };
    let [burst, count, period, quantity] =
        arguments.map(|number| number.parse::<i128>().expect("one of ours"));
    let asked = if name == "THROTTLE" { burst } else { burst + 1 };
    let years = 1 << 62; // 146 of them, in nanoseconds
    let expected = asked.min(years / (period * 1_000_000_000 / count).min(years));
    assert_eq!(limit, expected, "{arguments:?}: {reply:?}");
    assert!((0..=limit.max(0)).contains(&remaining), "{arguments:?}: {reply:?}");
    assert!(!is_allowed || quantity <= limit.max(0), "{arguments:?}: {reply:?}");
    assert!(is_allowed || quantity <= 0 || quantity > remaining, "{arguments:?}: {reply:?}");
}

#[test]
fn what_is_cut_off_anywhere_leaves_nothing_behind() {
    let serving = Serving::by(NONE);
    let whole = command(&[b"CL.THROTTLE", b"cut", b"0", b"1", b"60"]);
    for cut in 0..whole.len() {
        let mut caller = serving.caller();
        caller.send(&whole[..cut]);
        caller.end();
        assert_eq!(caller.rest(), b"", "cut at {cut}");
    }
    assert_eq!(
        serving.caller().say("CL.THROTTLE cut 0 1 60"),
        Reply::numbers([0, 1, 0, -1, 60]),
        "none counted"
    );
    still_serves(&serving);
}

#[test]
fn what_is_too_much_is_told() {
    let serving = Serving::by(NONE);
    let long = vec![b'x'; 70_000];
    let many = command(&vec![&b"x"[..]; 65]);
    for (sent, told) in [
        (
            command(&[b"ECHO", &long]),
            "-ERR Protocol error: invalid bulk length: 70000 bytes, at most 65536 are read\r\n",
        ),
        (many, "-ERR Protocol error: invalid multibulk length: 65 arguments, at most 64 are read\r\n"),
        (long, "-ERR Protocol error: too big inline request\r\n"),
        (
            b"*2000000000\r\n".to_vec(),
            "-ERR Protocol error: invalid multibulk length: 2000000000 arguments, at most 64 are read\r\n",
        ),
    ] {
        let mut caller = serving.caller();
        caller.send(&sent);
        assert_eq!(String::from_utf8_lossy(&caller.rest()), told);
    }
    still_serves(&serving);
}

#[test]
fn noise_is_answered_by_errors_or_not_at_all() {
    let serving = Serving::by("[limit.all]\nrate = \"0/s burst 0\"\n");
    let words: [&[u8]; 16] = [
        b"*",
        b"$",
        b"\r\n",
        b"5",
        b"-1",
        b"CL.THROTTLE",
        b"TG.CHECK",
        b"TG.ALLOW",
        b"0/s",
        b" ",
        b"\"",
        b"'",
        b"\xff",
        b"\0",
        b"ECHO",
        b"9223372036854775807",
    ];
    let address = serving.address;
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                for _ in 0..300 {
                    let mut caller = Caller::new(address);
                    for _ in 0..rng.usize(1..60) {
                        let word = words[rng.usize(..words.len())];
                        caller.send(word);
                    }
                    caller.end();
                    let rest = String::from_utf8_lossy(&caller.rest()).into_owned();
                    assert!(!rest.contains("allowed\r\n:1"), "{rest}");
                }
            });
        }
    });
    still_serves(&serving);
}

#[test]
fn many_connections_that_say_nothing_do_not_keep_others_out_nor_the_server_alive() {
    let serving = Serving::by(NONE);
    let silent: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(serving.address).expect("there is room")).collect();
    still_serves(&serving);
    drop(serving); // drains, and is not kept waiting
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}
