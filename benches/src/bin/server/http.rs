//! Our HTTP beside a bare handler that reads the body and returns the same bytes, in the same server.
//!
//! The server has one core and wrk the other: 50 connections, checks of 10 000 keys.

use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tollgate::store::MemoryStore;
use tollgate_benches::{Better, Case, Contender, Goal, Options, alternate};
use tollgate_server::{Connection, HttpApi, HttpProtocol, Meter, Metrics, Protocol, Timeouts};

use crate::child::{MINUTE, Server, Started, start as start_by};
use crate::{SERVE_BARE, SERVE_HTTP};

type Store = MemoryStore;

const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = \"100000000/s\"\n";

/// Ten thousand requests, made before the first is sent.
const SCRIPT: &str = r#"
local requests, at = {}, 0
init = function()
  local headers = { ["content-type"] = "application/json" }
  for i = 1, 10000 do
    local body = string.format('{"descriptor":{"ip":"10.0.%d.%d","path":"/orders"}}', i / 256, i % 256)
    requests[i] = wrk.format("POST", "/v1/check", headers, body)
  end
end
request = function()
  at = at % 10000 + 1
  return requests[at]
end
"#;

/// What one run of wrk told.
#[derive(Clone, Copy, Debug)]
struct Run {
    per_second: f64,
    p99_us: f64,
    cpu_us: f64,
}

/// Requests in a second, the time that one in a hundred takes longer than, and the server's share of the processor.
pub(crate) fn cases(options: Options) -> Vec<Case> {
    let mut rate = Case::new("http-50c", "k req/s", Better::Higher).goal(Goal::ratio_at_least(
        "tollgate",
        "bare-hyper",
        0.9,
    ));
    let mut late = Case::new("http-50c-p99", "us", Better::Lower).goal(Goal::ratio_at_most(
        "tollgate",
        "bare-hyper",
        1.2,
    ));
    let mut cpu = Case::new("http-50c-cpu", "us per req", Better::Lower);
    let (rounds, seconds) = if options.is_quick() { (3, 2) } else { (7, 8) };

    let script = std::env::temp_dir().join(format!("tollgate-wrk-{}.lua", std::process::id()));
    fs::write(&script, SCRIPT).expect("a file for wrk");
    let ours = Server::ours(SERVE_HTTP);
    let bare = Server::ours(&format!("{SERVE_BARE}{}", ours.port));
    let path = script.to_str().expect("a plain path");
    let contenders: [Contender<'_, Run>; 2] = [
        ("tollgate", Box::new(|| wrk(&ours, seconds, path))),
        ("bare-hyper", Box::new(|| wrk(&bare, seconds, path))),
    ];
    alternate(rounds, &contenders, |name, run| {
        rate.sample(name, run.per_second / 1e3);
        late.sample(name, run.p99_us);
        cpu.sample(name, run.cpu_us);
    });
    let _ = fs::remove_file(&script);
    vec![rate, late, cpu]
}

/// Ours.
pub(crate) fn start() -> Started {
    start_by(POLICY, HttpProtocol::new(HttpApi::new(Metrics::new())))
}

/// One that repeats an answer of ours, which listens on a port.
pub(crate) fn start_bare(port: u16) -> Started {
    start_by(POLICY, Bare(Arc::new(answer_of(port)), Metrics::new().meter("bare")))
}

/// One run of wrk.
fn wrk(server: &Server, seconds: u64, script: &str) -> Run {
    let before = server.cpu_seconds();
    let output = Command::new("wrk")
        .args(["--latency", "-t1", "-c50", &format!("-d{seconds}s"), "-s", script])
        .arg(format!("http://127.0.0.1:{}", server.port))
        .output()
        .expect("wrk is installed: cargo xtask bench installs it");
    let spent = server.cpu_seconds() - before;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !said.contains("Non-2xx"), "{said}");
    let after = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{said}")).trim().to_owned()
    };
    let per_second: f64 = after("Requests/sec:").parse().expect("a number");
    let requests: f64 = said
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .and_then(|(count, _)| count.parse().ok())
        .expect("a number of requests");
    Run { per_second, p99_us: micros(&after("99%")), cpu_us: spent * 1e6 / requests }
}

/// `1.23ms`, `800.00us`, `1.00s`.
fn micros(text: &str) -> f64 {
    let (number, scale) = if let Some(number) = text.strip_suffix("us") {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1e3)
    } else {
        (text.strip_suffix('s').expect("a unit of time"), 1e6)
    };
    number.parse::<f64>().expect("a number") * scale
}

/// An answer, to be given again and again.
#[derive(Debug)]
struct Same {
    headers: hyper::HeaderMap,
    body: Bytes,
}

/// How our server answers one of the requests.
fn answer_of(port: u16) -> Same {
    let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection"));
    let body = r#"{"descriptor":{"ip":"10.0.0.1","path":"/orders"}}"#;
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes()).expect("it listens");
    let (mut headers, mut length) = (hyper::HeaderMap::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("it answers");
        if line.starts_with("HTTP/") {
            assert!(line.contains(" 200 "), "{line}");
            continue;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name {
            "content-length" => length = value.parse().expect("a length"),
            "date" => {}
            _ => {
                let name = hyper::header::HeaderName::try_from(name).expect("a name");
                headers.append(name, value.parse().expect("a value"));
            }
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    Same { headers, body: body.into() }
}

/// Reads the body, and answers always the same.
struct Bare(Arc<Same>, Arc<Meter>);

impl Protocol<Store> for Bare {
    fn meter(&self) -> &Arc<Meter> {
        &self.1
    }

    fn serve(&self, connection: Connection<Store>) -> Pin<Box<dyn Future<Output = ()>>> {
        let same = Arc::clone(&self.0);
        Box::pin(async move {
            let activity = connection.activity;
            let service = service_fn(move |request: Request<Incoming>| {
                let same = Arc::clone(&same);
                activity.answered();
                async move {
                    let body = request.into_body().collect().await?.to_bytes();
                    assert!(!body.is_empty());
                    let mut answer = Response::new(Full::new(same.body.clone()));
                    answer.headers_mut().clone_from(&same.headers);
                    Ok::<_, hyper::Error>(answer)
                }
            });
            let builder = hyper::server::conn::http1::Builder::new();
            let _ = builder.serve_connection(TokioIo::new(connection.stream), service).await;
        })
    }

    fn timeouts(&self) -> Timeouts {
        MINUTE
    }

    fn full(&self) -> &'static [u8] {
        b""
    }
}
