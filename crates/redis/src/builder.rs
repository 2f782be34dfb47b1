//! How a store is made.

use std::fmt;
use std::sync::Arc;

use tollgate::ManualClock;
use tollgate::store::{Callers, Rule, StoreError};

use crate::call::Caller;
use crate::keys::{self, Keys, TagOf};
use crate::link::{Link, Presence, Proofs, Target};
use crate::store::RedisStore;

/// Makes a [`RedisStore`]; see [`RedisStore::builder`].
///
/// # Examples
/// ```
/// use tollgate_redis::RedisStore;
///
/// let store = RedisStore::builder("redis://127.0.0.1:6379").prefix("shop:").names(100).build()?;
/// # Ok::<(), tollgate::store::StoreError>(())
/// ```
#[must_use = "it makes nothing until `build`"]
pub struct RedisStoreBuilder {
    url: String,
    proofs: Proofs,
    prefix: String,
    layout: u32,
    has_clear_keys: bool,
    tag_of: Option<Arc<TagOf>>,
    names: usize,
    clock: Option<ManualClock>,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: &str) -> Self {
        let (url, prefix) = (url.to_owned(), String::new());
        Self {
            url,
            proofs: Proofs::default(),
            prefix,
            layout: keys::LAYOUT,
            has_clear_keys: false,
            tag_of: None,
            names: 0,
            clock: None,
        }
    }

    /// What every key begins with, where the database is not tollgate's alone. Stores with different prefixes share nothing.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Writes callers' keys of up to 64 bytes into Redis as they are, for people who look into it. Without this every key is
    /// hashed. The hash has no salt, so somebody who reads Redis can still find keys with few possible values, such as IPv4 addresses, by trying
    /// all of them. Stores share limits only if both do the same.
    pub fn clear_keys(self) -> Self {
        Self { has_clear_keys: true, ..self }
    }

    /// The user that sentinels know us by; the one in the address is that of the servers.
    pub fn sentinel_user(self, user: impl Into<String>) -> Self {
        Self { proofs: Proofs { sentinel_user: Some(user.into()), ..self.proofs }, ..self }
    }

    /// The password that sentinels ask for; the one in the address is that of the servers.
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        Self { proofs: Proofs { sentinel_password: Some(password.into()), ..self.proofs }, ..self }
    }

    /// Shows a certificate to every server, sentinels among them: the certificate, with those that lead from it to an authority, and
    /// its private key, both in PEM.
    #[cfg(feature = "tls")]
    pub fn certificate(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let certificate = Some((certificate.into(), key.into()));
        Self { proofs: Proofs { certificate, ..self.proofs }, ..self }
    }

    /// Says which part of a key decides where in a cluster its states are. Limits whose keys have the same tag are
    /// decided together in one call; others are asked one after the other, see [`RedisStore`]. Without this it is the key itself.
    ///
    /// # Examples
    /// One tenant's limits are together, whoever of the tenant's people asks:
    /// ```
    /// use tollgate_redis::RedisStore;
    ///
    /// let store = RedisStore::builder("redis+cluster://127.0.0.1:7000,127.0.0.1:7001")
    ///     .tag(|_rule, key| key.split(|byte| *byte == b'/').next().unwrap_or(key).to_vec())
    ///     .build()?;
    /// # Ok::<(), tollgate::store::StoreError>(())
    /// ```
    pub fn tag(self, tag_of: impl Fn(&Rule, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self { tag_of: Some(Arc::new(tag_of)), ..self }
    }

    /// Remembers by name who asks most and who is refused most of *this process*: see [`Callers`].
    pub fn names(self, capacity: usize) -> Self {
        Self { names: capacity, ..self }
    }

    /// For tests: goes by this clock in place of the server's, to the microsecond. It then has keys of its own, so that it cannot
    /// meddle with real ones; they go after an hour.
    pub fn clock(self, clock: ManualClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Another version of the layout, as if this were another version of tollgate.
    #[cfg(test)]
    pub(crate) fn layout(self, layout: u32) -> Self {
        Self { layout, ..self }
    }

    /// The store. It connects when it is first used, in the background, so this needs no server; see [`RedisStore`].
    ///
    /// # Errors
    /// If the address cannot be read, the certificate or a user of sentinels does not go with it, or the prefix has a brace in it, which would decide where in a cluster keys are.
    pub fn build(self) -> Result<RedisStore, StoreError> {
        if self.prefix.contains(['{', '}']) {
            let prefix = self.prefix;
            return Err(StoreError::permanent(format!("invalid prefix {prefix:?}: braces are not allowed")));
        }
        let keys = Keys::new(&self.prefix, self.layout, self.clock.is_some(), self.tag_of);
        let keys = if self.has_clear_keys { keys.clear() } else { keys };
        let presence = self.clock.is_none().then(|| Presence::new(keys.nodes()));
        let link = Link::new(Target::parse(&self.url, &self.proofs)?, presence);
        let callers = (self.names > 0).then(|| Callers::new(self.names));
        Ok(RedisStore::assemble(Caller::new(link, self.clock), keys, callers))
    }
}

impl fmt::Debug for RedisStoreBuilder {
    /// Without the address, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
