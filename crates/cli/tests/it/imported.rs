//! `tollgate serve` with policies that were written for others, as a process of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::support::grpc::Call;
use crate::support::{Service, ask, policy, until};
use tollgate_server::rls::proto::{Code, Unit};

const WEB: &str = "domain: web
descriptors:
  - key: remote_address
    rate_limit: {unit: day, requests_per_unit: 2}
";
/// Nothing comes back while a test runs.
const MAIL: &str = "domain: mail
descriptors:
  - key: sender
    value: ann
    rate_limit: {unit: year, requests_per_unit: 1, name: ann}
";
const TOYS: &str = "- namespace: toystore
  max_value: 2
  seconds: 315360000
  conditions: [\"descriptors[0]['req.method'] == 'POST'\"]
  variables: [\"descriptors[0].user_id\"]
  name: toys
";

fn start(path: &Path, more: &[&str]) -> Service {
    Service::start(&[&["--policy", path.to_str().unwrap()], more].concat())
}

fn code(address: SocketAddr, domain: &str, entries: &[(&str, &str)]) -> Code {
    Call::new(domain, entries).ask(address, None).unwrap().overall_code()
}

#[test]
fn a_folder_of_files_for_envoys_service_is_served_as_it_is_and_watched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("web.yaml"), WEB).unwrap();
    fs::write(folder.path().join("mail.yml"), MAIL).unwrap();
    let service = start(folder.path(), &["--grpc-headers=true"]);
    let first = Call::new("web", &[("remote_address", "10.0.0.7")]).ask(service.grpc, None).unwrap();
    let limit = first.statuses[0].current_limit.as_ref().map(|limit| (limit.requests_per_unit, limit.unit()));
    assert_eq!((first.overall_code(), limit), (Code::Ok, Some((2, Unit::Day))));
    assert!(first.response_headers_to_add.iter().any(|header| header.key == "RateLimit-Limit"), "{first:?}");
    let sender = [("sender", "ann")];
    assert_eq!([(); 2].map(|()| code(service.grpc, "mail", &sender)), [Code::Ok, Code::OverLimit]);
    assert_eq!(code(service.grpc, "mail", &[("sender", "bob")]), Code::Ok, "who has no limit");

    fs::write(
        folder.path().join("mail.yml"),
        MAIL.replace("requests_per_unit: 1", "requests_per_unit: 4000000000"),
    )
    .unwrap();
    until("there is another limit", || code(service.grpc, "mail", &sender) == Code::Ok);
    fs::write(folder.path().join("more.yaml"), WEB).unwrap();
    until("a domain in two files is refused", || service.get("/v1/policy").contains("is already defined in"));
    assert_eq!(code(service.grpc, "mail", &sender), Code::Ok, "the policy before goes on");
}

#[test]
fn files_of_one_domain_are_merged_by_whoever_says_so_and_modes_hold_for_all_limits() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("1.yaml"), MAIL).unwrap();
    fs::write(folder.path().join("2.yaml"), MAIL.replace("sender", "receiver")).unwrap();
    let service = start(folder.path(), &["--merge-domains=true", "--grpc-quota-mode=true"]);
    let entry = |key: &str| format!(r#"{{"entries": [{{"key": "{key}", "value": "ann"}}]}}"#);
    let both =
        format!(r#"{{"domain": "mail", "descriptors": [{}, {}]}}"#, entry("sender"), entry("receiver"));
    assert_eq!(code(service.grpc, "mail", &[("sender", "ann")]), Code::Ok);
    assert_eq!(ask(service.http, "POST", "/json", &both).0, 200, "one of them is left");
    assert_eq!(ask(service.http, "POST", "/json", &both).0, 429, "none is");
    let shadow = start(folder.path(), &["--merge-domains=true", "--grpc-shadow-mode=true"]);
    assert_eq!([(); 3].map(|()| code(shadow.grpc, "mail", &[("receiver", "ann")])), [Code::Ok; 3]);
}

#[test]
fn the_twin_in_json_decides_by_the_same_counters() {
    let (_keep, path) = policy("");
    let path = path.with_extension("yaml");
    fs::write(&path, MAIL).unwrap();
    let service = start(&path, &[]);
    let body = r#"{"domain": "mail", "descriptors": [{"entries": [{"key": "sender", "value": "ann"}]}]}"#;
    let (status, answer) = ask(service.http, "POST", "/json", body);
    assert!(status == 200 && answer.contains(r#""overallCode":"OK""#), "{status} {answer}");
    assert_eq!(code(service.grpc, "mail", &[("sender", "ann")]), Code::OverLimit);
    assert_eq!(ask(service.http, "POST", "/json", body).0, 429);
    assert_eq!(ask(service.http, "GET", "/healthcheck", ""), (200, "OK".to_owned()));
}

/// Item 26.9: a call is counted once, whether it meets two limits or none.
#[test]
fn a_file_for_limitador_is_served_as_it_is_with_its_metrics() {
    let (_keep, path) = policy("");
    let path = path.with_extension("yaml");
    let more = "- {namespace: toystore, max_value: 100, seconds: 315360000, conditions: [], variables: []}\n";
    fs::write(&path, format!("{TOYS}{more}")).unwrap();
    let service = start(&path, &["--metrics-compat=limitador", "--limitador-limit-names=true"]);
    let post = |user| code(service.grpc, "toystore", &[("req.method", "POST"), ("user_id", user)]);
    assert_eq!([(); 3].map(|()| post("ann")), [Code::Ok, Code::Ok, Code::OverLimit]);
    assert_eq!(post("bob"), Code::Ok);
    assert_eq!(code(service.grpc, "toystore", &[("req.method", "GET"), ("user_id", "ann")]), Code::Ok);
    assert_eq!(code(service.grpc, "elsewhere", &[("a", "b")]), Code::Ok);
    let metrics = service.get("/metrics");
    for line in [
        "authorized_calls{limitador_namespace=\"toystore\"} 4\n",
        "authorized_hits{limitador_namespace=\"toystore\"} 4\n",
        "authorized_calls{limitador_namespace=\"elsewhere\"} 1\n",
        "limited_calls{limitador_namespace=\"toystore\",limit_name=\"toys\"} 1\n",
        "limitador_up 1\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

/// Item 26.8: limitador's HTTP API has a listener of its own, which counts as gRPC does.
#[test]
fn limitador_http_serves_limitadors_api_beside_the_others() {
    let (_keep, path) = policy("");
    let path = path.with_extension("yaml");
    fs::write(&path, TOYS).unwrap();
    let service = start(&path, &["--limitador-http=127.0.0.1:0", "--limitador-headers=true"]);
    let line = service.greeting.lines().find(|line| line.trim_start().starts_with("limitador "));
    let address = line.and_then(|line| line.split_once("://")).expect("it says where").1;
    let address: SocketAddr = address.parse().unwrap();
    let body = r#"{"namespace": "toystore", "values": {"req.method": "POST", "user_id": "ann"}, "delta": 1}"#;
    let post = |path: &str| ask(address, "POST", path, body);
    assert_eq!(post("/check_and_report"), (200, "null".to_owned()));
    assert_eq!(post("/report"), (200, "null".to_owned()));
    assert_eq!(post("/check"), (429, "null".to_owned()));
    let call = Call::new("toystore", &[("req.method", "POST"), ("user_id", "ann")]);
    let denied = call.ask(service.grpc, None).unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
    assert_eq!(denied.response_headers_to_add[0].value, "2, 2;w=315360000;name=\"toys\"");
    let (status, counters) = ask(address, "GET", "/counters/toystore", "");
    assert!(status == 200 && counters.contains(r#""remaining":0"#), "{counters}");
    assert_eq!(ask(service.http, "POST", "/check", body).0, 404, "only there");
}

/// Item 26.2: with `--metrics-compat envoy` limits are counted by the names of envoyproxy/ratelimit.
#[test]
fn a_file_for_envoys_service_is_counted_by_the_names_of_that_service() {
    let (_keep, path) = policy("");
    let path = path.with_extension("yaml");
    fs::write(&path, MAIL).unwrap();
    let service = start(&path, &["--metrics-compat=envoy"]);
    let sender = [("sender", "ann")];
    assert_eq!([(); 2].map(|()| code(service.grpc, "mail", &sender)), [Code::Ok, Code::OverLimit]);
    let metrics = service.get("/metrics");
    for line in [
        "ratelimit_service_rate_limit_total_hits{domain=\"mail\",key1=\"sender_ann\"} 2\n",
        "ratelimit_service_rate_limit_over_limit{domain=\"mail\",key1=\"sender_ann\"} 1\n",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}
