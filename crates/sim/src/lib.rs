//! A deterministic world for rate limiters: everything here comes from a seed and nothing reads a clock.
//!
//! What is in it, in the order in which a reader probably wants it:
//!
//! | module | what it answers |
//! | --- | --- |
//! | [`oracle`] | what would an exact limiter have said? |
//! | [`bound`] | what is the most that may be admitted in a span? |
//! | [`history`] | did this recorded history keep within it? |
//! | [`laws`] | does an algorithm keep the laws, and several together the ninth? |
//! | [`conformance`] | does a limiter, or a store, behave like the algorithm it runs? |
//! | [`subject`], [`compare`] | what is put to the test, and how it compares with the oracle |
//! | [`fleet`] | what do leases cost many nodes that share one limit? |
//! | [`vectors`] | what would another implementation have to say? |
//! | [`time`], [`workload`], [`draw`] | clocks that misbehave, traffic, and random questions |
//!
//! ```
//! use tollgate_core::{AnyAlgorithm, Kind, Quota};
//! use tollgate_sim::conformance::{self, Held};
//!
//! conformance::run(Kind::SlidingLog, |quota| Held::new(AnyAlgorithm::new(Kind::SlidingLog, quota)), 0..20);
//! ```

pub mod bound;
pub mod compare;
pub mod conformance;
pub mod draw;
pub mod fleet;
pub mod history;
pub mod laws;
pub mod oracle;
mod outcome;
pub mod subject;
pub mod time;
pub mod vectors;
pub mod workload;

mod lines;

pub use lines::LineError;
pub use outcome::Outcome;
