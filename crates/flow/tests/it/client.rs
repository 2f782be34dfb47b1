//! A client with manners, as a tower service around a server that is not there.

#![cfg(feature = "tower")]

mod cancel;
mod deadline;
mod hedge;
mod limits;
mod mock;
mod retry;
mod upstreams;

use std::time::Duration;

use http::{Method, Request, Response};
use mock::Server;
use tollgate_flow::client::{Effort, NoAnswer, PoliteService};
use tollgate_flow::{Backoff, Jitter, Manners, RateControl, Retry, Time};
use tower_layer::Layer;
use tower_service::Service;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Waits of 500 ms, 750 ms and so on, without jitter.
fn retry(time: Time) -> Retry {
    Retry::with_time(time).backoff(Backoff::new().jitter(Jitter::None)).tries(5)
}

/// As fast as one likes, so that turns do not matter.
fn manners() -> Manners {
    Manners::new().rate(RateControl::new().starting_at(1e6)).retry(retry)
}

/// Two at once, and then one a second.
fn slowly() -> RateControl {
    RateControl::new().starting_at(1.0).at_most(1.0)
}

fn client(manners: Manners, server: &Server) -> PoliteService<Server> {
    manners.build().layer(server.clone())
}

fn request(method: &Method) -> Request<String> {
    to(method, "http://example.org/path?secret=word")
}

fn to(method: &Method, uri: &str) -> Request<String> {
    Request::builder().method(method).uri(uri).body("content".to_owned()).unwrap()
}

async fn get(client: &PoliteService<Server>) -> Result<Response<String>, NoAnswer> {
    client.clone().call(request(&Method::GET)).await
}

fn effort(response: &Response<String>) -> Effort {
    *response.extensions().get().expect("every response has one")
}
