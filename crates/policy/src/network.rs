//! Networks of addresses.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Reads a network such as `10.0.0.0/8`, or a single address. The errors say what is wrong and, second, what would help.
pub(crate) fn parse(text: &str) -> Result<IpNet, (String, Option<String>)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        let expected = "such as 10.0.0.0/8 or 2001:db8::/32";
        return Err((format!("expected a network {expected}, found {text:?}"), None));
    };
    let (family, most) = if address.is_ipv4() { ("IPv4", 32) } else { ("IPv6", 128) };
    let length = match length.map(|length| number(length).filter(|length| *length <= most)) {
        None => most,
        Some(Some(length)) => length,
        Some(None) => {
            let problem =
                format!("invalid network {text:?}: the prefix of an {family} network has 0 to {most} bits");
            return Err((problem, None));
        }
    };
    let net = IpNet::new_assert(address, length);
    if net.addr() != net.network() {
        let problem = format!("invalid network {text:?}: the address has bits beyond its prefix of {length}");
        return Err((problem, Some(format!("did you mean {} or {address}/{most}?", net.trunc()))));
    }
    Ok(canonical(net))
}

fn number(text: &str) -> Option<u8> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// IPv4 inside of IPv6 (`::ffff:10.0.0.0/104`) is IPv4.
fn canonical(net: IpNet) -> IpNet {
    let IpNet::V6(v6) = net else { return net };
    match (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
        (Some(address), Some(length)) => IpNet::V4(Ipv4Net::new_assert(address, length)),
        _ => net,
    }
}

/// The address that a value is, if it is one; IPv4 inside of IPv6 is IPv4.
pub(crate) fn address(value: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(value).ok()?.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// The network that an IPv6 address is counted as, which has so many bits; or the IPv4 address that it is. `None` for all other
/// values: those are counted as they are.
pub(crate) fn counted(value: &[u8], ipv6_prefix: u8) -> Option<IpNet> {
    memchr::memchr(b':', value)?;
    Some(match address(value)? {
        IpAddr::V4(v4) => IpNet::from(IpAddr::V4(v4)),
        IpAddr::V6(v6) => IpNet::V6(Ipv6Net::new_assert(v6, ipv6_prefix.min(128)).trunc()),
    })
}

/// The family and the bits of an address, one in each byte. So a network is a text that its addresses start with.
pub(crate) struct Bits {
    bits: [u8; 129],
    length: usize,
}

impl Bits {
    pub(crate) fn of(address: IpAddr) -> Self {
        let mut bits = [0; 129];
        match address {
            IpAddr::V4(v4) => spread(&mut bits, 4, &v4.octets()),
            IpAddr::V6(v6) => spread(&mut bits, 6, &v6.octets()),
        }
        Self { bits, length: if address.is_ipv4() { 33 } else { 129 } }
    }

    pub(crate) fn of_network(net: &IpNet) -> Box<[u8]> {
        Self::of(net.network()).as_bytes()[..=usize::from(net.prefix_len())].into()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bits[..self.length]
    }
}

fn spread(bits: &mut [u8; 129], family: u8, octets: &[u8]) {
    bits[0] = family;
    for (eight, octet) in bits[1..].chunks_exact_mut(8).zip(octets) {
        for (place, bit) in eight.iter_mut().enumerate() {
            *bit = octet >> (7 - place) & 1;
        }
    }
}

/// Whether a value is an address of the network.
pub(crate) fn contains(net: &IpNet, value: &[u8]) -> bool {
    address(value).is_some_and(|address| net.contains(&address))
}

/// As people write it: an address alone stands for itself.
pub(crate) fn show(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    #[test]
    fn reads_networks_and_addresses() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ] {
            assert_eq!(parse(text), Ok(expected.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn names_what_is_impossible() {
        let problem = |text| parse(text).unwrap_err();
        assert_eq!(
            problem("10.0.0.1/8"),
            (
                "invalid network \"10.0.0.1/8\": the address has bits beyond its prefix of 8".to_owned(),
                Some("did you mean 10.0.0.0/8 or 10.0.0.1/32?".to_owned())
            )
        );
        let too_long = "invalid network \"10.0.0.0/33\": the prefix of an IPv4 network has 0 to 32 bits";
        assert_eq!(problem("10.0.0.0/33").0, too_long);
        for text in ["::/129", "::/", "::/-1", "::/+1", "::/999999999999"] {
            let expected =
                format!("invalid network {text:?}: the prefix of an IPv6 network has 0 to 128 bits");
            assert_eq!(problem(text).0, expected);
        }
        for text in ["", "/8", "10.0.0/8", "10.0.0.256", "internal"] {
            assert!(problem(text).0.starts_with("expected a network such as 10.0.0.0/8"), "{text}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_other_family() {
        let v4: IpNet = "10.0.0.0/8".parse().unwrap();
        let all_v6: IpNet = "::/0".parse().unwrap();
        assert!(contains(&v4, b"10.255.0.1") && contains(&v4, b"::ffff:10.0.0.1"));
        assert!(!contains(&v4, b"11.0.0.0") && !contains(&v4, b"10.0.0.1 ") && !contains(&v4, b"\xff"));
        assert!(
            contains(&all_v6, b"::1")
                && !contains(&all_v6, b"10.0.0.1")
                && !contains(&all_v6, b"::ffff:10.0.0.1")
        );
    }

    proptest! {
        #[test]
        fn bits_start_with_those_of_the_network(net: u32, length in 0_u8..=32, address: u32) {
            let net = Ipv4Net::new_assert(Ipv4Addr::from(net), length);
            let address = IpAddr::V4(Ipv4Addr::from(address));
            let starts = Bits::of(address).as_bytes().starts_with(&Bits::of_network(&IpNet::V4(net)));
            prop_assert_eq!(starts, IpNet::V4(net).contains(&address));
        }
    }
}
