//! Whose share of a limit a call takes of.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::client_address::Clients;
use crate::head::Head;

/// What calls are told apart by: one thing that is known of them, or several.
///
/// Several make one key, and no two combinations make the same. A call that lacks one of them, or has it empty, has no key;
/// what happens then is said by [`NoKey`].
///
/// # Examples
/// ```
/// use tollgate_tower::Key;
///
/// struct Tenant(String);
///
/// let per_client_and_method = Key::client().and(Key::method());
/// let per_tenant = Key::extension(|tenant: &Tenant| tenant.0.clone());
/// let per_page = Key::of(|head| head.uri.query().map(str::to_owned));
/// ```
#[derive(Clone)]
pub struct Key {
    parts: Vec<Part>,
}

/// What to do with a call that has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoKey {
    /// It is refused, with status 400.
    Refuse,
    /// All such calls share one state: together they get what anybody else gets alone.
    Share,
    /// It is not limited by this limit.
    Pass,
}

#[derive(Clone)]
enum Part {
    Client,
    Header(HeaderName),
    /// A secret in a header, of which only a fingerprint is kept.
    Secret(HeaderName),
    BearerToken,
    Path,
    Method,
    Other(Arc<Other>),
}

type Other = dyn Fn(&Head<'_>) -> Option<KeyBytes> + Send + Sync;

/// Most keys fit here.
pub(crate) type KeyBytes = SmallVec<[u8; 24]>;

impl Key {
    /// One key for all calls.
    pub(crate) const EVERYBODY: Self = Self { parts: Vec::new() };

    /// The caller's address, or its network: see [`clients`](crate::RateLimitBuilder::clients).
    pub fn client() -> Self {
        Self::part(Part::Client)
    }

    /// The value of a header. Callers choose it: only good for what somebody else has checked.
    pub fn header(name: HeaderName) -> Self {
        Self::part(Part::Header(name))
    }

    /// The value of a header that is a secret, such as an API key. Only its SHA-256 is kept, and given to the store.
    pub fn api_key(name: HeaderName) -> Self {
        Self::part(Part::Secret(name))
    }

    /// The token of `Authorization: Bearer`. Only its SHA-256 is kept, and given to the store.
    pub fn bearer_token() -> Self {
        Self::part(Part::BearerToken)
    }

    /// The path, as it was sent. Callers can write a path in many ways: to limit a route, prefer
    #[cfg_attr(feature = "axum", doc = "[`matched_route`](Self::matched_route).")]
    #[cfg_attr(not(feature = "axum"), doc = "`matched_route` (feature `axum`).")]
    pub fn path() -> Self {
        Self::part(Part::Path)
    }

    /// The route that axum found, as in `/users/{id}`. Only known to layers that are put on routes (`Router::route_layer`, or
    /// `Router::layer` after the routes were added).
    #[cfg(feature = "axum")]
    pub fn matched_route() -> Self {
        let route = |path: &axum::extract::MatchedPath| path.as_str().to_owned();
        Self::extension(route)
    }

    /// The method.
    pub fn method() -> Self {
        Self::part(Part::Method)
    }

    /// What a layer further out has found out and put into the extensions: a tenant, an account.
    pub fn extension<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        K: AsRef<[u8]>,
    {
        Self::of(move |head| head.extensions.get::<T>().map(&key))
    }

    /// Anything that can be told of a request.
    pub fn of<K: AsRef<[u8]>>(key: impl Fn(&Head<'_>) -> Option<K> + Send + Sync + 'static) -> Self {
        Self::part(Part::Other(Arc::new(move |head| key(head).map(|key| key.as_ref().into()))))
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    fn part(part: Part) -> Self {
        Self { parts: vec![part] }
    }

    /// The key of a request, which is never empty but for [`EVERYBODY`](Self::EVERYBODY); none if a part is missing.
    #[inline]
    pub(crate) fn value<'a>(&self, head: &Head<'a>, clients: &Clients) -> Option<KeyValue<'a>> {
        match &self.parts[..] {
            [Part::Client] => KeyValue::of_client(head, clients),
            [part] => part.value(head, clients),
            parts => joined(parts, head, clients).map(KeyValue::Made),
        }
    }
}

#[cfg(feature = "policy")]
impl Key {
    /// The same as the value of a field of a policy, which knows addresses as text; none if there is none.
    pub(crate) fn field<'a>(&self, head: &Head<'a>, clients: &Clients) -> Option<KeyValue<'a>> {
        if let [Part::Client] = self.parts[..] {
            let text = |address: IpAddr| address.to_string().as_bytes().into();
            return clients.of_network(head, |network| KeyValue::Made(text(network.addr())));
        }
        self.value(head, clients)
    }
}

/// All parts as one key. Lengths in front keep ("ab", "c") and ("a", "bc") apart.
fn joined(parts: &[Part], head: &Head<'_>, clients: &Clients) -> Option<KeyBytes> {
    let mut bytes = KeyBytes::new();
    for part in parts {
        let value = part.value(head, clients)?;
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&value);
    }
    Some(bytes)
}

impl Part {
    /// What is there but empty is as good as nothing.
    fn value<'a>(&self, head: &Head<'a>, clients: &Clients) -> Option<KeyValue<'a>> {
        let value = match self {
            Self::Client => KeyValue::of_client(head, clients)?,
            Self::Header(name) => KeyValue::Lent(head.headers.get(name)?.as_bytes()),
            Self::Secret(name) => hash(head.headers.get(name)?.as_bytes())?,
            Self::BearerToken => hash(bearer_token(head)?)?,
            Self::Path => KeyValue::Lent(head.uri.path().as_bytes()),
            Self::Method => KeyValue::Lent(head.method.as_str().as_bytes()),
            Self::Other(other) => KeyValue::Made(other(head)?),
        };
        Some(value).filter(|value| !value.is_empty())
    }
}

/// A key, or a part of one: lent by the request where that is possible.
pub(crate) enum KeyValue<'a> {
    Lent(&'a [u8]),
    V4([u8; 4]),
    V6([u8; 16]),
    Hash([u8; 32]),
    Made(KeyBytes),
}

impl KeyValue<'_> {
    #[inline]
    fn of_client(head: &Head<'_>, clients: &Clients) -> Option<Self> {
        clients.of_network(head, |network| match network.addr() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => Self::V6(address.octets()),
        })
    }
}

impl Deref for KeyValue<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::V4(octets) => octets,
            Self::V6(octets) => octets,
            Self::Hash(hash) => hash,
            Self::Made(bytes) => bytes,
        }
    }
}

fn hash<'a>(secret: &[u8]) -> Option<KeyValue<'a>> {
    (!secret.is_empty()).then(|| KeyValue::Hash(Sha256::digest(secret).into()))
}

/// The scheme is written in any case, and spaces may follow.
fn bearer_token<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = head.headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token.trim_ascii())
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Secret(name) => write!(f, "hash of header {name}"),
            Self::BearerToken => f.write_str("hash of bearer token"),
            Self::Path => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::Other(_) => f.write_str("closure"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key_of(key: &Key, request: http::request::Builder) -> Option<Vec<u8>> {
        let request = request.body(()).unwrap();
        key.value(&Head::of(&request), &Clients::default()).map(|value| value.to_vec())
    }

    fn with(name: &str, value: &str) -> http::request::Builder {
        Request::get("/").header(name, value)
    }

    const A: HeaderName = HeaderName::from_static("a");
    const B: HeaderName = HeaderName::from_static("b");

    #[test]
    fn combinations_with_the_same_letters_are_different_keys() {
        let key = Key::header(A).and(Key::header(B));
        let of = |a: &str, b: &str| key_of(&key, with("a", a).header("b", b));
        assert_ne!(of("ab", "c"), of("a", "bc"));
        assert_eq!(of("ab", "c"), of("ab", "c"));
        assert_eq!(of("ab", "c").unwrap(), b"\x02\0\0\0\0\0\0\0ab\x01\0\0\0\0\0\0\0c");
    }

    #[test]
    fn what_is_missing_or_empty_is_no_key() {
        let both = Key::header(A).and(Key::header(B));
        assert_eq!(key_of(&both, with("a", "x")), None);
        assert_eq!(key_of(&both, with("a", "x").header("b", "")), None);
        assert_eq!(key_of(&Key::header(A), with("a", "")), None);
        assert_eq!(key_of(&Key::api_key(A), with("a", "")), None);
        assert_eq!(key_of(&Key::of(|_| Some("")), with("a", "")), None);
        assert_eq!(key_of(&Key::client(), with("x-forwarded-for", "1.2.3.4")), None);
        assert_eq!(key_of(&Key::extension(|tenant: &String| tenant.clone()), with("a", "")), None);
    }

    #[test]
    fn secrets_are_hashed() {
        // SHA-256 of "abc", from FIPS 180-2.
        let hash = b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\
            \xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad";
        assert_eq!(key_of(&Key::api_key(A), with("a", "abc")).unwrap(), hash);
        for value in ["Bearer abc", "bearer   abc ", "BEARER abc"] {
            assert_eq!(key_of(&Key::bearer_token(), with("authorization", value)).unwrap(), hash, "{value}");
        }
        for value in ["Basic abc", "Bearer", "Bearer ", "Bear", "", "Bearerabc"] {
            assert_eq!(key_of(&Key::bearer_token(), with("authorization", value)), None, "{value}");
        }
    }

    #[test]
    fn the_same_network_is_one_client() {
        let of = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            key_of(&Key::client(), Request::get("/").extension(address)).unwrap()
        };
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), [192, 0, 2, 1]);
        assert_eq!(of("::ffff:192.0.2.1"), [192, 0, 2, 1]);
    }
}
