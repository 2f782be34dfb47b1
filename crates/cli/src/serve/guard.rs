//! Who is let in, and by what.

use std::io;
use std::sync::Arc;

use tollgate_server::{Keyring, Keys, Reloader, Scope, Scopes, Tls, TlsFiles};

use crate::failure::Failure;
use crate::settings::{self, Settings, is_exposed};

/// What callers prove who they are by.
pub(super) struct Guard {
    tls: Option<Arc<Tls>>,
    keys: Keys,
    /// Whether nobody has to prove anything.
    is_open: bool,
}

impl Guard {
    /// Reads certificates and keys.
    pub(super) fn new(settings: &Settings) -> Result<Self, Failure> {
        let tls = files(&settings.tls).map(Tls::load).transpose();
        let tls = tls.map_err(|error| Failure::Failed(format!("there can be no TLS: {error}")))?;
        let keyring = keyring(settings)
            .map_err(|error| Failure::Failed(format!("it is not known who may do what: {error}")))?;
        if keyring.knows_certificates() && settings.tls.client_authorities.is_none() {
            tracing::warn!("keys.file has certificates that nobody can show: give tls.client_authorities");
        }
        if settings.keys.file.is_some() && tls.is_none() && anywhere(settings).any(is_exposed) {
            tracing::warn!("tokens can be read on the way here: give tls.certificate and tls.key");
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

    /// What may be served where callers administer by the same way as they ask: not all of it, if anybody can come.
    pub(super) fn scopes_at(&self, address: Option<std::net::SocketAddr>) -> Scopes {
        if self.is_open && is_exposed(address) { super::doors::FOR_SERVICES } else { Scopes::ALL }
    }

    /// What follows the files.
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

fn keyring(settings: &Settings) -> Result<Keyring, String> {
    let Some(path) = &settings.keys.file else { return Ok(Keyring::open()) };
    let keyring = Keyring::load(path).map_err(|error| error.to_string())?;
    acceptable(&keyring, is_reachable(settings)).map(|()| keyring)
}

fn anywhere(settings: &Settings) -> impl Iterator<Item = Option<std::net::SocketAddr>> {
    let Settings { http, grpc, limitador, resp, admin, .. } = settings;
    [http.address, grpc.address, limitador.http, resp.address, admin.address].into_iter()
}

/// Whether others can reach what is for administrators without a certificate.
fn is_reachable(settings: &Settings) -> bool {
    let Settings { admin, resp, limitador, .. } = settings;
    let is_exposed = [admin.address, resp.address, limitador.http].into_iter().any(is_exposed);
    is_exposed && !settings.tls.require_client
}

/// Whoever administers must be known, unless nobody else can come.
fn acceptable(keyring: &Keyring, is_reachable: bool) -> Result<(), String> {
    if is_reachable && keyring.is_open(Scope::Admin) {
        return Err("anonymous has the scope admin, and others can reach admin.address, resp.address or \
                    limitador.http: take it away, or give an address such as 127.0.0.1:8082"
            .to_owned());
    }
    Ok(())
}
