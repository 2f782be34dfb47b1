//! A certificate, for those who are asked over TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::CertifiedKey;
use tempfile::TempDir;

/// Whose it is.
pub(crate) const NAME: &str = "localhost";

/// A certificate and its key, in files.
pub(crate) struct Certificate {
    directory: TempDir,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory for certificates");
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let files = Files::of(directory.path());
        fs::write(files.certificate, cert.pem()).expect("a file");
        fs::write(files.key, signing_key.serialize_pem()).expect("a file");
        Self { directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn pem(&self) -> String {
        fs::read_to_string(Files::of(self.directory()).certificate).expect("it was written")
    }
}

/// Where a certificate and its key are.
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Files {
    pub(crate) fn of(directory: &Path) -> Self {
        Self { certificate: directory.join("certificate.pem"), key: directory.join("key.pem") }
    }
}
