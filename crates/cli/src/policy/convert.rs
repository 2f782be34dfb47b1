//! `tollgate policy convert`: prints policies of other services as tollgate policies.

use std::path::Path;

use clap::ArgMatches;
use tollgate_policy::Draft;

use super::{files, merges};
use crate::failure::Failure;
use crate::output;

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let files: Vec<&Path> = files(matches).flatten().collect();
    let draft = match files[..] {
        [one] if !merges(matches) => Draft::load(one),
        _ => Draft::load_merged(files), // several files become one policy
    };
    output::print(&tollgate_policy::convert(draft.map_err(Failure::failed)?).map_err(Failure::failed)?)
}
