//! A connection that speaks gRPC.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::MapErr;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::OwnedSemaphorePermit;
use tollgate::store::Store;
use tollgate_flow::Time;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::{Code, Status};

use super::RlsProtocol;
use super::age::ConnectionAge;
use super::decide::lacking;
use super::health::Health;
use super::kuadrant_proto::rate_limit_service_server as kuadrant;
use super::proto::rate_limit_service_server::{RateLimitServiceServer, SERVICE_NAME};
use super::reflection::Reflection;
use super::service::{Service, TooLarge};
use crate::access::{Access, Principal, Scope, Scopes, bearer};
use crate::http::receive::{Unreceived, discard, receive};
use crate::metrics::{ErrorReason, Meter};
use crate::server::body::{BodyBudget, BodyError, GuardedBody, LimitedBody};
use crate::server::{Activity, Connection};

/// The largest message that is read, in bytes.
pub(super) const LARGEST_MESSAGE: usize = 1024 * 1024;
/// How many bytes the body of a call may have: a message, and the five bytes before it.
const LARGEST_BODY: usize = LARGEST_MESSAGE + 5;
/// How many bytes the body of a request for health or reflection may have: a name.
const LARGEST_NAME: usize = 4 * 1024 + 5;
/// A message without a field, as gRPC frames it.
const EMPTY_MESSAGE: &[u8] = &[0; 5];
/// How many bytes the header fields of a request may have.
const LARGEST_HEAD: u32 = 16 * 1024;
/// How many bytes of responses wait for a slow peer on each stream.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection to its end.
pub(super) async fn serve<S: Store>(connection: Connection<S>, protocol: RlsProtocol) {
    let Connection { stream, clerk, access, stop, activity, .. } = connection;
    let _connected = protocol.meter.connected();
    let limits = protocol.limits;
    let bodies = limits.body_budget().noted_by(&activity);
    let RlsProtocol { options, meter, reflection, has_health, age, .. } = protocol;
    let service = Arc::new(Service::new(clerk, options, Arc::clone(&meter)));
    let rls = RateLimitServiceServer::from_arc(Arc::clone(&service));
    let rls = rls.max_decoding_message_size(LARGEST_MESSAGE);
    let kuadrant =
        kuadrant::RateLimitServiceServer::from_arc(service).max_decoding_message_size(LARGEST_MESSAGE);
    let health = has_health.then(|| Health::new(stop.clone()));
    let routes = Rc::new(Routes { rls, kuadrant, health, reflection, access, meter, activity, bodies });
    let service = service_fn(move |request| Rc::clone(&routes).answer(request));
    let mut http = http2::Builder::new(Here);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(limits.resets)
        .max_header_list_size(LARGEST_HEAD)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(limits.stream_window())
        .initial_connection_window_size(limits.connection_window())
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
        grace = ConnectionAge::reached_if_any(age) => {
            served.as_mut().graceful_shutdown();
            match grace {
                None => served.await,
                Some(grace) => match Time::tokio().timeout(grace, served).await {
                    Ok(ended) => ended,
                    Err(_) => return tracing::debug!("connection closed: its calls did not end within max_connection_age_grace"),
                },
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
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
    kuadrant: kuadrant::RateLimitServiceServer<Service<S>>,
    health: Option<Health>,
    reflection: Option<Reflection>,
    access: Access,
    meter: Arc<Meter>,
    activity: Rc<Activity>,
    bodies: BodyBudget,
}

impl<S: Store> Routes<S> {
    async fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<GuardedBody<Body>>, Infallible> {
        let may_last = request.uri().path() == Health::WATCH;
        if request.body().is_end_stream() {
            self.activity.answered(); // otherwise its body notes when it is complete
        }
        let mut room = None;
        let response = self.route(request, &mut room).await;
        if let Some(reason) = failure(&response) {
            self.meter.failed(reason);
            let (from, protocol) = (self.access.address(), self.meter.protocol());
            let (code, message) = (response.headers().get(GRPC_STATUS), response.headers().get(GRPC_MESSAGE));
            tracing::debug!(protocol, %from, status = %response.status(), ?code, ?message, "request failed");
        }
        let guard = self.activity.respond_early();
        Ok(response.map(|body| {
            if may_last { GuardedBody::unguarded(body) } else { GuardedBody::new(body, guard, room) }
        }))
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        room: &mut Option<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        let for_tonic = |body| -> RequestBody {
            let body = self.bodies.limit(body, LARGEST_NAME);
            body.map_err(|error| status_of(error.into()))
        };
        if !is_grpc(request.headers()) {
            return self.refuse(unlike_grpc(), request).await;
        }
        if let (Some(health), true) = (&self.health, request.uri().path().starts_with(Health::PATH)) {
            return health.clone().answer(request.map(for_tonic)).await;
        }
        let principal = match self.principal(request.headers()) {
            Ok(principal) => principal,
            Err(status) => return self.refuse(status.into_http(), request).await,
        };
        let service = request.uri().path().split('/').nth(1);
        if matches!(service, Some(SERVICE_NAME | kuadrant::SERVICE_NAME)) {
            return self.decide(request, principal, room).await;
        }
        match &self.reflection {
            Some(reflection) if Reflection::serves(request.uri().path()) => {
                reflection.answer(request.map(for_tonic)).await
            }
            _ => {
                let status = Status::unimplemented(format!("unknown method {:?}", request.uri().path()));
                self.refuse(status.into_http(), request).await
            }
        }
    }

    /// Calls the service once the whole body is there: what tonic makes of a message is many times as large, and must not wait for the rest.
    async fn decide(
        &self,
        request: Request<Incoming>,
        principal: Principal,
        room: &mut Option<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let mut body = self.bodies.limit(body, LARGEST_BODY);
        let received = match receive(&mut body, LARGEST_BODY).await {
            Ok(received) => received,
            Err(Unreceived::TooLarge) => {
                discard(&mut body, LARGEST_BODY).await;
                head.extensions.insert(TooLarge);
                Bytes::from_static(EMPTY_MESSAGE)
            }
            Err(why) => return status_of(why).into_http(),
        };
        *room = Some(self.bodies.response(received.len()).await);
        head.extensions.insert(principal);
        let is_kuadrant = head.uri.path().split('/').nth(1) == Some(kuadrant::SERVICE_NAME);
        let request = Request::from_parts(head, Full::new(received));
        let answered = if is_kuadrant {
            self.kuadrant.clone().call(request).await
        } else {
            self.rls.clone().call(request).await
        };
        answered.unwrap_or_else(|never| match never {})
    }

    /// Refuses a call once its body was read: some clients ignore an answer that comes earlier.
    async fn refuse(&self, refusal: Response<Body>, request: Request<Incoming>) -> Response<Body> {
        discard(self.bodies.limit(request.into_body(), LARGEST_BODY), LARGEST_BODY).await;
        refusal
    }

    /// Returns the caller, if it has the scope [`Scope::Check`].
    fn principal(&self, headers: &HeaderMap) -> Result<Principal, Status> {
        let token = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let principal = match token {
            Some(token) => self.access.authenticate(token),
            None => Some(self.access.principal()),
        };
        let is_known = principal.is_some_and(|principal| token.is_some() || principal.scopes != Scopes::NONE);
        match principal.filter(|principal| principal.scopes.has(Scope::Check)) {
            Some(principal) => Ok(principal),
            None if is_known => Err(lacking(Scope::Check)),
            None => Err(Status::unauthenticated(
                "authentication required: send authorization: Bearer TOKEN or a client certificate",
            )),
        }
    }
}

const GRPC_STATUS: &str = "grpc-status";
const GRPC_MESSAGE: &str = "grpc-message";

/// Why a call was not served, if so: such an answer has its status in its head.
fn failure(response: &Response<Body>) -> Option<ErrorReason> {
    match response.headers().get(GRPC_STATUS) {
        Some(code) => ErrorReason::of_code(Code::from_bytes(code.as_bytes())),
        None => ErrorReason::of_status(response.status()),
    }
}

/// Whether a request is one of gRPC. Web pages of other origins cannot send its content type without asking first.
fn is_grpc(headers: &HeaderMap) -> bool {
    let is_grpc = |content_type: &HeaderValue| content_type.as_bytes().starts_with(b"application/grpc");
    headers.get(CONTENT_TYPE).is_some_and(is_grpc)
}

/// The answer to a request that is not one of gRPC, as its specification has it.
fn unlike_grpc() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn status_of(why: Unreceived) -> Status {
    match why {
        Unreceived::TooLarge => Status::out_of_range(format!("the message exceeds {LARGEST_MESSAGE} bytes")),
        Unreceived::TimedOut => Status::deadline_exceeded("request body not complete in time"),
        Unreceived::CutShort => Status::cancelled("incomplete or malformed body"),
    }
}
