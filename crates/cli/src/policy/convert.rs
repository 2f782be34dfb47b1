//! Policies of other services, as files of ours.

use clap::ArgMatches;
use tollgate_policy::Draft;

use super::files;
use crate::failure::Failure;
use crate::output;

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut draft = Draft::default();
    for path in files(matches).flatten() {
        draft.append(Draft::load(path).map_err(Failure::failed)?);
    }
    output::print(&tollgate_policy::convert(draft).map_err(Failure::failed)?)
}
