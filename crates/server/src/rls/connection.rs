//! A connection that speaks gRPC.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::MapErr;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tollgate::store::Store;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;

use super::RlsProtocol;
use super::decide::lacking;
use super::health::Health;
use super::proto::rate_limit_service_server::{RateLimitServiceServer, SERVICE_NAME};
use super::reflection::Reflection;
use super::service::Service;
use crate::access::{Access, Principal, Scope, Scopes, bearer};
use crate::http::receive::discard;
use crate::server::body::{BodyBudget, BodyError, GuardedBody, LimitedBody};
use crate::server::{Activity, Connection};

/// The largest message that is read, in bytes.
pub(super) const LARGEST_MESSAGE: usize = 1024 * 1024;
/// How many bytes stand before a message.
const FRAME: usize = 5;
/// How many bytes the header fields of a request may have.
const LARGEST_HEAD: u32 = 16 * 1024;
/// How many bytes of responses wait for a slow peer on each stream.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection to its end.
pub(super) async fn serve<S: Store>(connection: Connection<S>, protocol: RlsProtocol) {
    let Connection { stream, clerk, access, stop, activity, .. } = connection;
    let _connected = protocol.meter.connected();
    let limits = protocol.limits;
    let bodies = BodyBudget::new(limits.connection_body_bytes, LARGEST_MESSAGE + FRAME, limits.body_timeout);
    let RlsProtocol { options, meter, reflection, has_health, .. } = protocol;
    let rls = RateLimitServiceServer::new(Service::new(clerk, options, meter));
    let rls = rls.max_decoding_message_size(LARGEST_MESSAGE);
    let health = has_health.then(|| Health::new(stop.clone()));
    let routes = Rc::new(Routes { rls, health, reflection, access, activity, bodies });
    let service = service_fn(move |request| Rc::clone(&routes).answer(request));
    let mut http = http2::Builder::new(Here);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(limits.resets)
        .max_header_list_size(LARGEST_HEAD)
        .max_send_buf_size(SEND_BUFFER)
        // A peer that is there answers before the idle time-out.
        .keep_alive_interval(limits.idle_timeout * 3 / 4)
        .keep_alive_timeout(limits.idle_timeout / 4);
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

/// The body of a request, as tonic reads it.
pub(super) type RequestBody = MapErr<LimitedBody<Incoming>, fn(BodyError) -> Status>;

/// The services of one connection.
struct Routes<S: Store> {
    rls: RateLimitServiceServer<Service<S>>,
    health: Option<Health>,
    reflection: Option<Reflection>,
    access: Access,
    activity: Rc<Activity>,
    bodies: BodyBudget,
}

impl<S: Store> Routes<S> {
    async fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<GuardedBody<Body>>, Infallible> {
        let may_last = request.uri().path() == Health::WATCH;
        let response = self.route(request.map(|body| self.bodies.limit(body))).await;
        let guard = self.activity.respond();
        Ok(response.map(|body| GuardedBody { body, _guard: (!may_last).then_some(guard) }))
    }

    async fn route(&self, mut request: Request<LimitedBody<Incoming>>) -> Response<Body> {
        if let (Some(health), true) = (&self.health, request.uri().path().starts_with(Health::PATH)) {
            return health.clone().answer(request.map(for_tonic)).await;
        }
        let principal = match self.principal(request.headers()) {
            Ok(principal) => principal,
            Err(status) => return refuse(status, request).await,
        };
        let service = request.uri().path().split('/').nth(1);
        if service == Some(SERVICE_NAME) {
            request.extensions_mut().insert(principal);
            let answered = self.rls.clone().call(request.map(for_tonic)).await;
            return answered.unwrap_or_else(|never| match never {});
        }
        match &self.reflection {
            Some(reflection) if Reflection::serves(request.uri().path()) => {
                reflection.answer(request.map(for_tonic)).await
            }
            _ => {
                let status = Status::unimplemented(format!("there is no {:?} here", request.uri().path()));
                refuse(status, request).await
            }
        }
    }

    /// Who the caller is, if it has the scope [`Scope::Check`].
    fn principal(&self, headers: &HeaderMap) -> Result<Principal, Status> {
        let token = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let principal = match token {
            Some(token) => self.access.principal_with(token),
            None => Some(self.access.principal()),
        };
        let is_known = principal.is_some_and(|principal| token.is_some() || principal.scopes != Scopes::NONE);
        match principal.filter(|principal| principal.scopes.has(Scope::Check)) {
            Some(principal) => Ok(principal),
            None if is_known => Err(lacking(Scope::Check)),
            None => Err(Status::unauthenticated(
                "say who you are: authorization: Bearer TOKEN, or by a certificate",
            )),
        }
    }
}

fn for_tonic(body: LimitedBody<Incoming>) -> RequestBody {
    body.map_err(|error| match error {
        BodyError::TimedOut => Status::deadline_exceeded(error.to_string()),
        BodyError::Failed(error) => Status::from_error(Box::new(error)),
    })
}

/// Refuses a call once its body was read: some clients ignore an answer that comes earlier.
async fn refuse(status: Status, request: Request<LimitedBody<Incoming>>) -> Response<Body> {
    discard(request.into_body(), LARGEST_MESSAGE).await;
    status.into_http()
}
