//! Guard.
mod guard;
pub use guard::{Guarded, Health, PATIENCE};
