//! What there is besides the one method.

use prost::Message;
use prost_types::FileDescriptorProto;
use tollgate_server::rls::proto::{RateLimitRequest, RateLimitResponse};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};

use super::rig::{descriptor, request, rig};

const ONE: &str = "domain = \"web\"\n[limit.a]\nkey = \"ip\"\nrate = \"1/h\"\n";
const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const KUADRANT: &str = "kuadrant.service.ratelimit.v1.RateLimitService";

#[tokio::test]
async fn health_is_told_until_the_server_stops() {
    let mut rig = rig(ONE);
    let mut health = HealthClient::new(rig.channel.clone());
    for name in ["", SERVICE, "ratelimit", KUADRANT] {
        let asked = HealthCheckRequest { service: name.to_owned() };
        let status = health.check(asked).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{name:?}");
    }
    let unknown = HealthCheckRequest { service: "other".to_owned() };
    assert_eq!(health.check(unknown.clone()).await.unwrap_err().code(), Code::NotFound);
    let mut watched = health.watch(unknown).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    drop(watched);
    let mut watched = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let stopped = tokio::task::spawn_blocking(move || rig.stop());
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(watched.message().await.unwrap(), None);
    assert_eq!(stopped.await.unwrap(), 0, "nobody had to be cut off");
}

async fn reflect(channel: tonic::transport::Channel, question: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let mut client = ServerReflectionClient::new(channel);
    let asked = tonic::codegen::tokio_stream::once(request);
    let mut answers = client.server_reflection_info(Request::new(asked)).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap().message_response.unwrap()
}

#[tokio::test]
async fn reflection_names_the_services_and_describes_them() {
    let rig = rig(ONE);
    let listed = reflect(rig.channel.clone(), MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
    let names: Vec<String> = listed.service.into_iter().map(|ServiceResponse { name }| name).collect();
    for name in [SERVICE, KUADRANT, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    let described = reflect(rig.channel.clone(), MessageRequest::FileContainingSymbol(SERVICE.into())).await;
    let MessageResponse::FileDescriptorResponse(files) = described else { panic!("{described:?}") };
    let file = FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
    assert_eq!(file.name(), "envoy/service/ratelimit/v3/rls.proto");
    assert_eq!(file.service[0].method[0].name(), "ShouldRateLimit");
}

#[tokio::test]
async fn other_methods_are_not_there() {
    let rig = rig(ONE);
    let mut grpc = Grpc::new(rig.channel.clone());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit");
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let error = grpc.unary(Request::new(RateLimitRequest::default()), path, codec).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
}

#[tokio::test]
async fn what_was_asked_before_it_stops_is_answered() {
    let mut rig = rig(ONE);
    let ask = request("web", &[descriptor(&[("ip", "1")])]);
    assert!(rig.ask(ask.clone()).await.is_ok());
    let left = tokio::task::spawn_blocking(move || (rig.stop(), rig)).await.unwrap();
    assert_eq!(left.0, 0);
    assert!(left.1.ask(ask).await.is_err(), "nobody is there any more");
}
