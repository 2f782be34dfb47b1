//! The servers.

use std::convert::Infallible;
use std::future::Future;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tollgate::store::MemoryStore;
use tollgate_policy::Policy;
use tollgate_server::{Engine, Metrics, Origin, RlsProtocol, Server, Tls, TlsFiles};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};

use crate::bare::Bare;
use crate::certificate::Files;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Bare,
    /// What is behind Envoy: answers everything at once.
    Upstream,
}

impl Kind {
    pub(crate) const CONTENDERS: [Self; 2] = [Self::Ours, Self::Bare];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "tollgate",
            Self::Bare => "bare-tonic",
            Self::Upstream => "upstream",
        }
    }

    pub(crate) fn parse(name: &str) -> Self {
        [Self::Ours, Self::Bare, Self::Upstream].into_iter().find(|kind| kind.name() == name).expect("a name")
    }
}

/// Starts a server, which speaks TLS if there is a certificate, and tells its port.
pub(crate) fn serve(kind: Kind, certificate: Option<&Files>) {
    match kind {
        Kind::Ours => ours(certificate),
        Kind::Bare => bare(certificate),
        Kind::Upstream => upstream(),
    }
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

fn ours(certificate: Option<&Files>) {
    let policy = Policy::parse("bench.toml", POLICY).expect("a policy");
    let engine = Engine::new(MemoryStore::new(), policy, Origin::default());
    let mut server = Server::new(engine).workers(1);
    let tls = certificate.map(|Files { certificate, key }| {
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = TlsFiles { certificate, key, client_authorities: None, requires_client: false };
        Arc::new(Tls::load(files).expect("a certificate"))
    });
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let address = server.listen(here, RlsProtocol::new(&Metrics::new()), tls).expect("a port");
    std::mem::forget(server.start().expect("a server")); // until the process ends
    tell(address);
}

fn bare(certificate: Option<&Files>) {
    let mut server = tonic::transport::Server::builder();
    if let Some(Files { certificate, key }) = certificate {
        let read = |file| std::fs::read(file).expect("a file");
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(read(certificate), read(key)));
        server = server.tls_config(tls).expect("a certificate");
    }
    in_a_thread(async move |listener| {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        server.add_service(Bare).serve_with_incoming(incoming).await.expect("it serves");
    });
}

fn upstream() {
    in_a_thread(async |listener| {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a connection");
            let answer = service_fn(async |_| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
}

/// Serves on a thread with a runtime of its own, and tells the port.
fn in_a_thread<F: Future<Output = ()>>(serve: impl FnOnce(TcpListener) -> F + Send + 'static) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
            tell(listener.local_addr().expect("an address"));
            serve(listener).await;
        });
    });
}
