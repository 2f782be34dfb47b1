//! Limits by the plan that an API key belongs to: free, pro and enterprise.
//!
//! A layer further out looks the key up and says which account and plan it is; limits go by that. Who has no valid key never
//! gets that far. `cargo run -p tollgate-tower --features axum --example axum-api-keys-with-plans` calls itself, and ends.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_tower::{Head, Key, Limit, NoKey, Quota, RateLimitLayer};

#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Free,
    Pro,
    Enterprise,
}

#[derive(Clone)]
struct Account {
    name: &'static str,
    plan: Plan,
}

/// Would be in a database.
fn account_of(api_key: &str) -> Option<Account> {
    match api_key {
        "key-1" => Some(Account { name: "alice", plan: Plan::Free }),
        "key-2" => Some(Account { name: "bob", plan: Plan::Pro }),
        "key-3" => Some(Account { name: "carol", plan: Plan::Enterprise }),
        _ => None,
    }
}

async fn identify(mut request: Request, next: Next) -> Response {
    let Some(account) = Head::of(&request).text("x-api-key").and_then(account_of) else {
        return (StatusCode::UNAUTHORIZED, "who are you?").into_response();
    };
    request.extensions_mut().insert(account);
    next.run(request).await
}

/// A limit for the accounts of one plan.
fn of_plan(plan: Plan, limit: Limit) -> Limit {
    limit
        .per(Key::extension(|account: &Account| account.name), NoKey::Refuse)
        .when(move |head| head.extensions.get::<Account>().is_some_and(|account| account.plan == plan))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::builder()
        .limit(of_plan(Plan::Free, Limit::new("free", Quota::per_minute(3)).quota(Quota::per_day(100))))
        .limit(of_plan(Plan::Pro, Limit::new("pro", Quota::per_minute(10))))
        .limit(of_plan(Plan::Enterprise, Limit::new("enterprise", Quota::per_minute(1_000))))
        .build()?;
    // The layer that is added last is the outermost.
    let app =
        Router::new().route("/", get(async || "hello")).layer(limits).layer(middleware::from_fn(identify));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let client = reqwest::Client::new();
    for api_key in ["key-1", "key-2", "key-3", "made-up"] {
        let (mut passed, mut last) = (0, String::new());
        for _ in 0..20 {
            let response = client.get(&url).header("x-api-key", api_key).send().await?;
            passed += u32::from(response.status().is_success());
            last = match response.headers().get("ratelimit") {
                Some(field) => format!("{}, RateLimit: {}", response.status(), field.to_str()?),
                None => response.status().to_string(),
            };
        }
        println!("{api_key}: {passed} of 20 passed; the last: {last}");
    }
    Ok(())
}
