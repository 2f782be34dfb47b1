//! The integration tests: one program, so that the crate is linked once.
#![cfg(not(loom))]

mod attack;
mod concurrency;
mod conformance;
mod gate;
mod gate_order;
mod gate_waiting;
mod go_vectors;
mod histories;
mod keyed;
mod keyed_gate;
mod keyed_order;
mod keyed_quota_memory;
mod keyed_snapshot;
mod keyed_waiting;
mod keyed_watch;
mod limiter;
mod memory_given_back;
mod sharded;
mod sharded_histories;
mod store;
mod store_counters;
mod store_floating;
mod store_gate;
mod store_laws;
mod store_refunds;
mod store_windows;
mod waiting;
mod waiting_random;
