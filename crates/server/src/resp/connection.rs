//! One connection: everything that has come is answered, and all answers go out together.
//!
//! A batch costs one read and one write, whatever the number of commands in it. Answers that nobody takes are not piled up: when
//! there are many, they must be taken before the next command is looked at.

use std::future::{poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tollgate::store::Store;
use tollgate_flow::Time;

use super::patience::{Patience, Watch};
use super::reply::Replies;
use super::request::{Parsed, Parser};
use super::session::{Next, Session};
use crate::engine::Clerk;
use crate::metrics::Meter;
use crate::server::{Activity, Stop, Vigil};

/// How much is read at once.
const READ: usize = 16 * 1024;
/// With so many bytes of answers, no further command is looked at before they are taken.
const MOST_UNSENT: usize = 64 * 1024;
/// After so many commands at once it is the turn of the worker's other connections.
const LONGEST_TURN: u64 = 256;
/// How much is read and thrown away so that a caller who is still sending gets to see what went wrong, and for how long.
const MOST_IGNORED: usize = 1024 * 1024;
const LONGEST_FAREWELL: Duration = Duration::from_secs(1);

/// One connection.
pub(super) struct Talk<T, S: Store> {
    stream: T,
    clerk: Clerk<S>,
    session: Session,
    meter: Arc<Meter>,
    vigil: Vigil,
    patience: Patience,
    parser: Parser,
    /// For the command behind the one that is answered.
    ahead: Parser,
    received: Vec<u8>,
    replies: Replies,
    /// How many commands were answered.
    answered: u64,
}

/// What came of waiting.
enum Event {
    Received,
    /// Nothing came, and no more should be begun.
    Stop,
    /// The other end is gone, or too slow.
    End,
}

impl<T: AsyncRead + AsyncWrite + Unpin, S: Store> Talk<T, S> {
    pub(super) fn new(
        stream: T,
        clerk: Clerk<S>,
        session: Session,
        meter: Arc<Meter>,
        vigil: Vigil,
        patience: Patience,
    ) -> Self {
        let clerk = clerk.for_protocol(meter.protocol());
        let (parser, ahead) = (Parser::default(), Parser::default());
        let (received, replies) = (Vec::new(), Replies::default());
        Self { stream, clerk, session, meter, vigil, patience, parser, ahead, received, replies, answered: 0 }
    }

    /// Answers until the other end is gone, is too slow or says nothing for too long, or `stop` is due. What had come by then is
    /// answered.
    ///
    /// # Cancel safety
    /// What was taken stays taken; answers that were not sent are lost.
    pub(super) async fn serve(mut self, stop: Stop, activity: Rc<Activity>) {
        let _connected = self.meter.connected();
        let mut waiting = pin!(stop.wait());
        let mut watch = Watch::new(self.patience.idle);
        loop {
            let event = if stop.is_due() {
                self.receive(ready(()), &mut watch).await
            } else {
                self.receive(waiting.as_mut(), &mut watch).await
            };
            let began = self.meter.now();
            match event {
                Event::Received => self.vigil.begin(began),
                Event::Stop => break,
                Event::End => return,
            }
            let next = self.answer_all().await;
            if self.answered > 0 {
                activity.answered();
            }
            if next == Next::Command {
                let_others_answer().await;
            }
            self.meter.count(self.clerk.take_calls());
            self.meter.failed_all(&mut self.replies.errors);
            let is_sent = next != Next::Drop && self.flush().await;
            let done = self.meter.now();
            self.vigil.done(done);
            self.meter.observe(self.session.take_decided(), done.since(began));
            if !is_sent {
                return;
            }
            match next {
                Next::Close => break,
                Next::Hang => return self.hang_up().await,
                _ => {} // if no more should be begun, on to whatever has come meanwhile
            }
        }
        let _ = self.stream.shutdown().await; // from which nobody can keep us
    }

    /// Waits for more.
    async fn receive(&mut self, stop: impl Future<Output = ()>, watch: &mut Watch) -> Event {
        if self.received.capacity() - self.received.len() < READ {
            self.received.reserve(READ);
        }
        let patience = if self.received.is_empty() { self.patience.idle } else { self.patience.slow };
        watch.expect(patience, self.answered);
        tokio::select! {
            biased;
            read = self.stream.read_buf(&mut self.received) => match read {
                Ok(1..) => Event::Received,
                Ok(0) | Err(_) => Event::End,
            },
            () = stop => Event::Stop,
            () = watch.late(self.answered) => Event::End,
        }
    }

    /// Answers every command that has come whole. What is left is the beginning of one. Each is read before the one in front of
    /// it is answered: by its turn, the state of its key has come from memory.
    async fn answer_all(&mut self) -> Next {
        let (mut at, before) = (0, self.answered);
        self.session.refresh();
        let mut found = self.parser.parse(&self.received);
        let next = loop {
            match found {
                Ok(Parsed::Command(length)) => {
                    let (this, rest) = self.received[at..].split_at(length);
                    found = self.ahead.parse(rest);
                    if let Ok(Parsed::Command(_)) = found {
                        self.session.prepare(&self.clerk, self.ahead.arguments(rest));
                    }
                    let arguments = self.parser.arguments(this);
                    let Self { session, clerk, replies, .. } = self;
                    let next = match session.answer_now(clerk, arguments, replies) {
                        Some(()) => Next::Command,
                        None => session.answer(clerk, arguments, replies).await,
                    };
                    at += length;
                    self.answered += 1;
                    if next != Next::Command {
                        break next;
                    }
                    std::mem::swap(&mut self.parser, &mut self.ahead);
                }
                Ok(Parsed::Nothing(length)) => {
                    at += length;
                    found = self.parser.parse(&self.received[at..]);
                }
                Ok(Parsed::Incomplete) => break Next::Command,
                Err(error) => {
                    self.replies.error(format_args!("ERR {error}"));
                    break Next::Hang;
                }
            }
            if self.replies.bytes.len() >= MOST_UNSENT && !self.flush().await {
                break Next::Drop;
            }
        };
        self.forget(at);
        if self.answered - before > LONGEST_TURN {
            yield_now().await;
        }
        next
    }

    /// Drops what was answered, and memory that only a long command needed.
    fn forget(&mut self, answered: usize) {
        if answered < self.received.len() {
            self.received.drain(..answered);
            return;
        }
        self.received.clear();
        if self.received.capacity() > MOST_UNSENT {
            self.received = Vec::new();
        }
    }

    /// Sends all answers. Whether they were taken in time.
    async fn flush(&mut self) -> bool {
        let Self { stream, replies, patience, .. } = self;
        let mut unsent = &replies.bytes[..];
        // Mostly there is room for all of them, and no need to watch the time.
        while !unsent.is_empty() {
            let sent =
                poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_write(context, unsent))).await;
            match sent {
                Poll::Ready(Ok(sent @ 1..)) => unsent = &unsent[sent..],
                Poll::Ready(_) => return false,
                Poll::Pending => break,
            }
        }
        let rest = async {
            stream.write_all(unsent).await?;
            stream.flush().await
        };
        let is_sent = if unsent.is_empty() {
            rest.await.is_ok()
        } else {
            matches!(Time::tokio().timeout(patience.slow, rest).await, Ok(Ok(())))
        };
        replies.bytes.clear();
        if replies.bytes.capacity() > 2 * MOST_UNSENT {
            replies.bytes = Vec::new();
        }
        is_sent
    }

    /// Ends a connection whose other end may still be sending. If what it sends were not read, it would not get to see what
    /// was wrong with it.
    async fn hang_up(mut self) {
        let mut ignored = [0; 4096];
        let farewell = async {
            self.stream.shutdown().await?;
            for _ in 0..MOST_IGNORED / ignored.len() {
                if self.stream.read(&mut ignored).await? == 0 {
                    break;
                }
            }
            io::Result::Ok(())
        };
        let _ = Time::tokio().timeout(LONGEST_FAREWELL, farewell).await;
    }
}

/// Lets the worker's other connections that have something to answer do so first. All answers then go out one right after the
/// other, as those of Redis do: whoever waits for several of them at the other end is woken once.
async fn let_others_answer() {
    let mut is_turn = false;
    poll_fn(|context| {
        if is_turn {
            return Poll::Ready(());
        }
        is_turn = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests;
