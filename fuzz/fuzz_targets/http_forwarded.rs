//! Whatever a caller sends, it does not choose who it is.
//!
//! The first byte chooses the field; the rest is what the caller sends in it, in lines. Then a trusted proxy adds whom it got the
//! call from, and that is who it is.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tollgate_http::{AddressField, ClientAddress};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

fuzz_target!(|input: &[u8]| {
    let Some((choice, sent)) = input.split_first() else {
        return;
    };
    let (field, name, added) = match choice % 4 {
        0 => (AddressField::XRealIp, "x-real-ip", "203.0.113.9"),
        1 => (AddressField::XForwardedFor, "x-forwarded-for", "203.0.113.9, 10.0.0.2"),
        2 => (AddressField::Forwarded, "forwarded", "for=203.0.113.9"),
        _ => (
            AddressField::Forwarded,
            "forwarded",
            "host=\"a,\\\"\\\\\";for=\"203.0.113.9:1\", for=\"10.0.0.2:_x\"",
        ),
    };
    let clients = ClientAddress::behind(["10.0.0.0/8".parse().unwrap()], field);
    let mut headers = HeaderMap::new();
    for value in sent.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(HeaderName::from_static(name), value);
    }

    // From somebody who is not trusted, nothing is believed, nor by default from anybody.
    assert_eq!(clients.resolve(CALLER, &headers), CALLER);
    assert_eq!(ClientAddress::default().resolve(PROXY, &headers), PROXY);
    let resolved = clients.resolve(PROXY, &headers);
    assert!(clients.key(PROXY, &headers).contains(&resolved));

    // In a line of its own, and at the end of the caller's last line.
    let mut own_line = headers.clone();
    own_line.append(HeaderName::from_static(name), HeaderValue::from_static(added));
    assert_eq!(clients.resolve(PROXY, &own_line), CALLER);
    let last = headers.get_all(name).iter().next_back().map(HeaderValue::as_bytes).unwrap_or_default();
    if field != AddressField::XRealIp {
        let line = [last, b", ", added.as_bytes()].concat();
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(&line).unwrap());
        assert_eq!(clients.resolve(PROXY, &headers), CALLER);
    }
});
