//! The listeners.

use std::net::SocketAddr;
use std::sync::Arc;

use tollgate::store::Store;
use tollgate_server::resp::Resp;
use tollgate_server::{
    Compat, ConnectionAge, ConnectionLimits, HeaderNames, Hosts, HttpApi, HttpLimits, HttpProtocol, Metrics,
    Protocol, ReadyNeeds, RlsOptions, RlsProtocol, Scope, Scopes, Server, Tls,
};

use super::files;
use super::guard::Guard;
use crate::failure::Failure;
use crate::settings::{self, Count, FieldName, Grpc, Http, Settings};

/// The scopes of clients: all but administration.
pub(super) const FOR_SERVICES: Scopes = Scopes::of(&[Scope::Check, Scope::Hold, Scope::Settle]);
const FOR_ADMINISTRATORS: Scopes = Scopes::of(&[Scope::Admin]);

/// A protocol and its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
}

/// Opens all listeners.
pub(super) fn open<S: Store>(
    server: &mut Server<S>,
    guard: &Guard,
    settings: &Settings,
) -> Result<Vec<Door>, Failure> {
    let Settings { http, grpc, limitador, resp, admin, .. } = settings;
    let metrics = metrics(settings);
    let envoy = RlsOptions {
        headers: grpc.headers,
        limitador_headers: limitador.headers,
        dynamic_metadata: grpc.dynamic_metadata,
        shadow_mode: grpc.shadow_mode,
        quota_mode: grpc.quota_mode,
        header_names: header_names(grpc),
    };
    let hosts = http.hosts.iter().flat_map(|names| &names.0).cloned();
    let admin_hosts = hosts.clone().filter(|name| settings.like.is_none() || name != "*");
    let needs = ReadyNeeds { store: http.ready_needs_store, policy: http.ready_needs_policy };
    let api =
        HttpApi::new(metrics.clone()).limits(limits(http)).with_hosts(Hosts::new(hosts)).ready_needs(needs);
    let api = |scopes| api.clone().scopes(scopes);
    let redis = Resp::new()
        .metrics(&metrics)
        .scopes(guard.scopes_at(resp.address))
        .idle_timeout(resp.idle_timeout)
        .slow_timeout(resp.slow_timeout);
    let rls = RlsProtocol::new(&metrics).options(envoy).limits(limits(http));
    let age = grpc.max_connection_age.map(|max| ConnectionAge { max, grace: grpc.max_connection_age_grace });
    let rls = rls.health(grpc.health).reflection(grpc.reflection).max_connection_age(age);
    let mut opening = Opening {
        server,
        tls: guard.tls(),
        limits: connection_limits(
            settings,
            files::connections(settings),
            settings.max_connections_per_address,
        ),
        doors: Vec::new(),
    };
    opening.listen("http", http.address, HttpProtocol::new(api(FOR_SERVICES).rls(envoy)))?;
    opening.listen("grpc", grpc.address, rls)?;
    if limitador.http.is_some() {
        let scopes = guard.scopes_at(limitador.http);
        opening.listen("limitador", limitador.http, HttpProtocol::new(api(scopes).limitador()))?;
    }
    opening.listen("resp", resp.address, redis)?;
    // Its connections are counted separately, so that clients of other listeners cannot use them up.
    opening.limits = connection_limits(settings, admin.max_connections.get(), None);
    let for_administrators = api(FOR_ADMINISTRATORS).with_hosts(Hosts::new(admin_hosts));
    let for_administrators = for_administrators.rls_debug(settings.like.is_some());
    opening.listen("admin", admin.address, HttpProtocol::new(for_administrators))?;
    Ok(opening.doors)
}

/// A server while its listeners are opened.
struct Opening<'s, S: Store> {
    server: &'s mut Server<S>,
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
    doors: Vec<Door>,
}

impl<S: Store> Opening<'_, S> {
    fn listen(
        &mut self,
        name: &'static str,
        address: Option<SocketAddr>,
        protocol: impl Protocol<S>,
    ) -> Result<(), Failure> {
        let Some(address) = address else { return Ok(()) };
        let listening = self.server.listen_with(self.limits, address, protocol, self.tls.clone());
        let address = listening.map_err(|error| {
            let flag = if name == "limitador" { "http" } else { "address" };
            Failure::Failed(format!("cannot listen on {address} (--{name}-{flag}): {error}"))
        })?;
        tracing::info!(protocol = name, %address, "listening");
        self.doors.push(Door { name, address });
        Ok(())
    }
}

/// The names live as long as the process, which reads its settings once.
fn header_names(grpc: &Grpc) -> HeaderNames {
    let name = |field: &FieldName| -> &'static str { field.0.clone().leak() };
    HeaderNames {
        limit: name(&grpc.limit_header),
        remaining: name(&grpc.remaining_header),
        reset: name(&grpc.reset_header),
    }
}

fn metrics(settings: &Settings) -> Metrics {
    match settings.metrics.compat.map(|compat| compat.0) {
        None => Metrics::new(),
        Some(settings::Compat::Envoy) => Metrics::new().compat(Compat::Envoy),
        Some(settings::Compat::Limitador) => {
            Metrics::new().compat(Compat::Limitador { has_limit_names: settings.limitador.limit_names })
        }
    }
}

fn limits(http: &Http) -> HttpLimits {
    let mut limits = HttpLimits::default();
    limits.body_bytes = http.body_bytes.bytes();
    limits.connection_body_bytes = http.connection_body_bytes.bytes();
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

/// The limits of a listener that may have so many connections; one address gets a quarter of them unless it is given its own number.
fn connection_limits(
    settings: &Settings,
    total: usize,
    per_address: Option<Count<1, 1_000_000>>,
) -> ConnectionLimits {
    let mut limits = ConnectionLimits::default();
    limits.total = total;
    limits.per_address = per_address.map_or(total.div_ceil(4), Count::get);
    limits.first_request_timeout = settings.first_request_timeout;
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
        let limits = connection_limits(&settings, settings.max_connections.get(), None);
        assert_eq!(limits, ConnectionLimits::default());
    }
}
