//! How many calls at once: limits that find themselves.
//!
//! An [`Estimator`] is arithmetic: it is told how calls went, and says how many there may be at once. An [`AdaptiveLimit`]
//! measures, collects what it measured into windows, and enforces what the estimator says.

mod adaptive;
mod aimd;
mod bounds;
mod estimator;
mod gradient2;
mod vegas;
mod window;

pub use adaptive::{AdaptiveLimit, AdaptivePermit, Finish};
pub use aimd::Aimd;
pub use estimator::{Estimator, Fixed, Sample};
pub use gradient2::Gradient2;
pub use vegas::Vegas;
