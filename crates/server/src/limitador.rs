//! What limitador's calls do, whether they come over gRPC or HTTP.

mod action;
mod fields;

pub(crate) use action::{Action, Descriptors, Verdict, decide};
pub(crate) use fields::fields;
