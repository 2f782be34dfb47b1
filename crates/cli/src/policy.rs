//! The commands of `tollgate policy`.

mod check;
mod convert;
mod explain;

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use tollgate_policy::{Policy, Problems};
use tollgate_server::{Origin, PolicyPath, read_policy};

use crate::failure::Failure;
use crate::output;

/// The policy that is used without a policy file.
pub(crate) const BUILT_IN: &str = include_str!("../policies/default.toml");
/// Its name in messages.
pub(crate) const BUILT_IN_NAME: &str = "built-in policy";

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("check", matches)) => check::run(matches),
        Some(("explain", matches)) => explain::run(matches),
        Some(("convert", matches)) => convert::run(matches),
        Some(("schema", _)) => output::print_json(&tollgate_policy::schema()),
        Some(("default", _)) => output::print(BUILT_IN),
        _ => unreachable!("clap asks for one of the subcommands"),
    }
}

/// Reads a policy, or the built-in one.
pub(crate) fn read(path: Option<PolicyPath>) -> Result<(Policy, Origin), Problems> {
    let built_in = || {
        let origin = Origin { name: BUILT_IN_NAME.to_owned(), hash: env!("CARGO_PKG_VERSION").to_owned() };
        Ok((Policy::parse(BUILT_IN_NAME, BUILT_IN)?, origin))
    };
    path.map_or_else(built_in, read_policy)
}

/// Returns the files of a command; `None` is the built-in policy.
fn files(matches: &ArgMatches) -> impl Iterator<Item = Option<&Path>> {
    let given = matches.get_many::<PathBuf>("file").into_iter().flatten();
    let is_none = !matches.contains_id("file");
    given.map(|path| Some(path.as_path())).chain(is_none.then_some(None))
}

/// Returns a path with the options of the command.
fn as_asked(path: &Path, matches: &ArgMatches) -> PolicyPath {
    PolicyPath::from(path).merging_domains(merges(matches))
}

fn merges(matches: &ArgMatches) -> bool {
    matches.get_flag("merge-domains")
}

fn is_json(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("format").is_some_and(|format| format == "json")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_built_in_policy_has_no_mistake() {
        let (policy, _) = super::read(None).unwrap();
        let names: Vec<&str> = policy.limits().iter().map(tollgate_policy::Limit::name).collect();
        assert_eq!(names, ["per-ip", "per-user", "logins", "uploads"]);
    }
}
