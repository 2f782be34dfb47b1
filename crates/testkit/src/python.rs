//! Programs of the Python package index.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An interpreter that has some packages, such as `schemathesis==4.32.5`, and nothing else: in an environment of its own in
/// `folder`, which is made once and then used again. Panics with what went wrong.
///
/// Call what the packages bring with `-m`.
pub fn python_with(packages: &[&str], folder: &Path) -> PathBuf {
    let environment = folder.join(format!("python-{}", packages.join("-").replace("==", "-")));
    let python = environment.join("bin/python");
    if python.exists() {
        return python;
    }
    // Others may be about to make the same: each makes its own, and the first to be ready wins.
    let draft = folder.join(format!(".python-{}", std::process::id()));
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    run(Command::new("python3").args(["-m", "venv"]).arg(&draft), "python3-venv");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(draft.join("bin/python")).args(install).args(packages), "a way to the package index");
    if fs::rename(&draft, &environment).is_err() {
        fs::remove_dir_all(&draft).unwrap_or_else(|error| panic!("{}: {error}", draft.display()));
    }
    assert!(python.exists(), "{} was not made", python.display());
    python
}

fn run(command: &mut Command, need: &str) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} did not start: {error}; it needs {need}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed; it needs {need}\n{said}");
}
