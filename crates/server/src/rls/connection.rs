//! A connection that speaks gRPC.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tollgate::store::Store;
use tollgate_flow::Time;
use tonic::Status;

use super::call::LARGEST_MESSAGE;
use super::decide::{decide, lacking, may_ask};
use super::health::Health;
use super::messages::{RateLimitRequest, RateLimitResponse};
use super::reflection::Reflection;
use super::unary::{self, Said};
use super::{RlsOptions, RlsProtocol};
use crate::access::{Access, Scope, Scopes};
use crate::engine::{Clerk, Engine};
use crate::http::receive::discard;
use crate::metrics::Meter;
use crate::server::{Connection, Stop};

/// The one method.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How many calls of a connection may be under way. Envoy has one connection for each of its threads.
const MOST_STREAMS: u32 = 1_000;
/// How many of its calls a caller may take back before they were looked at; more of them end the connection.
const MOST_RESETS: usize = 100;
/// How many bytes the fields of a request may have.
const LARGEST_HEAD: u32 = 16 * 1024;
/// How often a silent caller is asked whether it is still there, and how long it may take to say so.
const SILENCE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

/// Serves a connection to its end.
pub(super) async fn serve<S: Store>(connection: Connection<S>, protocol: RlsProtocol) {
    let Connection { stream, clerk, access, stop, .. } = connection;
    let _connected = protocol.meter.connected();
    let desk = Rc::new(Desk::new(clerk, access, stop.clone(), protocol));
    let service = service_fn(move |request| Rc::clone(&desk).answer(request));
    let mut http = http2::Builder::new(Here);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .max_header_list_size(LARGEST_HEAD)
        .keep_alive_interval(SILENCE)
        .keep_alive_timeout(PATIENCE);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.wait() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Starts tasks on the worker whose connection it is.
#[derive(Clone, Copy)]
struct Here;

impl<F: Future<Output = ()> + 'static> Executor<F> for Here {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

/// What is asked. A call is moved about several times before it is decided, so it keeps little of the request that it was.
enum Asked {
    /// Whether a call is over any limit; by whom, and in which message.
    Decision(Scopes, Incoming),
    /// The same by somebody who may not ask.
    Forbidden(Box<(Status, Incoming)>),
    Other(Box<Request<Incoming>>),
}

/// Answers the calls of one connection.
struct Desk<S: Store> {
    engine: Engine<S>,
    /// Those who have nothing to do. With a store in this process one is enough; others are busy while they wait for theirs.
    clerks: RefCell<Vec<Clerk<S>>>,
    time: Time,
    access: Access,
    stop: Stop,
    options: RlsOptions,
    meter: Arc<Meter>,
    reflection: Reflection,
}

impl<S: Store> Desk<S> {
    fn new(clerk: Clerk<S>, access: Access, stop: Stop, protocol: RlsProtocol) -> Self {
        let RlsProtocol { options, meter, reflection } = protocol;
        let (engine, time) = (clerk.engine().clone(), clerk.engine().time().clone());
        Self { engine, clerks: RefCell::new(vec![clerk]), time, access, stop, options, meter, reflection }
    }

    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Said>, Infallible>> {
        let asked = match self.scopes(request.headers()) {
            _ if request.uri().path() != SHOULD_RATE_LIMIT => Asked::Other(Box::new(request)),
            Ok(scopes) => Asked::Decision(scopes, request.into_body()),
            Err(status) => Asked::Forbidden(Box::new((status, request.into_body()))),
        };
        async move {
            let decided = match asked {
                Asked::Decision(scopes, body) => self.should_rate_limit(scopes, body).await,
                Asked::Forbidden(call) => Err(refuse(call.0, call.1).await),
                Asked::Other(request) => return Ok(Box::pin(self.answer_other(*request)).await),
            };
            Ok(match decided {
                Ok(response) => unary::answer(&response),
                Err(status) => Said::other(status.into_http()),
            })
        }
    }

    async fn answer_other(&self, request: Request<Incoming>) -> Response<Said> {
        Said::other(match request.uri().path() {
            path if path.starts_with(Health::PATH) => Health::new(self.stop.clone()).answer(request).await,
            path if Reflection::serves(path) => self.reflection.answer(request).await,
            path => {
                let status = Status::unimplemented(format!("there is no {path:?} here"));
                refuse(status, request.into_body()).await.into_http()
            }
        })
    }

    async fn should_rate_limit(&self, scopes: Scopes, body: Incoming) -> Result<RateLimitResponse, Status> {
        let request: RateLimitRequest = unary::read(body, LARGEST_MESSAGE).await?;
        may_ask(&request, scopes)?;
        let started = self.meter.now();
        let idle = self.clerks.borrow_mut().pop();
        let mut clerk = idle.unwrap_or_else(|| self.engine.clerk());
        let decided = decide(&mut clerk, &self.time, self.options, &request).await;
        self.clerks.borrow_mut().push(clerk);
        self.meter.observe(1, self.meter.now().since(started));
        decided
    }

    /// What the caller may do. Without any of it, there is no need to read on.
    fn scopes(&self, headers: &HeaderMap) -> Result<Scopes, Status> {
        let token = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let scopes = match token {
            Some(token) => self.access.with_token(token),
            None => Some(self.access.scopes()),
        };
        let is_known = scopes.is_some() && (token.is_some() || scopes != Some(Scopes::NONE));
        match scopes.filter(|scopes| scopes.has(Scope::Check)) {
            Some(scopes) => Ok(scopes),
            None if is_known => Err(lacking(Scope::Check)),
            None => Err(Status::unauthenticated(
                "say who you are: authorization: Bearer TOKEN, or by a certificate",
            )),
        }
    }
}

/// Refuses a call when all of it has come.
async fn refuse(status: Status, body: Incoming) -> Status {
    let _ = Time::tokio().timeout(PATIENCE, discard(body, LARGEST_MESSAGE)).await; // whoever is later than that is told all the same
    status
}

/// The token in the value of `authorization`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}
