//! The API without connections: a request in, an answer out.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use serde::Serialize;
use smallvec::SmallVec;
use tollgate::store::Store;

use super::body::{ActualCost, read_settlement, read_target};
use super::check::{check, with_subject};
use super::hosts::Hosts;
use super::limitador::{self, Endpoint};
use super::limits::HttpLimits;
use super::listing::{Limits, PolicyShown, ResetShown, TopKeys};
use super::query::Query;
use super::refusal::Refusal;
use super::route::{RlsRoutes, Route};
use crate::access::{Access, Principal, Scopes};
use crate::audit;
use crate::engine::{Actual, Clerk, Engine};
use crate::metrics::{ErrorReason, Meter, Metrics, TextFormat};
use crate::rls::{self, RlsOptions};

/// What the API understands, for programs to read.
const OPENAPI: &str = include_str!("openapi.json");

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The API without connections: a request in, an answer out.
///
/// # Examples
/// ```
/// use tollgate::store::MemoryStore;
/// use tollgate_policy::Policy;
/// use tollgate_server::{Engine, HttpApi, Metrics, Origin};
///
/// let policy = Policy::parse("limits.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"1/min\"\n")?;
/// let engine = Engine::new(MemoryStore::new(), policy, Origin::default());
/// let (api, mut clerk) = (HttpApi::new(Metrics::new()), engine.clerk());
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// for status in [200, 429] {
///     let body = r#"{"descriptor": {"ip": "10.0.0.7"}}"#;
///     let request = http::Request::post("/v1/check").header("content-type", "application/json").body(body.into())?;
///     assert_eq!(api.answer(&mut clerk, request).await.status(), status);
/// }
/// # Ok::<_, http::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HttpApi {
    limits: HttpLimits,
    scopes: Scopes,
    rls: Option<RlsOptions>,
    is_limitador: bool,
    has_rls_debug: bool,
    hosts: Hosts,
    ready_needs: ReadyNeeds,
    metrics: Metrics,
    meter: Arc<Meter>,
}

impl HttpApi {
    /// All of the API, with the default limits.
    pub fn new(metrics: Metrics) -> Self {
        let meter = metrics.meter("http");
        Self {
            limits: HttpLimits::default(),
            scopes: Scopes::ALL,
            rls: None,
            is_limitador: false,
            has_rls_debug: false,
            hosts: Hosts::default(),
            ready_needs: ReadyNeeds::default(),
            metrics,
            meter,
        }
    }

    /// With other limits.
    #[must_use]
    pub fn limits(self, limits: HttpLimits) -> Self {
        Self { limits, ..self }
    }

    /// Only what needs one of these scopes, and what is open to all: the rest is not there.
    #[must_use]
    pub fn scopes(self, scopes: Scopes) -> Self {
        Self { scopes, ..self }
    }

    /// Also with `/json` and `GET /healthcheck`, as Envoy's own rate limit service has them.
    #[must_use]
    pub fn rls(self, options: RlsOptions) -> Self {
        Self { rls: Some(options), ..self }
    }

    /// limitador's HTTP API in place of this one, measured as the protocol `limitador`.
    ///
    /// # Examples
    /// ```
    /// use tollgate_server::{HttpApi, HttpProtocol, Metrics};
    ///
    /// let protocol = HttpProtocol::new(HttpApi::new(Metrics::new()).limitador());
    /// ```
    #[must_use]
    pub fn limitador(self) -> Self {
        Self { is_limitador: true, meter: self.metrics.meter("limitador"), ..self }
    }

    /// Also with `GET /rlconfig`, `GET /stats` and `GET /healthcheck`, as the debug port of Envoy's own rate limit service has them.
    #[must_use]
    pub fn rls_debug(self, has_rls_debug: bool) -> Self {
        Self { has_rls_debug, ..self }
    }

    /// The same, known by these names too, for clients that do not prove who they are.
    #[must_use]
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    /// The same, ready only while these needs are met too.
    #[must_use]
    pub fn ready_needs(self, ready_needs: ReadyNeeds) -> Self {
        Self { ready_needs, ..self }
    }

    /// Answers a request of somebody who may do all of it.
    ///
    /// # Cancel safety
    /// What had been taken by then stays taken.
    pub async fn answer<S: Store>(&self, clerk: &mut Clerk<S>, request: Request<Bytes>) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        let answer = match self.admit(&head) {
            Ok(route) => {
                let principal = Principal { caller: clerk.caller(), scopes: Scopes::ALL };
                let asked = Asked { head: &head, body: &body, principal, access: None, is_leaving: false };
                self.reply(route, clerk, asked).await
            }
            Err(refusal) => Err(refusal),
        };
        answer.unwrap_or_else(Refusal::answer)
    }

    /// Whether a route is there.
    pub(super) fn has(&self, route: Route) -> bool {
        !self.is_limitador && route.is_among(self.scopes, self.rls_routes())
    }

    pub(super) fn limited_to(&self) -> &HttpLimits {
        &self.limits
    }

    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Which request it is, if its head makes sense.
    pub(super) fn admit(&self, head: &Parts) -> Result<Route, Refusal> {
        has_fitting_headers(head, &self.limits)?;
        if self.is_limitador {
            let route = Endpoint::find(head, self.scopes)?;
            // limitador answers another content type like a body that is not JSON.
            let is_fitting = !route.is_post() || has_json(head).is_ok();
            let bad = "the content type is not application/json";
            return if is_fitting { Ok(route) } else { Err(Refusal::bad(bad)) };
        }
        let route = Route::find(head, self.scopes, self.rls_routes())?;
        // Where Envoy's own service does not look at the content type, people send any.
        let is_checked = route.is_post() && route != Route::RateLimit;
        if is_checked { has_json(head).map(|()| route) } else { Ok(route) }
    }

    fn rls_routes(&self) -> RlsRoutes {
        RlsRoutes { calls: self.rls.is_some(), debug: self.has_rls_debug }
    }

    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Answers a request that was admitted.
    pub(super) async fn reply<S: Store>(
        &self,
        route: Route,
        clerk: &mut Clerk<S>,
        asked: Asked<'_>,
    ) -> Result<Response<Bytes>, Refusal> {
        let Asked { head, body, principal, access, is_leaving } = asked;
        clerk.set_caller(principal.caller);
        let query = |known: &'static [&'static str]| Query::read(head.uri.query(), known);
        match route {
            Route::Check => {
                query(&[])?;
                check(clerk, body, principal.scopes, &self.limits, &self.meter).await
            }
            Route::Settle => {
                query(&[])?;
                settle(clerk, body, &self.limits).await
            }
            Route::Reset => {
                query(&[])?;
                self.reset(clerk, body, access).await
            }
            Route::Limits => Ok(json(&Limits::page(clerk.engine(), &query(Limits::PARAMETERS)?)?)),
            Route::TopKeys => Ok(json(&TopKeys::of(clerk.engine(), &query(TopKeys::PARAMETERS)?).await?)),
            Route::Policy => query(&[]).map(|_| json(&PolicyShown::of(clerk.engine()))),
            Route::OpenApi => Ok(answer(JSON, OPENAPI)),
            Route::Health => Ok(answer(JSON, r#"{"status":"ok"}"#)),
            Route::Ready => self.ready(clerk.engine(), is_leaving).await,
            Route::RateLimit => Ok(self.rate_limit(clerk, principal.scopes, body).await),
            Route::RateLimitHealth => {
                let (status, text) = rls::healthcheck(is_leaving);
                Ok(with_status(status, HeaderValue::from_static("text/plain"), text))
            }
            Route::Limitador(endpoint) => {
                limitador::reply(endpoint, clerk, asked, &self.limits, &self.meter).await
            }
            Route::RateLimitConfig => Ok(answer(TEXT, rls::debug::config(clerk.engine().loaded().policy()))),
            Route::RateLimitStats => Ok(answer(TEXT, rls::debug::stats(clerk.engine()))),
            Route::Metrics => {
                let format =
                    TextFormat::preferred(head.headers.get_all(ACCEPT).iter().map(HeaderValue::as_bytes));
                let content_type = HeaderValue::from_static(format.content_type());
                Ok(answer(content_type, self.metrics.text_in(format, clerk.engine()).await))
            }
        }
    }

    async fn rate_limit<S: Store>(
        &self,
        clerk: &mut Clerk<S>,
        scopes: Scopes,
        body: &[u8],
    ) -> Response<Bytes> {
        let started = self.meter.now();
        let (options, namespaces) = (self.rls.unwrap_or_default(), Some(self.meter.namespaces()));
        let (status, answer) = rls::answer_json(clerk, options, scopes, body, namespaces).await;
        self.meter.count(clerk.take_calls());
        self.meter.observe(1, self.meter.now().since(started));
        if let Some(reason) = ErrorReason::of_status(status) {
            self.meter.failed(reason);
        }
        if matches!(status, StatusCode::OK | StatusCode::TOO_MANY_REQUESTS) {
            return with_status(status, JSON, answer);
        }
        let mut failed = with_status(status, HeaderValue::from_static("text/plain; charset=utf-8"), answer);
        failed.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        failed
    }

    async fn reset<S: Store>(
        &self,
        clerk: &mut Clerk<S>,
        body: &[u8],
        access: Option<&Access>,
    ) -> Result<Response<Bytes>, Refusal> {
        let target = read_target(body, &self.limits)?;
        let engine = clerk.engine().clone();
        let mut resets = Vec::new();
        let reset =
            with_subject(clerk, &target, async |_, subject| engine.reset(&subject, &mut resets).await).await;
        audit::reset(access, clerk.caller(), engine.decision_log(), &resets);
        reset.map_err(Refusal::store)?;
        Ok(json(&ResetShown::of(&resets)))
    }
}

impl HttpApi {
    /// Answers the readiness probe.
    async fn ready<S: Store>(
        &self,
        engine: &Engine<S>,
        is_leaving: bool,
    ) -> Result<Response<Bytes>, Refusal> {
        let unready = |why: &'static str| Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
        if is_leaving {
            return unready("the server is stopping");
        }
        if self.ready_needs.policy && engine.status().problem.is_some() {
            return unready("the policy file has errors; the previous policy is active");
        }
        if self.ready_needs.store && !engine.store_answers().await {
            return unready("the store does not respond; limits apply on_store_failure");
        }
        Ok(answer(JSON, r#"{"status":"ok"}"#))
    }
}

/// Conditions of `/readyz`, besides a server that is not stopping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyNeeds {
    /// The store responds.
    pub store: bool,
    /// The policy in the file is the active one.
    pub policy: bool,
}

/// A request, and who sent it.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) head: &'a Parts,
    pub(super) body: &'a [u8],
    /// Who the caller is.
    pub(super) principal: Principal,
    /// What the connection that it came over has proven; `None` for a part of this process.
    pub(super) access: Option<&'a Access>,
    /// Whether the server is about to stop.
    pub(super) is_leaving: bool,
}

async fn settle<S: Store>(
    clerk: &mut Clerk<S>,
    body: &[u8],
    limits: &HttpLimits,
) -> Result<Response<Bytes>, Refusal> {
    let settlement = read_settlement(body, limits)?;
    let settled = match &settlement.actual {
        ActualCost::One(cost) => clerk.engine().settle(settlement.id, Actual::Cost(*cost)).await,
        ActualCost::ByField(costs) => {
            let costs: SmallVec<[(&str, u64); 4]> =
                costs.iter().map(|(name, cost)| (&**name, *cost)).collect();
            clerk.engine().settle(settlement.id, Actual::Fields(&costs)).await
        }
    };
    if settled.map_err(Refusal::settle)? {
        return Ok(answer(JSON, r#"{"settled":true}"#));
    }
    let detail = "Unknown hold id: settled, expired, or created by another instance. The estimate of an expired hold stays charged.";
    Err(Refusal::new(StatusCode::NOT_FOUND, detail))
}

fn json(shown: &impl Serialize) -> Response<Bytes> {
    answer(JSON, serde_json::to_vec(shown).expect("what is shown has string keys only"))
}

fn answer(content_type: HeaderValue, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn with_status(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = answer(content_type, body);
    *response.status_mut() = status;
    response
}

fn has_fitting_headers(head: &Parts, limits: &HttpLimits) -> Result<(), Refusal> {
    if head.headers.len() > limits.headers {
        return Err(Refusal::many_fields(limits));
    }
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let line = head.uri.path().len() + head.uri.query().map_or(0, str::len);
    if fields + line > limits.header_bytes { Err(Refusal::large_head(limits)) } else { Ok(()) }
}

/// Returns an error unless the content type is JSON.
fn has_json(head: &Parts) -> Result<(), Refusal> {
    let content_type = head.headers.get(CONTENT_TYPE);
    if content_type.is_some_and(|content_type| is_json(content_type.as_bytes())) {
        return Ok(());
    }
    let found = content_type
        .map_or("no content type".to_owned(), |found| format!("unsupported content type {found:?}"));
    let detail = format!("{found}: send content-type: application/json");
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// Whether a content type says that it is JSON.
pub(super) fn is_json(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}
