//! The same in JSON: `/json`, as Envoy's own service has it.
//!
//! The messages as proto3 writes them in JSON: names in camelCase or as in the `.proto` file, enumerations by name or number, long
//! numbers as text or number. Names that are not known are refused, since a misspelt one would be a limit that does not apply.

use bytes::Bytes;
use http::StatusCode;
use prost_types::value::Kind;
use serde_json::{Map, Value, json};
use tollgate::store::Store;

use super::RlsOptions;
use super::count::count;
use super::decide::{decide, may_ask};
use super::proto::{
    Code, DescriptorStatus, Entry, RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, Unit,
};
use crate::access::Scopes;
use crate::engine::Clerk;
use crate::metrics::Namespaces;

/// Answers a `RateLimitRequest` in JSON: 200 if it is allowed, 429 if it is denied, 400 if the request is malformed or the store is
/// unavailable. The body is a `RateLimitResponse` in JSON, or the name of the status as text.
///
/// # Cancel safety
/// What had been taken by then stays taken.
///
/// # Examples
/// ```
/// use http::StatusCode;
/// use tollgate::store::MemoryStore;
/// use tollgate_policy::Policy;
/// use tollgate_server::rls::{RlsOptions, should_rate_limit_json};
/// use tollgate_server::{Engine, Origin};
///
/// let policy = Policy::parse("limits.toml", "domain = \"web\"\n[limit.per-ip]\nkey = \"ip\"\nrate = \"1/h\"\n")?;
/// let mut clerk = Engine::new(MemoryStore::new(), policy, Origin::default()).clerk();
/// let body = br#"{"domain": "web", "descriptors": [{"entries": [{"key": "ip", "value": "10.0.0.7"}]}]}"#;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let (status, _) = should_rate_limit_json(&mut clerk, RlsOptions::default(), body).await;
/// assert_eq!(status, StatusCode::OK);
/// let (status, answer) = should_rate_limit_json(&mut clerk, RlsOptions::default(), body).await;
/// assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
/// assert!(String::from_utf8_lossy(&answer).contains(r#""overallCode":"OVER_LIMIT""#));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn should_rate_limit_json<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    body: &[u8],
) -> (StatusCode, Vec<u8>) {
    answer_json(clerk, options, Scopes::ALL, body, None).await
}

/// The same for somebody who may do only that.
pub(crate) async fn answer_json<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    scopes: Scopes,
    body: &[u8],
    namespaces: Option<&Namespaces>,
) -> (StatusCode, Vec<u8>) {
    let request = match read(body) {
        Ok(request) => request,
        Err(problem) => return failed(StatusCode::BAD_REQUEST, &problem),
    };
    if let Err(problem) = may_ask(&request, scopes) {
        return failed(StatusCode::FORBIDDEN, problem.message());
    }
    match decide(clerk, options, &request).await {
        Ok(response) => {
            if let Some(namespaces) = namespaces {
                count(namespaces, clerk.engine(), &request, &response);
            }
            (status(&response), write(&response).to_string().into_bytes())
        }
        Err(error) => failed(StatusCode::BAD_REQUEST, error.message()),
    }
}

/// Answers `GET /healthcheck`: whether calls are served.
pub fn healthcheck(is_draining: bool) -> (StatusCode, &'static str) {
    if is_draining { (StatusCode::INTERNAL_SERVER_ERROR, "stopping") } else { (StatusCode::OK, "OK") }
}

fn status(response: &RateLimitResponse) -> StatusCode {
    match response.overall_code() {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The name of the status, as envoyproxy/ratelimit answers: what is wrong is for the log.
fn failed(status: StatusCode, problem: &str) -> (StatusCode, Vec<u8>) {
    tracing::debug!(%status, problem, "request to /json failed");
    (status, format!("{}\n", status.canonical_reason().unwrap_or_default()).into_bytes())
}

/// Reads a request.
fn read(body: &[u8]) -> Result<RateLimitRequest, String> {
    let value: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let mut request = RateLimitRequest::default();
    for (name, value) in fields(&value, "the body")? {
        match name.as_str() {
            "domain" => request.domain = text(value, "domain")?,
            "descriptors" => request.descriptors = list(value, "descriptors", descriptor)?,
            "hitsAddend" | "hits_addend" => request.hits_addend = small(value, "hitsAddend")?,
            _ => return Err(unknown(name, "the body", "domain, descriptors or hitsAddend")),
        }
    }
    Ok(request)
}

fn descriptor(value: &Value, at: &str) -> Result<RateLimitDescriptor, String> {
    let mut descriptor = RateLimitDescriptor::default();
    for (name, value) in fields(value, at)? {
        let inner = format!("{at}.{name}");
        match name.as_str() {
            "entries" => descriptor.entries = list(value, &inner, entry)?,
            "limit" => descriptor.limit = present(value).map(|value| limit(value, &inner)).transpose()?,
            "hitsAddend" | "hits_addend" => {
                descriptor.hits_addend = present(value).map(|value| number(value, &inner)).transpose()?;
            }
            "isNegativeHits" | "is_negative_hits" => descriptor.is_negative_hits = truth(value, &inner)?,
            _ => return Err(unknown(name, at, "entries, limit, hitsAddend or isNegativeHits")),
        }
    }
    Ok(descriptor)
}

fn entry(value: &Value, at: &str) -> Result<Entry, String> {
    let mut entry = Entry::default();
    for (name, value) in fields(value, at)? {
        let inner = format!("{at}.{name}");
        match name.as_str() {
            "key" => entry.key = Bytes::from(text(value, &inner)?),
            "value" => entry.value = Bytes::from(text(value, &inner)?),
            _ => return Err(unknown(name, at, "key or value")),
        }
    }
    Ok(entry)
}

fn limit(value: &Value, at: &str) -> Result<RateLimitOverride, String> {
    let mut limit = RateLimitOverride::default();
    for (name, value) in fields(value, at)? {
        let inner = format!("{at}.{name}");
        match name.as_str() {
            "requestsPerUnit" | "requests_per_unit" => limit.requests_per_unit = small(value, &inner)?,
            "unit" => limit.unit = unit(value, &inner)?,
            _ => return Err(unknown(name, at, "requestsPerUnit or unit")),
        }
    }
    Ok(limit)
}

fn unit(value: &Value, at: &str) -> Result<i32, String> {
    let named = value
        .as_str()
        .and_then(|name| Unit::ALL.into_iter().find(|unit| unit.name() == name))
        .map(Into::into);
    let numbered = || value.as_i64().and_then(|number| i32::try_from(number).ok());
    named.or_else(numbered).or_else(|| value.is_null().then_some(0)).ok_or_else(|| {
        format!("{at} must be SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, or its number, not {value}")
    })
}

fn fields<'v>(value: &'v Value, at: &str) -> Result<impl Iterator<Item = (&'v String, &'v Value)>, String> {
    value.as_object().map(Map::iter).ok_or_else(|| format!("{at} must be an object, not {}", short(value)))
}

/// `null` is as if nothing were there.
fn present(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| !value.is_null())
}

fn list<T>(
    value: &Value,
    at: &str,
    read: impl Fn(&Value, &str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let Some(value) = present(value) else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| format!("{at} must be a list, not {}", short(value)))?;
    list.iter().enumerate().map(|(place, value)| read(value, &format!("{at}[{place}]"))).collect()
}

fn text(value: &Value, at: &str) -> Result<String, String> {
    let Some(value) = present(value) else { return Ok(String::new()) };
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{at} must be a string, not {}", short(value)))
}

fn truth(value: &Value, at: &str) -> Result<bool, String> {
    let Some(value) = present(value) else { return Ok(false) };
    value.as_bool().ok_or_else(|| format!("{at} must be true or false, not {}", short(value)))
}

fn small(value: &Value, at: &str) -> Result<u32, String> {
    let Some(value) = present(value) else { return Ok(0) };
    let small = number(value, at).ok().and_then(|number| u32::try_from(number).ok());
    small.ok_or_else(|| format!("{at} must be a whole number from 0 to {}, not {}", u32::MAX, short(value)))
}

fn number(value: &Value, at: &str) -> Result<u64, String> {
    let digits =
        |text: &str| if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None };
    let number = value.as_u64().or_else(|| whole(value)).or_else(|| value.as_str().and_then(digits));
    number.ok_or_else(|| format!("{at} must be a whole number from 0 to {}, not {}", u64::MAX, short(value)))
}

/// A whole number with a decimal point, such as `3.0`: proto3 reads it as an integer.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    format!("{number:.0}").parse().ok()
}

fn unknown(name: &str, at: &str, known: &str) -> String {
    format!("unknown field {name:?} in {at}; expected {known}")
}

/// A value as messages show it.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Writes a response, leaving out what says nothing.
fn write(response: &RateLimitResponse) -> Value {
    let statuses: Vec<Value> = response.statuses.iter().map(status_json).collect();
    let mut all = json!({ "overallCode": response.overall_code().name(), "statuses": statuses });
    if !response.response_headers_to_add.is_empty() {
        let field = |field: &super::proto::HeaderValue| json!({ "key": field.key, "value": field.value });
        let fields: Vec<Value> = response.response_headers_to_add.iter().map(field).collect();
        all["responseHeadersToAdd"] = fields.into();
    }
    if let Some(metadata) = &response.dynamic_metadata {
        all["dynamicMetadata"] = plain_object(metadata);
    }
    all
}

fn status_json(status: &DescriptorStatus) -> Value {
    let mut all = json!({ "code": status.code().name() });
    if let Some(limit) = &status.current_limit {
        all["currentLimit"] = limit_json(limit);
    }
    if status.limit_remaining > 0 {
        all["limitRemaining"] = status.limit_remaining.into();
    }
    if let Some(span) = &status.duration_until_reset {
        all["durationUntilReset"] = duration(span).into();
    }
    all
}

fn limit_json(limit: &RateLimit) -> Value {
    let mut all = json!({ "requestsPerUnit": limit.requests_per_unit, "unit": limit.unit().name() });
    if !limit.name.is_empty() {
        all["name"] = limit.name.as_str().into();
    }
    all
}

/// Seconds with as many digits as are needed, in threes.
fn duration(span: &prost_types::Duration) -> String {
    let (seconds, nanos) = (span.seconds, span.nanos);
    match nanos {
        0 => format!("{seconds}s"),
        _ if nanos % 1_000_000 == 0 => format!("{seconds}.{:03}s", nanos / 1_000_000),
        _ if nanos % 1_000 == 0 => format!("{seconds}.{:06}s", nanos / 1_000),
        _ => format!("{seconds}.{nanos:09}s"),
    }
}

fn plain_object(object: &prost_types::Struct) -> Value {
    Value::Object(object.fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect())
}

fn plain(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::BoolValue(truth)) => (*truth).into(),
        Some(Kind::StructValue(object)) => plain_object(object),
        Some(Kind::ListValue(list)) => list.values.iter().map(plain).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_names_the_place_of_a_mistake() {
        let cases = [
            ("", "the body is not JSON: EOF while parsing a value at line 1 column 0"),
            ("[]", "the body must be an object, not []"),
            (
                r#"{"domian":"web"}"#,
                "unknown field \"domian\" in the body; expected domain, descriptors or hitsAddend",
            ),
            (r#"{"domain":7}"#, "domain must be a string, not 7"),
            (r#"{"domain":"web","descriptors":{}}"#, "descriptors must be a list, not {}"),
            (
                r#"{"domain":"web","descriptors":[{"entries":[{"key":"a","valeu":"b"}]}]}"#,
                "unknown field \"valeu\" in descriptors[0].entries[0]; expected key or value",
            ),
            (r#"{"hitsAddend":-1}"#, "hitsAddend must be a whole number from 0 to 4294967295, not -1"),
            (
                r#"{"hitsAddend":"4294967296"}"#,
                "hitsAddend must be a whole number from 0 to 4294967295, not \"4294967296\"",
            ),
            (
                r#"{"descriptors":[{"hitsAddend":"1e3"}]}"#,
                "descriptors[0].hitsAddend must be a whole number from 0 to 18446744073709551615, not \"1e3\"",
            ),
            (
                r#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#,
                "descriptors[0].limit.unit must be SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, or its number, not \"FORTNIGHT\"",
            ),
            (
                r#"{"descriptors":[{"isNegativeHits":"yes"}]}"#,
                "descriptors[0].isNegativeHits must be true or false, not \"yes\"",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(read(body.as_bytes()).unwrap_err(), message, "{body}");
        }
    }
}
