//! The integration tests: one program, so that the crate is linked once.

mod catch;
mod client;
mod client_reqwest;
mod concurrency;
mod deadline;
mod fault;
mod feedback;
mod ingest;
mod log;
mod pool;
mod pool_memory;
mod pool_metrics;
mod pool_signal;
mod preempt;
mod rollback;
mod upstream;
