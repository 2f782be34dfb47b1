//! A hundred requests a minute for each address, and a thousand a second for all of them.
//!
//! `cargo run -p tollgate-tower --features axum --example axum-per-ip`, then `curl -i http://127.0.0.1:3000/` a few times.
//! Ctrl-C ends it.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_tower::{Key, Limit, NoKey, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::builder()
        .limit(Limit::new("everybody", Quota::per_second(1_000)))
        // Without an address there is nothing to limit by; that would be a mistake of ours, so better nothing is served.
        .limit(Limit::new("per-address", Quota::per_minute(100).burst(10)).per(Key::client(), NoKey::Refuse))
        // Behind a proxy, also say which: .clients(ClientAddress::behind(["10.0.0.0/8".parse()?], AddressField::XForwardedFor))
        .build()?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(limits);

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}
