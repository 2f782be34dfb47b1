//! Hostile clients × every listener, plain and over TLS.
//!
//! Each test is one client. It attacks every listener with several connections at once, each listener in a process of its own, and
//! asserts three things: the server closes the connections within their time-out, its memory stays bounded, and the other listeners
//! answer meanwhile. A closed stream of HTTP/2 counts like a closed connection where only the stream has a time-out.
//!
//! With `--nocapture` each test prints its rows of a table: client, then, for HTTP/1.1, HTTP/2, admin over HTTP/1.1, admin over
//! HTTP/2, gRPC and RESP, when the last of the connections was closed and by how much resident memory grew at its peak.

mod caps;
mod clients;
mod defaults;
mod http2;
mod way;
mod wire;

use std::fmt::Write as _;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::support::certificates::{Caller, Files};
use crate::support::{Service, policy, until};
use way::Way;
use wire::{Over, Place, Wire};

const FIRST_REQUEST: Duration = Duration::from_millis(500);
/// For heads, bodies, commands and writes.
const SLOW: Duration = Duration::from_millis(700);
const IDLE: Duration = Duration::from_secs(1);

/// The time-outs above, as flags.
const FLAGS: [&str; 7] = [
    "--first-request-timeout=500ms",
    "--http-head-timeout=700ms",
    "--http-body-timeout=700ms",
    "--http-write-timeout=700ms",
    "--http-idle-timeout=1s",
    "--resp-slow-timeout=700ms",
    "--resp-idle-timeout=1s",
];

/// How many connections attack at once.
const CONNECTIONS: usize = 3;
/// How late a close may be noticed on a busy machine, beyond the quarter that the server may add to a time-out.
const TOLERANCE: Duration = Duration::from_millis(750);
const MIB: u64 = 1 << 20;

/// When the server must have closed a connection.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// After a time-out, and not at once.
    After(Duration),
    /// At once, or after a time-out.
    By(Duration),
    /// At any time, or never: the connection is slow but within the rules.
    Whenever,
}

impl Due {
    fn is_met(self, ended: &Ended) -> bool {
        let is_over = ended.over != Err(Over::Open);
        let is_before = |span: Duration| is_over && ended.after <= span * 5 / 4 + TOLERANCE;
        match self {
            // The server's time may begin a little before the client's.
            Self::After(span) => is_before(span) && ended.after >= span * 3 / 4,
            Self::By(span) => is_before(span),
            Self::Whenever => true,
        }
    }
}

type Attack = fn(&mut Wire, Way, usize) -> Result<(), Over>;

/// A hostile client.
#[derive(Clone, Copy)]
struct Client {
    name: &'static str,
    attack: Attack,
    due: fn(Way, usize) -> Due,
    /// By how much it may make resident memory grow.
    memory: u64,
    /// The size of the client's socket buffers.
    buffers: Option<usize>,
    /// How long it keeps trying.
    limit: Duration,
    /// Whether it leaves even TLS unspoken.
    is_bare: bool,
}

impl Client {
    fn new(name: &'static str, attack: Attack, due: fn(Way, usize) -> Due) -> Self {
        Self {
            name,
            attack,
            due,
            memory: 16 * MIB,
            buffers: None,
            limit: Duration::from_secs(5),
            is_bare: false,
        }
    }

    /// Attacks a listener with one connection.
    fn run(&self, place: Place, way: Way, index: usize) -> Ended {
        let place = Place { buffers: self.buffers, limit: self.limit, ..place };
        let opened = if self.is_bare { place.open_bare() } else { place.open() };
        let mut wire = opened.expect("the listener accepts");
        let over = (self.attack)(&mut wire, way, index);
        Ended { index, over, after: wire.elapsed() }
    }

    /// Attacks one listener of a service with several connections, while honest clients call the others.
    fn attack(&self, way: Way, caller: Option<&Caller>, service: &Service) -> Cell {
        let place = |way: Way| way.place(service, caller.cloned());
        let mut cell = Cell::default();
        let before = begin_peak(service);
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel();
            for index in 0..CONNECTIONS {
                let done = done.clone();
                scope.spawn(move || done.send(self.run(place(way), way, index)));
            }
            drop(done);
            loop {
                match ended.recv_timeout(Duration::from_millis(100)) {
                    Ok(ended) => cell.ended((self.due)(way, ended.index), &ended),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                let others =
                    Way::LISTENERS.iter().filter(|other| other.address(service) != way.address(service));
                cell.problems.extend(
                    others
                        .filter(|other| !other.answers(&place(**other)))
                        .map(|other| format!("{other:?} did not answer meanwhile")),
                );
            }
        });
        cell.grown = resident(service, "VmHWM").saturating_sub(before);
        if cell.grown > self.memory {
            cell.problems.push(format!("memory grew by {} MiB", cell.grown / MIB));
        }
        until("the attacked listener answers again", || way.answers(&place(way)));
        cell
    }

    /// Attacks each listener, in a process of its own, and prints a row of the table.
    fn row(&self, is_tls: bool) -> Vec<String> {
        let files = is_tls.then(Files::new);
        let attack = |way| {
            let service = start(files.as_ref(), &FLAGS);
            let caller = files.as_ref().map(|files| files.caller(None));
            self.attack(way, caller.as_ref(), &service)
        };
        let cells = thread::scope(|scope| {
            Way::ALL
                .map(|way| (way, scope.spawn(move || attack(way))))
                .map(|(way, cell)| (way, cell.join().unwrap()))
        });
        let name = if is_tls { format!("{}, TLS", self.name) } else { self.name.to_owned() };
        let mut row = format!("\n| {name} |");
        for (_, cell) in &cells {
            let _ = write!(row, " {} |", cell.text());
        }
        println!("{row}");
        let problems = cells.into_iter().flat_map(|(way, cell)| {
            cell.problems.into_iter().map(move |problem| format!("{way:?}: {problem}"))
        });
        problems.map(|problem| format!("{name}: {problem}")).collect()
    }

    fn check(&self) {
        let problems = [self.row(false), self.row(true)].concat();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

/// How a connection ended.
struct Ended {
    index: usize,
    over: Result<(), Over>,
    after: Duration,
}

/// The result of an attack on one listener.
#[derive(Default)]
struct Cell {
    last: Duration,
    is_open: bool,
    grown: u64,
    problems: Vec<String>,
}

impl Cell {
    fn ended(&mut self, due: Due, ended: &Ended) {
        self.last = self.last.max(ended.after);
        self.is_open |= ended.over == Err(Over::Open);
        if !due.is_met(ended) {
            let Ended { index, over, after } = ended;
            self.problems.push(format!("connection {index}: {over:?} after {after:?}, due {due:?}"));
        }
    }

    fn text(&self) -> String {
        let (seconds, tenths) = (self.last.as_secs_f64(), self.grown * 10 / MIB);
        let end = if self.is_open { format!("open at {seconds:.1} s") } else { format!("{seconds:.2} s") };
        format!("{end}, {}.{} MiB", tenths / 10, tenths % 10)
    }
}

/// Starts a service: with certificates, over TLS.
fn start(files: Option<&Files>, flags: &[&str]) -> Service {
    let tls = files.map(|files| files.flags(false)).unwrap_or_default();
    let flags: Vec<&str> = flags.iter().copied().chain(tls.iter().map(String::as_str)).collect();
    Service::start(&flags)
}

/// Forgets the peak of a service's resident memory so far. Returns what is resident.
fn begin_peak(service: &Service) -> u64 {
    fs::write(format!("/proc/{}/clear_refs", service.id()), "5").expect("the peak can be reset");
    resident(service, "VmRSS")
}

/// The resident memory of a service in bytes: `VmRSS` is that of now, `VmHWM` the peak.
fn resident(service: &Service, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.id())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("a number of kB");
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// Guards, item 1: a connection that says nothing, on any listener, before TLS too.
#[test]
fn silent_clients_are_closed() {
    let client = Client::new("silent", clients::stay_silent, |_, _| Due::After(FIRST_REQUEST));
    Client { is_bare: true, ..client }.check();
}

/// Guards, item 1.
#[test]
fn clients_that_are_silent_after_the_handshake_are_closed() {
    let client =
        Client::new("silent after the handshake", clients::stay_silent, |_, _| Due::After(FIRST_REQUEST));
    let problems = client.row(true);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Guards, item 1: neither hyper nor tonic times the preface of HTTP/2.
#[test]
fn half_a_preface_is_closed() {
    Client::new("half a preface", clients::send_half_a_preface, |_, _| Due::After(FIRST_REQUEST)).check();
}

/// Guards, item 1.
#[test]
fn a_dripping_first_head_is_closed() {
    Client::new("dripping head", clients::drip_a_head, |_, _| Due::After(FIRST_REQUEST)).check();
}

/// Guards, item 1.
#[test]
fn a_dripping_second_head_is_closed_or_harmless() {
    let due = |way: Way, _| if way.is_http2() { Due::Whenever } else { Due::After(SLOW) };
    let client = Client::new("dripping second head", clients::drip_a_second_head, due);
    Client { limit: IDLE * 5 / 2, ..client }.check();
}

/// Guards, item 2: every body has a deadline.
#[test]
fn dripping_bodies_are_closed() {
    let due = |_, index| Due::After(if index == 0 { FIRST_REQUEST } else { SLOW });
    Client::new("dripping body", clients::drip_a_body, due).check();
}

/// Guards, item 2: the bodies of a connection hold as much as its budget, however many streams they come on.
#[test]
fn unfinished_streams_are_ended_and_hold_little_memory() {
    let client =
        Client::new("200 unfinished streams", clients::leave_streams_unfinished, |_, _| Due::By(SLOW));
    // For each connection, 2 MiB of bodies and as much again in the window of HTTP/2; the rest are the streams.
    Client { memory: CONNECTIONS as u64 * 4 * MIB + 12 * MIB, ..client }.check();
}

/// Guards, item 1: a peer that takes no response is closed though it answers every PING.
#[test]
fn clients_that_grant_no_window_are_closed() {
    let client = Client::new("zero window", clients::grant_no_window, |_, _| Due::After(SLOW));
    Client { buffers: Some(4_096), ..client }.check();
}

/// Guards, item 2: responses hold at most a budget as well, whatever was asked for.
#[test]
fn lists_that_a_client_does_not_take_hold_little_memory() {
    let limits = (0..1_000).map(|number| format!("[limit.l{number}]\nkey = \"ip\"\nrate = \"1/h\"\n"));
    let (_keep, path) = policy(&limits.collect::<String>());
    let flags = [&FLAGS[..], &["--policy", path.to_str().unwrap()]].concat();
    let client = Client::new("takes no lists", clients::take_no_lists, |_, _| Due::After(SLOW));
    let cell = client.attack(Way::AdminHttp2, None, &start(None, &flags));
    println!("\n| {} | {} |", client.name, cell.text());
    assert!(cell.problems.is_empty(), "{}", cell.problems.join("\n"));
}

/// Guards, item 1: a streaming call is answered before it is complete, and counts as a request when it is.
#[test]
fn an_unfinished_first_call_is_closed_though_it_is_answered() {
    let client = Client::new("unfinished first call", clients::drip_a_streaming_call, |_, _| {
        Due::After(FIRST_REQUEST)
    });
    // With the default time-outs for bodies and responses.
    let cell = client.attack(Way::Grpc, None, &start(None, &FLAGS[..1]));
    assert!(cell.problems.is_empty(), "{}", cell.problems.join("\n"));
}

/// Guards, item 1.
#[test]
fn clients_that_never_read_are_closed() {
    let client = Client::new("never reads", clients::never_read, |_, _| Due::After(SLOW));
    Client { memory: 32 * MIB, ..client }.check();
}

#[test]
fn floods_of_resets_are_survived() {
    // Where connections are reset, the client opens 350 after the other. SYNs that find the backlog full are sent again after seconds.
    let due = |way: Way, _| Due::By(if way.is_http2() { IDLE } else { 8 * IDLE });
    Client::new("reset flood", clients::flood_with_resets, due).check();
}

#[test]
fn long_heads_are_refused() {
    Client::new("head of 64 KiB", clients::send_a_long_head, |_, _| Due::By(FIRST_REQUEST)).check();
}

/// Guards, item 1: a peer that has gone without a word is closed at the idle time-out.
#[test]
fn idle_clients_that_ignore_pings_are_closed() {
    Client::new("ignores pings", clients::ignore_pings, |_, _| Due::After(IDLE)).check();
}

#[test]
fn idle_grpc_clients_that_answer_pings_are_kept() {
    let client = Client::new("answers pings", clients::answer_pings, |_, _| Due::Whenever);
    let service = start(None, &FLAGS);
    let client = Client { limit: IDLE * 5 / 2, ..client };
    let ended = client.run(Way::Grpc.place(&service, None), Way::Grpc, 0);
    assert_eq!(ended.over, Err(Over::Open), "closed after {:?}", ended.after);
}
