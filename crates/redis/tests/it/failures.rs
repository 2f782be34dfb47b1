//! What callers see when Redis breaks: two stores, eight callers, a real server, and no mercy. Each fault adds a row to
//! `docs/redis-failures.md`.

mod cluster;
mod load;
mod page;
mod server;
