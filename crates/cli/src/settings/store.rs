//! Where counters are kept.

use std::fmt;

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
    /// What is there.
    pub(crate) fn store(&self) -> RedisStoreBuilder {
        RedisStore::builder(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

const MEMORY: &str = "memory";

impl Value for Store {
    const NAME: &'static str = "STORE";

    fn expected() -> String {
        "memory; or redis://host:6379, redis+sentinel://host:26379,host:26379/name or redis+cluster://host:7000,host:7001, \
         with user:password@ before the first host if they ask for it, and rediss for TLS"
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
}

/// The same without what stands before the last `@`, other than the scheme.
fn without_password(text: &str) -> String {
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
        ] {
            assert_eq!(Store::shown(text), shown);
            assert_eq!(format!("{:?}", Address(text.to_owned())), shown);
        }
    }
}
