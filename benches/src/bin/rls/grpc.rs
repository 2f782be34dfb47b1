//! Those who ask a service themselves.

use std::rc::Rc;

use tollgate_server::rls::proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic_prost::ProstCodec;

use crate::certificate::{Certificate, NAME};
use crate::load::{AT_ONCE, Caller, Connect, FIELDS, KEYS, value};

const CONNECTIONS: usize = 4;

pub(crate) struct Asker {
    grpc: Grpc<Channel>,
    requests: Rc<Vec<RateLimitRequest>>,
}

/// Connects over TLS if there is a certificate.
pub(crate) fn connect(
    port: u16,
    certificate: Option<&Certificate>,
    descriptors: usize,
) -> impl Connect<Asker> {
    let endpoint = match certificate {
        None => Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address"),
        Some(certificate) => {
            let trust = tonic::transport::Certificate::from_pem(certificate.pem());
            let tls = ClientTlsConfig::new().ca_certificate(trust).domain_name(NAME);
            let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{port}")).expect("an address");
            endpoint.tls_config(tls).expect("a certificate")
        }
    };
    move |runtime| {
        let connect = |_| runtime.block_on(endpoint.connect()).expect("the service listens");
        let channels: [Channel; CONNECTIONS] = std::array::from_fn(connect);
        let requests: Rc<Vec<_>> = Rc::new((0..KEYS).map(|key| request(key, descriptors)).collect());
        let asker = |number: usize| Asker {
            grpc: Grpc::new(channels[number % CONNECTIONS].clone()),
            requests: Rc::clone(&requests),
        };
        (0..AT_ONCE).map(asker).collect()
    }
}

impl Caller for Asker {
    async fn call(&mut self, key: usize) {
        let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let request = &self.requests[key];
        self.grpc.ready().await.expect("the connection stays");
        let answer = self.grpc.unary(Request::new(request.clone()), path, codec).await;
        let answer = answer.expect("an answer").into_inner();
        assert_eq!((answer.overall_code(), answer.statuses.len()), (Code::Ok, request.descriptors.len()));
    }
}

fn request(key: usize, descriptors: usize) -> RateLimitRequest {
    let descriptor = |field: &&str| {
        let entry = Entry { key: field.as_bytes().to_vec().into(), value: value(field, key).into() };
        RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
    };
    let descriptors = FIELDS[..descriptors].iter().map(descriptor).collect();
    RateLimitRequest { domain: "web".to_owned(), descriptors, hits_addend: 0 }
}
