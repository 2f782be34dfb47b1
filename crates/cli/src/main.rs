//! The `tollgate` command: a rate-limit service, and tools for its policies.
//!
//! It ends with 0 if all went well, 1 if something failed or a policy has mistakes, 2 if it was called in a wrong way.

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

fn main() -> ExitCode {
    let matches = match command::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return command::misuse(error),
    };
    match run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
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
