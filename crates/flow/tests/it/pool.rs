//! The pool, in virtual time.

mod limits;
mod mishaps;
mod outcomes;
mod random;
mod retries;
mod stop;
mod support;
mod threads;
