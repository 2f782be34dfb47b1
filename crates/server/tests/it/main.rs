//! The integration tests: one program, so that the crate is linked once.

mod contract;
mod engine;
mod envoy;
mod http;
mod manners;
mod resp;
mod rls;
mod rls_proto;
mod server;
mod settle;
