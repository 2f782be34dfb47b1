//! What our protocols cost beside servers that decide nothing.

#[path = "server/child.rs"]
mod child;
#[path = "server/http.rs"]
mod http;
#[path = "server/lean.rs"]
mod lean;
#[path = "server/nothing.rs"]
mod nothing;
#[path = "server/resp.rs"]
mod resp;

use std::process::ExitCode;

use tollgate_benches::{Bench, Options, pin_to_core};

// How this program calls itself to be a server; not for people.
const SERVE_RESP: &str = "--serve-resp";
const SERVE_NOTHING: &str = "--serve-nothing";
const SERVE_HTTP: &str = "--serve-http";
/// With the port of one that serves HTTP, whose answer it repeats.
const SERVE_BARE: &str = "--serve-bare=";

// Who runs where.
const SERVER_CORE: usize = 0;
const LOAD_CORE: usize = 1;

fn main() -> ExitCode {
    if child::serve(|flag| match flag {
        SERVE_RESP => Some(resp::start()),
        SERVE_NOTHING => Some(nothing::start()),
        SERVE_HTTP => Some(http::start()),
        _ => flag.strip_prefix(SERVE_BARE)?.parse().ok().map(http::start_bare),
    }) {
        return ExitCode::SUCCESS;
    }
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("server: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("server", options);
    pin_to_core(LOAD_CORE); // and so the load that is started from here
    for case in http::cases(options) {
        bench.add(case);
    }
    resp::run(options, &mut bench);
    bench.finish()
}
