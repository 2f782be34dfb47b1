//! What is said when everything has begun: where it listens, and what to try first.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollgate::store::Store;
use tollgate_server::Engine;

use super::doors::Door;
use crate::settings::Settings;

pub(super) fn greeting<S: Store>(engine: &Engine<S>, doors: &[Door], settings: &Settings) -> String {
    let (origin, limits) = (engine.status().origin, engine.loaded().policy().limits().len());
    let mut text =
        format!("tollgate {} serves {limits} limits of {}\n", env!("CARGO_PKG_VERSION"), origin.name);
    for Door { protocol, address } in doors {
        let scheme = if *protocol == "resp" { "redis" } else { protocol };
        let _ = writeln!(text, "  {protocol:<5} {scheme}://{address}");
    }
    let program = std::env::args().next().unwrap_or_else(|| "tollgate".to_owned());
    text.push_str("\nTo try:\n");
    for door in doors {
        let _ = writeln!(text, "  {}", command(door));
    }
    let _ = match &settings.policy {
        Some(path) => writeln!(text, "  {program} policy check {}", path.display()),
        None => writeln!(text, "  {program} policy check"),
    };
    text
}

/// What to type to be answered there.
fn command(door: &Door) -> String {
    let address = reachable(door.address);
    match door.protocol {
        "resp" => format!("redis-cli -h {} -p {} TG.CHECK ip 10.0.0.7", address.ip(), address.port()),
        _ => format!(
            "curl -i http://{address}/v1/check -H 'content-type: application/json' -d '{{\"descriptor\": {{\"ip\": \"10.0.0.7\"}}}}'"
        ),
    }
}

/// Whoever listens everywhere listens here too.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use tollgate::store::MemoryStore;

    use super::*;
    use crate::policy;
    use crate::settings::{Given, resolve};

    #[test]
    fn it_says_where_and_what_to_try() {
        let settings = resolve(&Given::default()).unwrap().settings;
        let (policy, origin) = policy::read(None).unwrap();
        let engine = Engine::new(MemoryStore::new(), policy, origin);
        let door = |protocol, address: &str| Door { protocol, address: address.parse().unwrap() };
        let doors = [door("http", "0.0.0.0:8080"), door("resp", "[::]:6380")];
        let text = greeting(&engine, &doors, &settings);
        let (said, tries) = text.split_once("\n\nTo try:\n").unwrap();
        assert_eq!(
            said,
            format!(
                "tollgate {} serves 4 limits of built-in policy\n  http  http://0.0.0.0:8080\n  resp  redis://[::]:6380",
                env!("CARGO_PKG_VERSION")
            )
        );
        let tries: Vec<&str> = tries.lines().collect();
        assert_eq!(tries.len(), 3);
        assert!(tries[0].starts_with("  curl -i http://127.0.0.1:8080/v1/check "), "{text}");
        assert_eq!(tries[1], "  redis-cli -h ::1 -p 6380 TG.CHECK ip 10.0.0.7");
        assert!(tries[2].ends_with(" policy check"), "{text}");
    }
}
