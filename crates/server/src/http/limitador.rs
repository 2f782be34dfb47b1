//! limitador's HTTP API, on a listener of its own.
//!
//! | request | what |
//! | --- | --- |
//! | `POST /check` | says whether hits are within the limits, and takes nothing |
//! | `POST /report` | counts hits that have happened |
//! | `POST /check_and_report` | takes hits if they are within the limits |
//! | `GET /limits/{namespace}` | the limits of a namespace |
//! | `GET /counters/{namespace}` | the busiest counters of a namespace |
//! | `GET /status` | when the limits were loaded, and how often |
//! | `GET /metrics` | as everywhere |
//!
//! Decisions are answered 200 or 429 with the body `null`, and 500 if the store is unavailable. A request that makes no sense is
//! answered by a problem, as elsewhere.

mod call;
mod counters;
mod endpoint;
mod limits;
mod status;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use tollgate::store::Store;

use super::api::{Asked, JSON};
use super::limits::HttpLimits;
use super::query::decoded;
use super::refusal::Refusal;
use crate::engine::{AskError, Clerk};
use crate::limitador::{Action, Verdict, decide};
use crate::metrics::{Counted, Meter};
use call::Call;
use counters::counters;
pub(super) use endpoint::Endpoint;
use limits::limits;
use status::Status;

/// Answers a request.
pub(super) async fn reply<S: Store>(
    endpoint: Endpoint,
    clerk: &mut Clerk<S>,
    asked: Asked<'_>,
    most: &HttpLimits,
    meter: &Meter,
) -> Result<Response<Bytes>, Refusal> {
    match endpoint {
        Endpoint::Act(action) => act(action, clerk, &Call::read(asked.body, most)?, meter).await,
        Endpoint::Limits => Ok(answer(StatusCode::OK, &limits(clerk.engine(), &namespace(&asked)?))),
        Endpoint::Counters => Ok(answer(StatusCode::OK, &counters(clerk, &namespace(&asked)?).await?)),
        Endpoint::Status => Ok(answer(StatusCode::OK, &Status::of(clerk.engine()))),
    }
}

/// The namespace that the path of a request ends with.
fn namespace(asked: &Asked<'_>) -> Result<String, Refusal> {
    let rest = asked.head.uri.path().trim_start_matches('/').split_once('/').map_or("", |(_, rest)| rest);
    // Only in a query does a plus stand for a space.
    decoded(&rest.replace('+', "%2B")).map(std::borrow::Cow::into_owned)
}

async fn act<S: Store>(
    action: Action,
    clerk: &mut Clerk<S>,
    call: &Call,
    meter: &Meter,
) -> Result<Response<Bytes>, Refusal> {
    let started = meter.now();
    let decided = decide(clerk, action, &call.namespace, &call.descriptors(), call.delta).await;
    meter.count(clerk.take_calls());
    meter.observe(1, meter.now().since(started));
    let verdict = match decided {
        Ok(Some(verdict)) => verdict,
        Err(AskError::BadValue { .. }) => return Ok(answer(StatusCode::TOO_MANY_REQUESTS, &())),
        Ok(None) | Err(_) => return Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, &())),
    };
    if action == Action::CheckAndReport {
        count(clerk, call, &verdict, meter);
    }
    let status = if verdict.is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    let mut answer = answer(status, &());
    if call.wants_fields() {
        add_fields(&mut answer, verdict.fields);
    }
    Ok(answer)
}

fn count<S: Store>(clerk: &Clerk<S>, call: &Call, verdict: &Verdict, meter: &Meter) {
    let counted = Counted::call(verdict.is_allowed, call.delta, &verdict.limit);
    let is_known = || clerk.engine().loaded().policy().has_domain(&call.namespace);
    meter.namespaces().count(&call.namespace, counted, is_known);
}

fn add_fields(answer: &mut Response<Bytes>, fields: Vec<(&'static str, String)>) {
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("it is the name of a header field");
        let value = HeaderValue::try_from(value).expect("names are written as header fields can have them");
        answer.headers_mut().insert(name, value);
    }
}

fn answer(status: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    let json = serde_json::to_vec(body).expect("what is shown has string keys only");
    let mut answer = Response::new(Bytes::from(json));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}
