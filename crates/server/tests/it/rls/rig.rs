//! A server and a caller of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tollgate::ManualClock;
use tollgate::store::{MemoryStore, Store};
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::rls::proto::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Unit,
};
use tollgate_server::{Engine, Keyring, Keys, Metrics, Origin, RlsOptions, RlsProtocol, Running, Server};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// 2026-11-15 18:39:20 UTC: the minute has 40 s left, the hour 1 240 s.
pub(crate) const EVENING: Duration = Duration::from_secs(1_794_767_960);

pub(crate) struct Rig<S: Store> {
    pub(crate) clock: ManualClock,
    pub(crate) engine: Engine<S>,
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    running: Option<Running>,
}

pub(crate) fn policy(text: &str) -> Policy {
    let name = if text.starts_with("domain:") { "limits.yaml" } else { "limits.toml" };
    Policy::parse(name, text).unwrap()
}

pub(crate) fn rig(text: &str) -> Rig<MemoryStore<ManualClock>> {
    rig_with(text, RlsOptions::default())
}

pub(crate) fn rig_with(text: &str, options: RlsOptions) -> Rig<MemoryStore<ManualClock>> {
    let clock = ManualClock::starting_at(EVENING);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    Rig::start(store, clock, text, options, Keyring::open())
}

impl<S: Store> Rig<S> {
    pub(crate) fn start(
        store: S,
        clock: ManualClock,
        text: &str,
        options: RlsOptions,
        keyring: Keyring,
    ) -> Self {
        let engine = Engine::in_time(store, policy(text), Origin::default(), Time::of(clock.clone()));
        Self::serve(engine, clock, options, keyring, &Metrics::new())
    }

    pub(crate) fn serve(
        engine: Engine<S>,
        clock: ManualClock,
        options: RlsOptions,
        keyring: Keyring,
        metrics: &Metrics,
    ) -> Self {
        let mut server = Server::new(engine.clone()).workers(2).keys(Keys::new(keyring));
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = server.listen(nowhere, RlsProtocol::new(metrics).options(options), None).unwrap();
        let running = Some(server.start().unwrap());
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self { clock, engine, address, channel, running }
    }

    pub(crate) async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.ask_with(Request::new(request)).await
    }

    pub(crate) async fn ask_with(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        grpc.unary(request, path, codec).await.map(tonic::Response::into_inner)
    }

    /// What is said of each descriptor.
    pub(crate) async fn told(&self, request: RateLimitRequest) -> (Code, Vec<Told>) {
        let response = self.ask(request).await.unwrap();
        (response.overall_code(), response.statuses.iter().map(told).collect())
    }

    pub(crate) fn stop(&mut self) -> usize {
        self.running.take().unwrap().drain(Duration::from_secs(20)).unwrap()
    }
}

impl<S: Store> Drop for Rig<S> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.drain(Duration::ZERO);
        }
    }
}

/// The code, the limit, what is left, and the time until there is more.
pub(crate) type Told = (Code, Option<(u32, Unit)>, u32, Option<Duration>);

pub(crate) fn told(status: &DescriptorStatus) -> Told {
    let limit = status.current_limit.as_ref().map(|limit| (limit.requests_per_unit, limit.unit()));
    let span = status.duration_until_reset.map(|span| Duration::new(span.seconds as u64, span.nanos as u32));
    (status.code(), limit, status.limit_remaining, span)
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: key.as_bytes().to_vec().into(),
        value: value.as_bytes().to_vec().into(),
    };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn request(domain: &str, descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

pub(crate) fn costing(hits: u64, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

/// A time as statuses have it.
#[allow(clippy::unnecessary_wraps, reason = "where it is compared, there may be none")]
pub(crate) fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}
