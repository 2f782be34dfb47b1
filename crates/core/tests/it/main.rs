//! The integration tests: one program, so that the crate is linked once.

mod aligned;
mod refunds;
mod retunes;
mod returns;
mod states;
mod steps;
mod strategies;
