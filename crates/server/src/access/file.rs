//! A keyring in a file.
//!
//! ```toml
//! anonymous = ["check"]                 # whoever proves nothing; nothing unless this says otherwise
//!
//! [token.ci]
//! sha256 = "2bb80d53…"                  # of the token, so that the file is no secret; or: secret = "…"
//! scopes = ["check", "settle"]
//!
//! [certificate.gateway]
//! dns = "gateway.internal"              # or, without it, any certificate that is trusted
//! scopes = ["check"]
//! ```

use std::error::Error;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use std::collections::BTreeMap;

use super::{Keyring, Scope, Scopes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    anonymous: Vec<Scope>,
    #[serde(default)]
    token: BTreeMap<String, TokenEntry>,
    #[serde(default)]
    certificate: BTreeMap<String, CertificateEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    sha256: Option<String>,
    secret: Option<String>,
    scopes: Vec<Scope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateEntry {
    dns: Option<String>,
    scopes: Vec<Scope>,
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a keyring could not be read.
#[derive(Debug)]
pub struct KeyringError(String);

impl Keyring {
    /// Reads a keyring from a file.
    ///
    /// # Errors
    /// If it cannot be read, or something is wrong with it: where, and what would be right.
    pub fn load(path: &Path) -> Result<Self, KeyringError> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| KeyringError(format!("{name}: {error}")))?;
        Self::parse(&text).map_err(|error| KeyringError(format!("{name}: {error}")))
    }

    /// Reads a keyring from text.
    ///
    /// # Errors
    /// If something is wrong with it.
    ///
    /// # Examples
    /// ```
    /// use tollgate_server::{Keyring, Scope};
    ///
    /// let text = "[token.ci]\nsecret = \"a long and random text\"\nscopes = [\"check\"]\n";
    /// assert!(Keyring::parse(text)?.with_token(b"a long and random text").unwrap().has(Scope::Check));
    /// # Ok::<(), tollgate_server::KeyringError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let file: File = toml::from_str(text).map_err(|error| KeyringError(error.to_string()))?;
        let mut keyring = Self::new().with_anonymous(Scopes::of(&file.anonymous));
        for (name, entry) in file.token {
            let scopes = Scopes::of(&entry.scopes);
            let digest = entry.digest().map_err(|why| KeyringError(format!("token.{name}: {why}")))?;
            keyring = keyring.hashed_token(name, digest, scopes);
        }
        for entry in file.certificate.into_values() {
            keyring = keyring.certificate(entry.dns.as_deref(), Scopes::of(&entry.scopes));
        }
        Ok(keyring)
    }
}

impl TokenEntry {
    fn digest(&self) -> Result<[u8; 32], &'static str> {
        use sha2::{Digest, Sha256};
        match (&self.sha256, &self.secret) {
            (Some(hex), None) => from_hex(hex).ok_or("sha256 must be 64 hexadecimal digits"),
            (None, Some(secret)) if secret.len() < SHORTEST => Err("secret must have at least 16 characters"),
            (None, Some(secret)) => Ok(Sha256::digest(secret).into()),
            _ => Err("give either sha256 or secret"),
        }
    }
}

/// A shorter one could be guessed.
const SHORTEST: usize = 16;

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8; // two digits are below 256
    }
    Some(bytes)
}

impl fmt::Display for KeyringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for KeyringError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of "abc", from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_file_says_who_may_do_what() {
        let text = format!(
            "anonymous = [\"check\"]\n[token.a]\nsha256 = \"{ABC}\"\nscopes = [\"settle\"]\n\
             [certificate.g]\ndns = \"Gate.Internal\"\nscopes = [\"check\"]\n[certificate.any]\nscopes = [\"settle\"]\n"
        );
        let keyring = Keyring::parse(&text).unwrap();
        assert_eq!(keyring.with_token(b"abc"), Some(Scopes::of(&[Scope::Settle])));
        assert_eq!(keyring.with_token(b"abd"), None);
        assert_eq!(keyring.with_token(b""), None);
        assert!(keyring.is_open(Scope::Check) && !keyring.is_open(Scope::Settle));
        assert_eq!(keyring.with_certificate(["gate.INTERNAL"]), Scopes::of(&[Scope::Check, Scope::Settle]));
        assert_eq!(keyring.with_certificate(["other.internal"]), Scopes::of(&[Scope::Settle]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("[token.a]\nscopes = []\n", "token.a: give either sha256 or secret"),
            ("[token.a]\nsha256 = \"00\"\nscopes = []\n", "token.a: sha256 must be 64 hexadecimal digits"),
            (
                "[token.a]\nsecret = \"short\"\nscopes = []\n",
                "token.a: secret must have at least 16 characters",
            ),
            ("[token.a]\nsecret = \"0123456789abcdef\"\nscopes = [\"root\"]\n", "there is no scope \"root\""),
            ("[token.a]\nsecret = \"0123456789abcdef\"\n", "missing field `scopes`"),
            ("tokens = 1\n", "unknown field `tokens`"),
        ] {
            let error = Keyring::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let keyring = Keyring::new().token("ci", b"abc", Scopes::ALL);
        let shown = format!("{keyring:?}");
        assert!(shown.contains("ci") && !shown.contains("abc") && !shown.contains("186"), "{shown}");
    }
}
