//! The arithmetic of rate limiting: exact, pure, `no_std`, with no clock, no I/O and no dependencies.
//!
//! A [`Quota`] is the numbers, an [`Algorithm`] the arithmetic, an [`Ask`] what a caller wants, a [`Decision`] the
//! answer. Time comes in as a [`Tick`]. Programs usually want the `tollgate` crate, which keeps the state, reads the
//! clock and waits; this crate is for those who bring their own.
//!
//! ```
//! use core::time::Duration;
//! use tollgate_core::{Algorithm, Ask, Quota, Tick, TokenBucket};
//!
//! let bucket = TokenBucket::new(Quota::per_minute(7));
//! let mut state = Default::default();
//! let answer = bucket.step(&mut state, Tick::ZERO, Ask::now(7));
//! assert!(answer.is_allowed());
//! let answer = bucket.step(&mut state, Tick::ZERO, Ask::now(1));
//! assert_eq!(answer.retry_after(), Some(Duration::from_nanos(8_571_428_572))); // 60 s / 7, rounded up
//! ```
//!
//! | algorithm | what it promises | state |
//! | --- | --- | --- |
//! | [`TokenBucket`] | in any span T at most burst + rate·T | one word |
//! | [`Sharded`] | the same, for many threads that share it | one word, and tokens on lease |
//! | [`LeakyBucket`] | even spacing; refuses (meter) or delays (queue) | one word |
//! | [`FixedWindow`] | at most n in an aligned window, 2n across a boundary | one word |
//! | [`PacedWindow`] | at most n in an aligned window, released evenly | one word |
//! | [`SlidingLog`] | at most n in every trailing window, exactly | up to n entries |
//! | [`SubWindows`] | at most n in every trailing window, a little less in practice | k+1 counts |
//! | [`SlidingCounter`] | about n in a trailing window, 2n-1 at worst | two counts |
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod algorithm;
mod any;
mod any_level;
mod ask;
mod decision;
mod fixed_window;
mod leaky_bucket;
mod level;
mod paced_window;
mod quota;
mod refill;
mod sharded;
mod sliding_counter;
mod sliding_log;
mod sub_windows;
mod tick;
mod token_bucket;
mod windows;

pub use algorithm::{Algorithm, Claim, GiveBack};
pub use any::{AnyAlgorithm, AnyChange, AnyState, Kind, UnknownKind};
pub use any_level::AnyLevel;
pub use ask::Ask;
pub use decision::{Decision, Step, Verdict};
pub use fixed_window::FixedWindow;
pub use leaky_bucket::LeakyBucket;
pub use level::{Band, CLOSED, CURVE_WORDS, Curve, HELD};
pub use paced_window::PacedWindow;
pub use quota::{Quota, QuotaError};
pub use sharded::{Draw, Sharded, Stock};
pub use sliding_counter::{Counts, SlidingCounter};
pub use sliding_log::{Log, LogChange, SlidingLog};
pub use sub_windows::{Parts, PartsChange, SubWindows};
pub use tick::Tick;
pub use token_bucket::TokenBucket;
