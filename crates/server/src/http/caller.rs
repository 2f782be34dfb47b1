//! Authentication and authorization of a request.

use super::refusal::Refusal;
use super::route::Route;
use crate::access::{Access, Principal, Scopes, bearer};

/// Returns who the caller of a request is by its authorization field, if it may do what the route needs. A token counts only
/// where it is needed.
pub(super) fn principal_of(
    authorization: Option<&[u8]>,
    route: Route,
    access: &Access,
) -> Result<Principal, Refusal> {
    let Some(needed) = route.scope() else {
        return Ok(Principal { scopes: Scopes::NONE, ..access.principal() });
    };
    let token = authorization.and_then(bearer);
    let principal = match token {
        None => access.principal(),
        Some(token) => access
            .authenticate(token)
            .ok_or_else(|| Refusal::who("Bearer error=\"invalid_token\"", "unknown or revoked token"))?,
    };
    if principal.scopes.has(needed) {
        return Ok(principal);
    }
    if token.is_some() || access.is_certified() {
        return Err(Refusal::needs(needed));
    }
    let detail =
        format!("the scope {needed} is required: send authorization: Bearer TOKEN with a token that has it");
    Err(Refusal::who("Bearer", detail))
}

/// Whether a caller that may do what it asks has proven who it is, by a token or by a certificate.
pub(super) fn is_proven(authorization: Option<&[u8]>, access: &Access) -> bool {
    authorization.is_some_and(|value| bearer(value).is_some()) || access.has_certificate()
}
