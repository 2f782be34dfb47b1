//! Real sockets, with tonic.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate_tower::{ConcurrencyLimit, ConcurrencyLimitLayer, Key, Limit, NoKey, Quota, RateLimitLayer};
use tonic::Code;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

async fn listen() -> (TcpIncoming, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (TcpIncoming::from(listener), url)
}

async fn serve_limited(limit: Limit) -> String {
    let limits = RateLimitLayer::builder()
        .peer(|head| head.extensions.get::<TcpConnectInfo>()?.remote_addr().as_ref().map(SocketAddr::ip))
        .limit(limit)
        .build()
        .unwrap();
    let (incoming, url) = listen().await;
    let (_, health) = tonic_health::server::health_reporter();
    tokio::spawn(Server::builder().layer(limits).add_service(health).serve_with_incoming(incoming));
    url
}

async fn connect(url: String) -> HealthClient<Channel> {
    HealthClient::new(Endpoint::from_shared(url).unwrap().connect().await.unwrap())
}

async fn check(client: &mut HealthClient<Channel>) -> Result<(), tonic::Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_and_says_when_to_come_back() {
    let limit = Limit::new("per-address", Quota::per_day(2)).per(Key::client(), NoKey::Refuse);
    let mut client = connect(serve_limited(limit).await).await;
    for _ in 0..2 {
        let answer = client.check(HealthCheckRequest::default()).await.unwrap();
        assert!(answer.metadata().contains_key("ratelimit"));
    }
    let status = check(&mut client).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "limit reached"));
    let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap();
    assert!((1..=43_200_000).contains(&pushback.parse::<u64>().unwrap()), "{pushback}"); // half a day
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_share_one_limit() {
    let url = serve_limited(Limit::new("all", Quota::per_day(30))).await;
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let url = url.clone();
        calls.spawn(async move {
            let mut client = connect(url).await;
            let mut passed = 0;
            for _ in 0..3 {
                passed += u32::from(check(&mut client).await.is_ok());
            }
            passed
        });
    }
    assert_eq!(calls.join_all().await.into_iter().sum::<u32>(), 30);
}

#[tokio::test]
async fn too_many_at_once_are_unavailable() {
    let limit = ConcurrencyLimit::new(1);
    let (incoming, url) = listen().await;
    let (_, health) = tonic_health::server::health_reporter();
    let layer = ConcurrencyLimitLayer::new(limit.clone(), std::time::Duration::ZERO);
    tokio::spawn(Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming));
    let mut client = connect(url).await;
    check(&mut client).await.unwrap();
    let slot = limit.try_acquire().unwrap();
    assert_eq!(check(&mut client).await.unwrap_err().code(), Code::Unavailable);
    drop(slot);
    check(&mut client).await.unwrap();
}
