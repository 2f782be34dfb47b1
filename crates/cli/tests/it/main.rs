//! The integration tests: one program, so that the crate is linked once.

mod command;
mod fleet;
mod imported;
mod secure;
mod serve;
mod support;
mod transcripts;
