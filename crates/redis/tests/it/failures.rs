//! Measures what clients observe while a real Redis server fails: two stores, eight clients. Each fault adds a row to
//! `docs/redis-failures.md`.

mod cluster;
mod load;
mod page;
mod server;
