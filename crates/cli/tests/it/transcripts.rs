//! Golden transcripts: what services were asked over each protocol, and the bytes that came back, so that no answer changes unless it is meant to.
//!
//! Each file in `testdata/transcripts/` is played to a service of its own, and its answers must be those in the file. After a change that is meant,
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-cli --test it transcripts` records the answers again; `REASONS.md` then has to say why they changed. A new
//! exchange is written into a file without its answer, which the same command records.

mod grpc;
mod mask;
mod record;
mod wire;

use std::fs;
use std::path::PathBuf;

use self::grpc::Grpc;
use self::mask::Permits;
use self::record::{Exchange, Listener, Scene};
use self::wire::Wire;
use crate::support::{Service, testdata, tollgate};

/// How many exchanges that differ are shown.
const SHOWN: usize = 5;

#[test]
fn http_answers_are_those_recorded() {
    replay("http");
}

#[test]
fn grpc_answers_are_those_recorded() {
    replay("grpc");
}

#[test]
fn resp_answers_are_those_recorded() {
    replay("resp");
}

#[test]
fn each_protocol_has_enough_exchanges_of_every_kind() {
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        return; // the files are being written
    }
    for protocol in ["http", "grpc", "resp"] {
        let files = files(protocol);
        let all: Vec<Exchange> = files.iter().flat_map(|(_, scene)| scene.exchanges.clone()).collect();
        let count = |kind| all.iter().filter(|exchange| Kind::of(exchange) == kind).count();
        let [denials, errors, malformed] = [Kind::Denial, Kind::Error, Kind::Malformed].map(count);
        println!(
            "{protocol}: {} exchanges, {denials} denials, {errors} errors, {malformed} malformed",
            all.len()
        );
        assert!(all.len() >= 2_000 && denials.min(errors).min(malformed) >= 200, "{protocol}");
    }
}

/// Plays all files of a protocol.
fn replay(protocol: &str) {
    let is_blessed = std::env::var_os("TOLLGATE_BLESS").is_some();
    let mut changed = Vec::new();
    for (path, mut scene) in files(protocol) {
        let mut player = Player::start(&scene.flags);
        let file = format!("{protocol}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        for exchange in &mut scene.exchanges {
            let answer = player.play(exchange);
            if answer != exchange.answer {
                changed.push(difference(&file, exchange, &answer));
                exchange.answer = answer;
            }
        }
        if is_blessed {
            fs::write(path, scene.print()).unwrap();
        }
    }
    if is_blessed {
        println!(
            "{} answers over {protocol} changed; testdata/transcripts/REASONS.md has to say why",
            changed.len()
        );
        return;
    }
    let (count, shown) = (changed.len(), changed.iter().take(SHOWN).cloned().collect::<String>());
    assert!(changed.is_empty(), "{count} answers are not those recorded. The first of them:\n{shown}");
}

/// The files of a protocol.
fn files(protocol: &str) -> Vec<(PathBuf, Scene)> {
    let entries = fs::read_dir(testdata("transcripts").join(protocol)).expect("a folder of files");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort_unstable();
    paths.into_iter().map(|path| (path.clone(), Scene::parse(&fs::read_to_string(path).unwrap()))).collect()
}

fn difference(file: &str, exchange: &Exchange, answer: &[String]) -> String {
    let (title, asked, expected) = (exchange.title(), exchange.asked(), exchange.answer.join("\n"));
    format!("\n{file} {title}\n{asked}--- recorded\n{expected}\n--- answered\n{}\n", answer.join("\n"))
}

/// A service, and a connection to each of its listeners.
struct Player {
    service: Service,
    wires: Vec<(Listener, Wire)>,
    grpc: Option<Grpc>,
    permits: Permits,
}

impl Player {
    fn start(flags: &[String]) -> Self {
        let mut command = tollgate();
        // Paths are shown, and must be the same everywhere. With one worker, counters of several need not be added up.
        command.current_dir(testdata("transcripts")).args([
            "serve",
            "--workers=1",
            "--memory-sweep-every=none",
            "--http-hosts=t",
        ]);
        command.args(
            ["http", "grpc", "resp", "admin"].map(|listener| format!("--{listener}-address=127.0.0.1:0")),
        );
        let service = Service::of(command.args(flags));
        Self { service, wires: Vec::new(), grpc: None, permits: Permits::default() }
    }

    /// The answer, masked.
    fn play(&mut self, exchange: &Exchange) -> Vec<String> {
        let request = self.permits.fill(&exchange.request);
        if exchange.listener == Listener::Grpc {
            self.grpc.take_if(|grpc| grpc.is_over || exchange.is_fresh);
            return self.grpc.get_or_insert_with(|| Grpc::open(self.service.grpc)).ask(&request);
        }
        self.wires.retain(|(listener, wire)| {
            *listener != exchange.listener || !(wire.is_over || exchange.is_fresh)
        });
        let open =
            self.wires.iter().position(|(listener, _)| *listener == exchange.listener).unwrap_or_else(|| {
                self.wires.push((exchange.listener, self.connect(exchange.listener)));
                self.wires.len() - 1
            });
        let (answers, end) = self.wires[open].1.ask(&request, exchange.wait);
        let masked = answers.into_iter().flat_map(|answer| {
            let lines = record::lines('<', &self.permits.mask(answer));
            if exchange.listener == Listener::Resp { vec![mask::resp(lines)] } else { mask::http(lines) }
        });
        masked.chain(end.map(str::to_owned)).collect()
    }
}

impl Player {
    fn connect(&self, listener: Listener) -> Wire {
        let address = match listener {
            Listener::Admin => self.service.admin,
            Listener::Resp => self.service.resp,
            _ => self.service.http,
        };
        Wire::open(address, listener)
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Denial,
    Error,
    /// It was not read, or could not be.
    Malformed,
    Other,
}

impl Kind {
    fn of(exchange: &Exchange) -> Self {
        match exchange.listener {
            Listener::Grpc => Self::of_grpc(exchange),
            Listener::Resp => Self::of_resp(exchange),
            Listener::Http | Listener::Admin => Self::of_http(exchange),
        }
    }

    /// By its first status.
    fn of_http(exchange: &Exchange) -> Self {
        let Some(status) = exchange.answer[0].strip_prefix("< HTTP/1.1 ") else { return Self::Malformed };
        match &status[..3] {
            "429" => Self::Denial,
            "400" | "413" | "431" => Self::Malformed,
            status if status >= "400" => Self::Error,
            _ => Self::Other,
        }
    }

    /// By its decision or its status: a message that cannot be read is an invalid argument, out of range, cut short or an internal error.
    fn of_grpc(exchange: &Exchange) -> Self {
        let status = exchange
            .answer
            .iter()
            .find_map(|line| line.split_once("grpc-status: ").map(|(_, status)| status));
        match status {
            Some("0") if exchange.answer.iter().any(|line| line == "<< overall_code: 2") => Self::Denial,
            Some("0") => Self::Other,
            Some("1" | "3" | "11" | "13") | None => Self::Malformed,
            Some(_) => Self::Error,
        }
    }

    /// By its last reply.
    fn of_resp(exchange: &Exchange) -> Self {
        let answer = exchange.answer.iter().rfind(|line| !line.starts_with('!')).map_or("", String::as_str);
        let command = String::from_utf8_lossy(&exchange.request).to_lowercase();
        let is_denied = answer.contains("\\r\\nallowed\\r\\n:0") || answer.contains("\\r\\nallowed\\r\\n#f");
        match answer {
            "" => Self::Malformed,
            _ if answer.starts_with("< -ERR Protocol error") => Self::Malformed,
            _ if answer.starts_with("< -") => Self::Error,
            _ if answer.starts_with("< *5\\r\\n:1") && command.contains("cl.throttle") => Self::Denial,
            _ if answer.starts_with("< *5\\r\\n:0") && command.contains("\nthrottle") => Self::Denial,
            "< :0" if command.contains("tg.allow") => Self::Denial,
            _ if is_denied => Self::Denial,
            _ => Self::Other,
        }
    }
}
