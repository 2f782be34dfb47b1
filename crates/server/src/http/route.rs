//! Which request is meant.

use http::request::Parts;
use http::{Method, StatusCode};

use super::limitador::Endpoint;
use super::refusal::Refusal;
use crate::access::{Scope, Scopes};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Check,
    Settle,
    Reset,
    Limits,
    TopKeys,
    Policy,
    OpenApi,
    Health,
    Ready,
    Metrics,
    /// As Envoy's own service has it.
    RateLimit,
    /// As Envoy's own service has it.
    RateLimitHealth,
    /// As limitador has it.
    Limitador(Endpoint),
    /// As the debug port of envoyproxy/ratelimit has it.
    RateLimitConfig,
    /// As the debug port of envoyproxy/ratelimit has it.
    RateLimitStats,
}

/// Which routes of envoyproxy/ratelimit are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RlsRoutes {
    /// Those of its HTTP port.
    pub(super) calls: bool,
    /// Those of its debug port.
    pub(super) debug: bool,
}

impl Route {
    /// Every route and its path.
    const ALL: [(&'static str, Self); 14] = [
        ("/v1/check", Self::Check),
        ("/v1/settle", Self::Settle),
        ("/v1/reset", Self::Reset),
        ("/v1/limits", Self::Limits),
        ("/v1/keys/top", Self::TopKeys),
        ("/v1/policy", Self::Policy),
        ("/openapi.json", Self::OpenApi),
        ("/healthz", Self::Health),
        ("/readyz", Self::Ready),
        ("/metrics", Self::Metrics),
        ("/json", Self::RateLimit),
        ("/healthcheck", Self::RateLimitHealth),
        ("/rlconfig", Self::RateLimitConfig),
        ("/stats", Self::RateLimitStats),
    ];

    /// The route of a request, among those of some scopes and those that are open to all, and these of envoyproxy/ratelimit.
    pub(super) fn find(head: &Parts, scopes: Scopes, rls: RlsRoutes) -> Result<Self, Refusal> {
        let path = head.uri.path();
        let served = |route: &Self| route.is_among(scopes, rls);
        let known = Self::ALL.iter().find(|(known, _)| *known == path).map(|(_, route)| *route);
        let Some(route) = known.filter(served) else {
            let elsewhere = known.filter(|route| !route.is_of_debug_port()).and_then(Self::scope);
            let elsewhere = elsewhere.filter(|scope| !scopes.has(*scope));
            return Err(elsewhere.map_or_else(|| not_found(path, served), |scope| not_here(path, scope)));
        };
        let (allowed, names): (&[Method], &str) = match route {
            // envoyproxy/ratelimit reads the body of a GET, too.
            Self::RateLimit => (&[Method::POST, Method::GET], "POST, GET"),
            _ if route.is_post() => (&[Method::POST], "POST"),
            _ => (&[Method::GET, Method::HEAD], "GET, HEAD"),
        };
        if allowed.contains(&head.method) { Ok(route) } else { Err(Refusal::method(names)) }
    }

    /// Whether it is among those of some scopes, of which only these of envoyproxy/ratelimit.
    pub(super) fn is_among(self, scopes: Scopes, rls: RlsRoutes) -> bool {
        let is_wanted = match self {
            Self::RateLimit => rls.calls,
            Self::RateLimitHealth => rls.calls || rls.debug,
            _ => rls.debug || !self.is_of_debug_port(),
        };
        self.scope().is_none_or(|scope| scopes.has(scope)) && is_wanted
    }

    /// Whether only the debug port of envoyproxy/ratelimit has it. A server has none unless it is started like that.
    fn is_of_debug_port(self) -> bool {
        matches!(self, Self::RateLimitConfig | Self::RateLimitStats)
    }

    /// What a caller must be allowed; none if it is open to all.
    pub(super) fn scope(self) -> Option<Scope> {
        match self {
            Self::OpenApi | Self::Health | Self::Ready | Self::RateLimitHealth => None,
            Self::Check | Self::RateLimit => Some(Scope::Check),
            Self::Settle => Some(Scope::Settle),
            Self::Reset
            | Self::Limits
            | Self::TopKeys
            | Self::Policy
            | Self::RateLimitConfig
            | Self::RateLimitStats => Some(Scope::Admin),
            Self::Metrics => Some(Scope::Metrics),
            Self::Limitador(endpoint) => endpoint.scope(),
        }
    }

    /// Whether it only says that the service is there, to load balancers and orchestrators.
    pub(super) fn is_probe(self) -> bool {
        matches!(self, Self::Health | Self::Ready | Self::RateLimitHealth | Self::Limitador(Endpoint::Status))
    }

    /// Whether there is a body.
    pub(super) fn is_post(self) -> bool {
        match self {
            Self::Limitador(endpoint) => endpoint.is_post(),
            _ => matches!(self, Self::Check | Self::Settle | Self::Reset | Self::RateLimit),
        }
    }
}

/// Returns the error for a path that another listener serves.
fn not_here(path: &str, scope: Scope) -> Refusal {
    let is_admin = matches!(scope, Scope::Admin | Scope::Metrics);
    let listener =
        if is_admin { "admin listener (`admin.address`)" } else { "HTTP listener (`http.address`)" };
    Refusal::new(
        StatusCode::NOT_FOUND,
        format!("{path:?} is not served on this listener. Use the {listener}."),
    )
}

fn not_found(path: &str, served: impl Fn(&Route) -> bool) -> Refusal {
    let paths: Vec<&str> =
        Route::ALL.iter().filter(|(_, route)| served(route)).map(|(path, _)| *path).collect();
    let start: String = path.chars().take(64).collect();
    Refusal::new(
        StatusCode::NOT_FOUND,
        format!("unknown path {start:?}; expected one of {}", paths.join(", ")),
    )
}
