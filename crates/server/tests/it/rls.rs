//! Envoy's rate limit service over sockets, in virtual time.

mod access;
mod age;
mod asking;
mod bad;
mod counters;
mod four_ways;
mod frames;
mod histories;
mod json;
mod kuadrant;
mod rig;
mod routes;
mod services;
mod statistics;
mod statistics_names;
mod store_down;
mod values;
