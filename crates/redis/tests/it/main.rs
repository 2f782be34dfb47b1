//! The integration tests: one program, so that the crate is linked once.

mod cluster;
mod conformance;
mod counters;
mod failures;
mod guard;
mod kit;
mod leased;
mod leased_histories;
mod limiter;
mod nodes;
mod processes;
mod rounded;
mod sentinel;
mod server;
mod store;
mod vectors;
