//! Limits in front of an HTTP service: what a layer costs each call.
//!
//! - `call-…`: a call through the layer less the same call without it, no sockets. `with-fields` tells callers how they stand on
//!   every answer (`tower_governor` with its `use_headers`, in three numbers; tollgate in today's form, and in those three numbers);
//!   `without-fields` does not; `refused` is a refusal, with its body.
//! - `instructions-…`: the same, counted by callgrind.
//! - `hello-…`: axum's hello over loopback, from 32 connections that each ask again when they have their answer; the server has one
//!   core, whoever asks the other. `-requests` is how many a second, `-cpu` the server's own time for each. Layers are put on the
//!   router's routes (`Router::layer`), which boxes every call once more; those called `-around` are put around the whole router.
//!
//! All of them limit by the other end's address, one state for each, by the clock that is their default.

#[path = "tower/calls.rs"]
mod calls;
#[path = "tower/layers.rs"]
mod layers;
#[path = "tower/sockets.rs"]
mod sockets;

use std::process::ExitCode;

use tollgate_benches::{Bench, Options};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, name, turns] = &arguments[..]
        && word == calls::COUNTED
    {
        return calls::run_counted(name, turns);
    }
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("tower: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("tower", options);
    calls::run(options, &mut bench);
    sockets::run(options, &mut bench);
    bench.finish()
}
