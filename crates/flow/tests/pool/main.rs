//! The pool, in virtual time.

mod limits;
mod outcomes;
mod stop;
mod support;
