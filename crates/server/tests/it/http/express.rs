//! Plain checks go a short way, everything else the long one. Nobody outside can tell which.

use proptest::prelude::*;

use super::support::{Answer, Site};

const POLICY: &str =
    "[limit.per-ip]\nkey = \"ip\"\nrate = [\"3/h\", \"10/d\"]\nalgorithm = \"fixed-window\"\n";

/// A field that changes nothing but the way.
const LONG_WAY: &str = "te: trailers\r\n";

fn post(fields: &str, body: &str) -> String {
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// All of an answer but when it was given.
fn undated(answer: &Answer) -> String {
    let date = answer.field("date").expect("every answer has a date");
    assert!(date.ends_with(" GMT") && date.len() == 29, "{date}");
    format!("{answer:?}").replace(date, "")
}

#[test]
fn both_ways_answer_the_same() {
    let (short, long) = (Site::new(POLICY), Site::new(POLICY));
    let (mut short, mut long) = (short.client(), long.client());
    let check = r#"{"descriptor":{"ip":"1"}}"#;
    for (fields, body) in [
        ("", check),
        ("", check),
        ("content-type: application/json\r\n", check),
        ("", check), // the fourth, which is refused
        ("Content-Type: Application/JSON; charset=utf-8\r\nconnection: Keep-Alive\r\n", check),
        ("", r#"{"descriptor":{"ip":"1"},"mode":"peek","cost":0}"#),
        ("", r#"{"descriptor":{"ip":"2"},"hold":"1x"}"#),
        ("", r#"[{"descriptor":{"ip":"3"}},{"descriptor":{"ip":"3"}}]"#),
        ("", r#"{"limit":{"rate":"2/d"},"key":"k"}"#),
        ("", r#"{"descriptor":{}}"#),
        ("", ""),
        ("", "{"),
        ("", "\u{fffd}"),
        ("content-type: text/plain\r\n", check),
        ("authorization: Bearer nobody\r\n", check),
        ("authorization: Basic xyz\r\n", check),
    ] {
        let by_long = long.ask(&post(&format!("{LONG_WAY}{fields}"), body));
        assert_eq!(undated(&short.ask(&post(fields, body))), undated(&by_long), "{fields} {body}");
    }
}

#[test]
fn the_way_may_change_in_the_middle_of_what_is_sent() {
    let site = Site::new("[limit.all]\nrate = \"1000/d\"\nalgorithm = \"fixed-window\"\n");
    let mut client = site.client();
    let check = post("", r#"{"descriptor":{}}"#);
    let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.send([&check, &check, health, &check].concat().as_bytes());
    let answers: Vec<Answer> = (0..4).map(|_| client.answer()).collect();
    let left: Vec<Option<u64>> = answers.iter().map(|answer| answer.json()["remaining"].as_u64()).collect();
    assert_eq!(left, [Some(999), Some(998), None, Some(997)]);
    assert!(answers.iter().all(|answer| answer.status == 200));
}

#[test]
fn what_has_come_is_answered_before_the_server_stops() {
    let mut site = Site::new(POLICY);
    let (mut idle, mut client) = (site.client(), site.client());
    let check = post("", r#"{"descriptor":{"ip":"1"}}"#);
    assert_eq!(idle.ask(&check).status, 200);
    let (first, rest) = check.split_at(check.len() - 1);
    client.send([&check, first].concat().as_bytes());
    assert_eq!(client.answer().field("connection"), None, "and by then the second has been begun");
    let drained = site.drain();
    assert_eq!(idle.rest(), "", "who asks for nothing is let go");
    client.send(rest.as_bytes());
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
    assert_eq!(client.rest(), "");
    assert_eq!(drained.join().unwrap(), 0, "nobody had to be cut off");
}

#[test]
fn a_server_that_is_about_to_stop_says_that_it_is_not_ready() {
    let mut site = Site::new(POLICY);
    let (mut idle, mut client) = (site.client(), site.client());
    let check = post("", r#"{"descriptor":{"ip":"1"}}"#);
    assert_eq!(idle.ask(&check).status, 200);
    client.send([&check, "GET /readyz HT"].concat().as_bytes());
    assert_eq!(client.answer().status, 200, "and by then the second has been begun");
    let drained = site.drain();
    assert_eq!(idle.rest(), "", "it is about to stop");
    client.send(b"TP/1.1\r\nhost: localhost\r\n\r\n");
    let answer = client.answer();
    assert_eq!(
        (answer.problem(503).as_str(), answer.field("connection")),
        ("the server is stopping", Some("close"))
    );
    assert_eq!((client.rest().as_str(), drained.join().unwrap()), ("", 0));
}

#[test]
fn who_does_not_read_answers_to_checks_is_cut_off() {
    let site = Site::limited(POLICY, |limits| limits.write_timeout = std::time::Duration::from_millis(100));
    let mut client = site.client();
    let checks = post("", r#"{"descriptor":{"ip":"1"}}"#).repeat(1_000);
    // Some gigabytes of answers, which nobody has room for.
    let _ = (0..10_000).all(|_| client.try_send(checks.as_bytes()));
    super::support::eventually("it is gone", || site.connections() == 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However it is cut into pieces, and whichever way each goes, every request is answered once and in its turn.
    #[test]
    fn pieces_do_not_matter(
        ways in prop::collection::vec(0..3_usize, 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let site = Site::new("[limit.all]\nrate = \"1000/d\"\nalgorithm = \"fixed-window\"\n");
        let body = r#"{"descriptor":{"ip":"1"}}"#;
        let text: String = ways.iter().map(|way| post(["", "connection: keep-alive\r\n", LONG_WAY][*way], body)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut client = site.client();
        for piece in cuts.windows(2) {
            client.send(&text.as_bytes()[piece[0]..piece[1]]);
        }
        for place in 0..ways.len() {
            prop_assert_eq!(client.answer().json()["remaining"].as_u64(), Some(999 - place as u64));
        }
    }
}
