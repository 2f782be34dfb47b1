//! The metrics of envoyproxy/ratelimit after requests through Envoy.

use tollgate_server::{Compat, Metrics, RlsOptions};

use super::proxy::{Setup, World, headers};

const LIMITS: &str = r"
domain: web
descriptors:
  - key: unspec
    detailed_metric: true
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: trial
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// Item 26.2: a value that the file does not list is part of the name, and a rule in shadow mode counts what it would deny.
#[tokio::test]
async fn unspecified_values_and_shadow_mode_are_in_the_metrics() {
    let world = World::start(&Setup {
        limits: LIMITS,
        rate_limits: headers(&["unspec"]) + &headers(&["trial"]),
        denies_on_failure: true,
        options: RlsOptions::default(),
    });
    assert_eq!(world.statuses(&[("x-unspec", "unspecified_value")], 3), [200, 200, 429]);
    assert_eq!(world.statuses(&[("x-trial", "1")], 3), [200; 3]);
    let text = Metrics::new().compat(Compat::Envoy).text(&world.engine).await;
    for (counter, key, hits) in [
        ("total_hits", "unspec_unspecified_value", 3),
        ("over_limit", "unspec_unspecified_value", 1),
        ("over_limit", "trial", 2),
        ("shadow_mode", "trial", 2),
    ] {
        let line =
            format!("ratelimit_service_rate_limit_{counter}{{domain=\"web\",key1=\"{key}\"}} {hits}\n");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}
