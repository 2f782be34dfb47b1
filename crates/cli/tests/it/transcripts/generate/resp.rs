//! The protocol of Redis, both versions: every command with any number of arguments, decisions, who may ask, and what is no command.

use super::{Dice, Listener, Scene, Script, Wait, cases, texts};
use crate::transcripts::mask::Permits;

pub(super) fn scenes() -> Vec<(&'static str, Scene)> {
    let script =
        |flags: &str, seed| Script::new(&format!("--policy=policy.toml {flags}"), Listener::Resp, seed);
    vec![
        ("throttle", throttle(script("", 1))),
        ("decisions", decisions(script("", 2), "")),
        ("decisions-3", decisions(script("", 3), "HELLO 3")),
        ("commands", commands(script("", 4))),
        ("lines", lines(script("", 5))),
        ("keys", keys(script("--keys-file=keys.toml", 6))),
        ("malformed", malformed(script("", 7))),
    ]
}

/// An array of bulk strings.
fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The same of words with spaces between them.
fn command(line: &str) -> Vec<u8> {
    array(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// A thousand days: every interval that comes of it is of whole hours.
const PERIOD: &str = "86400000";

fn throttle(mut script: Script) -> Scene {
    for _ in 0..420 {
        let dice = &mut script.dice;
        let name = if dice.percent(65) {
            dice.pick::<str>(&["CL.THROTTLE", "cl.throttle", "Cl.Throttle"])
        } else {
            dice.pick(&["THROTTLE", "throttle"])
        };
        let (key, burst, count) = (
            dice.roll(9),
            dice.pick::<str>(&["1", "3", "4", "9", "0"]),
            dice.pick::<str>(&["1", "5", "10", "20"]),
        );
        let quantity = if dice.percent(50) {
            String::new()
        } else {
            format!(" {}", dice.pick::<str>(&["0", "1", "2", "3", "7", "-1", "-3"]))
        };
        let line = format!("{name} k{key} {burst} {count} {PERIOD}{quantity}");
        match dice.roll(20) {
            0 => script.wait("pipelined", Wait::Answers(3), command(&line).repeat(3)),
            1 => script.ask("line", format!("{line}\r\n")),
            _ => script.ask("throttle", command(&line)),
        }
    }
    for name in ["CL.THROTTLE", "THROTTLE"] {
        for arguments in texts("resp throttle") {
            script.ask("odd", command(format!("{name} {arguments}").trim_end()));
        }
        for length in [1024, 1025] {
            script.ask("long", command(&format!("{name} {} 3 5 {PERIOD}", "k".repeat(length))));
        }
        script.ask("bytes", array(&[name.as_bytes(), b"\xff\0\r\n", b"3", b"5", PERIOD.as_bytes()]));
        script.ask("bytes", array(&[name.as_bytes(), b"k", b"3\xff", b"5", PERIOD.as_bytes()]));
    }
    script.scene
}

fn fields(dice: &mut Dice) -> String {
    let names = [
        "user", "user", "ip", "log", "counter", "sub", "leaky", "queue", "paced", "tenant", "bytes", "path",
        "account", "plan",
    ];
    let mut all: Vec<&str> = (0..=dice.roll(3)).map(|_| *dice.pick(&names)).collect();
    all.sort_unstable();
    all.dedup();
    let values: &[&str] = &["ann", "bob", "10.0.0.7", "1", "gold", "free", "vip", "/api/x", "", "600"];
    all.iter().fold(String::new(), |line, name| line + " " + name + " " + dice.pick::<str>(values))
}

fn decisions(mut script: Script, greeting: &str) -> Scene {
    if !greeting.is_empty() {
        script.ask("hello", command(greeting));
    }
    for _ in 0..330 {
        let dice = &mut script.dice;
        let line = match dice.roll(100) {
            // Settled before anything else is given back, as over HTTP.
            0..7 => {
                let hold = format!("TG.CHECK HOLD 86400 COST {}{}", dice.roll(4), fields(dice));
                script.ask("hold", command(&hold));
                format!("TG.SETTLE {} {}", Permits::LAST, script.dice.roll(4))
            }
            7..11 => format!("TG.RESET{}", fields(dice)),
            11..13 => format!("TG.RESET ALLOW k{} 3_per_1000d", dice.roll(4)),
            13..16 => format!("TG.LIMITS {} {}", dice.roll(30), dice.roll(2)),
            16..36 => format!(
                "TG.ALLOW k{} {} {}",
                dice.roll(4),
                dice.pick::<str>(&["3_per_1000d", "5_per_365d_burst_2", "unlimited", "0/d"]),
                dice.pick::<str>(&["1", "0", "2", "4"])
            ),
            _ => {
                let domain = if dice.percent(15) { " DOMAIN web" } else { "" };
                let cost = if dice.percent(35) {
                    format!(" COST {}", dice.pick::<str>(&["0", "1", "2", "5", "20"]))
                } else {
                    String::new()
                };
                let mode = match dice.roll(12) {
                    0 => " PEEK",
                    1 => " COUNT",
                    2 => " CHARGE",
                    3 => " REFUND",
                    4 => " FIELDS",
                    _ => "",
                };
                format!("TG.CHECK{domain}{cost}{mode}{}", fields(dice))
            }
        };
        let words: Vec<String> = line
            .split(' ')
            .map(|word| if word.contains("_per_") { word.replace('_', " ") } else { word.to_owned() })
            .collect();
        script.ask("decide", array(&words.iter().map(String::as_bytes).collect::<Vec<_>>()));
    }
    for line in texts("resp decisions") {
        script.ask("odd", command(&line));
    }
    for length in [1024, 1025] {
        script.ask("long", command(&format!("TG.CHECK user {}", "v".repeat(length))));
        script.ask("long", command(&format!("TG.ALLOW {} unlimited", "k".repeat(length))));
    }
    for count in [24, 25] {
        script.ask(
            "wide",
            command(&format!(
                "TG.CHECK{}",
                (0..count).fold(String::new(), |line, at| line + &format!(" f{at} v"))
            )),
        );
    }
    for name in [&b"\xff"[..], b"user"] {
        script.ask("bytes", array(&[b"TG.CHECK", name, b"\xff\0\r\n"]));
    }
    script.scene
}

fn commands(mut script: Script) -> Scene {
    script.ask("client", command("CLIENT ID"));
    for version in ["2", "3"] {
        for name in texts("resp commands") {
            for arguments in [
                "",
                " a",
                " a b",
                " a b c",
                " 0",
                " 1",
                " get *",
                " list",
                " count",
                " info get set",
                " docs",
            ] {
                let is_about = matches!(name.as_str(), "COMMAND" | "CONFIG");
                // `RESET` and `HELLO` may change the version.
                let greeting = if version == "3" { command("HELLO 3") } else { Vec::new() };
                if is_about || arguments.len() < 7 && (version == "2" || arguments.len() < 4) {
                    let answers = if greeting.is_empty() { 1 } else { 2 };
                    script.wait(
                        "command",
                        Wait::Answers(answers),
                        [greeting, command(&format!("{name}{arguments}"))].concat(),
                    );
                    script.fresh();
                }
            }
        }
    }
    for line in texts("resp connection") {
        script.ask("more", command(&line));
    }
    for line in ["QUIT", "quit now", "POST / HTTP/1.1", "Host: t"] {
        script.wait("end", Wait::Close, [command("PING"), command(line), command("PING")].concat());
    }
    script.scene
}

fn lines(mut script: Script) -> Scene {
    for line in cases("resp lines") {
        script.ask("line", line);
    }
    for line in [
        &b"PING \"a\r\n"[..],
        b"PING 'a\r\n",
        b"PING \"a\"b\r\n",
        b"PING 'a'b\r\n",
        b"PING \"a\\\r\n",
        b"\"\r\n",
        b"'\r\nPING\r\n",
    ] {
        script.wait("quotes", Wait::Cut, line);
    }
    for count in [63, 64, 65] {
        script.wait("words", Wait::Cut, "x ".repeat(count) + "\r\n");
    }
    for length in [65_530, 65_536, 70_000] {
        script.wait("long", Wait::Cut, format!("ECHO {}\r\n", "x".repeat(length - 5)));
        script.wait("long", Wait::Cut, "y".repeat(length));
    }
    script.scene
}

fn keys(mut script: Script) -> Scene {
    for proof in texts("resp proofs") {
        for (at, line) in texts("resp asked").iter().enumerate() {
            if at == 0 && !proof.is_empty() {
                script.ask("proof", command(&proof));
                script.fresh();
            }
            script.ask("asked", command(line));
            if at == 0 && proof.is_empty() {
                script.fresh();
            }
        }
    }
    script.scene
}

fn malformed(mut script: Script) -> Scene {
    for head in texts("resp malformed") {
        script.wait("head", Wait::Cut, format!("{head}\r\n"));
        script.wait(
            "behind",
            Wait::Cut,
            [command("ECHO first"), format!("{head}\r\n").into_bytes(), command("ECHO last")].concat(),
        );
    }
    let whole = [command("ECHO one"), command("TG.CHECK PEEK user ann")].concat();
    for cut in 0..whole.len() {
        script.wait("cut", Wait::Cut, &whole[..cut]);
    }
    for length in [65_536, 65_537] {
        script.wait("long", Wait::Cut, command(&format!("ECHO {}", "x".repeat(length))));
    }
    let large = "x".repeat(65_536);
    script.wait("large", Wait::Cut, command(&format!("PING {large} {large} {large} {large}")));
    for count in [64, 65] {
        script.wait("wide", Wait::Cut, command(&vec!["PING"; count].join(" ")));
    }
    for _ in 0..170 {
        let spoilt = script.spoil(&whole, 2, b"\0\r\n$*:+-0149 x\"\xff");
        script.wait("spoilt", Wait::Cut, spoilt);
    }
    script.scene
}
