//! The protocol of Redis, over real connections.

mod bad_input;
mod caller;
mod callers;
mod cell;
mod clients;
mod commands;
mod histories;
mod like_redis;
mod serving;
