//! Deciding what a body asks.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use smallvec::SmallVec;
use tollgate::store::{Mode, Store};
use tollgate_policy::Field;

use super::body::{Call, Calls, OwnLimit, Target, read_calls};
use super::decision::{write_fields, write_ruling};
use super::limits::HttpLimits;
use super::refusal::Refusal;
use crate::access::{Scope, Scopes};
use crate::engine::{Ask, AskError, Clerk, Family, PermitId, Ruling, Subject, is_counted};
use crate::metrics::{Counted, Meter, Namespaces};

/// The limits that callers supply.
const FAMILY: Family = Family::new("@http");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Reads, decides and answers.
pub(super) async fn check<S: Store>(
    clerk: &mut Clerk<S>,
    body: &[u8],
    scopes: Scopes,
    limits: &HttpLimits,
    meter: &Meter,
) -> Result<Response<Bytes>, Refusal> {
    let started = meter.now();
    let calls = read_calls(body, limits)?;
    let needs = |call: &Call<'_>| match call.mode {
        Mode::Charge | Mode::Refund => Some(Scope::Settle),
        _ => call.hold.map(|_| Scope::Hold),
    };
    if let Some(lacking) = calls.iter().filter_map(needs).find(|scope| !scopes.has(*scope)) {
        return Err(Refusal::needs(lacking));
    }
    let (answer, decisions) = match calls {
        Calls::One(call) => (one(clerk, &call, meter).await, 1),
        Calls::Many(calls) => (Ok(many(clerk, &calls, meter).await), calls.len() as u64),
    };
    meter.count(clerk.take_calls());
    let answer = answer?;
    meter.observe(decisions, meter.now().since(started));
    Ok(answer)
}

async fn one<S: Store>(
    clerk: &mut Clerk<S>,
    call: &Call<'_>,
    meter: &Meter,
) -> Result<Response<Bytes>, Refusal> {
    let (mut json, mut fields) = (Vec::with_capacity(512), HeaderMap::with_capacity(8));
    fields.insert(CONTENT_TYPE, JSON);
    let told = |ruling: &Ruling<'_>, id: Option<PermitId>| {
        write_ruling(&mut json, ruling, id);
        write_fields(ruling, &mut fields);
        ruling.is_allowed()
    };
    let is_allowed = decide(clerk, call, meter, told).await.map_err(|error| Refusal::ask(&error, ""))?;
    let mut answer = Response::new(Bytes::from(json));
    *answer.headers_mut() = fields;
    *answer.status_mut() = if is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    Ok(answer)
}

/// Each by itself and in their order. One that makes no sense by what the policy says of it has a problem in its place: those
/// before it are decided already.
async fn many<S: Store>(clerk: &mut Clerk<S>, calls: &[Call<'_>], meter: &Meter) -> Response<Bytes> {
    let mut json = Vec::with_capacity(256 * calls.len() + 2);
    json.push(b'[');
    for (place, call) in calls.iter().enumerate() {
        if place > 0 {
            json.push(b',');
        }
        let told = |ruling: &Ruling<'_>, id| write_ruling(&mut json, ruling, id);
        if let Err(error) = decide(clerk, call, meter, told).await {
            let refusal = Refusal::ask(&error, &format!("/{place}"));
            refusal.note(meter);
            refusal.write(&mut json);
        }
    }
    json.push(b']');
    let mut answer = Response::new(Bytes::from(json));
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

/// Decides about a call, and tells what was decided.
async fn decide<S: Store, T>(
    clerk: &mut Clerk<S>,
    call: &Call<'_>,
    meter: &Meter,
    told: impl FnOnce(&Ruling<'_>, Option<PermitId>) -> T,
) -> Result<T, AskError> {
    let told = |ruling: &Ruling<'_>, id| {
        count(call, ruling, meter.namespaces());
        told(ruling, id)
    };
    with_subject(clerk, &call.target, async |clerk, subject| {
        let asks = [Ask { cost: call.cost, ..Ask::new(subject) }];
        match call.hold {
            None => Ok(told(&clerk.decide(call.mode, &asks).await?, None)),
            Some(span) => {
                let (ruling, id) = clerk.hold(&asks, span).await?;
                Ok(told(&ruling, id))
            }
        }
    })
    .await
}

/// Counts a call for limitador's metrics.
fn count(call: &Call<'_>, ruling: &Ruling<'_>, namespaces: &Namespaces) {
    let Target::Policy { domain, .. } = &call.target else { return };
    if !is_counted(call.mode) {
        return;
    }
    let denying = ruling.decided_by().and_then(|finding| finding.limit.label.as_deref());
    let counted = Counted::call(ruling.is_allowed(), call.cost.unwrap_or(1), denying.unwrap_or_default());
    namespaces.count(domain, counted, || !ruling.findings().is_empty());
}

/// Does something with whose state is meant.
pub(super) async fn with_subject<S: Store, T>(
    clerk: &mut Clerk<S>,
    target: &Target<'_>,
    act: impl AsyncFnOnce(&mut Clerk<S>, Subject<'_, S>) -> T,
) -> T {
    match target {
        Target::Policy { domain, fields } => {
            let fields: SmallVec<[Field<'_>; 8]> =
                fields.iter().map(|(name, value)| (&**name, value.as_bytes())).collect();
            act(clerk, Subject::Policy(domain, &fields)).await
        }
        Target::Limit { limit: OwnLimit { name, kind, quota }, key } => {
            let opened = clerk.open(FAMILY, name, *kind, *quota);
            act(clerk, Subject::Limit(&opened, key.as_bytes())).await
        }
    }
}
