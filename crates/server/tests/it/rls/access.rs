//! Who may ask.

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_server::rls::proto::RateLimitDescriptor;
use tollgate_server::{Engine, Keyring, Metrics, Origin, RlsOptions, RlsProtocol, Scope, Scopes, Server};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use super::rig::{EVENING, Rig, descriptor, request};

fn locked() -> Rig<MemoryStore<ManualClock>> {
    let clock = ManualClock::starting_at(EVENING);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let keyring = Keyring::new()
        .token("proxy", b"asks", Scopes::of(&[Scope::Check]))
        .token("biller", b"settles", Scopes::of(&[Scope::Check, Scope::Settle]))
        .token("viewer", b"looks", Scopes::of(&[Scope::Admin]));
    Rig::start(store, clock, "domain = \"d\"\n[limit.a]\nrate = \"1/h\"\n", RlsOptions::default(), keyring)
}

async fn code(rig: &Rig<MemoryStore<ManualClock>>, token: Option<&str>, gives_back: bool) -> Code {
    let descriptor = RateLimitDescriptor { is_negative_hits: gives_back, ..descriptor(&[("a", "b")]) };
    let mut request = Request::new(request("d", &[descriptor]));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    rig.ask_with(request).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn only_those_with_a_token_may_ask_and_only_some_may_give_back() {
    let rig = locked();
    for (token, asks, gives_back) in [
        (None, Code::Unauthenticated, Code::Unauthenticated),
        (Some("Bearer guess"), Code::Unauthenticated, Code::Unauthenticated),
        (Some("Basic asks"), Code::Unauthenticated, Code::Unauthenticated),
        (Some("Bearer looks"), Code::PermissionDenied, Code::PermissionDenied),
        (Some("Bearer asks"), Code::Ok, Code::PermissionDenied),
        (Some("bearer settles"), Code::Ok, Code::Ok),
    ] {
        assert_eq!(code(&rig, token, false).await, asks, "{token:?} asks");
        assert_eq!(code(&rig, token, true).await, gives_back, "{token:?} gives back");
    }
}

/// How a question to the reflection service ends, in either version of its protocol.
async fn reflect(channel: &Channel, version: &str, token: Option<&str>, symbol: &str) -> Code {
    let question = MessageRequest::FileContainingSymbol(symbol.to_owned());
    let question = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let mut request = Request::new(tokio_stream::once(question));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
    let path = PathAndQuery::try_from(path).unwrap();
    let codec = ProstCodec::<ServerReflectionRequest, ServerReflectionResponse>::default();
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let answered = async { grpc.streaming(request, path, codec).await?.into_inner().message().await };
    match answered.await {
        Ok(Some(_)) => Code::Ok,
        Ok(None) => Code::Aborted, // as tonic ends a stream whose next question cannot be read
        Err(status) => status.code(),
    }
}

/// Guards, item 3: reflection is for callers that may check; health is for load balancers, which have no token.
#[tokio::test]
async fn reflection_needs_the_scope_check_and_health_needs_none() {
    let rig = locked();
    for version in ["v1", "v1alpha"] {
        for (token, expected) in [
            (None, Code::Unauthenticated),
            (Some("Bearer guess"), Code::Unauthenticated),
            (Some("Bearer looks"), Code::PermissionDenied),
            (Some("Bearer asks"), Code::Ok),
        ] {
            let symbol = "grpc.health.v1.Health";
            assert_eq!(reflect(&rig.channel, version, token, symbol).await, expected, "{version} {token:?}");
        }
        let large = "s".repeat(64 * 1024);
        let code = reflect(&rig.channel, version, Some("Bearer asks"), &large).await;
        assert_eq!(code, Code::Aborted, "a question is the name of something");
    }
    let mut health = HealthClient::new(rig.channel.clone());
    assert!(health.check(HealthCheckRequest::default()).await.is_ok());
}

/// Guards, item 3: neither is served where the settings say so.
#[tokio::test]
async fn health_and_reflection_can_be_switched_off() {
    let policy = super::rig::policy("domain = \"d\"\n[limit.a]\nrate = \"1/h\"\n");
    let mut server = Server::new(Engine::new(MemoryStore::new(), policy, Origin::default())).workers(1);
    let protocol = RlsProtocol::new(&Metrics::new()).health(false).reflection(false);
    let address = server.listen(([127, 0, 0, 1], 0).into(), protocol, None).unwrap();
    let running = server.start().unwrap();
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    assert_eq!(reflect(&channel, "v1", None, "grpc.health.v1.Health").await, Code::Unimplemented);
    let answered = HealthClient::new(channel).check(HealthCheckRequest::default()).await;
    assert_eq!(answered.unwrap_err().code(), Code::Unimplemented);
    tokio::task::spawn_blocking(move || running.drain(std::time::Duration::ZERO)).await.unwrap().unwrap();
}
