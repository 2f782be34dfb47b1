//! `cargo xtask proto`: generates the messages of Envoy's rate limit service, and what reflection serves, from `crates/server/proto`.

use crate::run::{self, Failure, command};

pub(crate) fn run() -> Result<(), Failure> {
    run::run(command("cargo test -p tollgate-server --test it rls_proto::").env("TOLLGATE_BLESS", "1"))
}
