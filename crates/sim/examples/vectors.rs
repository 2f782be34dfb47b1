//! Writes the golden vectors into a folder: `cargo xtask vectors`.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use tollgate_core::Kind;
use tollgate_sim::vectors::{self, Vector};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("vectors: say into which folder");
        return ExitCode::from(2);
    };
    for kind in Kind::ALL {
        let path = folder.join(format!("{kind}.jsonl"));
        let written = File::create(&path).and_then(|file| vectors::write(file, &Vector::all(kind)));
        if let Err(error) = written {
            eprintln!("vectors: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
