//! Whatever anybody sends, reading does not panic and what it gives is within bounds.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use tollgate_http::{Reader, read};

const NAMES: [&str; 34] = [
    "age",
    "date",
    "retry-after",
    "retry-after-ms",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "beta-ratelimit",
    "beta-ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-used",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-resource",
    "x-ratelimit-bucket",
    "x-ratelimit-limit-minute",
    "x-ratelimit-reset-tokens",
    "x-rate-limit-limit",
    "x-rate-limit-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "x-shopify-shop-api-call-limit",
    "stripe-rate-limited-reason",
    "stripe-should-retry",
    "x-should-retry",
    "grpc-status",
    "grpc-retry-pushback-ms",
    "x-github-request-id",
    "server",
    "ratelimit-reset-after",
];

/// A year and a day: how far ahead a budget may look.
const LONGEST_WINDOW: Duration = Duration::from_secs(366 * 86_400);

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        "[0-9]{0,40}(\\.[0-9]{0,5})?".prop_map(String::into_bytes),
        "[0-9.hmsun]{0,20}".prop_map(String::into_bytes),
        "[0-9TZ:+. -]{0,30}".prop_map(String::into_bytes),
        "(\"[a-z]{0,3}\"|[0-9]{1,16}|[a-z]{1,4})(; ?(r|t|q|w|a|qu|pk|name)=(-?[0-9]{1,16}|\"[a-z]*\"|:eHg=:)){0,4}(, (limit|reset)=[0-9]{1,16})?"
            .prop_map(String::into_bytes),
        Just(b"Fri, 31 Dec 9999 23:59:59 GMT".to_vec()),
        Just(b"9999-12-31T23:59:59.999999999-23:59".to_vec()),
        Just(b"18446744073709551616/1".to_vec()),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let one = (0..NAMES.len(), value());
    proptest::collection::vec(one, 0..12).prop_map(|fields| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            // What cannot be a header at all never gets as far as us.
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(NAMES[name]), value);
            }
        }
        headers
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_everything_is_bounded(
        headers in headers(),
        status in 100_u16..1_000,
        body in proptest::collection::vec(any::<u8>(), 0..60),
        now in 0_u64..1 << 40,
        cap in 0_u64..1_000,
    ) {
        let (status, cap) = (StatusCode::from_u16(status).unwrap(), Duration::from_secs(cap));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        let advice = Reader::new().longest_wait(cap).read(status, &headers, &body, now);
        prop_assert!(advice.wait.is_none_or(|wait| wait <= cap));
        prop_assert!(advice.budgets.len() <= 32);
        for budget in &advice.budgets {
            prop_assert!(budget.window.is_none_or(|window| !window.is_zero() && window <= LONGEST_WINDOW));
            prop_assert!(budget.resets_in.is_none_or(|reset| reset <= LONGEST_WINDOW));
            prop_assert!(budget.rate().is_none_or(|rate| rate.is_finite() && rate >= 0.0));
        }
    }

    #[test]
    fn what_a_draft_can_say_is_read_as_it_was_said(
        name in "[ -!#-\\[\\]-~]{0,12}",
        limit in 0_u64..1_000_000_000_000_000,
        window in 1_u64..31_000_000,
        left in 0_u64..1_000_000_000_000_000,
        reset in 0_u64..31_000_000,
    ) {
        let mut headers = HeaderMap::new();
        let policy = format!("\"{name}\";q={limit};w={window}");
        headers.insert("ratelimit-policy", HeaderValue::from_str(&policy).unwrap());
        let field = format!("\"{name}\";r={left};t={reset}");
        headers.insert("ratelimit", HeaderValue::from_str(&field).unwrap());
        let advice = read(StatusCode::OK, &headers, b"", SystemTime::UNIX_EPOCH);
        prop_assert_eq!(advice.budgets.len(), 1);
        let budget = &advice.budgets[0];
        prop_assert_eq!(&budget.name, &name);
        prop_assert_eq!((budget.limit, budget.remaining), (Some(limit), Some(left)));
        prop_assert_eq!(budget.window, Some(Duration::from_secs(window)));
        prop_assert_eq!(budget.resets_in, Some(Duration::from_secs(reset)));
    }
}
