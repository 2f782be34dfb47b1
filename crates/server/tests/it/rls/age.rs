//! Connections that have reached their maximum age.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tollgate::store::MemoryStore;
use tollgate_server::{ConnectionAge, Engine, Metrics, Origin, RlsProtocol, Running, Server};

use super::frames::{DATA, END_STREAM, GOAWAY, HEADERS, any, call, frame, next, number, opening};
use super::rig::policy;

const NO_ERROR: u32 = 0;
/// A message without a field, as gRPC frames it.
const EMPTY: [u8; 5] = [0; 5];

/// A server whose connections reach their age at once, and a connection to it on which a call has begun.
fn begin_call(grace: Option<Duration>) -> (Running, TcpStream) {
    let engine = Engine::new(MemoryStore::new(), policy("[limit.a]\nrate = \"9/h\"\n"), Origin::default());
    let mut server = Server::new(engine).workers(1);
    let age = ConnectionAge { max: Duration::from_millis(1), grace };
    let protocol = RlsProtocol::new(&Metrics::new()).max_connection_age(Some(age));
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let address = server.listen(nowhere, protocol, None).unwrap();
    let running = server.start().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&[opening(), call(1)].concat()).unwrap();
    (running, stream)
}

/// Item 26.6: a connection that has reached its age is sent a GOAWAY, and a call that has begun is answered.
#[test]
fn an_old_connection_is_sent_a_goaway_and_finishes_its_calls() {
    let (running, mut stream) = begin_call(None);
    assert_eq!(number(&next(&mut stream, GOAWAY)[4..8]), NO_ERROR);
    stream.write_all(&frame(DATA, END_STREAM, 1, &EMPTY)).unwrap();
    let mut is_answered = false;
    while !is_answered {
        is_answered = any(&mut stream).0 == HEADERS;
    }
    running.drain(Duration::ZERO).unwrap();
}

/// Item 26.6: after the grace the connection is closed, whatever goes on there.
#[test]
fn an_old_connection_is_closed_after_the_grace() {
    let (running, mut stream) = begin_call(Some(Duration::from_millis(1)));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest); // ends with the connection, or is reset
    running.drain(Duration::ZERO).unwrap();
}
