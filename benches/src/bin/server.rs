//! What our protocols cost beside servers that decide nothing.

#[path = "server/http.rs"]
mod http;

use std::process::ExitCode;

use tollgate_benches::{Bench, Options};

fn main() -> ExitCode {
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("server: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("server", options);
    for case in http::cases(options) {
        bench.add(case);
    }
    bench.finish()
}
