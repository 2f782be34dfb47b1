//! The `tollgate` command: a rate-limit service, and tools for its policies.
//!
//! Exit status: 0 success, 1 failure or invalid policy, 2 usage error.

mod command;
mod failure;
mod log;
mod output;
mod policy;
mod serve;
mod settings;

use std::process::ExitCode;

use clap::ArgMatches;

use failure::Failure;
use settings::Format;

fn main() -> ExitCode {
    let matches = match command::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return command::misuse(error),
    };
    match run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(error_format(&matches)),
    }
}

/// Returns the format of errors: `log.format` for `serve`, otherwise text.
fn error_format(matches: &ArgMatches) -> Format {
    match matches.subcommand() {
        Some(("serve", matches)) => settings::log_format(&command::given(matches)),
        _ => Format::Text,
    }
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("serve", matches)) => serve::run(&settings::resolve(&command::given(matches))?),
        Some(("settings", matches)) => settings::show(matches),
        Some(("policy", matches)) => policy::run(matches),
        Some(("completions", matches)) => command::completions(matches),
        _ => unreachable!("clap asks for one of the subcommands"),
    }
}
