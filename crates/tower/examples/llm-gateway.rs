//! In front of a language model: requests and tokens a minute for each API key. Nobody knows how many tokens an answer will have,
//! so what the caller allows at most is taken at first, and settled with what was used.
//!
//! `cargo run -p tollgate-tower --features axum --example llm-gateway` calls itself, and ends.

use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tollgate_tower::{ActualCost, Cost, Head, Key, Limit, NoKey, Quota, RateLimitLayer, Unit};

/// What the caller allows at most; by default a thousand.
fn most_tokens(head: &Head<'_>) -> u64 {
    let most = head.text("x-max-tokens").and_then(|text| text.parse().ok());
    most.unwrap_or(1_000_u64).max(1) // nothing would always be allowed
}

/// A model that uses three tokens for every word.
async fn complete(prompt: String) -> impl IntoResponse {
    let answer = format!("{prompt}, and so on");
    let used = answer.split_whitespace().count() as u64 * 3;
    (Extension(ActualCost(used)), answer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::builder()
        .limit(Limit::new("requests", Quota::per_minute(60)).per(Key::bearer_token(), NoKey::Refuse))
        .limit(
            Limit::new("tokens", Quota::per_minute(2_000))
                .unit(Unit::Tokens)
                .per(Key::bearer_token(), NoKey::Refuse)
                .cost(Cost::of(most_tokens).settled_by_handler()),
        )
        .build()?;
    let app = Router::new().route("/complete", post(complete)).layer(limits);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/complete", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let client = reqwest::Client::new();
    for max_tokens in ["1000", "1500", "1900", "5000"] {
        let request = client.post(&url).bearer_auth("sk-secret").header("x-max-tokens", max_tokens);
        let response = request.body("once upon a time there was a gate").send().await?;
        let field = |name: &str| String::from_utf8_lossy(response.headers()[name].as_bytes()).into_owned();
        println!("at most {max_tokens}: {}; RateLimit: {}", response.status(), field("ratelimit"));
    }
    Ok(())
}
