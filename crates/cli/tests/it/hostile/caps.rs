//! How many connections a listener, and an address, may have.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::process::Command;

use super::http2::Http2;
use super::start;
use super::way::Way;
use super::wire::{Over, Place, Wire};
use crate::support::certificates::Files;
use crate::support::{Service, until};

/// Opens up to so many connections, as the listener takes them. Each makes a request and stays.
fn hold(way: Way, place: &Place, count: usize) -> Vec<Wire> {
    (0..count).map_while(|_| way.served(place)).collect()
}

fn each_address_has_its_share(files: Option<&Files>) {
    // On the admin listener an address gets a quarter of its connections.
    let service = start(files, &["--max-connections-per-address=4", "--admin-max-connections=16"]);
    for way in Way::LISTENERS {
        let place = way.place(&service, files.map(|files| files.caller(None)));
        let other = Place { from: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), ..place.clone() };
        let held = hold(way, &place, 4);
        assert_eq!(held.len(), 4, "{way:?}: four connections of an address get in");
        assert!(!way.answers(&place), "{way:?}: a fifth connection of the address is refused");
        assert!(way.answers(&other), "{way:?}: another address gets in");
        drop(held);
        until("the address gets in again", || way.answers(&place));
    }
}

/// Guards, item 1: one client address cannot use up a listener.
#[test]
fn an_address_with_too_many_connections_is_refused_and_others_get_in() {
    each_address_has_its_share(None);
    each_address_has_its_share(Some(&Files::new()));
}

/// Guards, item 1: the admin listener has connections of its own.
#[test]
fn a_full_listener_leaves_the_others_answering() {
    let service = start(None, &["--max-connections=6", "--admin-max-connections=3"]);
    let place = |way: Way, client: usize| {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, client as u8));
        Place { from, ..way.place(&service, None) }
    };
    let [http, admin, grpc, resp] = Way::LISTENERS;
    for (way, count, other) in [(admin, 3, http), (http, 6, admin), (grpc, 6, admin), (resp, 6, admin)] {
        // The connections before may still be open on the server's side.
        let mut held = Vec::new();
        until("the listener takes as many as it may", || {
            held.clear();
            held.extend((1..=count).map_while(|client| way.served(&place(way, client))));
            held.len() == count
        });
        assert!(!way.answers(&place(way, 10)), "{way:?} is full");
        assert!(other.answers(&place(other, 10)), "{other:?} answers while {way:?} is full");
    }
}

/// Guards, item 1: a client that keeps its connections open by sending byte by byte has as many as any other.
#[test]
fn dripping_connections_count() {
    let service = start(None, &["--max-connections-per-address=4", "--admin-max-connections=16"]);
    for way in Way::ALL {
        let place = way.place(&service, None);
        // The connections of the client before may still be open on the server's side.
        let mut dripping = Vec::new();
        until("the address gets its connections", || {
            dripping.clear();
            dripping = hold(way, &place, 4);
            dripping.len() == 4
        });
        // The first byte of a method or command, or of a frame's length.
        let drop_of = if matches!(way, Way::Http2 | Way::AdminHttp2 | Way::Grpc) { b"\0" } else { b"G" };
        for _ in 0..3 {
            for wire in &mut dripping {
                wire.send(drop_of).expect("it is open");
            }
            assert!(!way.answers(&place), "{way:?}: a fifth connection is refused");
        }
        assert!(dripping.iter_mut().all(|wire| wire.wait().is_ok()), "{way:?}: the others are open");
        drop(dripping);
        until("the address gets in again", || way.answers(&place));
    }
}

/// Guards, item 2: `http.connection_body_bytes` is what the bodies of a connection hold.
#[test]
fn bodies_wait_for_the_budget_of_their_connection() {
    for (budget, first) in [("64KiB", 1), ("2MiB", 3)] {
        let service = start(None, &["--http-connection-body-bytes", budget]);
        for way in [Way::Http2, Way::Grpc] {
            let mut wire = way.place(&service, None).open().expect("the listener accepts");
            assert_eq!(first_answered(&mut wire, way), Ok(first), "{way:?} with {budget}");
        }
    }
}

/// Begins a request on stream 1, makes another on stream 3, and then ends the first. Which is answered first.
fn first_answered(wire: &mut Wire, way: Way) -> Result<u32, Over> {
    let mut client = Http2::begin(wire, 65_535)?;
    let slow = client.open(&way.upload(0), 0)?;
    client.send_data(slow, b"a")?;
    client.ask(&way.upload(0))?;
    client.ping()?; // by its answer, the server has both
    client.end(slow)?;
    while client.answered.is_empty() {
        client.wait()?;
    }
    Ok(client.answered[0])
}

/// Guards, item 11: a flood of connections is not a flood of log lines.
#[test]
fn refused_connections_are_counted_in_a_few_lines() {
    let service = start(None, &["--max-connections=1", "--max-connections-per-address=1"]);
    let _first = hold(Way::Http1, &Way::Http1.place(&service, None), 1);
    let before = lines(&service);
    for refused in 0..600 {
        let mut stream = TcpStream::connect(service.http).expect("the system accepts");
        let _ = stream.read_to_end(&mut Vec::new()); // a refusal, or only the end
        if refused == 0 {
            until("the first refusal is logged at once", || lines(&service) > before);
        }
    }
    assert!(lines(&service) <= before + 4, "{}", service.log());
    // Ten seconds after the first line the second says how many there were since.
    let is_count = |line: &str| line.split(|c: char| !c.is_ascii_digit()).any(|number| number == "599");
    until("the refusals since are counted", || service.log().lines().skip(before).any(is_count));
    assert!(lines(&service) <= before + 5, "{}", service.log());
}

fn lines(service: &Service) -> usize {
    service.log().lines().count()
}

/// Guards, item 1: a process with few files keeps some for the admin listener.
#[test]
fn a_low_limit_of_open_files_leaves_the_admin_listener_answering() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 300; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tollgate"), "serve"]);
    command.args(["--max-connections-per-address=1000", "--grpc-address=none", "--resp-address=none"]);
    command.args(["--http-address=127.0.0.1:0", "--admin-address=127.0.0.1:0"]);
    let service = Service::of(&mut command);
    // 300 files less 128 for other things and 100 for the admin listener.
    let held = hold(Way::Http1, &Way::Http1.place(&service, None), 300);
    assert_eq!(held.len(), 72, "{}", service.log());
    let [_, admin, ..] = Way::LISTENERS;
    assert!(admin.answers(&admin.place(&service, None)));
    assert!(service.log().contains("the limit of open files is too low"), "{}", service.log());
}
