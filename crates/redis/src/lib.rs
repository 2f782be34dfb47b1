//! Limits that many machines share through Redis or Valkey.
//!
//! [`RedisStore`] is a [`Store`](tollgate::store::Store): whatever decides by a store in process decides by this one, too. All
//! processes that open the same rule on the same Redis share its state. One round trip decides all limits of a request, at one
//! moment of the server's clock, all or nothing.
//!
//! ```no_run
//! use tollgate::Quota;
//! use tollgate::store::{Hit, Mode, Rule, Store, StoreError};
//! use tollgate_redis::RedisStore;
//!
//! # async fn example() -> Result<(), StoreError> {
//! let store = RedisStore::new("redis://127.0.0.1:6379")?;
//! let user = store.open(&Rule::new("api", "per user", Quota::per_second(10)));
//! let everybody = store.open(&Rule::new("api", "everybody", Quota::per_second(1_000)));
//! let hits = [Hit::new(&user, b"alice"), Hit::new(&everybody, b"")];
//! assert!(store.decide(Mode::Take, &hits).await?.is_admitted());
//! # Ok(())
//! # }
//! ```
//!
//! [`Leased`] makes the same limits fast: each process borrows some tokens at a time and spends them by itself. All together are still
//! never admitted more than the limit says, and less by at most what they may have on lease.
//!
//! # Features
//! - `tls`: `rediss://…`, with the certificates that the system trusts.
//!
//! # Inside
//! The state is kept and decided on by a script of one file for each algorithm, in `lua/`. What a script tells, `twin.rs` turns
//! into a decision. `keys.rs` says what keys look like, `link.rs` keeps up the connection and counts who shares it, `guard.rs` leaves
//! a store alone that does not answer, `leased.rs` asks only now and then.

mod builder;
mod call;
mod draft;
mod error;
mod guard;
mod keys;
mod leased;
mod limit;
mod link;
mod permit;
mod script;
mod store;
mod twin;

pub use builder::RedisStoreBuilder;
pub use guard::{Guarded, PATIENCE};
pub use leased::{LeaseStats, Leased, Leases};
pub use limit::RedisLimit;
pub use permit::RedisPermit;
pub use store::RedisStore;
