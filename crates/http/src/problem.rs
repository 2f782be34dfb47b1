//! `application/problem+json`, as RFC 9457 defines it.

use std::fmt::Write as _;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use crate::standing::Standing;

/// Why a call was not served, as the IETF's draft on rate limits names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemType {
    /// A limit was reached.
    QuotaExceeded,
    /// There is less capacity than usual, for everybody.
    TemporaryReducedCapacity,
    /// The calls follow a pattern that looks like a mistake, or like an attack.
    AbnormalUsageDetected,
}

impl ProblemType {
    /// The URI that stands for it.
    pub const fn uri(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::TemporaryReducedCapacity => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Self::AbnormalUsageDetected => {
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
            }
        }
    }

    /// What people are told.
    pub const fn title(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "Quota Exceeded",
            Self::TemporaryReducedCapacity => "Temporary Reduced Capacity",
            Self::AbnormalUsageDetected => "Abnormal Usage Detected",
        }
    }

    /// The status that goes with it.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::QuotaExceeded | Self::AbnormalUsageDetected => StatusCode::TOO_MANY_REQUESTS,
            Self::TemporaryReducedCapacity => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The body of a refusal, for programs to read.
///
/// # Examples
/// ```
/// use tollgate_http::{Problem, ProblemType};
///
/// let problem = Problem::new(ProblemType::QuotaExceeded).violated(["daily", "bandwidth"]);
/// let answer = problem.response::<String>();
/// assert_eq!(answer.status(), 429);
/// assert_eq!(answer.headers()["content-type"], "application/problem+json");
/// assert_eq!(
///     answer.body(),
///     r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["daily","bandwidth"]}"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem<'a> {
    kind: ProblemType,
    detail: Option<&'a str>,
    violated: Vec<&'a str>,
}

impl<'a> Problem<'a> {
    /// The content type of the body.
    pub const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

    /// A problem of that type, with no limit named.
    pub const fn new(kind: ProblemType) -> Self {
        Self { kind, detail: None, violated: Vec::new() }
    }

    /// The problem of a call that some of its limits refused: those are named.
    pub fn refused_by(standings: &[Standing<'a>]) -> Self {
        let refused = standings.iter().filter(|standing| standing.is_refusal());
        Self::new(ProblemType::QuotaExceeded).violated(refused.map(|standing| standing.limit().name()))
    }

    /// Names the limits that were reached.
    #[must_use]
    pub fn violated(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.violated.extend(names);
        self
    }

    /// Adds a sentence for people, about this one call.
    #[must_use]
    pub fn detail(self, detail: &'a str) -> Self {
        Self { detail: Some(detail), ..self }
    }

    /// The status to answer with.
    pub const fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// The body.
    pub fn to_json(&self) -> String {
        let Self { kind, detail, violated } = self;
        let (uri, title, status) = (kind.uri(), kind.title(), kind.status().as_u16());
        let mut json = format!(r#"{{"type":"{uri}","title":"{title}","status":{status}"#);
        if let Some(detail) = detail {
            json.push_str(r#","detail":"#);
            push_string(&mut json, detail);
        }
        json.push_str(r#","violated-policies":["#);
        for (index, name) in violated.iter().enumerate() {
            json.push_str(if index == 0 { "" } else { "," });
            push_string(&mut json, name);
        }
        json.push_str("]}");
        json
    }

    /// An answer with this as its body, and nothing else: the fields are [`Writer`](crate::Writer)'s.
    pub fn response<B: From<String>>(&self) -> Response<B> {
        let mut response = Response::new(B::from(self.to_json()));
        *response.status_mut() = self.status();
        response.headers_mut().insert(CONTENT_TYPE, Self::CONTENT_TYPE);
        response
    }
}

/// Adds a string as JSON writes it.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            '\0'..='\x1f' => {
                write!(json, "\\u{:04x}", u32::from(c)).expect("a string takes all that is written");
            }
            _ => json.push(c),
        }
    }
    json.push('"');
}
