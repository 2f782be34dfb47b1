//! Limits in front of a service, by a clock that is moved by hand.

mod fields;
mod kit;
mod others;
mod settling;
mod shared;
mod unavailable;
mod who;
