//! Who is calling, behind proxies.

mod forwarded;
mod node;

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::{IpNet, Ipv4Net};

/// The field in which proxies tell whom a call came from. Only one that every trusted proxy writes, and writes itself, tells
/// the truth; the others are whatever the caller put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressField {
    /// `Forwarded: for=192.0.2.43;proto=https, for="[2001:db8::17]:4711"`, as RFC 7239 defines it.
    Forwarded,
    /// `X-Forwarded-For: 192.0.2.43, 2001:db8::17`
    XForwardedFor,
    /// `X-Real-IP: 192.0.2.43`
    XRealIp,
}

/// Finds out whose address a call came from, and who counts as the same caller.
///
/// By default, the address is the one at the other end of the connection, whatever any field says. Behind proxies that would
/// be the last of them; so say which networks they are in, and which field they write.
///
/// # The walk
/// Each proxy adds on the right whom it got the call from, so only what trusted ones added is known to be true. Beginning with
/// the connection's other end, as long as an address is that of a trusted proxy, the next one to the left is taken; the first that
/// is not trusted is the caller. What stands further left was sent by the caller, and is not even looked at.
///
/// The walk also ends at what is no address: an obfuscated identifier, `unknown`, an element without `for`, anything malformed.
/// Then the answer is the last address before it: that of the trusted proxy that could not, or would not, say more. It ends
/// likewise at the end of the list. Several lines count as one list; empty elements do not count.
///
/// Of `X-Real-IP`, which is no list, the last line counts, if it is one address.
///
/// # What is understood
/// Addresses may have a port. IPv6 stands in brackets; outside of `Forwarded` it need not. IPv4 within IPv6 (`::ffff:192.0.2.1`)
/// is IPv4, also in trusted networks. Two mistakes that proxies make in `Forwarded` are understood nevertheless: spaces around `;`,
/// and missing quotes around addresses with colons or brackets.
///
/// # Examples
/// ```
/// use http::HeaderMap;
/// use tollgate_http::{AddressField, ClientAddress};
///
/// let peer = "10.0.0.7".parse()?;
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "1.1.1.1, 203.0.113.9, 10.0.0.3".parse()?); // the first is made up
///
/// let proxies = ["10.0.0.0/8".parse()?];
/// let behind_proxies = ClientAddress::behind(proxies, AddressField::XForwardedFor);
/// assert_eq!(behind_proxies.resolve(peer, &headers), "203.0.113.9".parse::<std::net::IpAddr>()?);
/// assert_eq!(ClientAddress::peer().resolve(peer, &headers), peer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    field: Option<AddressField>,
    trusted: Vec<IpNet>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

impl ClientAddress {
    /// The other end of the connection.
    pub const fn peer() -> Self {
        Self { field: None, trusted: Vec::new(), ipv4_prefix: 32, ipv6_prefix: 64 }
    }

    /// What proxies in these networks write into that field. Nothing is believed of anybody else.
    ///
    /// To trust `0.0.0.0/0` is to let callers choose who they are.
    pub fn behind(trusted: impl IntoIterator<Item = IpNet>, field: AddressField) -> Self {
        let trusted = trusted.into_iter().map(canonical).collect();
        Self { field: Some(field), trusted, ..Self::peer() }
    }

    /// Counts IPv4 addresses that share so many bits as one caller: 32 unless this says otherwise.
    ///
    /// # Errors
    /// If it is more than 32.
    pub fn ipv4_prefix(self, bits: u8) -> Result<Self, PrefixError> {
        PrefixError::check(bits, 32).map(|ipv4_prefix| Self { ipv4_prefix, ..self })
    }

    /// Counts IPv6 addresses that share so many bits as one caller: 64 unless this says otherwise, since that is the least that
    /// one subscriber has. Many have 56 or 48.
    ///
    /// # Errors
    /// If it is more than 128.
    pub fn ipv6_prefix(self, bits: u8) -> Result<Self, PrefixError> {
        PrefixError::check(bits, 128).map(|ipv6_prefix| Self { ipv6_prefix, ..self })
    }

    /// The address that a call came from; `peer` is the other end of the connection. It is always one that the peer or a trusted
    /// proxy has, or told.
    #[inline]
    pub fn resolve(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        match self.field {
            None => peer,
            Some(field) => self.resolve_by(field, peer, headers),
        }
    }

    fn resolve_by(&self, field: AddressField, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        match field {
            AddressField::Forwarded => self.walk(peer, forwarded::callers(headers)),
            AddressField::XForwardedFor => self.walk(peer, x_forwarded_for(headers)),
            AddressField::XRealIp => self.walk(peer, x_real_ip(headers)),
        }
    }

    /// The network that stands for all addresses of the same caller.
    ///
    /// # Examples
    /// ```
    /// use tollgate_http::ClientAddress;
    ///
    /// let clients = ClientAddress::peer();
    /// assert_eq!(clients.group("2001:db8:1:2:3:4:5:6".parse()?).to_string(), "2001:db8:1:2::/64");
    /// assert_eq!(clients.group("192.0.2.1".parse()?).to_string(), "192.0.2.1/32");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[inline]
    pub fn group(&self, address: IpAddr) -> IpNet {
        let address = address.to_canonical();
        let (prefix, longest) = match address {
            IpAddr::V4(_) => (self.ipv4_prefix, 32),
            IpAddr::V6(_) => (self.ipv6_prefix, 128),
        };
        if prefix >= longest {
            return address.into();
        }
        IpNet::new(address, prefix).map_or_else(|_| address.into(), |network| network.trunc())
    }

    /// The [group](Self::group) of the address that a call came from.
    #[inline]
    pub fn key(&self, peer: IpAddr, headers: &HeaderMap) -> IpNet {
        match peer {
            // By far the most frequent case, and there is nothing to find out.
            IpAddr::V4(address) if self.field.is_none() && self.ipv4_prefix == 32 => {
                IpNet::V4(address.into())
            }
            peer => self.group_of(peer, headers),
        }
    }

    #[inline(never)]
    fn group_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpNet {
        self.group(self.resolve(peer, headers))
    }

    /// From the peer on: what each trusted proxy said of whom it got the call from, the nearest proxy first.
    fn walk(&self, peer: IpAddr, told: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut told = told.map_while(|address| address);
        let mut nearest = peer;
        while self.trusts(nearest) {
            match told.next() {
                Some(address) => nearest = address,
                None => break,
            }
        }
        nearest
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

impl Default for ClientAddress {
    fn default() -> Self {
        Self::peer()
    }
}

/// A network of IPv4 addresses within IPv6 as one of IPv4.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED_PREFIX: u8 = 96;
    let as_ipv4 = || match network.network().to_canonical() {
        IpAddr::V4(address) => Ipv4Net::new(address, network.prefix_len().checked_sub(MAPPED_PREFIX)?).ok(),
        IpAddr::V6(_) => None,
    };
    if network.addr().is_ipv6() { as_ipv4().map_or(network, IpNet::V4) } else { network }
}

/// Whom each proxy got the call from, the nearest one first; none where that is no address.
fn x_forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let elements = lines_from_last(headers, X_FORWARDED_FOR)
        .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty());
    elements.map(node::loose)
}

fn x_real_ip(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    lines_from_last(headers, X_REAL_IP).take(1).map(|line| node::loose(line.as_bytes().trim_ascii()))
}

fn lines_from_last(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &HeaderValue> {
    headers.get_all(name).into_iter().rev()
}

/// A prefix that is longer than an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixError {
    bits: u8,
    most: u8,
}

impl PrefixError {
    fn check(bits: u8, most: u8) -> Result<u8, Self> {
        if bits <= most { Ok(bits) } else { Err(Self { bits, most }) }
    }
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bits, most } = self;
        let family = if *most == 32 { "IPv4" } else { "IPv6" };
        write!(f, "a prefix of an {family} address has at most {most} bits, but this one has {bits}")
    }
}

impl Error for PrefixError {}
