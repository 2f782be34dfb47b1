//! Who may do what.
//!
//! Callers prove who they are by a token or by a certificate; either gives them [`Scopes`]. Without a [`Keyring`] everybody may
//! do everything that their listener serves.

mod caller;
mod file;
mod keys;
mod scopes;

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use caller::{Caller, Principal};
pub use file::KeyringError;
pub use keys::{Access, Keys};
pub use scopes::{Scope, Scopes};

/// Who may do what.
///
/// # Examples
/// ```
/// use tollgate_server::{Keyring, Scope, Scopes};
///
/// let keyring = Keyring::new().token("ci", b"s3cret", Scopes::of(&[Scope::Check]));
/// assert!(keyring.with_token(b"s3cret").unwrap().has(Scope::Check));
/// assert!(!keyring.with_token(b"s3cret").unwrap().has(Scope::Admin));
/// assert_eq!(keyring.with_token(b"guess"), None);
/// assert_eq!(keyring.anonymous(), Scopes::NONE);
/// ```
#[derive(Clone, Default)]
pub struct Keyring {
    tokens: Vec<Token>,
    certificates: Vec<Certificate>,
    anonymous: Scopes,
}

/// A token is known by its digest alone.
#[derive(Clone)]
struct Token {
    name: String,
    sha256: [u8; 32],
    principal: Principal,
}

/// A certificate is known by a name that its authority vouches for.
#[derive(Clone, Debug)]
struct Certificate {
    /// The name in the file, for people.
    name: String,
    /// `None` for all that the authority has signed.
    dns: Option<String>,
    scopes: Scopes,
}

impl Keyring {
    /// Nobody may do anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everybody may do everything.
    pub fn open() -> Self {
        Self { anonymous: Scopes::ALL, ..Self::default() }
    }

    /// Whoever has this token may do that. The name is for people.
    #[must_use]
    pub fn token(self, name: impl Into<String>, secret: &[u8], scopes: Scopes) -> Self {
        self.hashed_token(name.into(), Sha256::digest(secret).into(), scopes)
    }

    fn hashed_token(mut self, name: String, sha256: [u8; 32], scopes: Scopes) -> Self {
        let principal = Principal { caller: Caller::with_token(&name), scopes };
        self.tokens.push(Token { name, sha256, principal });
        self
    }

    /// Whoever has a certificate for this DNS name may do that; for `None`, whoever has any that is trusted.
    #[must_use]
    pub fn certificate(self, dns: Option<&str>, scopes: Scopes) -> Self {
        self.named_certificate(dns.unwrap_or("any").to_owned(), dns, scopes)
    }

    fn named_certificate(mut self, name: String, dns: Option<&str>, scopes: Scopes) -> Self {
        self.certificates.push(Certificate { name, dns: dns.map(str::to_ascii_lowercase), scopes });
        self
    }

    /// Whoever proves nothing may do that.
    #[must_use]
    pub fn with_anonymous(self, scopes: Scopes) -> Self {
        Self { anonymous: scopes, ..self }
    }

    /// What somebody may do who proves nothing.
    pub fn anonymous(&self) -> Scopes {
        self.anonymous
    }

    /// What somebody may do who has this token; none if nobody knows it. It takes the same time whatever the token, so that
    /// nothing can be learned of those that are known.
    pub fn with_token(&self, secret: &[u8]) -> Option<Scopes> {
        self.principal_with(secret).map(|principal| principal.scopes)
    }

    fn principal_with(&self, secret: &[u8]) -> Option<Principal> {
        let presented: [u8; 32] = Sha256::digest(secret).into();
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.sha256.ct_eq(&presented)) {
                found = Some(token.principal);
            }
        }
        found
    }

    /// The name of the token that makes a caller.
    fn token_of(&self, caller: Caller) -> Option<&str> {
        let token = self.tokens.iter().find(|token| token.principal.caller == caller)?;
        Some(&token.name)
    }

    /// Says how another keyring differs, by the names of tokens and certificates; `None` if it does not.
    pub(crate) fn changes_to(&self, next: &Self) -> Option<String> {
        let all = |keyring: &Self| -> BTreeMap<String, String> {
            let tokens = keyring.tokens.iter().map(|token| {
                (format!("token {}", token.name), format!("{:?} {:?}", token.sha256, token.principal.scopes))
            });
            let certificates = keyring
                .certificates
                .iter()
                .map(|certificate| (format!("certificate {}", certificate.name), format!("{certificate:?}")));
            let anonymous = ("anonymous".to_owned(), format!("{:?}", keyring.anonymous));
            tokens.chain(certificates).chain([anonymous]).collect()
        };
        let (before, after) = (all(self), all(next));
        let mut changes = Vec::new();
        for (name, value) in &after {
            match before.get(name) {
                None => changes.push(format!("added {name}")),
                Some(old) if old != value => changes.push(format!("changed {name}")),
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        changes.extend(gone.map(|name| format!("removed {name}")));
        (!changes.is_empty()).then(|| changes.join(", "))
    }

    /// What somebody may do whose trusted certificate has these DNS names.
    pub fn with_certificate<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Scopes {
        let names: Vec<String> = names.into_iter().map(str::to_ascii_lowercase).collect();
        let applies = |certificate: &&Certificate| {
            certificate.dns.as_ref().is_none_or(|dns| names.iter().any(|name| name == dns))
        };
        let granted = self.certificates.iter().filter(applies).map(|certificate| certificate.scopes);
        granted.fold(Scopes::NONE, Scopes::and)
    }

    /// Whether certificates give anybody anything.
    pub fn knows_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// Whether somebody who proves nothing may do this.
    pub fn is_open(&self, scope: Scope) -> bool {
        self.anonymous.has(scope)
    }
}

/// The token in the value of an `authorization` field, if there is one.
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

impl fmt::Debug for Token {
    /// Without the digest, against which guesses could be tried.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("scopes", &self.principal.scopes)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("tokens", &self.tokens)
            .field("certificates", &self.certificates)
            .field("anonymous", &self.anonymous)
            .finish()
    }
}
