//! Decodes arbitrary bytes as a `RateLimitRequest` of Envoy and decides it. The answer is a response with a status for each
//! descriptor, or an error with a message; never a panic.
//!
//! The first byte chooses the options, the rest is the request.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::rls::proto::{Code, RateLimitRequest, RateLimitResponse};
use tollgate_server::rls::{RlsOptions, should_rate_limit};
use tollgate_server::{Clerk, Engine, Origin};

const POLICY: &str = "domain = \"web\"\n\
    [limit.per-ip]\nkey = \"ip\"\nrate = [\"10/s burst 20\", \"1000/h\"]\nenvoy.label = \"ip\"\n\
    [limit.per-path]\nkey = [\"ip\", \"path\"]\nrate = \"3/min\"\nalgorithm = \"fixed-window\"\ncount_denied = true\n\
    [limit.bytes]\nkey = \"path\"\nrate = \"100/min\"\ncost = \"bytes\"\nmode = \"shadow\"\n\
    [limit.free]\nmatch = { user = \"free\" }\nrate = \"unlimited\"\n";

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().build().expect("a runtime");
}

/// A new server, so that what one input leaves behind does not change what the next one does.
fn clerk(clock: &ManualClock) -> Clerk<MemoryStore<ManualClock>> {
    let policy = Policy::parse("limits.toml", POLICY).expect("a policy");
    let store = MemoryStore::builder().clock(clock.clone()).build();
    Engine::in_time(store, policy, Origin::default(), Time::of(clock.clone())).clerk()
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, request)) = input.split_first() else { return };
    let Ok(request) = RateLimitRequest::decode(request) else { return };
    let is_chosen = |bit: u8| choice >> bit & 1 == 1;
    let options = RlsOptions {
        headers: is_chosen(0),
        dynamic_metadata: is_chosen(1),
        shadow_mode: is_chosen(2),
        quota_mode: is_chosen(3),
        limitador_headers: is_chosen(4),
        ..RlsOptions::default()
    };
    let clock = ManualClock::starting_at(Duration::from_secs(1_794_767_960));
    let mut clerk = clerk(&clock);
    for _ in 0..3 {
        match RUNTIME.with(|runtime| runtime.block_on(should_rate_limit(&mut clerk, options, &request))) {
            Ok(response) => check(&response, &request, options),
            Err(status) => assert!(!status.message().is_empty(), "{status:?}"),
        }
        clock.advance(Duration::from_millis(700));
    }
});

fn check(response: &RateLimitResponse, request: &RateLimitRequest, options: RlsOptions) {
    assert_eq!(response.statuses.len(), request.descriptors.len());
    let refused = |code: i32| match Code::try_from(code) {
        Ok(Code::Ok) => false,
        Ok(Code::OverLimit) => true,
        other => panic!("{other:?} is no decision"),
    };
    let is_refused = refused(response.overall_code);
    let statuses = response.statuses.iter().filter(|status| refused(status.code)).count();
    if options.shadow_mode {
        assert!(!is_refused); // the statuses say what would be over its limit
    } else if !options.quota_mode {
        assert_eq!(is_refused, statuses > 0, "{response:?}");
    }
    let has_headers = options.headers || options.limitador_headers;
    assert!(has_headers || response.response_headers_to_add.is_empty());
    assert_eq!(options.dynamic_metadata, response.dynamic_metadata.is_some());
    let encoded = response.encode_to_vec();
    assert_eq!(RateLimitResponse::decode(&encoded[..]).as_ref(), Ok(response));
}
