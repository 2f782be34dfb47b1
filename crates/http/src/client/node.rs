//! Nodes: an address, perhaps with a port, or a word in its place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address of a node as RFC 7239 writes it: `192.0.2.43`, `192.0.2.43:47011`, `[2001:db8::17]`, `[2001:db8::17]:_port`. None if
/// it is `unknown`, an obfuscated identifier such as `_hidden`, or nothing of the kind.
pub(super) fn strict(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), port)
    } else {
        let (address, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        (IpAddr::V4(address.parse::<Ipv4Addr>().ok()?), port)
    };
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then(|| address.to_canonical())
}

/// The same, where IPv6 need not stand in brackets.
pub(super) fn loose(text: &[u8]) -> Option<IpAddr> {
    let bare = || std::str::from_utf8(text).ok()?.parse::<Ipv6Addr>().ok();
    strict(text).or_else(|| bare().map(|address| IpAddr::V6(address).to_canonical()))
}

/// One to five digits, or an obfuscated port.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        }
        None => matches!(text.len(), 1..=5) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str) -> [Option<String>; 2] {
        [strict(text.as_bytes()), loose(text.as_bytes())].map(|node| node.map(|address| address.to_string()))
    }

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        let cases = [
            ("192.0.2.43", "192.0.2.43"),
            ("192.0.2.43:47011", "192.0.2.43"),
            ("192.0.2.43:_a.b-c_d", "192.0.2.43"),
            ("192.0.2.43:99999", "192.0.2.43"),
            ("[2001:db8:cafe::17]", "2001:db8:cafe::17"),
            ("[2001:DB8:CAFE:0:0:0:0:17]:4711", "2001:db8:cafe::17"),
            ("[::ffff:192.0.2.43]", "192.0.2.43"),
            ("[::]", "::"),
        ];
        for (text, address) in cases {
            assert_eq!(both(text), [Some(address.into()), Some(address.into())], "{text}");
        }
    }

    #[test]
    fn only_where_it_is_common_ipv6_needs_no_brackets() {
        assert_eq!(both("2001:db8::17"), [None, Some("2001:db8::17".into())]);
        assert_eq!(both("::ffff:192.0.2.43"), [None, Some("192.0.2.43".into())]);
    }

    #[test]
    fn what_is_no_address_is_none() {
        let cases = [
            "",
            "unknown",
            "_hidden",
            "_SEVKISEK",
            "example.com",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.043",
            "192.0.2.43:",
            "192.0.2.43:123456",
            "192.0.2.43:8o",
            "192.0.2.43:_",
            "192.0.2.43:_a/b",
            "192.0.2.43 ",
            "0xc0000243",
            "3221226051",
            "[192.0.2.43]",
            "[2001:db8::17",
            "2001:db8::17]",
            "[2001:db8::17]4711",
            "[2001:db8::17]:",
            "[2001:db8::17]:4711:",
            "[[2001:db8::17]]",
            "[fe80::1%eth0]",
            "fe80::1%eth0",
            "2001:db8::17::1",
            "[]",
            "١٩٢.0.2.43",
        ];
        for text in cases {
            assert_eq!(both(text), [None, None], "{text}");
        }
        assert_eq!((strict(b"\xff"), loose(b"\xff")), (None, None));
    }
}
