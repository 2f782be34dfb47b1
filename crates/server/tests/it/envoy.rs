//! A real Envoy, which asks us about real requests, with a file of envoyproxy/ratelimit as it is.

mod cases;
mod failing;
mod metrics;
mod proxy;
mod response_path;
