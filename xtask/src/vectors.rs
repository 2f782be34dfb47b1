//! `cargo xtask vectors`: writes the golden vectors that other implementations are held to.

use crate::run::{self, Failure, command, root};

pub(crate) fn run() -> Result<(), Failure> {
    run::run(command("cargo run -p tollgate-sim --example vectors --").arg(root().join("testdata/vectors")))
}
