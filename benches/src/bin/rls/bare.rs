//! A service that says OK to everything, as generated ones are made.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate_server::rls::proto::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Says OK to everything, with a status for each descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bare;

impl NamedService for Bare {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<RateLimitResponse, RateLimitRequest>::default());
            Ok(grpc.unary(Always, request).await)
        })
    }
}

struct Always;

impl UnaryService<RateLimitRequest> for Always {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let status = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        let statuses = vec![status; request.get_ref().descriptors.len()];
        let overall_code = Code::Ok.into();
        ready(Ok(Response::new(RateLimitResponse { overall_code, statuses, ..RateLimitResponse::default() })))
    }
}
