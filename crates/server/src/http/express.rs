//! The short way: plain checks over HTTP/1.1 are answered where they arrive.
//!
//! Nearly all that comes is the same: `POST /v1/check`, a few header fields, and a body that is there already. To make a request of
//! it, to hand that over and to take an answer apart again would cost more than the decision. So what is plain is read, decided
//! and answered here, several in a row if they come so, and all answers go out together. The first request that is not plain, and
//! all that follow on its connection, go the long way, which knows everything: to be in doubt is never wrong here, only slower.

mod plain;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::Response;
use http::header::{CONNECTION, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tollgate::store::Store;
use tollgate::{Clock, DefaultClock};
use tollgate_flow::fault::catch;
use tollgate_flow::{Sleep, Time};

use super::caller::principal_of;
use super::check::check;
use super::connection::{Busy, Desk, late_body};
use super::refusal::Refusal;
use super::route::Route;
use super::text::push_answer;
use super::watch::{Alarm, Phase, Watch};
use super::watched::Watched;
use crate::engine::Clerk;
use plain::{Found, Plain, find};

/// How much can be read at once.
const READ: usize = 8 * 1024;
/// With so many bytes of answers, no further request is looked at before they are taken.
const MOST_UNSENT: usize = 64 * 1024;

/// How it goes on with a connection.
#[derive(Debug)]
pub(super) enum Next {
    /// The long way, with what was read and not answered.
    LongWay,
    /// This is said, and then it is over.
    Refused(Refusal),
    /// It is over.
    End,
}

/// Answers plain checks as long as nothing else comes.
pub(super) async fn serve<S: Store>(io: &mut Watched, desk: &Desk<S>, watch: &Watch) -> Next {
    let mut clerk = desk.clerk();
    let (received, answers, date) = (Vec::new(), Vec::new(), Date::default());
    let mut lane = Lane { io, desk, watch, received, body_deadline: None, answers, date };
    let next = lane.serve(&mut clerk).await;
    let unanswered = std::mem::take(&mut lane.received);
    io.put_back(unanswered);
    desk.return_clerk(clerk);
    next
}

struct Lane<'a, S: Store> {
    io: &'a mut Watched,
    desk: &'a Desk<S>,
    watch: &'a Watch,
    received: Vec<u8>,
    /// Set when the rest of a body makes the connection wait.
    body_deadline: Option<Sleep>,
    answers: Vec<u8>,
    date: Date,
}

/// What came of waiting.
enum Event {
    Received,
    /// A head took too long, or the server is about to stop.
    Alarm(Alarm),
    /// A body took too long.
    LateBody,
    /// The other end is gone.
    End,
}

impl<S: Store> Lane<'_, S> {
    async fn serve(&mut self, clerk: &mut Clerk<S>) -> Next {
        loop {
            match self.receive().await {
                Event::Received => {}
                // Nothing has been begun, or nobody is there any more.
                Event::Alarm(_) if self.received.is_empty() => return Next::End,
                Event::End => return Next::End,
                // What has been begun is finished.
                Event::Alarm(Alarm::Stop) => continue,
                Event::Alarm(Alarm::Late) => {
                    self.watch.raise(Alarm::Late);
                    return Next::LongWay;
                }
                Event::LateBody => return Next::Refused(late_body()),
            }
            if let Some(next) = self.answer_all(clerk).await {
                return next;
            }
        }
    }

    /// Answers all that has come whole. How it goes on, unless by waiting for more.
    async fn answer_all(&mut self, clerk: &mut Clerk<S>) -> Option<Next> {
        self.date.look();
        let mut at = 0;
        let next = loop {
            match find(&self.received[at..], self.desk.api.limited_to()) {
                Found::Plain(plain) if !self.desk.may_name(plain.host, Route::Check, plain.authorization) => {
                    break Some(Next::LongWay);
                }
                Found::Plain(plain) => {
                    let is_last = answer(self.desk, clerk, &plain, &mut self.answers, &self.date).await;
                    at += plain.length;
                    self.body_deadline = None;
                    if is_last {
                        break Some(Next::End);
                    }
                }
                Found::Part { is_body } => {
                    self.wait_for_rest(is_body);
                    break None;
                }
                Found::Nothing => break None,
                Found::Unusual => break Some(Next::LongWay),
                Found::Wrong(wrong) => break Some(Next::Refused(wrong.refusal(self.desk.api.limited_to()))),
            }
            if self.answers.len() >= MOST_UNSENT && self.send().await.is_err() {
                break Some(Next::End);
            }
        };
        self.received.drain(..at);
        if self.received.capacity() > MOST_UNSENT && self.received.is_empty() {
            self.received = Vec::new(); // which only a long body needed
        }
        if self.send().await.is_err() { Some(Next::End) } else { next }
    }

    /// Whoever is in the middle of a request has other time to send it than to begin one.
    fn wait_for_rest(&self, is_body: bool) {
        let phase = if is_body { Phase::Busy } else { Phase::Head };
        if self.watch.phase() != phase {
            self.watch.enter(phase);
        }
    }

    /// Waits for more. What has come counts before any alarm.
    async fn receive(&mut self) -> Event {
        self.received.reserve(READ);
        let mut reading = pin!(self.io.read_buf(&mut self.received));
        poll_fn(|context| match reading.as_mut().poll(context) {
            Poll::Ready(Ok(1..)) => Poll::Ready(Event::Received),
            Poll::Ready(_) => Poll::Ready(Event::End),
            Poll::Pending => match self.watch.alarm(context) {
                Some(alarm) => Poll::Ready(Event::Alarm(alarm)),
                None if self.watch.phase() == Phase::Busy => {
                    let timeout = self.desk.api.limited_to().body_timeout;
                    let deadline = self.body_deadline.get_or_insert_with(|| Time::tokio().sleep(timeout));
                    Pin::new(deadline).poll(context).map(|()| Event::LateBody)
                }
                None => Poll::Pending,
            },
        })
        .await
    }

    /// Sends all answers.
    async fn send(&mut self) -> io::Result<()> {
        if self.answers.is_empty() {
            return Ok(());
        }
        let Self { io, answers, .. } = self;
        let _unfinished = self.desk.activity.respond();
        let mut sent = 0;
        poll_fn(|context| {
            while sent < answers.len() {
                match ready!(Pin::new(&mut **io).poll_write(context, &answers[sent..]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    more => sent += more,
                }
            }
            Pin::new(&mut **io).poll_flush(context)
        })
        .await?;
        answers.clear();
        answers.shrink_to(MOST_UNSENT);
        Ok(())
    }
}

/// Decides about a check, and adds the answer. Whether it is the last one.
async fn answer<S: Store>(
    desk: &Desk<S>,
    clerk: &mut Clerk<S>,
    plain: &Plain<'_>,
    answers: &mut Vec<u8>,
    date: &Date,
) -> bool {
    let _busy = Busy::new(desk);
    let (limits, meter) = (desk.api.limited_to(), desk.api.meter());
    let answer = match principal_of(plain.authorization, Route::Check, &desk.access) {
        Ok(principal) => {
            clerk.set_caller(principal.caller);
            catch(check(clerk, plain.body, principal.scopes, limits, meter))
                .await
                .unwrap_or_else(|fault| Err(Refusal::fault(&fault.with("path", plain::PATH))))
        }
        Err(refusal) => Err(refusal),
    };
    let mut answer: Response<Bytes> = answer.unwrap_or_else(|refusal| desk.refuse(refusal));
    if desk.stop.is_due() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    push_answer(answers, &answer, Some(date.text.as_bytes()));
    answer.headers().contains_key(CONNECTION) // which answers have only to end it
}

/// The date as answers have it.
#[derive(Debug, Default)]
struct Date {
    clock: DefaultClock,
    second: u64,
    text: String,
}

impl Date {
    /// Looks what time it is.
    fn look(&mut self) {
        let second = self.clock.unix().as_secs();
        if second != self.second {
            self.second = second;
            self.text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
    }
}
