//! The integration tests: one program, so that the crate is linked once.

mod anything;
mod cost;
mod docs;
mod envoy;
mod explain;
mod files;
mod limitador;
mod matching;
mod oracle;
mod schema;
