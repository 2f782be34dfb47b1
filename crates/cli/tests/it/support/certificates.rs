//! Certificates, and callers who have them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::connect;

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, as PEM.
pub(crate) type Signed = (String, String);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn sign(&self, name: &str) -> Signed {
        self.sign_as(&CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// One that was good until 2002.
    pub(crate) fn sign_expired(&self, name: &str) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.sign_as(&params)
    }

    fn sign_as(&self, params: &CertificateParams) -> Signed {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// The files of a service that speaks TLS and asks callers for certificates.
pub(crate) struct Files {
    folder: tempfile::TempDir,
    /// Who signs the service's certificate.
    pub(crate) ours: Authority,
    /// Who signs those of callers.
    pub(crate) theirs: Authority,
}

impl Files {
    pub(crate) fn new() -> Self {
        let files =
            Self { folder: tempfile::tempdir().unwrap(), ours: Authority::new(), theirs: Authority::new() };
        files.write_certificate("localhost");
        fs::write(files.path("clients.pem"), files.theirs.pem()).unwrap();
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new certificate of the service, for a name.
    pub(crate) fn write_certificate(&self, name: &str) {
        let (certificate, key) = self.ours.sign(name);
        fs::write(self.path("cert.pem"), certificate).unwrap();
        fs::write(self.path("key.pem"), key).unwrap();
    }

    /// The flags with which a service uses them.
    pub(crate) fn flags(&self, require_client: bool) -> Vec<String> {
        let flag = |name: &str, file: &str| format!("--tls-{name}={}", self.path(file).display());
        vec![
            flag("certificate", "cert.pem"),
            flag("key", "key.pem"),
            flag("client-authorities", "clients.pem"),
            format!("--tls-require-client={require_client}"),
        ]
    }

    /// Somebody who trusts our authority, and shows a certificate.
    pub(crate) fn caller(&self, shown: Option<Signed>) -> Caller {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ours.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Caller(config)
    }
}

/// A connection over TLS.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Somebody who speaks TLS.
#[derive(Clone)]
pub(crate) struct Caller(ClientConfig);

impl Caller {
    /// What is answered, until the connection ends, to somebody who takes the service for `name`.
    pub(crate) fn say_to(&self, name: &'static str, address: SocketAddr, text: &str) -> io::Result<String> {
        let mut stream = self.open_to(name, connect(address)?, &[])?;
        stream.write_all(text.as_bytes())?;
        let mut answer = Vec::new();
        // Whoever cuts a connection off after an answer has answered all the same.
        match stream.read_to_end(&mut answer) {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(String::from_utf8(answer).unwrap()),
        }
    }

    pub(crate) fn say(&self, address: SocketAddr, text: &str) -> io::Result<String> {
        self.say_to("localhost", address, text)
    }

    /// Returns a TLS stream to `localhost` whose handshake has not begun. It offers these protocols by ALPN.
    pub(crate) fn open(&self, stream: TcpStream, protocols: &[&str]) -> io::Result<TlsStream> {
        self.open_to("localhost", stream, protocols)
    }

    fn open_to(&self, name: &'static str, stream: TcpStream, protocols: &[&str]) -> io::Result<TlsStream> {
        let mut config = self.0.clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }

    /// For HTTP/2.
    pub(super) fn config(&self) -> Arc<ClientConfig> {
        let mut config = self.0.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}
