//! A caller of Envoy's rate limit service.

use std::io;
use std::net::SocketAddr;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate_server::rls::proto::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Endpoint, Uri};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::PATIENCE;
use super::certificates::Caller;

/// One descriptor in a domain, asked by whoever has a token.
pub(crate) struct Call<'a> {
    pub(crate) domain: &'a str,
    pub(crate) entries: &'a [(&'a str, &'a str)],
    pub(crate) token: Option<&'a str>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(domain: &'a str, entries: &'a [(&'a str, &'a str)]) -> Self {
        Self { domain, entries, token: None }
    }

    pub(crate) fn token(self, token: Option<&'a str>) -> Self {
        Self { token, ..self }
    }

    fn request(&self) -> Request<RateLimitRequest> {
        let entry = |(key, value): &(&str, &str)| Entry {
            key: key.as_bytes().to_vec().into(),
            value: value.as_bytes().to_vec().into(),
        };
        let entries = self.entries.iter().map(entry).collect();
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        let domain = self.domain.to_owned();
        let mut request = Request::new(RateLimitRequest { domain, descriptors, hits_addend: 0 });
        if let Some(token) = self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    }

    /// What is answered there, over TLS if there is a caller who speaks it. A connection that is refused is an error as well.
    pub(crate) fn ask(
        &self,
        address: SocketAddr,
        caller: Option<&Caller>,
    ) -> Result<RateLimitResponse, Status> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let caller = caller.cloned();
            let connect = tower::service_fn(move |_: Uri| open(address, caller.clone()));
            let endpoint = Endpoint::from_static("http://localhost").timeout(PATIENCE);
            let channel = endpoint.connect_with_connector(connect).await;
            let mut grpc = Grpc::new(channel.map_err(|error| Status::unavailable(error.to_string()))?);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path =
                PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
            let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
            grpc.unary(self.request(), path, codec).await.map(tonic::Response::into_inner)
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn open(address: SocketAddr, caller: Option<Caller>) -> io::Result<TokioIo<Box<dyn Stream>>> {
    let stream = TcpStream::connect(address).await?;
    let stream: Box<dyn Stream> = match caller {
        None => Box::new(stream),
        Some(caller) => {
            let name = ServerName::try_from("localhost").unwrap();
            Box::new(TlsConnector::from(caller.config()).connect(name, stream).await?)
        }
    };
    Ok(TokioIo::new(stream))
}
