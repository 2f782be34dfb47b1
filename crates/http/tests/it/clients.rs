//! Whoever calls, and whatever they pretend, the address is one that somebody trusted has seen.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use serde_json::Value;
use tollgate_http::{AddressField, ClientAddress, IpNet};

/// One line of `testdata/client-addresses.jsonl`. Fields are bytes: each character stands for one.
struct Case {
    headers: HeaderMap,
    peer: IpAddr,
    trusted: Vec<IpNet>,
    field: AddressField,
    expected: IpAddr,
    why: String,
}

fn corpus() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/client-addresses.jsonl");
    fs::read_to_string(path).unwrap().lines().map(case).collect()
}

fn case(line: &str) -> Case {
    let case: Value = serde_json::from_str(line).unwrap();
    let text = |key: &str| case[key].as_str().unwrap();
    let strings = |key: &str| case[key].as_array().unwrap().iter().map(|value| value.as_str().unwrap());
    let mut headers = HeaderMap::new();
    for line in strings("lines") {
        let bytes: Vec<u8> = line.chars().map(|c| u8::try_from(c).unwrap()).collect();
        let name: HeaderName = text("field").parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(&bytes).unwrap());
    }
    let field = match text("field") {
        "forwarded" => AddressField::Forwarded,
        "x-forwarded-for" => AddressField::XForwardedFor,
        "x-real-ip" => AddressField::XRealIp,
        other => panic!("{other}"),
    };
    Case {
        headers,
        peer: text("peer").parse().unwrap(),
        trusted: strings("trusted").map(|network| network.parse().unwrap()).collect(),
        field,
        expected: text("expected").parse().unwrap(),
        why: format!("{}: {line}", text("why")),
    }
}

#[test]
fn spoofed_and_odd_fields_resolve_as_specified() {
    let corpus = corpus();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    for Case { headers, peer, trusted, field, expected, why } in corpus {
        assert_eq!(ClientAddress::behind(trusted, field).resolve(peer, &headers), expected, "{why}");
    }
}

#[test]
fn no_field_changes_the_key_in_the_default_set_up() {
    let clients = ClientAddress::default();
    for Case { headers, peer, why, .. } in corpus() {
        assert_eq!(clients.resolve(peer, &headers), peer.to_canonical(), "{why}");
        assert_eq!(clients.key(peer, &headers), clients.key(peer, &HeaderMap::new()), "{why}");
    }
}

#[test]
fn only_the_chosen_field_is_believed() {
    let mut headers = HeaderMap::new();
    headers.insert("forwarded", HeaderValue::from_static("for=192.0.2.1"));
    headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.2"));
    headers.insert("x-real-ip", HeaderValue::from_static("192.0.2.3"));
    let resolved = |field| behind_ten(field).resolve(ip("10.0.0.1"), &headers).to_string();
    assert_eq!(resolved(AddressField::Forwarded), "192.0.2.1");
    assert_eq!(resolved(AddressField::XForwardedFor), "192.0.2.2");
    assert_eq!(resolved(AddressField::XRealIp), "192.0.2.3");
}

#[test]
fn addresses_of_one_caller_are_one_group() {
    let by_default = ClientAddress::peer();
    let coarse = ClientAddress::peer().ipv4_prefix(24).unwrap().ipv6_prefix(48).unwrap();
    let cases = [
        ("192.0.2.77", "192.0.2.77/32", "192.0.2.0/24"),
        ("::ffff:192.0.2.77", "192.0.2.77/32", "192.0.2.0/24"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64", "2001:db8:1::/48"),
        ("::1", "::/64", "::/48"),
    ];
    for (address, group, coarse_group) in cases {
        assert_eq!(by_default.group(ip(address)).to_string(), group, "{address}");
        assert_eq!(coarse.group(ip(address)).to_string(), coarse_group, "{address}");
        // The same for a connection's other end.
        let no_fields = HeaderMap::new();
        assert_eq!(by_default.key(ip(address), &no_fields).to_string(), group, "{address}");
        assert_eq!(coarse.key(ip(address), &no_fields).to_string(), coarse_group, "{address}");
    }
    let everybody = ClientAddress::peer().ipv6_prefix(0).unwrap();
    assert_eq!(everybody.group(ip("2001:db8::1")).to_string(), "::/0");
    let nobody_else = ClientAddress::peer().ipv6_prefix(128).unwrap();
    assert_eq!(nobody_else.group(ip("2001:db8::1")).to_string(), "2001:db8::1/128");
}

#[test]
fn prefixes_that_are_too_long_are_refused() {
    let message = |result: Result<ClientAddress, tollgate_http::PrefixError>| result.unwrap_err().to_string();
    assert_eq!(
        message(ClientAddress::peer().ipv4_prefix(33)),
        "a prefix of an IPv4 address has at most 32 bits, but this one has 33"
    );
    assert_eq!(
        message(ClientAddress::peer().ipv6_prefix(129)),
        "a prefix of an IPv6 address has at most 128 bits, but this one has 129"
    );
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn behind_ten(field: AddressField) -> ClientAddress {
    ClientAddress::behind(["10.0.0.0/8".parse().unwrap()], field)
}

const FIELDS: [(AddressField, &str); 3] = [
    (AddressField::Forwarded, "forwarded"),
    (AddressField::XForwardedFor, "x-forwarded-for"),
    (AddressField::XRealIp, "x-real-ip"),
];

/// Anything that can be in a field, and rather often what means something there.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..6),
        "[\",;=\\\\\\[\\]:. ]{1,4}".prop_map(String::into_bytes),
        "(for=|For=\"|host=\"|, ?|;|\"|10\\.0\\.0\\.2|1\\.1\\.1\\.1|\\[::1\\]|unknown|_x)"
            .prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

fn value(bytes: &[u8]) -> Option<HeaderValue> {
    // What cannot be a header at all never gets as far as us.
    HeaderValue::from_bytes(bytes).ok()
}

/// What a trusted proxy adds, and whom it names.
fn added() -> impl Strategy<Value = (&'static str, &'static str, &'static str)> {
    prop_oneof![
        Just(("for=203.0.113.9", "203.0.113.9", "203.0.113.9")),
        Just(("proto=https;for=\"203.0.113.9:81\"", "203.0.113.9:81", "203.0.113.9")),
        Just(("for=\"[2001:db8::9]\";host=\"a,\\\"b\\\\\"", "2001:db8::9", "2001:db8::9")),
        Just(("for=\"[2001:db8::9]:443\"", "[2001:db8::9]:443", "2001:db8::9")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn what_proxies_add_decides_whatever_the_caller_sent(
        sent in proptest::collection::vec(bytes(), 0..3),
        (forwarded, x_forwarded_for, expected) in added(),
        on_its_own_line in any::<bool>(),
        second_proxy in any::<bool>(),
    ) {
        for (field, name, mut added) in [
            (AddressField::Forwarded, "forwarded", forwarded.to_owned()),
            (AddressField::XForwardedFor, "x-forwarded-for", x_forwarded_for.to_owned()),
        ] {
            if second_proxy {
                added += if field == AddressField::Forwarded { ", for=\"10.0.0.2:80\"" } else { ",10.0.0.2" };
            }
            let mut lines: Vec<Vec<u8>> = sent.iter().filter(|line| value(line).is_some()).cloned().collect();
            match lines.last_mut() {
                Some(line) if !on_its_own_line => {
                    line.extend_from_slice(b", ");
                    line.extend_from_slice(added.as_bytes());
                }
                _ => lines.push(added.into_bytes()),
            }
            let mut headers = HeaderMap::new();
            for line in &lines {
                headers.append(HeaderName::from_static(name), value(line).unwrap());
            }
            prop_assert_eq!(behind_ten(field).resolve(ip("10.0.0.1"), &headers), ip(expected), "{:?}", headers);
        }
    }

    #[test]
    fn nothing_panics_and_nobody_untrusted_is_believed(
        lines in proptest::collection::vec(bytes(), 0..4),
        index in 0..FIELDS.len(),
    ) {
        let (field, name) = FIELDS[index];
        let mut headers = HeaderMap::new();
        for value in lines.iter().filter_map(|line| value(line)) {
            headers.append(HeaderName::from_static(name), value);
        }
        let clients = behind_ten(field);
        let resolved = clients.resolve(ip("10.0.0.1"), &headers);
        prop_assert_eq!(resolved, resolved.to_canonical());
        prop_assert!(clients.key(ip("10.0.0.1"), &headers).contains(&resolved));
        prop_assert_eq!(clients.resolve(ip("203.0.113.9"), &headers), ip("203.0.113.9"));
        prop_assert_eq!(ClientAddress::peer().resolve(ip("10.0.0.1"), &headers), ip("10.0.0.1"));
    }

    /// Reading from the right gives what was written from the left.
    #[test]
    fn a_list_without_mistakes_is_read_as_it_was_written(
        hops in proptest::collection::vec((any::<bool>(), any::<u32>(), "[ -~]{0,8}", any::<bool>()), 0..6),
    ) {
        let mut lines = vec![String::new()];
        let mut addresses = Vec::new();
        for (is_trusted, bits, host, breaks) in hops {
            let bits = if is_trusted { 10 << 24 | bits >> 8 } else { bits };
            let address = IpAddr::V4(bits.into());
            let host = host.replace('\\', "\\\\").replace('"', "\\\"");
            if breaks {
                lines.push(String::new());
            }
            let line = lines.last_mut().unwrap();
            let comma = if line.is_empty() { "" } else { ", " };
            write!(line, "{comma}host=\"x{host}\";for={address}").unwrap();
            addresses.push(address);
        }
        let mut headers = HeaderMap::new();
        for line in &lines {
            headers.append("forwarded", line.parse().unwrap());
        }
        let is_proxy = |address: &IpAddr| matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10);
        let caller = addresses.iter().rev().find(|address| !is_proxy(address));
        let expected = caller.or(addresses.first()).copied().unwrap_or(ip("10.0.0.1"));
        prop_assert_eq!(behind_ten(AddressField::Forwarded).resolve(ip("10.0.0.1"), &headers), expected);
    }
}
