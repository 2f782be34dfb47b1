//! Certificates and keys, as they are in their files.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Kept;
use crate::access::{Keyring, Keys};
use crate::tls::Tls;

/// Certificates and their private key.
pub(super) struct Certificates {
    tls: Arc<Tls>,
    seen: Seen,
}

impl Certificates {
    pub(super) fn new(tls: Arc<Tls>) -> Self {
        let seen = look(&tls.files().paths());
        Self { tls, seen }
    }
}

impl Kept for Certificates {
    const NAME: &'static str = "the certificates";

    fn paths(&self) -> Vec<PathBuf> {
        self.tls.files().paths()
    }

    /// Also if nothing seems to have changed: somebody may have changed it after it was read and before it was first seen.
    fn read_again(&mut self, was_asked: bool) {
        let news = self.seen.changes_to(look(&self.paths()));
        match self.tls.reload() {
            Ok(()) => tell(Self::NAME, news, was_asked),
            Err(error) => refuse(Self::NAME, &error.to_string()),
        }
    }
}

/// Who may do what.
pub(super) struct KeyFile<A> {
    keys: Keys,
    path: PathBuf,
    /// Why a keyring must not be used, if so.
    acceptable: A,
    seen: Seen,
}

impl<A> KeyFile<A> {
    pub(super) fn new(keys: Keys, path: PathBuf, acceptable: A) -> Self {
        let seen = look(std::slice::from_ref(&path));
        Self { keys, path, acceptable, seen }
    }
}

impl<A: Fn(&Keyring) -> Result<(), String> + Send + 'static> Kept for KeyFile<A> {
    const NAME: &'static str = "the keys";

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    /// Also if nothing seems to have changed, as with certificates.
    fn read_again(&mut self, was_asked: bool) {
        let news = self.seen.changes_to(look(&self.paths()));
        let read = Keyring::load(&self.path).map_err(|error| error.to_string());
        match read.and_then(|keyring| (self.acceptable)(&keyring).map(|()| keyring)) {
            Ok(keyring) => {
                self.keys.set(keyring);
                tell(Self::NAME, news, was_asked);
            }
            Err(error) => refuse(Self::NAME, &error),
        }
    }
}

/// What was in files: a digest, because some of it is secret.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen([u8; 32]);

impl Seen {
    /// Whether what is seen now is something else.
    fn changes_to(&mut self, now: Self) -> bool {
        std::mem::replace(self, now) != now
    }
}

fn look(paths: &[PathBuf]) -> Seen {
    let mut all = Sha256::new();
    for path in paths {
        // One that cannot be read is like no other: an empty one has a digest.
        let content = fs::read(path).map(Sha256::digest).unwrap_or_default();
        all.update(content);
    }
    Seen(all.finalize().into())
}

fn tell(name: &str, is_new: bool, was_asked: bool) {
    if is_new {
        tracing::info!("{name} have been loaded again");
    } else if was_asked {
        tracing::info!("{name} are the same as before");
    }
}

fn refuse(name: &str, error: &str) {
    tracing::error!(error, "{name} are not loaded: those before are used on");
}
