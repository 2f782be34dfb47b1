//! A hundred requests a minute for each API key, whichever of several machines they come to.
//!
//! `cargo run -p tollgate-tower --features axum --example axum-shared -- 3000` and again with another port, with a Redis
//! on this machine; then `curl -i http://127.0.0.1:3000/ -H 'x-api-key: ann'` at both. Ctrl-C ends it.

use axum::Router;
use axum::http::HeaderName;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_redis::{Guarded, RedisStore};
use tollgate_tower::{Key, Limit, NoKey, Quota, RateLimitLayer, Unavailable};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "3000".to_owned());
    // It connects in the background, and waits for an answer for 25 ms at most.
    let store = Guarded::new(RedisStore::new("redis://127.0.0.1:6379")?);
    let limits = RateLimitLayer::builder()
        .store(store)
        .limit(
            Limit::new("per-key", Quota::per_minute(100))
                .per(Key::api_key(HeaderName::from_static("x-api-key")), NoKey::Refuse),
        )
        // While Redis is away, each process allows its share: with two of them, half.
        .if_unavailable(Unavailable::Local)
        .build()?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(limits);

    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await?;
    Ok(())
}
