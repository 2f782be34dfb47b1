//! The generated service, implemented.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate::store::Store;
use tonic::{Request, Response, Status, async_trait};

use super::RlsOptions;
use super::call::escape_keys;
use super::count::count;
use super::decide::{decide, may_ask};
use super::proto::rate_limit_service_server::RateLimitService;
use super::proto::{RateLimitRequest, RateLimitResponse};
use super::reply::over_limit;
use crate::access::Principal;
use crate::engine::{Clerk, Engine};
use crate::metrics::Meter;

/// Marks a request whose message was too large to be read. Callers choose the values in it, and Envoy would let a call pass that
/// fails, so it is over the limit.
#[derive(Clone, Copy)]
pub(super) struct TooLarge;

/// Decides about the calls of one connection. Each request carries its [`Principal`] as an extension.
pub(super) struct Service<S: Store> {
    engine: Engine<S>,
    /// Those that are not in use. With a store in this process one is enough; with others, calls wait at the same time.
    clerks: Mutex<Vec<Clerk<S>>>,
    options: RlsOptions,
    meter: Arc<Meter>,
}

impl<S: Store> Service<S> {
    pub(super) fn new(clerk: Clerk<S>, options: RlsOptions, meter: Arc<Meter>) -> Self {
        let engine = clerk.engine().clone();
        let clerks = Mutex::new(vec![clerk.for_protocol(meter.protocol())]);
        Self { engine, clerks, options, meter }
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(super) fn options(&self) -> RlsOptions {
        self.options
    }

    pub(super) fn clerk(&self) -> Clerk<S> {
        let idle = self.clerks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| self.engine.clerk().for_protocol(self.meter.protocol()))
    }

    pub(super) fn return_clerk(&self, clerk: Clerk<S>) {
        self.clerks.lock().unwrap_or_else(PoisonError::into_inner).push(clerk);
    }
}

#[async_trait]
impl<S: Store> RateLimitService for Service<S> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let principal: Option<Principal> = request.extensions().get().copied();
        let Principal { caller, scopes } =
            principal.ok_or_else(|| Status::internal("the request has no caller"))?;
        if request.extensions().get::<TooLarge>().is_some() {
            let is_over = !self.options.shadow_mode;
            if is_over {
                let mut clerk = self.clerk();
                clerk.note_denied();
                self.meter.count(clerk.take_calls());
                self.return_clerk(clerk);
            }
            return Ok(Response::new(over_limit(usize::from(is_over), |_| is_over)));
        }
        let mut request = request.into_inner();
        escape_keys(&mut request);
        may_ask(&request, scopes)?;
        let started = self.meter.now();
        let mut clerk = self.clerk();
        clerk.set_caller(caller);
        let decided = decide(&mut clerk, self.options, &request).await;
        self.meter.count(clerk.take_calls());
        if let Ok(response) = &decided {
            count(self.meter.namespaces(), &self.engine, &request, response);
        }
        self.return_clerk(clerk);
        self.meter.observe(1, self.meter.now().since(started));
        decided.map(Response::new)
    }
}
