//! limitador's own service, and what Envoy's service answers as limitador does.

use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_server::rls::proto::{Code, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tollgate_server::{Keyring, RlsOptions, Scope, Scopes};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::rig::{EVENING, Rig, descriptor, request, rig, rig_with};

const TOYS: &str = r#"
    algorithm = "fixed-window"
    domain = "toystore"
    [limit.toys]
    match."req.method" = "POST"
    key = "user"
    rate = "3/min"
    limitador = { name = "Toys \"per\" user", once = true }
    [limit.all]
    rate = "100/h"
    limitador.once = true
"#;

type Toys = Rig<MemoryStore<ManualClock>>;

fn post(user: &str) -> RateLimitRequest {
    request("toystore", &[descriptor(&[("req.method", "POST"), ("user", user)])])
}

async fn call(
    rig: &Toys,
    method: &str,
    request: Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    let mut grpc = Grpc::new(rig.channel.clone());
    grpc.ready().await.unwrap();
    let path = format!("/kuadrant.service.ratelimit.v1.RateLimitService/{method}");
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let answered = grpc.unary(request, PathAndQuery::try_from(path).unwrap(), codec).await;
    answered.map(tonic::Response::into_inner)
}

async fn code(rig: &Toys, method: &str, request: RateLimitRequest) -> Code {
    let response = call(rig, method, Request::new(request)).await.unwrap();
    assert_eq!((response.statuses.len(), response.response_headers_to_add.len()), (0, 0), "{response:?}");
    response.overall_code()
}

/// Item 26.8: a check takes nothing, and a report counts what has happened.
#[tokio::test]
async fn check_rate_limit_takes_nothing_and_report_counts() {
    let rig = rig(TOYS);
    for _ in 0..5 {
        assert_eq!(code(&rig, "CheckRateLimit", post("ann")).await, Code::Ok);
    }
    let many = RateLimitRequest { hits_addend: 2, ..post("ann") };
    assert_eq!(code(&rig, "Report", many.clone()).await, Code::Ok);
    // A check is about one hit, whatever the call says.
    assert_eq!(code(&rig, "CheckRateLimit", many.clone()).await, Code::Ok);
    assert_eq!(code(&rig, "Report", post("ann")).await, Code::Ok, "no hits are one hit");
    assert_eq!(code(&rig, "CheckRateLimit", post("ann")).await, Code::OverLimit);
    assert_eq!(code(&rig, "CheckRateLimit", post("bob")).await, Code::Ok);
    assert_eq!(rig.ask(post("ann")).await.unwrap().overall_code(), Code::OverLimit, "counters are shared");
}

/// Item 26.8: a report beyond the limit is not refused, uses up its window, and is forgotten when the window ends.
#[tokio::test]
async fn report_beyond_the_limit_passes_and_ends_with_the_window() {
    let rig = rig(TOYS);
    let many = RateLimitRequest { hits_addend: 50, ..post("ann") };
    assert_eq!(code(&rig, "Report", many).await, Code::Ok);
    assert_eq!(code(&rig, "CheckRateLimit", post("ann")).await, Code::OverLimit);
    rig.clock.advance(std::time::Duration::from_secs(40));
    assert_eq!(code(&rig, "CheckRateLimit", post("ann")).await, Code::Ok);
}

/// Item 26.8: calls without a domain, without descriptors, and of a domain that is unknown.
#[tokio::test]
async fn calls_without_a_domain_are_unknown_and_calls_without_limits_pass() {
    let rig = rig(TOYS);
    for method in ["CheckRateLimit", "Report"] {
        assert_eq!(code(&rig, method, request("", &[descriptor(&[("a", "b")])])).await, Code::Unknown);
        assert_eq!(code(&rig, method, request("elsewhere", &[descriptor(&[("a", "b")])])).await, Code::Ok);
        assert_eq!(code(&rig, method, request("toystore", &[])).await, Code::Ok);
    }
    let all = RateLimitRequest { hits_addend: 99, ..request("toystore", &[]) };
    assert_eq!(code(&rig, "Report", all).await, Code::Ok);
    let none = RateLimitDescriptor::default();
    assert_eq!(code(&rig, "CheckRateLimit", request("toystore", &[none])).await, Code::OverLimit);
}

/// Item 26.8: the access rules are those of Envoy's service; a report needs the scope for charges.
#[tokio::test]
async fn check_rate_limit_needs_the_scope_check_and_report_the_scope_settle() {
    let clock = ManualClock::starting_at(EVENING);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let keyring = Keyring::new().token("proxy", b"asks", Scopes::of(&[Scope::Check])).token(
        "biller",
        b"settles",
        Scopes::of(&[Scope::Check, Scope::Settle]),
    );
    let rig = Rig::start(store, clock, TOYS, RlsOptions::default(), keyring);
    for (token, check, report) in [
        (None, tonic::Code::Unauthenticated, tonic::Code::Unauthenticated),
        (Some("Bearer guess"), tonic::Code::Unauthenticated, tonic::Code::Unauthenticated),
        (Some("Bearer asks"), tonic::Code::Ok, tonic::Code::PermissionDenied),
        (Some("Bearer settles"), tonic::Code::Ok, tonic::Code::Ok),
    ] {
        for (method, expected) in [("CheckRateLimit", check), ("Report", report)] {
            let mut request = Request::new(post("ann"));
            if let Some(token) = token {
                request.metadata_mut().insert("authorization", token.parse().unwrap());
            }
            let answered = call(&rig, method, request).await;
            assert_eq!(
                answered.map_or_else(|status| status.code(), |_| tonic::Code::Ok),
                expected,
                "{method}"
            );
        }
    }
}

fn fields(response: &RateLimitResponse) -> Vec<(&str, &str)> {
    response.response_headers_to_add.iter().map(|field| (&*field.key, &*field.value)).collect()
}

/// Item 26.9: the fields of draft 03, the limit with the least left first.
#[tokio::test]
async fn limitador_headers_are_those_of_draft_03() {
    let rig = rig_with(TOYS, RlsOptions { limitador_headers: true, ..RlsOptions::default() });
    let limits = "3, 3;w=60;name=\"Toys 'per' user\", 100;w=3600";
    let expected =
        |left| [("X-RateLimit-Limit", limits), ("X-RateLimit-Remaining", left), ("X-RateLimit-Reset", "40")];
    assert_eq!(fields(&rig.ask(post("ann")).await.unwrap()), expected("2"));
    let check = call(&rig, "CheckRateLimit", Request::new(post("ann"))).await.unwrap();
    assert_eq!(fields(&check), expected("1"), "what the hit would leave");
    for _ in 0..2 {
        rig.ask(post("ann")).await.unwrap();
    }
    let denied = rig.ask(post("ann")).await.unwrap();
    assert_eq!((denied.overall_code(), &fields(&denied)[..]), (Code::OverLimit, &expected("0")[..]));
    let other = rig.ask(request("elsewhere", &[descriptor(&[("a", "b")])])).await.unwrap();
    assert_eq!(fields(&other), [], "no limit applies");
}

/// Item 26.10: with limits of limitador, Envoy's service answers calls without a domain or entries as limitador does.
#[tokio::test]
async fn should_rate_limit_without_domain_or_entries_answers_as_limitador() {
    let rig = rig(TOYS);
    let ask = |request| rig.ask(request);
    let unknown = ask(request("", &[descriptor(&[("a", "b")])])).await.unwrap();
    assert_eq!((unknown.overall_code(), unknown.statuses.len()), (Code::Unknown, 0));
    assert_eq!(ask(request("elsewhere", &[])).await.unwrap().overall_code(), Code::Ok);
    let all = RateLimitRequest { hits_addend: 99, ..request("toystore", &[]) };
    let first = ask(all).await.unwrap();
    assert_eq!((first.overall_code(), first.statuses.len()), (Code::Ok, 0));
    let none = request("toystore", &[RateLimitDescriptor::default()]);
    assert_eq!(ask(none.clone()).await.unwrap().overall_code(), Code::Ok, "the hundredth");
    assert_eq!(ask(none).await.unwrap().overall_code(), Code::OverLimit);
}
