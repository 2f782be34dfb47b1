//! Which protocols are spoken, and where.

use std::net::SocketAddr;

use tollgate::store::Store;
use tollgate_flow::OrFault;
use tollgate_server::resp::Resp;
use tollgate_server::{Compat, HttpApi, HttpLimits, HttpProtocol, Metrics, Protocol, Server};

use crate::failure::Failure;
use crate::settings::{self, Http, Settings};

/// A protocol, and where it is spoken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door {
    pub(super) protocol: &'static str,
    pub(super) address: SocketAddr,
}

/// Listens wherever the settings say.
pub(super) fn open<S: Store>(server: &mut Server<S>, settings: &Settings) -> Result<Vec<Door>, Failure> {
    let Settings { http, resp, .. } = settings;
    let (mut doors, metrics) = (Vec::new(), metrics(settings));
    if let Some(address) = http.address {
        let api = HttpApi::new(metrics.clone()).limits(limits(http));
        doors.push(listen(server, "http", address, HttpProtocol::new(api))?);
    }
    if let Some(address) = resp.address {
        let protocol =
            Resp::new().metrics(&metrics).idle_timeout(resp.idle_timeout).slow_timeout(resp.slow_timeout);
        doors.push(listen(server, "resp", address, protocol)?);
    }
    if doors.is_empty() {
        return Err(Failure::Usage(
            "there is nothing to listen on: give --http-address or --resp-address".to_owned(),
        ));
    }
    Ok(doors)
}

fn listen<S: Store>(
    server: &mut Server<S>,
    name: &'static str,
    address: SocketAddr,
    protocol: impl Protocol<S>,
) -> Result<Door, Failure> {
    let listening = server.listen(address, protocol, None);
    let failed = listening
        .as_ref()
        .err()
        .map(|error| format!("cannot listen on {address}, as --{name}-address says: {error}"));
    let address = listening.or_fault(failed.unwrap_or_default())?;
    tracing::info!(protocol = name, %address, "listening");
    Ok(Door { protocol: name, address })
}

fn metrics(settings: &Settings) -> Metrics {
    match settings.metrics.compat.map(|compat| compat.0) {
        None => Metrics::new(),
        Some(settings::Compat::Envoy) => Metrics::new().compat(Compat::Envoy),
        Some(settings::Compat::Limitador) => Metrics::new().compat(Compat::Limitador),
    }
}

fn limits(http: &Http) -> HttpLimits {
    let mut limits = HttpLimits::default();
    limits.body_bytes = http.body_bytes.bytes();
    limits.header_bytes = http.header_bytes.bytes();
    limits.headers = http.headers.get();
    limits.checks = http.checks.get();
    limits.fields = http.fields.get();
    limits.key_length = http.key_bytes.bytes();
    limits.head_timeout = http.head_timeout;
    limits.body_timeout = http.body_timeout;
    limits.idle_timeout = http.idle_timeout;
    limits.write_timeout = http.write_timeout;
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Given, resolve};

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let settings = resolve(&Given::default()).unwrap().settings;
        assert_eq!(limits(&settings.http), HttpLimits::default());
    }
}
