//! Runs whole sessions of the Redis protocol over arbitrary bytes. Each command gets one well-formed reply, and the replies do
//! not depend on how the bytes are split.
//!
//! The first byte chooses how the bytes are split, and whether clients must authenticate; the token is `token`. The second one
//! chooses how often the rest is sent, so that pipelines can be longer than every buffer.
#![no_main]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::resp::{Parsed, Parser, Resp};
use tollgate_server::{Engine, Keyring, Keys, Origin, Scope, Scopes};

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = [\"10/s burst 20\", \"1000/h\"]\n\
    [limit.bytes]\nkey = [\"ip\", \"path\"]\nrate = \"100/min\"\ncost = \"bytes\"\nmode = \"shadow\"\n";
/// Second bytes up to this one send the rest once.
const MOST_ONCE: u8 = 200;
/// The most that a reply may be nested: a list of maps of lists.
const DEEPEST: usize = 4;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
}

/// A client that sends its bytes in pieces, and takes the replies in pieces.
struct Client<'i> {
    unsent: &'i [u8],
    piece: usize,
    replies: Vec<u8>,
}

impl AsyncRead for &mut Client<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let client = self.get_mut();
        let (piece, rest) =
            client.unsent.split_at(client.piece.min(client.unsent.len()).min(into.remaining()));
        client.unsent = rest;
        into.put_slice(piece);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for &mut Client<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let client = self.get_mut();
        let taken = &bytes[..bytes.len().min(client.piece)];
        client.replies.extend_from_slice(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The replies to these bytes, sent in pieces of this length.
fn replies(sent: &[u8], piece: usize, keys: &Keys) -> Vec<u8> {
    let clock = ManualClock::starting_at(Duration::from_secs(1_794_767_960));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let policy = Policy::parse("limits.toml", POLICY).expect("a policy");
    let clerk = Engine::in_time(store, policy, Origin::default(), Time::of(clock)).clerk();
    let mut client = Client { unsent: sent, piece, replies: Vec::new() };
    RUNTIME.with(|runtime| runtime.block_on(Resp::new().serve_connection(&mut client, clerk, keys.clone())));
    client.replies
}

fuzz_target!(|input: &[u8]| {
    let [choice, repeats, sent @ ..] = input else { return };
    let sent = &sent.repeat(1 + 8 * usize::from(repeats.saturating_sub(MOST_ONCE)));
    let keyring = match choice % 3 {
        0 => Keyring::open(),
        1 => Keyring::new().token("ops", b"token", Scopes::ALL),
        _ => Keyring::new().token("ops", b"token", Scopes::ALL).with_anonymous(Scopes::of(&[Scope::Check])),
    };
    let (keys, piece) = (Keys::new(keyring), 1 + usize::from(choice / 3));
    let whole = replies(sent, usize::MAX, &keys);
    let expected = Expected::of(sent);
    let found = check_replies(&whole, expected.may_be_three);
    let pieces = replies(sent, piece, &keys);
    if expected.is_dropped {
        // Replies to the commands before it are lost if they came with it.
        assert!(
            found <= expected.replies && check_replies(&pieces, expected.may_be_three) <= expected.replies
        );
        return;
    }
    assert_eq!(found, expected.replies, "{}", whole.escape_ascii());
    assert_eq!(without_permits(&whole), without_permits(&pieces));
});

/// What the commands say about the replies.
#[derive(Default)]
struct Expected {
    replies: usize,
    /// Whether a command may have chosen the third version of the protocol.
    may_be_three: bool,
    /// Whether the session ends because an HTTP request was sent.
    is_dropped: bool,
}

impl Expected {
    fn of(mut sent: &[u8]) -> Self {
        let (mut parser, mut expected) = (Parser::default(), Self::default());
        loop {
            match parser.parse(sent) {
                Ok(Parsed::Command(used)) => {
                    let arguments = parser.arguments(sent);
                    let name = arguments.name().to_ascii_uppercase();
                    expected.is_dropped = matches!(&name[..], b"POST" | b"HOST:");
                    expected.replies += usize::from(!expected.is_dropped);
                    expected.may_be_three |= name == b"HELLO" && arguments.get(1) == Some(b"3");
                    if expected.is_dropped || name == b"QUIT" {
                        return expected;
                    }
                    sent = &sent[used..];
                }
                Ok(Parsed::Nothing(used)) => sent = &sent[used..],
                Ok(Parsed::Incomplete) => return expected,
                Err(_) => {
                    expected.replies += 1;
                    return expected;
                }
            }
        }
    }
}

/// Checks that the bytes are nothing but well-formed replies, and counts them.
fn check_replies(mut bytes: &[u8], may_be_three: bool) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        bytes = after_reply(bytes, may_be_three, DEEPEST);
        count += 1;
    }
    count
}

/// What comes after one reply.
fn after_reply(bytes: &[u8], may_be_three: bool, deepest: usize) -> &[u8] {
    let shown = || bytes[..bytes.len().min(200)].escape_ascii().to_string();
    assert!(deepest > 0, "nested too deeply: {}", shown());
    let end =
        bytes.windows(2).position(|pair| pair == b"\r\n").unwrap_or_else(|| panic!("no end: {}", shown()));
    let (kind, line, rest) = (bytes[0], &bytes[1..end], &bytes[end + 2..]);
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "{}", shown());
    let text = std::str::from_utf8(line).unwrap_or_else(|_| panic!("not UTF-8: {}", shown()));
    let number = || text.parse::<i64>().unwrap_or_else(|_| panic!("no number: {}", shown()));
    let count = || usize::try_from(number()).unwrap_or_else(|_| panic!("no length: {}", shown()));
    let after =
        |replies: usize| (0..replies).fold(rest, |rest, _| after_reply(rest, may_be_three, deepest - 1));
    assert!(may_be_three || !b"%_#".contains(&kind), "in the second version: {}", shown());
    match kind {
        b'+' => rest,
        b'-' => {
            assert!(!text.trim().is_empty(), "an error without a message");
            rest
        }
        b':' => {
            number();
            rest
        }
        b'_' if line.is_empty() => rest,
        b'#' if matches!(line, b"t" | b"f") => rest,
        b'$' | b'*' if line == b"-1" => rest,
        b'$' => rest
            .get(count()..)
            .and_then(|rest| rest.strip_prefix(b"\r\n"))
            .unwrap_or_else(|| panic!("{}", shown())),
        b'*' => after(count()),
        b'%' => after(2 * count()),
        _ => panic!("a reply of no kind: {}", shown()),
    }
}

/// The replies, where every permit reads the same: permits are random.
fn without_permits(replies: &[u8]) -> Vec<u8> {
    const BEFORE: &[u8] = b"$2\r\nid\r\n$32\r\n";
    let mut replies = replies.to_vec();
    for at in 0..replies.len() {
        if replies[at..].starts_with(BEFORE) {
            let permit = replies.iter_mut().skip(at + BEFORE.len()).take(32);
            permit.filter(|digit| digit.is_ascii_hexdigit()).for_each(|digit| *digit = b'0');
        }
    }
    replies
}
