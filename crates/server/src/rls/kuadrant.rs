//! limitador's own service, which checks and reports in two calls.

use smallvec::{SmallVec, smallvec};
use tollgate::store::Store;
use tonic::{Request, Response, Status, async_trait};

use super::call::{self, escape_keys};
use super::decide::lacking;
use super::kuadrant_proto::rate_limit_service_server::RateLimitService;
use super::proto::{Code, HeaderValue, RateLimitRequest, RateLimitResponse};
use super::service::{Service, TooLarge};
use crate::access::{Principal, Scope};
use crate::engine::{AskError, Clerk};
use crate::limitador::{Action, Descriptors, Verdict, decide};
use crate::metrics::Counted;

#[async_trait]
impl<S: Store> RateLimitService for Service<S> {
    async fn check_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.act(Action::Check, request).await
    }

    async fn report(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.act(Action::Report, request).await
    }
}

impl<S: Store> Service<S> {
    async fn act(
        &self,
        action: Action,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let principal: Option<Principal> = request.extensions().get().copied();
        let Principal { caller, scopes } =
            principal.ok_or_else(|| Status::internal("the request has no principal"))?;
        if action == Action::Report && !scopes.has(Scope::Settle) {
            return Err(lacking(Scope::Settle));
        }
        if request.extensions().get::<TooLarge>().is_some() {
            return Ok(Response::new(response(Code::OverLimit)));
        }
        let mut request = request.into_inner();
        if request.domain.is_empty() {
            return Ok(Response::new(RateLimitResponse::default()));
        }
        escape_keys(&mut request);
        let started = self.meter().now();
        let mut clerk = self.clerk();
        clerk.set_caller(caller);
        let answered = self.answer(&mut clerk, action, &request).await;
        self.meter().count(clerk.take_calls());
        self.return_clerk(clerk);
        self.meter().observe(1, self.meter().now().since(started));
        answered.map(Response::new)
    }

    async fn answer(
        &self,
        clerk: &mut Clerk<S>,
        action: Action,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        let descriptors: Descriptors<'_> = if request.descriptors.is_empty() {
            smallvec![SmallVec::new()]
        } else {
            call::read(request)?.into_iter().map(|wish| wish.fields).collect()
        };
        let hits = if action == Action::Check { 1 } else { request.hits_addend.max(1) };
        let verdict = match decide(clerk, action, &request.domain, &descriptors, hits.into()).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) => return Err(Status::unavailable("the store is unavailable")),
            Err(AskError::BadValue { .. }) => return Ok(response(Code::OverLimit)),
            Err(error) => return Err(Status::unavailable(error.to_string())),
        };
        self.count(clerk, action, request, &verdict);
        let is_allowed = verdict.is_allowed || self.options().shadow_mode;
        let mut response = response(if is_allowed { Code::Ok } else { Code::OverLimit });
        if self.options().limitador_headers {
            let field = |(key, value): (&str, String)| HeaderValue { key: key.to_owned(), value };
            response.response_headers_to_add = verdict.fields.into_iter().map(field).collect();
        }
        Ok(response)
    }

    /// Counts as limitador does: a check is a call without hits, a report has hits and is no call.
    fn count(&self, clerk: &Clerk<S>, action: Action, request: &RateLimitRequest, verdict: &Verdict) {
        let counted = match action {
            Action::Report => Counted::Authorized { is_call: false, hits: request.hits_addend.max(1).into() },
            Action::Check | Action::CheckAndReport => Counted::call(verdict.is_allowed, 0, &verdict.limit),
        };
        let is_known = || clerk.engine().loaded().policy().has_domain(&request.domain);
        self.meter().namespaces().count(&request.domain, counted, is_known);
    }
}

/// A response as limitador writes them, which have no statuses.
fn response(code: Code) -> RateLimitResponse {
    RateLimitResponse { overall_code: code.into(), ..RateLimitResponse::default() }
}
