//! The integration tests: one program, so that the crate is linked once.

mod command;
#[cfg(unix)]
mod docs;
mod fleet;
#[cfg(target_os = "linux")]
mod hostile;
mod imported;
mod like;
mod operators;
mod secrets;
mod secure;
mod serve;
mod support;
mod transcripts;
