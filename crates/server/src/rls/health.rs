//! `grpc.health.v1.Health`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::body::Body;
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::{Service, async_trait};
use tonic::{Request as Asked, Response as Answer, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health as Serves, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::connection::RequestBody;
use crate::server::Stop;

/// The services that can be asked about: all of them, Envoy's, Envoy's as envoyproxy/ratelimit calls it, and limitador's.
const NAMES: [&str; 4] = [
    "",
    "envoy.service.ratelimit.v3.RateLimitService",
    "ratelimit",
    "kuadrant.service.ratelimit.v1.RateLimitService",
];

/// How many bytes a request may have, which is the name of a service.
const LARGEST_REQUEST: usize = 4 * 1024;

/// Says that it serves until the server is about to stop.
#[derive(Clone, Debug)]
pub(super) struct Health {
    stop: Stop,
}

impl Health {
    /// How the paths of its methods begin.
    pub(super) const PATH: &str = "/grpc.health.v1.Health/";
    /// The method whose response lasts until the server stops.
    pub(super) const WATCH: &str = "/grpc.health.v1.Health/Watch";

    pub(super) fn new(stop: Stop) -> Self {
        Self { stop }
    }

    pub(super) async fn answer(self, request: Request<RequestBody>) -> Response<Body> {
        let mut server = HealthServer::new(self).max_decoding_message_size(LARGEST_REQUEST);
        let answered = server.call(request).await;
        answered.unwrap_or_else(|never| match never {})
    }

    fn status(&self) -> HealthCheckResponse {
        let status = if self.stop.is_leaving() { ServingStatus::NotServing } else { ServingStatus::Serving };
        HealthCheckResponse { status: status.into() }
    }
}

#[async_trait]
impl Serves for Health {
    type WatchStream = Watch;

    async fn check(&self, asked: Asked<HealthCheckRequest>) -> Result<Answer<HealthCheckResponse>, Status> {
        let name = &asked.get_ref().service;
        if NAMES.contains(&name.as_str()) {
            return Ok(Answer::new(self.status()));
        }
        Err(Status::not_found(format!("unknown service {name:?}")))
    }

    async fn watch(&self, asked: Asked<HealthCheckRequest>) -> Result<Answer<Watch>, Status> {
        let is_known = NAMES.contains(&asked.get_ref().service.as_str());
        let unknown = HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() };
        let first = if is_known { self.status() } else { unknown };
        let health = self.clone();
        let end = Box::pin(async move {
            health.stop.wait_leaving().await;
            health.status()
        });
        Ok(Answer::new(Watch { first: Some(first), end: Some(end) }))
    }
}

/// How things stand, and once more when that changes, which it does once.
pub(super) struct Watch {
    first: Option<HealthCheckResponse>,
    end: Option<Pin<Box<dyn Future<Output = HealthCheckResponse> + Send>>>,
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let last = std::task::ready!(end.as_mut().poll(context));
        self.end = None;
        Poll::Ready(Some(Ok(last)))
    }
}
