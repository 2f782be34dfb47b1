//! Rate limiters for Rust programs: exact, fast, fair, and testable without waiting.
//!
//! ```
//! use tollgate::{Limiter, Quota};
//!
//! let limiter = Limiter::new(Quota::per_second(50).burst(200));
//! if limiter.allow() {
//!     // serve it
//! }
//! ```
//!
//! - [`Limiter`]: one state; [`allow`](Limiter::allow), [`check`](Limiter::check), [`reserve_n`](Limiter::reserve_n),
//!   [`wait`](Limiter::wait).
//! - [`KeyedLimiter`]: a state for each key, of any number of keys.
//! - [`Gate`]: several limits that admit together or not at all, as in `api.and(&disk)`; a [`Permit`] is settled with what
//!   it really cost.
//! - [`ConcurrencyLimit`]: how many at once; alone, or in a gate.
//! - [`Quota`] and the algorithms come from `tollgate-core`; choose one with [`Builder::kind`]. For a state
//!   that many threads hit at once: [`Builder::sharded`].
//! - [`ManualClock`] makes tests of hours run in microseconds.
//! - [`store`]: named limits for any number of keys, decided in this process or in one that many share.
//! - [`Sometimes`]: a log line now and then.
//!
//! # Features
//! - `tsc` (default): [`TscClock`], which reads the processor's time-stamp counter.
//! - `tokio`: `TokioClock` and `TokioTimer`, so that tokio's paused time drives limiters. Waiting needs no runtime in
//!   particular: without this feature one background thread wakes everybody.

pub mod cell;
mod clock;
mod concurrency;
mod gate;
mod keyed;
mod limiter;
mod name;
mod queue;
mod reservation;
mod sometimes;
mod spare;
pub mod store;
mod sync;
mod timer;
mod wait;
mod watch;

pub use cell::Held;
#[cfg(feature = "tsc")]
pub use clock::TscClock;
pub use clock::{BootClock, Clock, CoarseClock, DefaultClock, ManualClock, MonotonicClock};
#[cfg(feature = "tokio")]
pub use clock::{TokioClock, TokioTimer};
pub use concurrency::{Acquire, ConcurrencyLimit, OwnedSlot, Slot};
pub use gate::{And, Costing, Gate, GateDecision, GateRefused, GateWait, Member, OnDrop, Permit};
pub use keyed::{
    AtCap, Evicted, KeyOf, KeyedBuilder, KeyedLimiter, KeyedReservation, KeyedWait, Named, Observer,
    OwnedKeyOf, SnapshotError, SnapshotProblem, Stats, Sweeper,
};
pub use limiter::{Builder, Limiter};
pub use name::Which;
pub use reservation::{Refused, Reservation};
pub use sometimes::Sometimes;
pub use timer::{Bell, ThreadTimer, Timer};
pub use tollgate_core::{
    Algorithm, AnyAlgorithm, AnyLevel, Ask, Decision, FixedWindow, Kind, LeakyBucket, PacedWindow, Quota,
    QuotaError, Sharded, SlidingCounter, SlidingLog, SubWindows, Tick, TokenBucket, UnknownKind, Verdict,
};
pub use wait::{Wait, WaitError};
