//! Listening, draining, and who is on the other end: with a protocol that says what the caller may do.

use std::fs;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate::store::{MemoryStore, Store};
use tollgate_policy::Policy;
use tollgate_server::{
    Connection, ConnectionLimits, Engine, Keyring, Keys, Meter, Metrics, Origin, Protocol, Scope, Scopes,
    Server, Timeouts, Tls, TlsFiles,
};

/// Answers every byte with the scopes of whoever sent it; `!` makes it panic.
struct WhoAmI(Arc<Meter>);

fn meter() -> Arc<Meter> {
    Metrics::new().meter("test")
}

const MINUTE: Timeouts = Timeouts { read: Duration::from_secs(60), write: Duration::from_secs(60) };

impl<S: Store> Protocol<S> for WhoAmI {
    fn meter(&self) -> &Arc<Meter> {
        &self.0
    }

    fn serve(&self, mut connection: Connection<S>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            loop {
                let mut byte = [0];
                let read = tokio::select! {
                    read = connection.stream.read_exact(&mut byte) => read,
                    () = connection.stop.wait() => return,
                };
                if read.is_err() {
                    return;
                }
                assert!(byte != *b"!", "as the test wants it");
                let said = format!("{:?}\n", connection.access.scopes());
                if connection.stream.write_all(said.as_bytes()).await.is_err() {
                    return;
                }
            }
        })
    }

    fn timeouts(&self) -> Timeouts {
        MINUTE
    }

    fn full(&self) -> &'static [u8] {
        b"full\n"
    }
}

fn server() -> Server<MemoryStore> {
    let policy = Policy::parse("limits.toml", "[limit.all]\nrate = \"1/s\"\n").unwrap();
    Server::new(Engine::new(MemoryStore::new(), policy, Origin::default())).workers(2)
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

async fn ask(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) -> std::io::Result<String> {
    stream.write_all(b"?").await?;
    let mut said = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        if byte == b'\n' {
            return Ok(String::from_utf8(said).unwrap());
        }
        said.push(byte);
    }
}

#[tokio::test]
async fn connections_are_served_and_end_when_drained() {
    let mut server = server();
    let address = server.listen(anywhere(), WhoAmI(meter()), None).unwrap();
    let running = server.start().unwrap();
    let mut callers = Vec::new();
    for _ in 0..10 {
        let mut caller = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask(&mut caller).await.unwrap(), "{Check, Hold, Settle, Admin, Metrics}");
        callers.push(caller);
    }
    assert_eq!(running.connections(), 10);
    let cut = tokio::task::spawn_blocking(|| running.drain(Duration::from_secs(30))).await.unwrap().unwrap();
    assert_eq!(cut, 0, "all ended by themselves");
    for mut caller in callers {
        assert_eq!(caller.read(&mut [0]).await.unwrap(), 0);
    }
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

/// Never ends by itself.
struct Deaf(Arc<Meter>);

impl<S: Store> Protocol<S> for Deaf {
    fn meter(&self) -> &Arc<Meter> {
        &self.0
    }

    fn serve(&self, mut connection: Connection<S>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let _ = connection.stream.write_all(b"hello").await;
            std::future::pending::<()>().await;
        })
    }

    fn timeouts(&self) -> Timeouts {
        MINUTE
    }

    fn full(&self) -> &'static [u8] {
        b""
    }
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_and_counted() {
    let mut server = server();
    let address = server.listen(anywhere(), Deaf(meter()), None).unwrap();
    let running = server.start().unwrap();
    let mut caller = TcpStream::connect(address).await.unwrap();
    caller.read_exact(&mut [0; 5]).await.unwrap();
    let cut = tokio::task::spawn_blocking(|| running.drain(Duration::from_millis(1))).await.unwrap().unwrap();
    assert_eq!(cut, 1);
    assert_eq!(caller.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn one_too_many_is_told_and_the_place_is_free_again_afterwards() {
    let mut server = server();
    let address = server.listen_with(at_most(1), anywhere(), WhoAmI(meter()), None).unwrap();
    let running = server.start().unwrap();
    let mut first = TcpStream::connect(address).await.unwrap();
    ask(&mut first).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    let mut said = String::new();
    second.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "full\n");
    drop(first);
    let mut served = None;
    for _ in 0..1000 {
        let mut third = TcpStream::connect(address).await.unwrap();
        served = ask(&mut third).await.ok().filter(|said| said != "full");
        if served.is_some() {
            break;
        }
    }
    assert_eq!(served.as_deref(), Some("{Check, Hold, Settle, Admin, Metrics}"));
    drop(running);
}

#[tokio::test]
async fn a_panic_ends_one_connection_and_no_other() {
    let mut server = server().workers(1);
    let address = server.listen_with(at_most(2), anywhere(), WhoAmI(meter()), None).unwrap();
    let _running = server.start().unwrap();
    let mut good = TcpStream::connect(address).await.unwrap();
    for _ in 0..5 {
        let mut bad = TcpStream::connect(address).await.unwrap();
        bad.write_all(b"!").await.unwrap();
        assert_eq!(bad.read(&mut [0]).await.unwrap(), 0, "its place is free for the next");
        assert_eq!(ask(&mut good).await.unwrap(), "{Check, Hold, Settle, Admin, Metrics}");
    }
}

fn at_most(connections: usize) -> ConnectionLimits {
    let mut limits = ConnectionLimits::default();
    limits.total = connections;
    limits
}

/// An authority for tests, and what it has signed.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str, is_expired: bool) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if is_expired {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A server with certificates, in a folder.
struct Secured {
    folder: TempDir,
    ours: Authority,
    theirs: Authority,
    tls: Arc<Tls>,
    address: SocketAddr,
    _running: tollgate_server::Running,
}

fn write_server_certificate(folder: &Path, ours: &Authority, name: &str) {
    let (certificate, key) = ours.sign(name, false);
    fs::write(folder.join("cert.pem"), certificate).unwrap();
    fs::write(folder.join("key.pem"), key).unwrap();
}

impl Secured {
    fn new(requires_client: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let (ours, theirs) = (Authority::new(), Authority::new());
        write_server_certificate(folder.path(), &ours, "localhost");
        fs::write(folder.path().join("clients.pem"), theirs.issuer.pem()).unwrap();
        let files = TlsFiles {
            certificate: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
            client_authorities: Some(folder.path().join("clients.pem")),
            requires_client,
        };
        let tls = Arc::new(Tls::load(files).unwrap());
        let keyring = Keyring::new()
            .certificate(None, Scopes::of(&[Scope::Check]))
            .certificate(Some("admin.internal"), Scopes::of(&[Scope::Admin]));
        let mut server = server().keys(Keys::new(keyring));
        let address = server.listen(anywhere(), WhoAmI(meter()), Some(Arc::clone(&tls))).unwrap();
        let running = server.start().unwrap();
        Self { folder, ours, theirs, tls, address, _running: running }
    }

    /// What the server says to somebody who trusts `ours` and shows a certificate.
    async fn call(&self, name: &'static str, shown: Option<(String, String)>) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ours.issuer.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                    .unwrap()
            }
        };
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(name).unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        ask(&mut stream).await
    }
}

#[tokio::test]
async fn a_certificate_gives_what_its_names_may_do() {
    let secured = Secured::new(false);
    assert_eq!(secured.call("localhost", None).await.unwrap(), "{}");
    let worker = secured.theirs.sign("worker.internal", false);
    assert_eq!(secured.call("localhost", Some(worker)).await.unwrap(), "{Check}");
    let admin = secured.theirs.sign("Admin.internal", false);
    assert_eq!(secured.call("localhost", Some(admin)).await.unwrap(), "{Check, Admin, Metrics}");
}

#[tokio::test]
async fn whoever_shows_a_bad_certificate_or_none_where_one_is_needed_is_turned_away() {
    let secured = Secured::new(true);
    assert!(secured.call("localhost", None).await.is_err(), "none");
    let foreign = Authority::new().sign("admin.internal", false);
    assert!(secured.call("localhost", Some(foreign)).await.is_err(), "of an authority that nobody trusts");
    let expired = secured.theirs.sign("admin.internal", true);
    assert!(secured.call("localhost", Some(expired)).await.is_err(), "expired");
    let good = secured.theirs.sign("admin.internal", false);
    assert_eq!(secured.call("localhost", Some(good)).await.unwrap(), "{Check, Admin, Metrics}");
}

#[tokio::test]
async fn who_speaks_plainly_to_tls_is_not_answered() {
    let secured = Secured::new(false);
    let mut plain = TcpStream::connect(secured.address).await.unwrap();
    plain.write_all(b"?????\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await; // an alert, or nothing
    assert!(!String::from_utf8_lossy(&said).contains('{'), "{said:?}");
}

#[tokio::test]
async fn certificates_are_read_again_without_a_restart() {
    let secured = Secured::new(false);
    assert!(secured.call("other.internal", None).await.is_err(), "that is not its name yet");
    write_server_certificate(secured.folder.path(), &secured.ours, "other.internal");
    secured.tls.reload().unwrap();
    assert_eq!(secured.call("other.internal", None).await.unwrap(), "{}");

    fs::write(secured.folder.path().join("cert.pem"), "nonsense").unwrap();
    let error = secured.tls.reload().unwrap_err().to_string();
    assert!(error.ends_with("cert.pem: no certificate found; expected a PEM file"), "{error}");
    assert_eq!(secured.call("other.internal", None).await.unwrap(), "{}", "the last good one is used on");
}

#[test]
fn files_that_do_not_fit_are_named() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new();
    write_server_certificate(folder.path(), &authority, "a");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("other.pem"), authority.sign("b", false).1).unwrap();
    let files = |certificate, key, clients: Option<&str>| TlsFiles {
        certificate: path(certificate),
        key: path(key),
        client_authorities: clients.map(path),
        requires_client: false,
    };
    for (files, expected) in [
        (files("missing.pem", "key.pem", None), "missing.pem: No such file"),
        (files("cert.pem", "cert.pem", None), "cert.pem: no private key found"),
        (files("cert.pem", "other.pem", None), "cert.pem: the certificate does not match the key"),
        (files("cert.pem", "key.pem", Some("key.pem")), "key.pem: no certificate found"),
    ] {
        let error = Tls::load(files).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
