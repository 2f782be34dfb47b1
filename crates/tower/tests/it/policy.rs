//! Limits that a policy says, by a clock that is moved by hand.
#![cfg(feature = "policy")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::task::{Context, Poll};

use http::{HeaderName, Request, Response};
use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_policy::Policy;
use tollgate_tower::{Cost, Key, Limit, LimitError, Quota, RateLimit, RateLimitBuilder, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

type Store = MemoryStore<ManualClock>;

/// Answers with the status it is asked for.
#[derive(Clone)]
struct Echo;

impl Service<Request<()>> for Echo {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let status = request.headers().get("x-status").map_or("200", |value| value.to_str().unwrap());
        ready(Ok(Response::builder().status(status).body(String::new()).unwrap()))
    }
}

const PLAN: HeaderName = HeaderName::from_static("x-plan");
const TOKENS: HeaderName = HeaderName::from_static("x-tokens");

fn policy(text: &str) -> Policy {
    Policy::parse("limits.toml", text).unwrap()
}

fn builder() -> RateLimitBuilder<Store> {
    RateLimitLayer::builder()
        .store(MemoryStore::builder().clock(ManualClock::new()).build())
        .field("plan", Key::header(PLAN))
        .field("tokens", Key::header(TOKENS))
}

fn by(text: &str) -> RateLimit<Echo, Store> {
    builder().policy(policy(text)).build().unwrap().layer(Echo)
}

async fn send(service: &mut RateLimit<Echo, Store>, request: http::request::Builder) -> (u16, String) {
    let Ok(response) = service.call(request.body(()).unwrap()).await;
    let told = response.headers().get("ratelimit").map_or("", |value| value.to_str().unwrap()).to_owned();
    (response.status().as_u16(), told)
}

async fn statuses(
    service: &mut RateLimit<Echo, Store>,
    requests: impl IntoIterator<Item = http::request::Builder>,
) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(send(service, request).await.0);
    }
    statuses
}

fn from(address: &str) -> http::request::Builder {
    Request::get("/").extension(address.parse::<IpAddr>().unwrap())
}

/// Answers, item 16: a request that no limit of the policy applies to is denied if the policy says so.
#[tokio::test]
async fn unmatched_requests_are_denied_if_the_policy_says_so() {
    let limits = "[limit.login]\nmatch.path = \"/login\"\nrate = \"9/h\"\n";
    for (unmatched, expected) in [("deny", [200, 429]), ("allow", [200, 200])] {
        let mut service = by(&format!("unmatched = \"{unmatched}\"\n{limits}"));
        let requests = [Request::get("/login"), Request::get("/logn")];
        assert_eq!(statuses(&mut service, requests).await, expected, "{unmatched}");
    }
}

#[tokio::test]
async fn what_applies_is_known_by_address_method_path_and_host() {
    let mut service = by(r#"
        [limit.per-ip]
        key = "ip"
        rate = "1/d"
        algorithm = "fixed-window"
        match.method = "GET"
        match.path = "/api/*"
        match.host = "example.com"
        match.ip = { network = "2001:db8::/32" }
    "#);
    let get = |path: &str, host: &str, ip: &str| {
        Request::get(path).header("host", host).extension(ip.parse::<IpAddr>().unwrap())
    };
    let requests = [
        get("/api/a", "example.com", "2001:db8::1"),
        get("/api/b", "EXAMPLE.com", "2001:db8::2"), // the same /64, so the same caller
        get("/api/b", "example.com", "2001:db8:0:1::1"),
        get("/other", "example.com", "2001:db8::1"),
        get("/api/a", "example.org", "2001:db8::1"),
        get("/api/a", "example.com", "192.0.2.1"),
    ];
    assert_eq!(statuses(&mut service, requests).await, [200, 429, 200, 200, 200, 200]);
}

#[tokio::test]
async fn fields_are_told_and_overrides_are_states_of_their_own() {
    let mut service = by(r#"
        [limit.api]
        rate = "1/min"
        algorithm = "fixed-window"
        overrides = [{ field = "plan", rates = { pro = ["2/min", "3/h"] } }]
    "#);
    let plan = |name| Request::get("/").header(PLAN, name);
    assert_eq!(send(&mut service, plan("free")).await, (200, r#""api";r=0;t=60"#.to_owned()));
    assert_eq!(send(&mut service, plan("free")).await.0, 429);
    let told = r#""api 2/min";r=1;t=60, "api 3/h";r=2;t=3600"#.to_owned();
    assert_eq!(send(&mut service, plan("pro")).await, (200, told));
}

#[tokio::test]
async fn costs_come_from_a_field_and_garbage_is_what_the_limit_says() {
    let text = "[limit.tokens]\nrate = \"10/d\"\nalgorithm = \"fixed-window\"\ncost = \"tokens\"\n";
    let garbage = || Request::get("/").header(TOKENS, "many");
    assert_eq!(send(&mut by(text), garbage()).await, (200, r#""tokens";r=9;t=86400"#.to_owned()));
    let mut service = by(&format!("{text}on_bad_value = \"deny\"\n"));
    let tokens = |text| Request::get("/").header(TOKENS, text);
    assert_eq!(send(&mut service, tokens("4")).await, (200, r#""tokens";r=6;t=86400"#.to_owned()));
    assert_eq!(send(&mut service, garbage()).await, (400, String::new()));
    assert_eq!(send(&mut service, Request::get("/")).await, (200, r#""tokens";r=5;t=86400"#.to_owned()));
    assert_eq!(send(&mut service, tokens("6")).await.0, 429);
}

#[tokio::test]
async fn costs_can_be_settled() {
    let text = "[limit.failures]\nrate = \"1/d\"\nalgorithm = \"fixed-window\"\n";
    let layer =
        builder().policy_cost("failures", Cost::fixed(1).failures_only()).policy(policy(text)).build();
    let mut service = layer.unwrap().layer(Echo);
    let status = |status| Request::get("/").header("x-status", status);
    let requests = ["200", "200", "404", "200"].map(status);
    assert_eq!(statuses(&mut service, requests).await, [200, 200, 404, 429]);
}

#[tokio::test]
async fn shadow_limits_and_those_that_are_off_refuse_nothing_and_exceptions_replace() {
    let mut service = by(r#"
        [limit.shadow]
        rate = "0/s"
        mode = "shadow"
        cost = "tokens"
        on_bad_value = "deny"

        [limit.off]
        rate = "0/s"
        mode = "off"

        [limit.real]
        rate = "1/d"

        [limit.staff]
        match.plan = "staff"
        rate = "unlimited"
        envoy.replaces = "real"
    "#);
    let staff = || Request::get("/").header(PLAN, "staff");
    let garbage = || Request::get("/").header(PLAN, "staff").header(TOKENS, "?");
    let requests = [Request::get("/"), staff(), Request::get("/"), staff(), garbage()];
    assert_eq!(statuses(&mut service, requests).await, [200, 200, 429, 200, 200]);
}

#[tokio::test]
async fn limits_of_code_and_of_a_policy_decide_together() {
    let layer = builder()
        .limit(Limit::new("code", Quota::per_day(2)))
        .policy(policy("[limit.file]\nkey = \"ip\"\nrate = \"1/d\"\n"))
        .build()
        .unwrap();
    let mut service = layer.layer(Echo);
    // The second takes nothing of the first limit.
    let requests = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"].map(from);
    assert_eq!(statuses(&mut service, requests).await, [200, 429, 200, 429]);
}

#[tokio::test]
async fn a_policy_is_replaced_everywhere_and_what_stayed_the_same_goes_on() {
    let stays = "[limit.stays]\nkey = \"ip\"\nrate = \"2/d\"\n";
    let layer =
        builder().policy(policy(&format!("{stays}[limit.changes]\nrate = \"1/d\"\n"))).build().unwrap();
    let mut service = layer.layer(Echo);
    let mut clone = service.clone();
    let caller = || from("192.0.2.1");
    assert_eq!(statuses(&mut service, [caller(), caller()]).await, [200, 429]);
    layer.clone().set_policy(policy(&format!("{stays}[limit.changes]\nrate = \"9/d\"\n"))).unwrap();
    // One of two was used before; the other limit starts afresh.
    assert_eq!(statuses(&mut clone, [caller(), caller()]).await, [200, 429]);
    assert_eq!(statuses(&mut service, [caller(), from("192.0.2.2")]).await, [429, 200]);
}

#[tokio::test]
async fn a_policy_that_cannot_be_leaves_the_one_before_in_force() {
    let layer = builder().policy(policy("[limit.a]\nrate = \"1/d\"\n")).build().unwrap();
    let error = layer.set_policy(policy("[limit.b]\nkey = \"tenant\"\nrate = \"1/d\"\n")).unwrap_err();
    let message = error.to_string();
    assert!(
        message
            .starts_with("unknown field \"tenant\" in the policy; known fields are host, ip, method, path"),
        "{message}"
    );
    let error = layer.set_policy(policy("domain = \"web\"\n[limit.b]\nrate = \"1/d\"\n")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown domain \"default\"; the policy has web: see RateLimitBuilder::domain"
    );
    let mut service = layer.layer(Echo);
    assert_eq!(statuses(&mut service, [Request::get("/"), Request::get("/")]).await, [200, 429]);
    layer.set_policy(policy("[limit.a]\nrate = \"unlimited\"\n")).unwrap();
    assert_eq!(statuses(&mut service, [Request::get("/")]).await, [200]);
}

#[test]
fn a_name_in_code_and_in_the_policy_is_one_too_many() {
    let layer =
        builder().limit(Limit::new("a", Quota::per_day(1))).policy(policy("[limit.a]\nrate = \"1/d\"\n"));
    assert_eq!(layer.build().unwrap_err(), LimitError::SameName("a".to_owned()));
}
