//! The integration tests: one program, so that the crate is linked once.

mod axum;
mod client;
mod concurrency;
mod hyper;
mod observed;
mod policy;
mod rate_limit;
mod redis;
mod tonic;
