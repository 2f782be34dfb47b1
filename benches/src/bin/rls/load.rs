//! Callers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tollgate_server::rls::messages::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// How many calls are under way.
const AT_ONCE: usize = 50;
const CONNECTIONS: usize = 4;
/// How many callers there are to be told apart.
const KEYS: usize = 20_000;
/// By which fields.
const FIELDS: [&str; 3] = ["user", "path", "tenant"];

pub(crate) struct Client {
    runtime: Runtime,
    channels: Vec<Channel>,
    requests: Rc<Vec<RateLimitRequest>>,
}

/// What callers saw.
pub(crate) struct Seen {
    pub(crate) latencies_us: Vec<f64>,
    pub(crate) wall: Duration,
}

impl Client {
    pub(crate) fn new(port: u16, descriptors: usize) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
        let connect = || runtime.block_on(endpoint.connect()).expect("the server listens");
        let channels = (0..CONNECTIONS).map(|_| connect()).collect();
        let requests = Rc::new((0..KEYS).map(|key| request(key, descriptors)).collect());
        Self { runtime, channels, requests }
    }

    /// Calls for so long.
    pub(crate) fn run(&self, span: Duration) -> Seen {
        let (next, began) = (Rc::new(Cell::new(0)), Instant::now());
        let tasks = LocalSet::new();
        let callers: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let channel = self.channels[number % CONNECTIONS].clone();
                let (requests, next) = (Rc::clone(&self.requests), Rc::clone(&next));
                tasks.spawn_local(call_until(began + span, channel, requests, next))
            })
            .collect();
        let mut latencies_us = Vec::new();
        tasks.block_on(&self.runtime, async {
            for caller in callers {
                latencies_us.extend(caller.await.expect("no caller panics"));
            }
        });
        Seen { latencies_us, wall: began.elapsed() }
    }
}

async fn call_until(
    end: Instant,
    channel: Channel,
    requests: Rc<Vec<RateLimitRequest>>,
    next: Rc<Cell<usize>>,
) -> Vec<f64> {
    let mut grpc = Grpc::new(channel);
    let mut latencies = Vec::new();
    let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    loop {
        let began = Instant::now();
        if began >= end {
            return latencies;
        }
        let number = next.replace((next.get() + 1) % KEYS);
        grpc.ready().await.expect("the connection stays");
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let answer = grpc.unary(Request::new(requests[number].clone()), path.clone(), codec).await;
        let answer = answer.expect("an answer").into_inner();
        assert_eq!(
            (answer.overall_code(), answer.statuses.len()),
            (Code::Ok, requests[number].descriptors.len())
        );
        latencies.push(began.elapsed().as_secs_f64() * 1e6);
    }
}

fn request(key: usize, descriptors: usize) -> RateLimitRequest {
    let descriptor = |field: &&str| {
        let value = format!("{field}-{key:08}");
        let entry = Entry { key: field.as_bytes().to_vec().into(), value: value.into() };
        RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
    };
    let descriptors = FIELDS[..descriptors].iter().map(descriptor).collect();
    RateLimitRequest { domain: "web".to_owned(), descriptors, hits_addend: 0 }
}
