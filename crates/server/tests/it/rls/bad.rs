//! Calls that make no sense.

use tollgate_server::rls::proto::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
use tonic::Code;

use super::rig::{descriptor, request, rig};

const ONE: &str = "domain = \"web\"\n[limit.a]\nkey = \"ip\"\nrate = \"1/h\"\n";

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name() {
    let rig = rig(ONE);
    let good = descriptor(&[("ip", "1")]);
    let with = |descriptor: RateLimitDescriptor| request("web", &[good.clone(), descriptor]);
    let bring = |unit| {
        let limit = Some(RateLimitOverride { requests_per_unit: 1, unit });
        with(RateLimitDescriptor { limit, ..good.clone() })
    };
    let units = "expected SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5) or YEAR (6)";
    let cases: Vec<(RateLimitRequest, String)> = vec![
        (request("", std::slice::from_ref(&good)), "domain is empty".into()),
        (request("web", &[]), "descriptors is empty; expected at least one".into()),
        (
            request(&"d".repeat(1_025), std::slice::from_ref(&good)),
            "domain has 1025 bytes; the maximum is 1024".into(),
        ),
        (
            request("web", &vec![good.clone(); 1_001]),
            "descriptors has 1001 descriptors; the maximum is 1000".into(),
        ),
        (
            with(descriptor(&[("a", ""); 65])),
            "descriptors[1].entries has 65 entries; the maximum is 64".into(),
        ),
        (bring(0), format!("descriptors[1].limit.unit is 0; {units}")),
        (bring(7), format!("descriptors[1].limit.unit is 7; {units}")),
        (bring(-3), format!("descriptors[1].limit.unit is -3; {units}")),
    ];
    for (bad, message) in cases {
        let error = rig.ask(bad).await.expect_err(&message);
        assert_eq!((error.code(), error.message()), (Code::InvalidArgument, &*message));
    }
    let last = rig.ask(request("web", &[good])).await.unwrap();
    assert_eq!(last.overall_code(), tollgate_server::rls::proto::Code::Ok, "none of these took anything");
}
