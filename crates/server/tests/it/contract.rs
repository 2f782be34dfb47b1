//! The API does what its own document says: schemathesis reads it, and makes up requests that fit it and requests that do not.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tollgate::store::MemoryStore;
use tollgate_policy::Policy;
use tollgate_server::{Engine, HttpApi, HttpProtocol, Metrics, Origin, RlsOptions, Server};
use tollgate_testkit::python_with;

/// Something of everything: keys, costs, shadows, several rates, overrides.
const POLICY: &str = "\
[limit.per-ip]
key = \"ip\"
rate = [\"2/s\", \"100/h\"]

[limit.by-cost]
rate = \"1000/min burst 50\"
cost = \"bytes\"
match.path = \"/files/*\"

[limit.all]
rate = \"5/s\"
mode = \"shadow\"
";

#[test]
fn the_api_is_as_its_document_says() {
    let policy = Policy::parse("limits.toml", POLICY).unwrap();
    let engine = Engine::new(MemoryStore::builder().names(100).build(), policy, Origin::default());
    let mut server = Server::new(engine);
    let protocol = HttpProtocol::new(HttpApi::new(Metrics::new()).rls(RlsOptions::default()));
    let address = server.listen(([127, 0, 0, 1], 0).into(), protocol, None).unwrap();
    let running = server.start().unwrap();

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut schemathesis = Command::new(python_with(&["schemathesis==4.32.5"], folder));
    schemathesis.args(["-m", "schemathesis.cli", "run", "--no-color", "--checks", "all"]);
    schemathesis.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "30", "--max-time", "60"]);
    // The document leaves out that /json also answers GET; `http::admin` tests the methods of every path.
    schemathesis.args(["--exclude-checks", "unsupported_method,allow_header_conformance"]);
    schemathesis.args(["--generation-deterministic", "--request-timeout", "10"]);
    let output =
        schemathesis.arg(format!("http://{address}/openapi.json")).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let is_complete = said.contains("Selected: 11/11") && said.contains("Tested: 11");
    assert!(is_complete, "all paths but the document's own:\n{said}");
    assert_eq!(running.drain(Duration::from_secs(10)).unwrap(), 0);
}
