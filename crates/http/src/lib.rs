//! Rate limits as HTTP says them. Words only: no I/O, no clock.
//!
//! Every service tells its callers about limits in its own way. [`read`] understands them all, and gives one [`Advice`]:
//! whether this was a refusal, how long to wait, and what is left of which [`Budget`].
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use http::{HeaderMap, StatusCode};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("ratelimit-policy", r#""burst";q=100;w=60"#.parse()?);
//! headers.insert("ratelimit", r#""burst";r=0;t=30"#.parse()?);
//! let advice = tollgate_http::read(StatusCode::OK, &headers, b"", SystemTime::UNIX_EPOCH);
//! assert_eq!(advice.throttled, None); // an answer, and the last one for a while
//! assert_eq!(advice.wait, Some(Duration::from_secs(30)));
//! assert_eq!(advice.budgets[0].limit, Some(100));
//! # Ok::<(), http::header::InvalidHeaderValue>(())
//! ```
//!
//! What is read:
//! - `Retry-After` in seconds (also with decimals) or as a date in any of HTTP's three forms; `retry-after-ms`;
//!   `grpc-retry-pushback-ms`.
//! - `RateLimit` and `RateLimit-Policy` of the IETF's drafts, all four generations of them, and what is proposed for the next.
//! - `X-RateLimit-*` with whatever is put there: seconds, moments, milliseconds, Go durations, dates.
//! - GitHub, Stripe, Cloudflare, OpenAI, Azure, Anthropic, Slack, Discord, Shopify, Reddit, Atlassian, Kong, Envoy.
//!
//! What cannot be understood is ignored, field by field. What is absurd is capped: see [`Reader`].
//!
//! The other way round, a service tells its callers how they stand: a [`Limit`] is what they are told of, a [`Standing`] how it
//! stands after a decision, and a [`Writer`] puts that into the fields, in today's form or in an older one. [`Problem`] is the body
//! of a refusal. [`ClientAddress`] finds out who is calling, behind proxies.

mod advice;
mod budget;
mod client;
mod date;
mod duration;
mod field;
mod kept;
mod limit;
mod problem;
mod ratelimit_fields;
mod reader;
mod reset;
mod retry_after;
mod standing;
mod text;
mod vendor;
mod writer;

pub use advice::{Advice, Throttled};
pub use budget::{Budget, Refill, Unit};
pub use client::{AddressField, ClientAddress, PrefixError};
pub use ipnet::IpNet;
pub use limit::{Limit, NameError};
pub use problem::{Problem, ProblemType};
pub use reader::{Reader, read};
pub use reset::ResetForm;
pub use standing::Standing;
pub use writer::{Form, Writer, X_RATELIMIT_DEGRADED, retry_after_value};
