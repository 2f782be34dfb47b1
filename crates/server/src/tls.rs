//! TLS, and who is on the other end of it.
//!
//! Certificates come from PEM files, which are read [again](Tls::reload) without a restart: connections that there are go on
//! with what they began with.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Where certificates are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Ours, followed by those that lead from it to an authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities whose certificates callers may show. Without it, none are asked for.
    pub client_authorities: Option<PathBuf>,
    /// Whether callers without a certificate are turned away.
    pub requires_client: bool,
}

impl TlsFiles {
    /// All that are read.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let own = [&self.certificate, &self.key];
        own.into_iter().chain(&self.client_authorities).cloned().collect()
    }
}

/// What connections begin with.
pub struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
}

/// An error that TLS files could not be loaded.
#[derive(Debug)]
pub struct TlsError(String);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read, or the certificate does not match the key.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let config = ArcSwap::from_pointee(config(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again, for connections from now on.
    ///
    /// # Errors
    /// As [`load`](Self::load). What was read before is used on.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.config.store(Arc::new(config(&self.files)?));
        Ok(())
    }

    /// Where they are.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Shakes hands.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.config.load_full()).accept(stream).await
    }
}

/// The DNS names that the other end's certificate was issued for; none if it showed none.
pub(crate) fn client_names(stream: &TlsStream<TcpStream>) -> Option<Vec<String>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    Some(certificate.valid_dns_names().map(str::to_owned).collect())
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| TlsError::of(&files.key, format!("no private key found: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(error.to_string()))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            let verifier = if files.requires_client { verifier } else { verifier.allow_unauthenticated() };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| TlsError::of(path, error))?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        TlsError::of(&files.certificate, format!("the certificate does not match the key: {error}"))
    })?;
    // What speaks neither offers neither, and gets none.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Whether a handshake failed because the client showed no certificate, or none that is trusted.
pub(crate) fn is_unproven(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::of(path, error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| TlsError::of(path, error))?;
    if all.is_empty() {
        return Err(TlsError::of(path, "no certificate found; expected a PEM file"));
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::of(path, error))
}

impl TlsError {
    fn of(path: &Path, why: impl fmt::Display) -> Self {
        Self(format!("{}: {why}", path.display()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for TlsError {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}
