//! TLS and authentication.

use std::io;
use std::sync::Arc;

use tollgate_server::{Keyring, Keys, Reloader, Scope, Scopes, Tls, TlsFiles};

use crate::failure::Failure;
use crate::settings::{self, Settings, is_exposed};

/// TLS and keys, as the settings describe them.
pub(super) struct Guard {
    tls: Option<Arc<Tls>>,
    keys: Keys,
    /// Whether clients need neither a token nor a certificate.
    is_open: bool,
}

impl Guard {
    /// Reads certificates and keys.
    pub(super) fn new(settings: &Settings) -> Result<Self, Failure> {
        let tls = files(&settings.tls).map(Tls::load).transpose();
        let tls = tls.map_err(|error| Failure::Failed(format!("cannot load TLS files: {error}")))?;
        let keyring = keyring(settings)?;
        if keyring.knows_certificates() && settings.tls.client_authorities.is_none() {
            tracing::warn!(
                "keys.file lists certificates, but TLS client certificates are off: set tls.client_authorities"
            );
        }
        if settings.keys.file.is_some() && tls.is_none() && anywhere(settings).any(is_exposed) {
            tracing::warn!("tokens are sent unencrypted: set tls.certificate and tls.key");
        }
        let is_open = settings.keys.file.is_none() && !settings.tls.require_client;
        Ok(Self { tls: tls.map(Arc::new), keys: Keys::new(keyring), is_open })
    }

    pub(super) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    pub(super) fn keys(&self) -> Keys {
        self.keys.clone()
    }

    /// Returns the scopes of a listener that serves requests and administration: without administration if every client can connect.
    pub(super) fn scopes_at(&self, address: Option<std::net::SocketAddr>) -> Scopes {
        if self.is_open && is_exposed(address) { super::doors::FOR_SERVICES } else { Scopes::ALL }
    }

    /// Starts watching the files.
    pub(super) fn reloaders(&self, settings: &Settings) -> io::Result<Vec<Reloader>> {
        let mut all = Vec::new();
        if let Some(tls) = self.tls() {
            all.push(Reloader::certificates(tls)?);
        }
        if let Some(path) = &settings.keys.file {
            let is_reachable = is_reachable(settings);
            let acceptable = move |keyring: &Keyring| acceptable(keyring, is_reachable);
            all.push(Reloader::keys(self.keys(), path, acceptable)?);
        }
        Ok(all)
    }
}

fn files(tls: &settings::Tls) -> Option<TlsFiles> {
    Some(TlsFiles {
        certificate: tls.certificate.clone()?,
        key: tls.key.clone()?,
        client_authorities: tls.client_authorities.clone(),
        requires_client: tls.require_client,
    })
}

fn keyring(settings: &Settings) -> Result<Keyring, Failure> {
    let Some(path) = &settings.keys.file else { return Ok(Keyring::open()) };
    let keyring =
        Keyring::load(path).map_err(|error| Failure::Failed(format!("cannot read keys file {error}")))?;
    acceptable(&keyring, is_reachable(settings))
        .map_err(|error| Failure::Failed(format!("cannot use keys file {}: {error}", path.display())))?;
    Ok(keyring)
}

fn anywhere(settings: &Settings) -> impl Iterator<Item = Option<std::net::SocketAddr>> {
    let Settings { http, grpc, limitador, resp, admin, .. } = settings;
    [http.address, grpc.address, limitador.http, resp.address, admin.address].into_iter()
}

/// Whether other machines can reach administration without a certificate.
fn is_reachable(settings: &Settings) -> bool {
    let Settings { admin, resp, limitador, .. } = settings;
    let is_exposed = [admin.address, resp.address, limitador.http].into_iter().any(is_exposed);
    is_exposed && !settings.tls.require_client
}

/// Checks that administration needs authentication if other machines can reach it.
fn acceptable(keyring: &Keyring, is_reachable: bool) -> Result<(), String> {
    if is_reachable && keyring.is_open(Scope::Admin) {
        return Err(
            "anonymous has the scope admin, and other machines can reach admin.address, resp.address or \
                    limitador.http: remove the scope admin, or use a loopback address"
                .to_owned(),
        );
    }
    Ok(())
}
