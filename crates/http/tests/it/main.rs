//! The integration tests: one program, so that the crate is linked once.

mod anything;
mod clients;
mod emit;
mod vendors;
