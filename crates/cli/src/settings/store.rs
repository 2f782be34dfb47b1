//! Where counters are kept.

use std::fmt::{self, Write as _};

use tollgate_redis::{RedisStore, RedisStoreBuilder};

use super::value::Value;

/// Where counters are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Store {
    /// In this process.
    #[default]
    Memory,
    /// In Redis or Valkey, shared by all that have the same address.
    Redis(Address),
}

/// An address of Redis that can be read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    /// A builder of the store at this address.
    pub(crate) fn store(&self) -> RedisStoreBuilder {
        RedisStore::builder(&self.0)
    }

    /// The same address with a password, unless it has one already.
    pub(crate) fn with_password(&self, password: &str) -> Option<Self> {
        let (scheme, rest) = self.0.split_once("://")?;
        if has_password(&self.0) {
            return None;
        }
        let mut encoded = String::new();
        for byte in password.bytes() {
            let _ = write!(encoded, "%{byte:02X}");
        }
        if matches!(scheme, "unix" | "redis+unix" | "valkey+unix") {
            let separator = if rest.contains('?') { '&' } else { '?' };
            return Some(Self(format!("{}{separator}pass={encoded}", self.0)));
        }
        let (user, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
        Some(Self(format!("{scheme}://{user}:{encoded}@{hosts}")))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

/// Whether an address of a store, right or wrong, seems to hold a password.
pub(crate) fn has_password(text: &str) -> bool {
    let user = text.rsplit_once('@').map_or("", |(user, _)| user);
    let query = text.split_once('?').map_or("", |(_, query)| query);
    let in_query = query.split('&').any(|part| part.starts_with("pass="));
    in_query || user.split_once("://").map_or(user, |(_, user)| user).contains(':')
}

const MEMORY: &str = "memory";

impl Value for Store {
    const NAME: &'static str = "STORE";

    fn expected() -> String {
        "memory; or redis://host:6379, redis+sentinel://host:26379,host:26379/name or redis+cluster://host:7000,host:7001, \
         with user:password@ before the first host if Redis needs it (but not in a flag), and rediss for TLS"
            .to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        if text == MEMORY {
            return Some(Self::Memory);
        }
        let address = Address(text.to_owned());
        address.store().build().is_ok().then_some(Self::Redis(address))
    }

    fn shown(text: &str) -> String {
        without_password(text)
    }

    /// Nothing of what cannot be read, since no rule finds the password in it.
    fn found(_: &str) -> String {
        "an unreadable value (hidden, because it may hold a password)".to_owned()
    }
}

/// A readable address without its query, and without what stands before the last `@`, other than the scheme.
fn without_password(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    let Some((secret, place)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = secret.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}…@{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_memory_or_an_address_of_redis() {
        assert_eq!(Store::read("memory"), Some(Store::Memory));
        for good in [
            "redis://127.0.0.1",
            "redis://user:p%40ss@host:6379/3",
            "redis+sentinel://:secret@a:26379,b:26379/main/4",
            "redis+cluster://a:7000,b:7001",
            "rediss://host:6380",
        ] {
            assert_eq!(Store::read(good), Some(Store::Redis(Address(good.to_owned()))), "{good}");
        }
        for bad in [
            "",
            "disk",
            "Memory",
            "redis",
            "127.0.0.1:6379",
            "http://host",
            "redis+sentinel://a:1",
            "redis://",
        ] {
            assert_eq!(Store::read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for (text, shown) in [
            ("redis://user:se@cret@host:1/2", "redis://…@host:1/2"),
            ("redis//:secret@host", "…@host"),
            ("redis+cluster://a:1,b:2", "redis+cluster://a:1,b:2"),
            ("memory", "memory"),
            ("redis+unix:///run/redis.sock?pass=secret", "redis+unix:///run/redis.sock"),
        ] {
            assert_eq!(Store::shown(text), shown);
            assert_eq!(format!("{:?}", Address(text.to_owned())), shown);
        }
    }

    #[test]
    fn with_password_encodes_it_and_keeps_the_user() {
        let with = |text: &str| Address(text.to_owned()).with_password("p@:/").map(|address| address.0);
        assert_eq!(with("redis://host:1/2").as_deref(), Some("redis://:%70%40%3A%2F@host:1/2"));
        assert_eq!(
            with("redis+cluster://ann@a:1,b:2").as_deref(),
            Some("redis+cluster://ann:%70%40%3A%2F@a:1,b:2")
        );
        assert_eq!(with("redis+unix:///s").as_deref(), Some("redis+unix:///s?pass=%70%40%3A%2F"));
        assert_eq!(with("redis+unix:///s?db=1").as_deref(), Some("redis+unix:///s?db=1&pass=%70%40%3A%2F"));
        assert_eq!(with("redis://ann:other@host"), None);
        assert_eq!(with("redis+unix:///s?pass=other"), None);
    }

    #[test]
    fn has_password_looks_before_the_host_and_in_the_query() {
        for text in
            ["redis://:a@h", "redis://u:a@h:1", "redis//u:a@h", "u:a@h", "redis+unix:///s?db=1&pass=a"]
        {
            assert!(has_password(text), "{text}");
        }
        for text in ["redis://h:1", "redis://u@h:1", "redis+unix:///s?db=1", "memory"] {
            assert!(!has_password(text), "{text}");
        }
    }
}
