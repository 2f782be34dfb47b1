//! Rules about several settings.

use std::net::SocketAddr;
use std::time::Duration;

use super::store::Store;
use super::table::{Redis, Settings, Tls};

/// Whether other machines can reach an address.
pub(crate) fn is_exposed(address: Option<SocketAddr>) -> bool {
    address.is_some_and(|address| !address.ip().to_canonical().is_loopback())
}

/// Returns the rules that settings break which are valid each by itself.
pub(super) fn mistakes(settings: &Settings) -> Vec<String> {
    let tls = certificates(&settings.tls).map(str::to_owned);
    let of_redis = redis(&settings.redis).map(str::to_owned);
    tls.chain(admin(settings)).chain(nowhere(settings)).chain(password(settings)).chain(of_redis).collect()
}

fn redis(redis: &Redis) -> impl Iterator<Item = &'static str> {
    let has = (redis.tls_certificate.is_some(), redis.tls_key.is_some());
    let lease_times = Duration::from_millis(100)..=Duration::from_secs(30);
    let rules = [
        (has == (true, false), "redis.tls_certificate needs redis.tls_key"),
        (has == (false, true), "redis.tls_key needs redis.tls_certificate"),
        (!lease_times.contains(&redis.lease_time), "redis.lease_time must be from 100ms to 30s"),
    ];
    rules.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, mistake)| mistake)
}

fn certificates(tls: &Tls) -> impl Iterator<Item = &'static str> {
    let has_own = (tls.certificate.is_some(), tls.key.is_some());
    let has_authorities = tls.client_authorities.is_some();
    let rules = [
        (has_own == (true, false), "tls.certificate needs tls.key"),
        (has_own == (false, true), "tls.key needs tls.certificate"),
        (
            has_own == (false, false) && has_authorities,
            "tls.client_authorities needs tls.certificate and tls.key",
        ),
        (tls.require_client && !has_authorities, "tls.require_client needs tls.client_authorities"),
    ];
    rules.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, mistake)| mistake)
}

/// Administration needs authentication if other machines can reach it.
fn admin(settings: &Settings) -> Option<String> {
    let address = settings.admin.address.filter(|address| is_exposed(Some(*address)))?;
    let is_guarded = settings.keys.file.is_some() || settings.tls.require_client;
    (!is_guarded).then(|| {
        format!(
            "admin.address {address} is reachable from other machines without authentication: \
             set keys.file, or tls.client_authorities with tls.require_client, or use a loopback address"
        )
    })
}

fn password(settings: &Settings) -> Option<String> {
    let is_needless = settings.store_password_file.is_some() && settings.store == Store::Memory;
    is_needless.then(|| "store_password_file needs a Redis store (--store redis://…)".to_owned())
}

fn nowhere(settings: &Settings) -> Option<String> {
    let Settings { http, grpc, limitador, resp, .. } = settings;
    let addresses = [http.address, grpc.address, limitador.http, resp.address];
    let told = "no listener: set --http-address, --grpc-address or --resp-address";
    addresses.iter().all(Option::is_none).then(|| told.to_owned())
}
