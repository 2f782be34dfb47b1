//! `cargo xtask plots`: draws the plots in docs again.

use crate::run::{self, Failure, command, root};

pub(crate) fn run() -> Result<(), Failure> {
    let leases = root().join("docs/leases.svg");
    run::run(command("cargo run --release -p tollgate-sim --example leases --").arg(leases))
}
