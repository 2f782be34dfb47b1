//! The integration tests: one program, so that the crate is linked once.

mod bound;
mod conformance;
mod fleet;
mod history;
mod long_run;
mod mutants;
mod oracle;
mod vectors;
