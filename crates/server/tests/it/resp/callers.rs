//! What one caller can take, and what is left for the others.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use tollgate_server::{Keyring, Keys};

use super::caller::{Caller, Reply};
use super::serving::Serving;

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"100000/h\"\n";
/// An address of this machine that is not the one `Serving::caller` connects from.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Sends all commands at once, and returns the replies.
fn pipeline(caller: &mut Caller, commands: &[String]) -> Vec<Reply> {
    let writer = caller.writer();
    let bytes = commands.join("\r\n") + "\r\n";
    let sending = thread::spawn(move || writer.send_all(bytes.as_bytes()));
    let replies = commands.iter().map(|_| caller.hear()).collect();
    sending.join().expect("it sends");
    replies
}

/// How many of these new limits were accepted, and one of the errors.
fn supply(caller: &mut Caller, rates: impl Iterator<Item = u64>) -> (usize, Option<String>) {
    let commands: Vec<String> = rates.map(|rate| format!("TG.ALLOW key {rate}/s")).collect();
    let (mut accepted, mut refused) = (0, None);
    for reply in pipeline(caller, &commands) {
        match reply {
            Reply::Integer(1) => accepted += 1,
            Reply::Error(error) => refused = Some(error),
            other => panic!("{other:?}"),
        }
    }
    (accepted, refused)
}

// Guards, item 7: one caller cannot use up the limits that callers may supply.
#[test]
fn tg_allow_of_one_caller_leaves_limits_for_the_others() {
    let serving = Serving::by(POLICY);
    let (mut greedy, mut other) = (serving.caller(), Caller::from(ELSEWHERE, serving.address));
    let (accepted, refused) = supply(&mut greedy, 1..70_000);
    assert_eq!(accepted, 4_096);
    assert_eq!(
        refused.as_deref(),
        Some(
            "ERR you supply limits with 4096 different rates, and at most 4096 are allowed: \
             use fewer, or wait until some have been idle for a while"
        )
    );
    assert_eq!(supply(&mut other, 100_000..101_000), (1_000, None));
    assert_eq!(supply(&mut greedy, 2..100), (98, None), "the limits it has go on");
    let again = &mut serving.caller();
    assert_eq!(supply(again, 200_000..200_001).0, 0, "another connection is the same caller");

    serving.clock.advance(Duration::from_secs(2)); // every key is idle
    serving.engine.store().sweep();
    assert_eq!(supply(&mut greedy, 300_000..303_000), (3_000, None));
}

// Guards, item 7: a token is a caller of its own, wherever it is sent from.
#[test]
fn tg_allow_of_one_token_leaves_limits_for_another_from_the_same_address() {
    let token =
        |name: &str| format!("[token.{name}]\nsecret = \"{name}-0123456789abcdef\"\nscopes = [\"check\"]\n");
    let keyring = Keyring::parse(&(token("batch") + &token("web"))).expect("a keyring");
    let serving = Serving::with_keys(POLICY, Keys::new(keyring));
    let connect = |name: &str| {
        let mut caller = serving.caller();
        assert_eq!(caller.say(&format!("AUTH {name}-0123456789abcdef")), Reply::Status("OK".to_owned()));
        caller
    };
    assert_eq!(supply(&mut connect("batch"), 1..70_000).0, 4_096);
    assert_eq!(supply(&mut connect("batch"), 80_000..80_001).0, 0);
    assert_eq!(supply(&mut connect("web"), 90_000..90_100), (100, None));
}

// Guards, item 8: one caller cannot use up what can be held.
#[test]
fn tg_check_hold_of_one_caller_leaves_room_for_the_others() {
    let serving = Serving::by(POLICY);
    let (mut greedy, mut other) = (serving.caller(), Caller::from(ELSEWHERE, serving.address));
    let holds = vec!["TG.CHECK COST 1 HOLD 60 ip 1".to_owned(); 10_001];
    let mut replies = pipeline(&mut greedy, &holds);
    let last = replies.pop().expect("a reply");
    assert!(replies.iter().all(|reply| matches!(reply.field("id"), Reply::Bulk(_))));
    assert_eq!(
        last,
        Reply::error(
            "ERR 10000 holds of this client are open, the maximum; settle some or use a shorter hold"
        )
    );
    assert_eq!(serving.engine.held(), 10_000);
    assert!(matches!(other.say("TG.CHECK COST 1 HOLD 60 ip 2").field("id"), Reply::Bulk(_)));

    let Reply::Bulk(permit) = replies[0].field("id").clone() else { panic!("it is held") };
    assert_eq!(greedy.ask(&[b"TG.SETTLE", &permit, b"1"]), Reply::Integer(1));
    assert!(matches!(greedy.say("TG.CHECK COST 1 HOLD 60 ip 1").field("id"), Reply::Bulk(_)));
    serving.clock.advance(Duration::from_secs(60));
    assert!(matches!(greedy.say("TG.CHECK HOLD 60 ip 1").field("id"), Reply::Bulk(_)));
    assert_eq!(serving.engine.held(), 1);
}

// Guards, item 8: to hold needs the scope hold.
#[test]
fn tg_check_hold_needs_the_scope_hold() {
    let keyring = Keyring::parse(
        "[token.asks]\nsecret = \"asks-0123456789abcdef\"\nscopes = [\"check\"]\n\
         [token.holds]\nsecret = \"holds-0123456789abcdef\"\nscopes = [\"check\", \"hold\"]\n",
    );
    let serving = Serving::with_keys(POLICY, Keys::new(keyring.expect("a keyring")));
    let mut caller = serving.caller();
    assert_eq!(caller.say("AUTH asks-0123456789abcdef"), Reply::Status("OK".to_owned()));
    let refusal = Reply::error("NOPERM HOLD needs the scope hold");
    assert_eq!(caller.say("TG.CHECK HOLD 60 ip 1"), refusal);
    assert!(matches!(caller.say("TG.CHECK ip 1").field("allowed"), Reply::Integer(1)));
    assert_eq!(caller.say("AUTH holds-0123456789abcdef"), Reply::Status("OK".to_owned()));
    assert!(matches!(caller.say("TG.CHECK HOLD 60 ip 1").field("id"), Reply::Bulk(_)));
}
