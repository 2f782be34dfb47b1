//! Certificates and keys, as they are in their files.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Kept;
use crate::access::{Keyring, Keys};
use crate::audit;
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
    const NAME: &'static str = "certificates";

    fn paths(&self) -> Vec<PathBuf> {
        self.tls.files().paths()
    }

    /// Also if nothing seems to have changed: somebody may have changed it after it was read and before it was first seen.
    fn read_again(&mut self, was_asked: bool) {
        let news = self.seen.changes_to(look(&self.paths()));
        match self.tls.reload() {
            Ok(()) => tell(self, news, was_asked, None),
            Err(error) => refuse(self, &error.to_string(), was_asked),
        }
    }
}

/// The keys file: the scopes of each caller.
pub(super) struct KeyFile<A> {
    keys: Keys,
    path: PathBuf,
    /// Returns an error if the keyring must not be used.
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
    const NAME: &'static str = "keys";

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    /// Also if nothing seems to have changed, as with certificates.
    fn read_again(&mut self, was_asked: bool) {
        let news = self.seen.changes_to(look(&self.paths()));
        let read = Keyring::load(&self.path).map_err(|error| error.to_string());
        match read.and_then(|keyring| (self.acceptable)(&keyring).map(|()| keyring)) {
            Ok(keyring) => {
                let changes = self.keys.keyring().changes_to(&keyring);
                self.keys.set(keyring);
                tell(self, news, was_asked, changes.as_deref());
            }
            Err(error) => refuse(self, &error, was_asked),
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

fn tell<K: Kept>(kept: &K, is_new: bool, was_asked: bool, changes: Option<&str>) {
    let name = K::NAME;
    if is_new {
        tracing::info!("reloaded {name}");
        kept.audit(was_asked, audit::Reload::Loaded, changes);
    } else if was_asked {
        tracing::info!("{name} unchanged");
        kept.audit(was_asked, audit::Reload::Unchanged, None);
    }
}

fn refuse<K: Kept>(kept: &K, error: &str, was_asked: bool) {
    tracing::error!(error, "cannot load {}, keeping the previous ones", K::NAME);
    kept.audit(was_asked, audit::Reload::Refused, None);
}
