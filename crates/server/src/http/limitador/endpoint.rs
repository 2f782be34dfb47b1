//! Which request of limitador's API is meant.

use http::request::Parts;
use http::{Method, StatusCode};

use super::super::refusal::Refusal;
use super::super::route::Route;
use crate::access::{Scope, Scopes};
use crate::limitador::Action;

/// What a request to limitador's API is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Endpoint {
    Act(Action),
    Limits,
    Counters,
    Status,
}

impl Endpoint {
    /// Every route and its path. A path that ends with a slash is followed by a namespace.
    const ALL: [(&'static str, Route); 7] = [
        ("/check", Route::Limitador(Self::Act(Action::Check))),
        ("/report", Route::Limitador(Self::Act(Action::Report))),
        ("/check_and_report", Route::Limitador(Self::Act(Action::CheckAndReport))),
        ("/limits/", Route::Limitador(Self::Limits)),
        ("/counters/", Route::Limitador(Self::Counters)),
        ("/status", Route::Limitador(Self::Status)),
        ("/metrics", Route::Metrics),
    ];

    /// The route of a request, among those of some scopes and those that are open to all.
    pub(in crate::http) fn find(head: &Parts, scopes: Scopes) -> Result<Route, Refusal> {
        let path = head.uri.path();
        let fits = |known: &str| match known.strip_suffix('/') {
            Some(_) => path.len() > known.len() && path.starts_with(known),
            None => path == known,
        };
        let known = Self::ALL.iter().find(|(known, _)| fits(known)).map(|(_, route)| *route);
        let route = known.ok_or_else(not_found)?;
        if let Some(scope) = route.scope().filter(|scope| !scopes.has(*scope)) {
            let detail = format!(
                "{path:?} needs the scope {scope}, which is served to other hosts only if keys.file says who has it"
            );
            return Err(Refusal::new(StatusCode::NOT_FOUND, detail));
        }
        let allowed: &[Method] = if route.is_post() { &[Method::POST] } else { &[Method::GET, Method::HEAD] };
        if allowed.contains(&head.method) {
            return Ok(route);
        }
        Err(Refusal::method(if route.is_post() { "POST" } else { "GET, HEAD" }))
    }

    /// What a caller must be allowed; none if it is open to all.
    pub(in crate::http) fn scope(self) -> Option<Scope> {
        match self {
            Self::Act(Action::Check | Action::CheckAndReport) => Some(Scope::Check),
            Self::Act(Action::Report) => Some(Scope::Settle),
            Self::Limits | Self::Counters => Some(Scope::Admin),
            Self::Status => None,
        }
    }

    /// Whether there is a body.
    pub(in crate::http) fn is_post(self) -> bool {
        matches!(self, Self::Act(_))
    }
}

fn not_found() -> Refusal {
    let paths: Vec<&str> = Endpoint::ALL.iter().map(|(path, _)| *path).collect();
    Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing here; there is {}", paths.join(", ")))
}
