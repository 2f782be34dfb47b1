//! The servers, each in a process of its own.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tollgate::store::MemoryStore;
use tollgate_benches::pin_to_core;
use tollgate_policy::Policy;
use tollgate_server::rls::messages::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse};
use tollgate_server::{Engine, Metrics, Origin, RlsProtocol, Server};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::SERVE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Bare,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Ours, Self::Bare];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "tollgate",
            Self::Bare => "bare-tonic",
        }
    }

    pub(crate) fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.name() == name).expect("one of ours")
    }
}

/// A server in a process of its own, which ends with this.
pub(crate) struct Child {
    process: std::process::Child,
    port: u16,
}

impl Child {
    pub(crate) fn start(kind: Kind) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args([SERVE, kind.name()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a child");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        Self { process, port: line.trim().parse().expect("a port") }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The processor time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it runs");
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        // The twelfth and thirteenth field after the name, in hundredths of a second.
        let ticks =
            after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        Duration::from_millis(10 * ticks.sum::<u64>())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Is a server until nobody holds the other end.
pub(crate) fn serve(kind: Kind) -> ExitCode {
    pin_to_core(0);
    match kind {
        Kind::Ours => ours(),
        Kind::Bare => bare(),
    }
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

fn tell(address: SocketAddr) {
    println!("{}", address.port());
    std::io::stdout().flush().expect("somebody listens");
}

/// Limits that nobody reaches.
const POLICY: &str = r#"
domain = "web"
[limit.per-user]
key = "user"
rate = "1000000/s"
[limit.per-path]
key = "path"
rate = "1000000/s"
[limit.per-tenant]
key = "tenant"
rate = "1000000/s"
"#;

fn ours() {
    let policy = Policy::parse("bench.toml", POLICY).expect("a policy");
    let engine = Engine::new(MemoryStore::new(), policy, Origin::default());
    let mut server = Server::new(engine).workers(1);
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let address = server.listen(here, RlsProtocol::new(&Metrics::new()), None).expect("a port");
    std::mem::forget(server.start().expect("a server")); // until the process ends
    tell(address);
}

fn bare() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
            tell(listener.local_addr().expect("an address"));
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let server = tonic::transport::Server::builder().add_service(Bare);
            server.serve_with_incoming(incoming).await.expect("it serves");
        });
    });
}

/// Says OK to everything, with a status for each descriptor.
#[derive(Clone, Copy, Debug)]
struct Bare;

impl NamedService for Bare {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

/// As generated services are made.
impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<RateLimitResponse, RateLimitRequest>::default());
            Ok(grpc.unary(Always, request).await)
        })
    }
}

struct Always;

impl UnaryService<RateLimitRequest> for Always {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let status = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        let statuses = vec![status; request.get_ref().descriptors.len()];
        let overall_code = Code::Ok.into();
        ready(Ok(Response::new(RateLimitResponse { overall_code, statuses, ..RateLimitResponse::default() })))
    }
}
