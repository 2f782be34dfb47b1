//! An ordinary reqwest client, and the same one with manners, against a server that allows twenty requests a second.
//!
//! ```sh
//! cargo run -p tollgate-flow --features reqwest --example polite_client
//! ```

use std::error::Error;

use axum::Router;
use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::{Limiter, Quota};
use tollgate_flow::client::Effort;
use tollgate_flow::{Manners, Time};

const REQUESTS: u32 = 60;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ordinary = || ClientBuilder::new(reqwest::Client::new());
    println!("{:10} {:>4} {:>4} {:>9} {:>8}", "", "200", "429", "attempts", "seconds");
    ask_all("ordinary", &ordinary().build()).await?;
    ask_all("polite", &ordinary().with(Manners::new().build()).build()).await?;
    Ok(())
}

/// Asks a new server for everything at once, and prints what came of it.
async fn ask_all(name: &str, client: &ClientWithMiddleware) -> Result<(), Box<dyn Error>> {
    let url = format!("http://{}/items", start_server().await?);
    let time = Time::tokio();
    let start = time.now();
    let mut asking: JoinSet<_> = (0..REQUESTS).map(|_| client.get(&url).send()).collect();
    let (mut good, mut refused, mut attempts) = (0, 0, 0);
    while let Some(response) = asking.join_next().await {
        let response = response??;
        good += u32::from(response.status().is_success());
        refused += u32::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
        attempts += response.extensions().get::<Effort>().map_or(1, |effort| effort.attempts);
    }
    let seconds = time.now().since(start).as_secs_f64();
    println!("{name:10} {good:>4} {refused:>4} {attempts:>9} {seconds:>8.1}");
    Ok(())
}

/// A server that refuses what is too much, and says when to come back.
async fn start_server() -> Result<std::net::SocketAddr, Box<dyn Error>> {
    let limiter = Limiter::new(Quota::per_second(20).burst(10));
    let answer = move || async move {
        if limiter.allow() {
            return (StatusCode::OK, "an item").into_response();
        }
        let retry_after = [(HeaderName::from_static("retry-after"), "1")];
        (StatusCode::TOO_MANY_REQUESTS, retry_after, "too many").into_response()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/items", get(answer))).await });
    Ok(address)
}
