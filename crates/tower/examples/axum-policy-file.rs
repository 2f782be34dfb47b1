//! Limits from a file, which is read again whenever it changes. Limits that stayed the same go on with their counts, and a file with
//! mistakes in it changes nothing.
//!
//! `cargo run -p tollgate-tower --features axum,policy --example axum-policy-file -- limits.toml`, with for example
//!
//! ```toml
//! [limit.per-ip]
//! key = "ip"
//! rate = "10/min burst 3"
//! ```
//!
//! then `curl -i http://127.0.0.1:3000/` a few times, change the file, and try again. Ctrl-C ends it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_policy::Policy;
use tollgate_tower::RateLimitLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("which file? Name it after `--`, as in `-- limits.toml`");
        std::process::exit(2);
    };
    let limits = RateLimitLayer::builder().policy(Policy::load(&path)?).build()?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(limits.clone());
    tokio::spawn(async move { follow(Path::new(&path), &limits).await });

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}

/// Looks once a second whether the file has changed.
async fn follow(path: &Path, limits: &RateLimitLayer) {
    let changed = || -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let mut known = changed();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if changed() == known {
            continue;
        }
        known = changed();
        match Policy::load(path) {
            Ok(policy) => match limits.set_policy(policy) {
                Ok(()) => println!("{} is in force", path.display()),
                Err(error) => eprintln!("{}: {error}", path.display()),
            },
            Err(problems) => eprintln!("{problems}"),
        }
    }
}
