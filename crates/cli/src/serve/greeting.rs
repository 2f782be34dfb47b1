//! The greeting: the addresses that it listens on, and commands to try.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollgate::store::Store;
use tollgate_server::Engine;

use super::doors::Door;
use super::example::Example;
use crate::settings::Settings;

pub(super) fn greeting<S: Store>(engine: &Engine<S>, doors: &[Door], settings: &Settings) -> String {
    let (origin, loaded) = (engine.status().origin, engine.loaded());
    let (limits, example) = (loaded.policy().limits().len(), Example::of(loaded.policy()));
    let limits = if limits == 1 { "1 limit".to_owned() } else { format!("{limits} limits") };
    let mut text = format!("tollgate {} serves {limits} from {}\n", env!("CARGO_PKG_VERSION"), origin.name);
    for Door { name, address } in doors {
        let _ = writeln!(text, "  {name:<5} {}://{address}", scheme(name, settings));
    }
    let program = std::env::args().next().unwrap_or_else(|| "tollgate".to_owned());
    text.push_str("\nTo try:\n");
    for command in doors.iter().filter_map(|door| command(door, &example, settings)) {
        let _ = writeln!(text, "  {command}");
    }
    let policy = settings.policy.as_ref().map_or_else(String::new, |path| format!(" {}", path.display()));
    let merged = if settings.merge_domains { " --merge-domains" } else { "" };
    let _ = writeln!(text, "  {program} policy check{policy}{merged}");
    text
}

fn scheme(name: &str, settings: &Settings) -> &'static str {
    match (name, settings.tls.certificate.is_some()) {
        ("resp", false) => "redis",
        ("resp", true) => "rediss",
        ("grpc", false) => "grpc",
        ("grpc", true) => "grpcs",
        (_, false) => "http",
        (_, true) => "https",
    }
}

/// Returns a command that sends a request to this listener. Words in capitals stand for values that only the user knows.
fn command(door: &Door, example: &Example, settings: &Settings) -> Option<String> {
    let address = reachable(door.address);
    let (tls, has_keys) = (&settings.tls, settings.keys.file.is_some());
    let authority = if tls.certificate.is_some() { " --cacert CA.pem" } else { "" };
    let certificate = if tls.require_client { " --cert CLIENT.pem --key CLIENT-KEY.pem" } else { "" };
    match door.name {
        "http" => {
            let token = if has_keys { " -H 'authorization: Bearer TOKEN'" } else { "" };
            Some(format!(
                "curl -i{authority}{certificate} {}://{address}/v1/check{token} -H 'content-type: application/json' -d {}",
                scheme(door.name, settings),
                example.json()
            ))
        }
        "resp" => {
            let encrypted = if authority.is_empty() { "" } else { " --tls" };
            let token = if has_keys { " -a TOKEN" } else { "" };
            let (host, port) = (address.ip(), address.port());
            Some(format!(
                "redis-cli -h {host} -p {port}{encrypted}{authority}{certificate}{token} TG.CHECK {}",
                example.words()
            ))
        }
        _ => None,
    }
}

/// Replaces an unspecified address by loopback.
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

    fn text(flags: &[(&'static str, &str)], doors: &[(&'static str, &str)]) -> String {
        let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        let settings = resolve(&Given { flags, ..Given::default() }).unwrap().settings;
        let (policy, origin) = policy::read(None).unwrap();
        let engine = Engine::new(MemoryStore::new(), policy, origin);
        let door = |(name, address): &(&'static str, &str)| Door { name, address: address.parse().unwrap() };
        greeting(&engine, &doors.iter().map(door).collect::<Vec<_>>(), &settings)
    }

    #[test]
    fn it_says_where_and_what_to_try() {
        let doors =
            [("http", "0.0.0.0:8080"), ("grpc", "0.0.0.0:8081"), ("resp", "[::]:6380"), ("admin", "[::1]:1")];
        let text = text(&[], &doors);
        let (said, tries) = text.split_once("\n\nTo try:\n").unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines[0],
            format!("tollgate {} serves 4 limits from built-in policy", env!("CARGO_PKG_VERSION"))
        );
        assert_eq!(
            lines[1..],
            [
                "  http  http://0.0.0.0:8080",
                "  grpc  grpc://0.0.0.0:8081",
                "  resp  redis://[::]:6380",
                "  admin http://[::1]:1"
            ]
        );
        let tries: Vec<&str> = tries.lines().collect();
        assert_eq!(tries.len(), 3);
        assert!(tries[0].starts_with("  curl -i http://127.0.0.1:8080/v1/check -H 'content-type"), "{text}");
        assert_eq!(tries[1], "  redis-cli -h ::1 -p 6380 TG.CHECK ip 10.0.0.7");
        assert!(tries[2].ends_with(" policy check"), "{text}");
    }

    #[test]
    fn the_policy_is_checked_as_it_is_read() {
        let text = |merge| text(&[("policy", "conf"), ("merge_domains", merge)], &[]);
        assert!(text("false").ends_with(" policy check conf\n"), "{}", text("false"));
        assert!(text("true").ends_with(" policy check conf --merge-domains\n"), "{}", text("true"));
    }

    #[test]
    fn where_callers_must_prove_who_they_are_it_says_how() {
        let flags = [
            ("tls.certificate", "c.pem"),
            ("tls.key", "k.pem"),
            ("tls.client_authorities", "a.pem"),
            ("tls.require_client", "true"),
            ("keys.file", "keys.toml"),
        ];
        let text = text(&flags, &[("http", "127.0.0.1:1"), ("grpc", "127.0.0.1:2"), ("resp", "127.0.0.1:3")]);
        for expected in [
            "  http  https://127.0.0.1:1\n",
            "  grpc  grpcs://127.0.0.1:2\n",
            "  resp  rediss://127.0.0.1:3\n",
            "  curl -i --cacert CA.pem --cert CLIENT.pem --key CLIENT-KEY.pem https://127.0.0.1:1/v1/check \
             -H 'authorization: Bearer TOKEN' -H ",
            "  redis-cli -h 127.0.0.1 -p 3 --tls --cacert CA.pem --cert CLIENT.pem --key CLIENT-KEY.pem -a TOKEN TG.CHECK",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }
}
