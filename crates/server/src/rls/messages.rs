//! What Envoy and we say to each other: `envoy.service.ratelimit.v3` as it is on the wire, as far as it is used here.
//!
//! Written by hand, since these few messages are all that is needed of several megabytes. Keys and values are bytes: Envoy
//! copies them from headers, which need not be UTF-8, and a call that cannot be read would be a call that is not limited.

use bytes::Bytes;
use prost::{Enumeration, Message};
use prost_types::{Duration, Struct};

/// Whether a call is over any limit.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    /// Whose limits.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What the call is, once for each way to look at it.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// What it costs where a descriptor does not say; zero is one.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// One way to look at a call.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    /// In order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit in place of the configured one.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// What it costs; zero is to look only.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether the cost is given back.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// What it is called.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// What it is.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// A limit in place of the configured one.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct RateLimitOverride {
    /// So many in a unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit, which is never a week: `envoy.type.v3.RateLimitUnit` has none.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
}

/// What was decided.
///
/// Nothing here fills `request_headers_to_add`, `raw_body` and `quota`, nor does envoyproxy/ratelimit: what the upstream and the caller
/// see beyond a status is for Envoy's own configuration to say, and a quota would let Envoy decide by itself for a while, past what
/// others use of the same limit. A field that is never sent reads as an empty one, so they are left out.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    /// About all of it.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// About each descriptor, in order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Fields for the response to the caller.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// For other filters of Envoy.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Struct>,
}

/// What was decided about a descriptor.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// In a word.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// By which limit; none if none applies.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// What is left of it.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// When there is more again; if it is refused, when to come back.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimit {
    /// So many in a unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// What it is called.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// A field of a response.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    /// What it is called.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What it is.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// What was decided, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Never said.
    Unknown = 0,
    /// It may go ahead.
    Ok = 1,
    /// It may not.
    OverLimit = 2,
}

/// Spans of time that limits are told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// None of these.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day.
    Day = 4,
    /// Thirty days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// Seven days.
    Week = 7,
}

impl Code {
    /// As JSON calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }
}

impl Unit {
    /// All but the unknown one.
    pub(super) const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// As JSON calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }

    /// How long it is; zero if it is not known.
    pub(super) const fn span(self) -> std::time::Duration {
        const DAY: u64 = 24 * 60 * 60;
        std::time::Duration::from_secs(match self {
            Self::Unknown => 0,
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 60 * 60,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// The one that is as long as that; [`Unknown`](Self::Unknown) if none is.
    pub(super) fn of(span: std::time::Duration) -> Self {
        Self::ALL.into_iter().find(|unit| unit.span() == span).unwrap_or(Self::Unknown)
    }
}
