//! Five wrong passwords for each account and twenty from each address, in a quarter of an hour. Right ones cost nothing.
//!
//! Every attempt takes one of each at first, so a hundred guesses at once do not get past either; if it was right, both come
//! back. `cargo run -p tollgate-tower --features axum --example login-throttle` calls itself, and ends.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use http::HeaderName;
use tokio::net::TcpListener;
use tollgate_tower::{Cost, Key, Kind, Limit, NoKey, Quota, RateLimitLayer};

const USER: HeaderName = HeaderName::from_static("x-user");

async fn login(headers: HeaderMap) -> StatusCode {
    let is_right = headers.get("x-password").is_some_and(|password| password == "correct horse");
    if is_right { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quarter_of_an_hour = Duration::from_secs(15 * 60);
    let failures = |name: &str, count: u64| {
        Limit::new(name, Quota::per(count, quarter_of_an_hour))
            .kind(Kind::SlidingLog)
            .cost(Cost::fixed(1).settled(|reply| Some(u64::from(reply.status == StatusCode::UNAUTHORIZED))))
    };
    let limits = RateLimitLayer::builder()
        .limit(failures("failures-per-account", 5).per(Key::header(USER), NoKey::Refuse))
        .limit(failures("failures-per-address", 20).per(Key::client(), NoKey::Refuse))
        .build()?;
    let app = Router::new().route("/login", post(login)).layer(limits);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/login", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });

    let client = reqwest::Client::new();
    let attempts = [
        ("alice", "correct horse", 8),
        ("alice", "guess", 7),
        ("bob", "correct horse", 1),
        ("bob", "guess", 7),
    ];
    for (user, password, times) in attempts {
        let mut statuses = Vec::new();
        for _ in 0..times {
            let request = client.post(&url).header(USER, user).header("x-password", password);
            statuses.push(request.send().await?.status().as_u16());
        }
        println!("{user:5} with {password:?}: {statuses:?}");
    }
    Ok(())
}
