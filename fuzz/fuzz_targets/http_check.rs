//! Whatever is posted to the API, it is answered: by a decision, or by a problem that says what is wrong. Never by "allowed" to
//! what makes no sense, never by a mistake of ours.
//!
//! The first byte chooses the path, the rest is the body.
#![no_main]

use std::cell::RefCell;

use bytes::Bytes;
use http::Request;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tollgate::ManualClock;
use tollgate::store::MemoryStore;
use tollgate_policy::Policy;
use tollgate_server::{Clerk, Engine, HttpApi, Metrics, Origin};

const PATHS: [&str; 3] = ["/v1/check", "/v1/settle", "/v1/reset"];
const POLICY: &str = "[limit.per-ip]\nkey = \"ip\"\nrate = [\"10/s burst 20\", \"1000/h\"]\n\
                      [limit.bytes]\nkey = [\"ip\", \"path\"]\nrate = \"100/min\"\ncost = \"bytes\"\nmode = \"shadow\"\n";

/// The server, made once.
struct Site {
    runtime: Runtime,
    api: HttpApi,
    clerk: Clerk<MemoryStore<ManualClock>>,
}

thread_local! {
    static SITE: RefCell<Site> = RefCell::new(Site::new());
}

impl Site {
    fn new() -> Self {
        let policy = Policy::parse("limits.toml", POLICY).expect("a policy");
        let store = MemoryStore::builder().clock(ManualClock::new()).max_keys(10_000).build();
        let clerk = Engine::new(store, policy, Origin::default()).clerk();
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        Self { runtime, api: HttpApi::new(Metrics::new()), clerk }
    }

    fn post(&mut self, path: &str, body: &[u8]) -> (u16, Value) {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Bytes::copy_from_slice(body))
            .expect("a request");
        let answer = self.runtime.block_on(self.api.answer(&mut self.clerk, request));
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(answer.body()).expect("an answer is JSON"))
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else { return };
    let path = PATHS[usize::from(*choice) % PATHS.len()];
    let (status, answer) = SITE.with_borrow_mut(|site| site.post(path, body));
    match status {
        200 | 429 => {
            assert!(serde_json::from_slice::<Value>(body).is_ok(), "what is decided was JSON");
            if let (Some(allowed), "/v1/check") = (answer["allowed"].as_bool(), path) {
                assert_eq!(allowed, status == 200);
            }
        }
        400 | 404 | 503 => assert!(answer["detail"].is_string() && answer.get("allowed").is_none()),
        other => panic!("{path} was answered {other}: {answer}"),
    }
});
