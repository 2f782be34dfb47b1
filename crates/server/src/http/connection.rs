//! Serving a connection.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tollgate::store::Store;
use tollgate_flow::Time;
use tollgate_flow::fault::catch;

use super::api::{Asked, HttpApi};
use super::caller::{is_proven, principal_of};
use super::express;
use super::hosts::{host_of, same_origin, unknown_host};
use super::receive::{Unreceived, discard, receive};
use super::refusal::Refusal;
use super::route::Route;
use super::text::push_answer;
use super::watch::{Alarm, Phase, Watch};
use super::watched::Watched;
use crate::access::{Access, Principal};
use crate::engine::{Clerk, Engine};
use crate::metrics::{ErrorReason, Meter};
use crate::server::body::{BodyBudget, GuardedBody};
use crate::server::{Activity, Connection, Stop};

/// Serves a connection to its end.
pub(super) async fn serve<S: Store>(api: Arc<HttpApi>, connection: Connection<S>) {
    let Connection { stream, access, clerk, stop, activity, .. } = connection;
    let _connected = api.meter().connected();
    let watch = Watch::new();
    let _watcher = watch.start(*api.limited_to(), stop.clone());
    let mut io = Watched::new(stream, Rc::clone(&watch));
    let is_http2 = match first(io.is_http2(), &watch).await {
        First::Known(Ok(is_http2)) => is_http2,
        First::Late => return say_late(io, api.meter()).await,
        First::Known(Err(_)) | First::Over => return,
    };
    let desk = Rc::new(Desk::new(api, access, clerk, stop, activity, Rc::clone(&watch)));
    if is_http2 {
        return serve_http2(io, &desk, &watch).await;
    }
    let next = if desk.api.has(Route::Check) {
        express::serve(&mut io, &desk, &watch).await
    } else {
        express::Next::LongWay
    };
    match next {
        express::Next::LongWay => serve_http1(io, &desk, &watch).await,
        express::Next::Refused(refusal) => say_last(io, refusal, desk.api.meter()).await,
        express::Next::End => _ = io.shutdown().await, // from which nobody can keep us
    }
}

/// What came of the first bytes.
enum First<T> {
    Known(T),
    Late,
    Over,
}

async fn first<F: Future>(reading: F, watch: &Watch) -> First<F::Output> {
    let mut reading = pin!(reading);
    poll_fn(|context| match watch.alarm(context) {
        None => reading.as_mut().poll(context).map(First::Known),
        Some(Alarm::Late) => Poll::Ready(First::Late),
        Some(Alarm::Stop) => Poll::Ready(First::Over),
    })
    .await
}

async fn serve_http1<S: Store>(io: Watched, desk: &Rc<Desk<S>>, watch: &Watch) {
    let limits = desk.api.limited_to();
    let mut builder = http1::Builder::new();
    // Twice what is admitted, so that most of what is too large is told so by us. The buffer has a least size.
    builder.max_headers(limits.headers.saturating_mul(2));
    builder.max_buf_size(limits.header_bytes.saturating_mul(2).max(64 * 1024));
    let service = service_fn(|request| Rc::clone(desk).serve(request));
    let mut connection = builder.serve_connection(TokioIo::new(io), service);
    let shut_down = |connection: Pin<&mut http1::Connection<_, _>>| connection.graceful_shutdown();
    if let Ending::Late = attend(Pin::new(&mut connection), shut_down, watch, desk.api.meter()).await {
        say_late(connection.into_parts().io.into_inner(), desk.api.meter()).await;
    }
}

async fn serve_http2<S: Store>(io: Watched, desk: &Rc<Desk<S>>, watch: &Watch) {
    watch.enter(Phase::Idle);
    let limits = desk.api.limited_to();
    let mut builder = http2::Builder::new(LocalExecutor);
    builder.timer(TokioTimer::new());
    builder.max_concurrent_streams(limits.streams);
    builder.max_pending_accept_reset_streams(limits.resets);
    builder.max_local_error_reset_streams(limits.resets);
    builder.max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX).saturating_mul(2));
    builder.initial_stream_window_size(limits.stream_window());
    builder.initial_connection_window_size(limits.connection_window());
    let (desk, meter) = (Rc::clone(desk), Arc::clone(desk.api.meter()));
    let service = service_fn(move |request| Rc::clone(&desk).serve(request));
    let connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let _ = attend(connection, http2::Connection::graceful_shutdown, watch, &meter).await;
}

/// How a connection ended.
enum Ending {
    /// By itself.
    Over,
    /// The head of a request took too long.
    Late,
}

/// Serves until the end, or until somebody takes too long.
async fn attend<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    watch: &Watch,
    meter: &Meter,
) -> Ending {
    poll_fn(|context| {
        match watch.alarm(context) {
            None => {}
            Some(Alarm::Stop) => shut_down(connection.as_mut()),
            Some(Alarm::Late) => return Poll::Ready(Ending::Late),
        }
        connection.as_mut().poll(context).map(|ended| {
            // The caller is told by the protocol, if at all.
            if ended.is_err_and(|error| error.is_parse()) {
                meter.failed(ErrorReason::BadRequest);
            }
            Ending::Over
        })
    })
    .await
}

/// Answers a request whose headers were not complete in time with status 408.
async fn say_late(io: Watched, meter: &Meter) {
    let late = Refusal::last(StatusCode::REQUEST_TIMEOUT, "request headers not complete in time");
    say_last(io, late, meter).await;
}

/// Tells a caller something, and ends. If what it still sends were not read, it would not get to see that.
async fn say_last(mut io: Watched, refusal: Refusal, meter: &Meter) {
    refusal.note(meter);
    let (mut text, mut ignored) = (Vec::new(), vec![0; 8 * 1024]);
    push_answer(&mut text, &refusal.answer(), None);
    let said = async {
        io.write_all(&text).await?;
        io.shutdown().await?;
        for _ in 0..MOST_IGNORED / ignored.len() {
            if io.read(&mut ignored).await? == 0 {
                break;
            }
        }
        std::io::Result::Ok(())
    };
    let _ = Time::tokio().timeout(LAST_WORDS, said).await; // a caller who does not listen does not learn it
}

/// How much is read and thrown away after the last words.
const MOST_IGNORED: usize = 1024 * 1024;

/// How long it may take to say goodbye.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the requests of a connection share.
pub(super) struct Desk<S: Store> {
    pub(super) api: Arc<HttpApi>,
    pub(super) access: Access,
    engine: Engine<S>,
    /// Those who decide and have nothing to do. HTTP/2 may need several at once.
    clerks: RefCell<Vec<Clerk<S>>>,
    pub(super) stop: Stop,
    pub(super) activity: Rc<Activity>,
    bodies: BodyBudget,
    /// Held by an answer that waits for room in the budget.
    turn: Mutex<()>,
    /// The host that was allowed last: most connections name one.
    known_host: RefCell<Option<Vec<u8>>>,
    watch: Rc<Watch>,
    requests: Cell<usize>,
}

impl<S: Store> Desk<S> {
    fn new(
        api: Arc<HttpApi>,
        access: Access,
        clerk: Clerk<S>,
        stop: Stop,
        activity: Rc<Activity>,
        watch: Rc<Watch>,
    ) -> Self {
        let engine = clerk.engine().clone();
        let clerks = RefCell::new(vec![clerk.for_protocol(api.meter().protocol())]);
        let bodies = api.limited_to().body_budget().noted_by(&activity);
        let (known_host, requests) = (RefCell::default(), Cell::new(0));
        let turn = Mutex::default();
        Self { api, access, engine, clerks, stop, activity, bodies, turn, known_host, watch, requests }
    }

    /// Answers a request, whatever happens.
    async fn serve(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<GuardedBody<Full<Bytes>>>, Infallible> {
        let _busy = Busy::new(&self);
        let (head, body) = request.into_parts();
        let mut room = None;
        let answer = match catch(self.answer(&head, body, &mut room)).await {
            Ok(answer) => answer,
            Err(fault) => Err(Refusal::fault(&fault.with("path", head.uri.path()))),
        };
        let mut answer = answer.unwrap_or_else(|refusal| self.refuse(refusal));
        if head.version == Version::HTTP_2 {
            answer.headers_mut().remove(CONNECTION);
        } else if self.stop.is_due() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let guard = self.activity.respond();
        Ok(answer.map(|body| GuardedBody::new(Full::new(body), guard, room)))
    }

    async fn answer(
        &self,
        head: &Parts,
        body: Incoming,
        room: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Response<Bytes>, Refusal> {
        let most = self.api.limited_to().body_bytes;
        let (route, principal) = match self.admit(head) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                // Over HTTP/2 the answer could get lost if the rest were not read.
                if head.version == Version::HTTP_2 {
                    discard(&mut self.bodies.limit(body, most), most).await;
                }
                return Err(refusal);
            }
        };
        if !route.is_post() {
            // Only the answer itself shows how much room it needs: so one at a time may be there and have none.
            let _turn = self.turn.lock().await;
            let answer = self.reply(route, head, &[], principal).await?;
            *room = Some(self.bodies.room(answer.body().len()).await);
            return Ok(answer);
        }
        // It keeps its part of the budget until the request is answered.
        let mut body = self.bodies.limit(body, most);
        let received = receive(&mut body, most).await.map_err(|why| self.unreceived(why))?;
        *room = Some(self.bodies.response(received.len()).await);
        self.reply(route, head, &received, principal).await
    }

    async fn reply(
        &self,
        route: Route,
        head: &Parts,
        body: &[u8],
        principal: Principal,
    ) -> Result<Response<Bytes>, Refusal> {
        self.activity.answered();
        let mut clerk = self.clerk();
        let asked =
            Asked { head, body, principal, access: Some(&self.access), is_leaving: self.stop.is_leaving() };
        let answer = self.api.reply(route, &mut clerk, asked).await;
        self.return_clerk(clerk);
        answer
    }

    /// Which request it is, and who its caller is.
    fn admit(&self, head: &Parts) -> Result<(Route, Principal), Refusal> {
        let host = host_of(head)?;
        let route = self.api.admit(head)?;
        if route.is_post() {
            same_origin(head, host)?;
        }
        let authorization = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let principal = principal_of(authorization, route, &self.access)?;
        match host {
            Some(host) if !self.may_name(host, route, authorization) => Err(unknown_host(host)),
            _ => Ok((route, principal)),
        }
    }

    /// Whether a client may name a host: any if it proves who it is or asks whether we are there, else one of ours.
    pub(super) fn may_name(&self, host: &[u8], route: Route, authorization: Option<&[u8]>) -> bool {
        if self.known_host.borrow().as_deref() == Some(host) {
            return true;
        }
        if self.api.hosts().allows(host) {
            self.known_host.replace(Some(host.to_vec()));
            return true;
        }
        is_proven(authorization, &self.access) || route.is_probe()
    }

    /// Counts and logs a failed request, and returns its response.
    pub(super) fn refuse(&self, refusal: Refusal) -> Response<Bytes> {
        let (protocol, from) = (self.access.protocol(), self.access.address());
        refusal.note(self.api.meter());
        tracing::debug!(protocol, %from, status = %refusal.status(), why = refusal.detail(), "request failed");
        refusal.answer()
    }

    pub(super) fn clerk(&self) -> Clerk<S> {
        let clerk = self.clerks.borrow_mut().pop();
        clerk.unwrap_or_else(|| self.engine.clerk().for_protocol(self.api.meter().protocol()))
    }

    pub(super) fn return_clerk(&self, clerk: Clerk<S>) {
        self.clerks.borrow_mut().push(clerk);
    }

    fn unreceived(&self, why: Unreceived) -> Refusal {
        let most = self.api.limited_to().body_bytes;
        match why {
            Unreceived::TooLarge => {
                let detail = format!("the body exceeds {most} bytes");
                Refusal::last(StatusCode::PAYLOAD_TOO_LARGE, detail)
            }
            Unreceived::TimedOut => late_body(),
            Unreceived::CutShort => Refusal::last(StatusCode::BAD_REQUEST, "incomplete or malformed body"),
        }
    }
}

pub(super) fn late_body() -> Refusal {
    Refusal::last(StatusCode::REQUEST_TIMEOUT, "request body not complete in time")
}

/// A request that is being answered.
pub(super) struct Busy<'a, S: Store>(&'a Desk<S>);

impl<'a, S: Store> Busy<'a, S> {
    pub(super) fn new(desk: &'a Desk<S>) -> Self {
        desk.requests.set(desk.requests.get() + 1);
        desk.watch.enter(Phase::Busy);
        Self(desk)
    }
}

impl<S: Store> Drop for Busy<'_, S> {
    fn drop(&mut self) {
        let left = self.0.requests.get() - 1;
        self.0.requests.set(left);
        if left == 0 {
            self.0.watch.enter(Phase::Idle);
        }
    }
}

/// Runs what HTTP/2 does beside the connection, in the same thread.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}
