//! A gRPC service that each address may ask three times a minute. Refusals are `RESOURCE_EXHAUSTED`, with what tonic and other
//! clients need to know to come back in time. The service is tonic's own health service.
//!
//! `cargo run -p tollgate-tower --example tonic-limited` calls itself, and ends.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tollgate_tower::{Key, Limit, NoKey, Quota, RateLimitLayer};
use tonic::metadata::MetadataMap;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::builder()
        .peer(|head| head.extensions.get::<TcpConnectInfo>()?.remote_addr().as_ref().map(SocketAddr::ip))
        .limit(Limit::new("per-address", Quota::per_minute(3)).per(Key::client(), NoKey::Refuse))
        .build()?;
    let (_reporter, health) = tonic_health::server::health_reporter();

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().layer(limits).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let mut client = HealthClient::new(Endpoint::from_shared(url)?.connect().await?);
    for _ in 0..5 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(answer) => println!("Ok; ratelimit: {}", text(answer.metadata(), "ratelimit")),
            Err(status) => {
                let pushback = text(status.metadata(), "grpc-retry-pushback-ms");
                println!("{:?}: {}; come back in {pushback} ms", status.code(), status.message());
            }
        }
    }
    Ok(())
}

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> &'a str {
    metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or("not told")
}
