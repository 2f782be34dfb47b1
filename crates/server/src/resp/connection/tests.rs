//! Callers who are slow, silent, greedy or cut off, in tokio's own time.

use tokio::io::{DuplexStream, duplex};
use tokio_util::sync::CancellationToken;
use tollgate::store::MemoryStore;
use tollgate_policy::Policy;

use super::*;
use crate::access::{Access, Keyring, Keys};
use crate::engine::{CallOutcome, Engine, Origin};
use crate::metrics::Metrics;
use crate::server::Timeouts;

const PATIENCE: Patience = Patience { idle: Duration::from_secs(100), slow: Duration::from_secs(10) };
/// What fits on the way to the other end.
const WIRE: usize = 4 * 1024;

/// Serves a caller. Both must come to an end.
async fn serve<T>(caller: impl AsyncFnOnce(DuplexStream, CancellationToken) -> T) -> T {
    serve_measured(Metrics::new().meter("resp"), caller).await
}

async fn serve_measured<T>(
    meter: Arc<Meter>,
    caller: impl AsyncFnOnce(DuplexStream, CancellationToken) -> T,
) -> T {
    let policy = Policy::parse("limits.toml", "[limit.all]\nrate = \"1/s\"\n").expect("a policy");
    let engine = Engine::new(MemoryStore::new(), policy, Origin::default());
    let access = Access::new(Keys::new(Keyring::open()), None, [127, 0, 0, 1].into(), Arc::clone(&meter));
    let session = Session::new(1, access);
    let ((ours, theirs), token) = (duplex(WIRE), CancellationToken::new());
    let talk = Talk::new(ours, engine.clerk(), session, meter, Vigil::default(), PATIENCE);
    let activity = Activity::new(Timeouts { read: PATIENCE.idle, write: PATIENCE.slow });
    tokio::join!(talk.serve(Stop::by(token.clone()), activity), caller(theirs, token)).1
}

async fn say(stream: &mut DuplexStream, words: &[u8]) {
    stream.write_all(words).await.expect("it listens");
}

async fn hear(stream: &mut DuplexStream, words: &str) {
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).await.expect("it answers");
    assert_eq!(String::from_utf8_lossy(&heard), words);
}

/// Everything until the other end closes.
async fn hear_all(stream: &mut DuplexStream) -> String {
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.expect("text");
    heard
}

#[tokio::test(start_paused = true)]
async fn a_command_may_come_in_pieces() {
    serve(async |mut stream, _| {
        for byte in b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\nPING\r\n" {
            say(&mut stream, &[*byte]).await;
        }
        hear(&mut stream, "$5\r\nhello\r\n+PONG\r\n").await;
    })
    .await;
}

/// Answers, item 28.
#[tokio::test(start_paused = true)]
async fn calls_are_counted_although_the_client_does_not_read_the_reply() {
    let meter = Metrics::new().meter("resp");
    serve_measured(Arc::clone(&meter), async |mut stream, _| {
        say(&mut stream, b"TG.ALLOW ann 1/h\r\nTG.ALLOW ann 1/h\r\n").await;
    })
    .await;
    assert_eq!((meter.calls(CallOutcome::Allowed), meter.calls(CallOutcome::Denied)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_let_go() {
    let time = Time::tokio();
    let start = time.now();
    serve(async |mut stream, _| {
        say(&mut stream, b"PING\r\n").await;
        assert_eq!(hear_all(&mut stream).await, "+PONG\r\n");
    })
    .await;
    let waited = time.now().since(start);
    assert!(waited >= PATIENCE.idle && waited <= PATIENCE.idle * 9 / 8, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn who_asks_now_and_then_is_not() {
    serve(async |mut stream, _| {
        for _ in 0..20 {
            say(&mut stream, b"PING\r\n").await;
            hear(&mut stream, "+PONG\r\n").await;
            Time::tokio().sleep(PATIENCE.idle * 99 / 100).await;
        }
        say(&mut stream, b"QUIT\r\n").await;
        assert_eq!(hear_all(&mut stream).await, "+OK\r\n");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_never_ends_a_command_is_let_go_though_bytes_come() {
    let time = Time::tokio();
    let start = time.now();
    serve(async |mut stream, _| {
        say(&mut stream, b"*1\r\n$60000\r\n").await;
        while stream.write_all(b"x").await.is_ok() {
            Time::tokio().sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    let waited = time.now().since(start);
    assert!(
        waited >= PATIENCE.slow && waited <= PATIENCE.slow * 9 / 8 + Duration::from_secs(1),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn who_does_not_take_answers_is_not_listened_to_and_then_let_go() {
    let time = Time::tokio();
    let start = time.now();
    let sent = serve(async |mut stream, _| {
        let command = [b"*2\r\n$4\r\nECHO\r\n$1000\r\n", &[b'x'; 1_000][..], b"\r\n"].concat();
        let mut sent = 0;
        while let Ok(count) = stream.write(&command[sent % command.len()..]).await {
            sent += count;
        }
        sent
    })
    .await;
    assert!(sent <= READ + MOST_UNSENT + 2 * WIRE, "{sent} bytes were read though no answer was taken");
    let waited = time.now().since(start);
    assert!(waited >= PATIENCE.slow && waited <= 2 * PATIENCE.slow, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn what_had_come_is_answered_before_the_end() {
    serve(async |mut stream, stop| {
        say(&mut stream, b"PING 1\r\nPING 2\r\n*1\r\n$4\r\nPI").await;
        stop.cancel();
        assert_eq!(hear_all(&mut stream).await, "$1\r\n1\r\n$1\r\n2\r\n");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_never_stops_asking_is_stopped() {
    serve(async |mut stream, stop| {
        say(&mut stream, b"PING\r\n").await;
        hear(&mut stream, "+PONG\r\n").await;
        stop.cancel();
        let mut rounds = 0;
        while stream.write_all(b"PING\r\n").await.is_ok() {
            rounds += 1;
            assert!(rounds < 10_000, "it goes on for ever");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_understood_ends_the_connection_and_the_caller_hears_why() {
    for (sent, heard) in [
        (&b"PING\r\n*1\r\n:1\r\nPING\r\n"[..], "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n"),
        (
            b"*1\r\n$70000\r\n",
            "-ERR Protocol error: invalid bulk length: 70000 bytes, at most 65536 are read\r\n",
        ),
        (b"ECHO 'x\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ] {
        serve(async |mut stream, _| {
            say(&mut stream, sent).await;
            say(&mut stream, &vec![b'x'; 70_000]).await; // which it had begun
            assert_eq!(hear_all(&mut stream).await, heard);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_the_web_is_not_answered() {
    for sent in
        [&b"POST / HTTP/1.1\r\nPING\r\n"[..], b"Host: here\r\nPING\r\n", b"*1\r\n$4\r\npost\r\nPING\r\n"]
    {
        serve(async |mut stream, _| {
            say(&mut stream, sent).await;
            assert_eq!(hear_all(&mut stream).await, "");
        })
        .await;
    }
}
