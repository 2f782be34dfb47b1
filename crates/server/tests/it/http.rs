//! HTTP/JSON over real sockets, with a clock that the tests move.

mod admin;
mod bad_input;
mod browsers;
mod callers;
mod check;
mod express;
mod faults;
mod limitador;
mod measured;
mod slow;
mod support;
mod wire;
