//! Counts calls for limitador's metrics.

use tollgate::store::Store;

use super::proto::{Code, RateLimitRequest, RateLimitResponse};
use crate::engine::Engine;
use crate::metrics::{Counted, Namespaces};

/// Counts a call by its namespace, at the cost that the call names for all of its descriptors.
pub(super) fn count<S: Store>(
    namespaces: &Namespaces,
    engine: &Engine<S>,
    request: &RateLimitRequest,
    response: &RateLimitResponse,
) {
    let is_allowed = match response.overall_code() {
        Code::Ok => true,
        Code::OverLimit => false,
        Code::Unknown => return,
    };
    let denying = response.statuses.iter().find(|status| status.code() == Code::OverLimit);
    let limit =
        denying.and_then(|status| status.current_limit.as_ref()).map_or("", |limit| limit.name.as_str());
    let call = Counted::call(is_allowed, request.hits_addend.max(1).into(), limit);
    let is_known = || engine.loaded().policy().has_domain(&request.domain);
    namespaces.count(&request.domain, call, is_known);
}
