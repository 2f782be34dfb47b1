//! Values that callers choose: none of them makes a call fail, since Envoy lets a call pass that fails.

use tollgate_server::RlsOptions;
use tollgate_server::rls::proto::{Code, DescriptorStatus, RateLimitDescriptor};
use tollgate_server::rls::should_rate_limit;

use super::rig::{costing, descriptor, request, rig, rig_with};

/// Limits that callers' values can fit badly. `choice` is what the limits do then.
fn limits(choice: &str) -> String {
    format!(
        "domain = \"web\"\non_bad_value = \"{choice}\"\n\
         [limit.sized]\nkey = \"a\"\nrate = \"9/h\"\ncost = \"size\"\n\
         [limit.second]\nwhen = \"descriptors[1].b == 'x'\"\nrate = \"9/h\"\nmatch.b = \"*\"\n\
         [limit.whole]\nwhen = \"int(descriptors[0].c) > 5\"\nrate = \"9/h\"\n\
         [limit.user]\nkey = \"user\"\nrate = \"2/h\"\n"
    )
}

/// Calls with a bad value, and the limit that cannot use it.
const BAD: [(&[(&str, &str)], &str); 6] = [
    (&[("a", "1"), ("size", "many")], "sized"),
    (&[("a", "1"), ("size", "-1")], "sized"),
    (&[("a", "1"), ("size", "18446744073709551616")], "sized"),
    (&[("b", "x")], "second"),
    (&[("c", "seven")], "whole"),
    (&[("c", "9223372036854775808")], "whole"),
];

/// Answers, item 13: a bad value is decided by the limit's `on_bad_value` and counted, and is never an error.
#[tokio::test]
async fn a_bad_value_is_decided_by_its_limit_and_counted() {
    for (choice, expected) in [("default", Code::Ok), ("deny", Code::OverLimit)] {
        let rig = rig(&limits(choice));
        for (entries, limit) in BAD {
            let bad_values = || {
                let tallies = rig.engine.tallies();
                tallies.iter().find(|tallied| &*tallied.name == limit).unwrap().tally.bad_values()
            };
            let before = bad_values();
            let response = rig.ask(request("web", &[descriptor(entries)])).await.unwrap();
            assert_eq!(response.overall_code(), expected, "{choice}: {entries:?}");
            assert_eq!(response.statuses[0].code(), expected, "{choice}: {entries:?}");
            assert_eq!(bad_values(), before + 1, "{choice}: {entries:?}");
        }
        // A denial takes nothing of the other descriptors, and names the one that is denied.
        let user = descriptor(&[("user", "ann")]);
        let response = rig.ask(request("web", &[user.clone(), descriptor(BAD[0].0)])).await.unwrap();
        let codes: Vec<Code> = response.statuses.iter().map(DescriptorStatus::code).collect();
        assert_eq!(codes, [Code::Ok, expected], "{choice}");
        let left = rig.told(request("web", &[costing(0, user)])).await.1[0].2;
        assert_eq!(left, if choice == "deny" { 2 } else { 1 }, "{choice}");
    }
}

/// Answers, items 13 and 28: a call that is denied for a bad value is a denied call.
#[tokio::test]
async fn a_call_denied_for_a_bad_value_is_counted_as_denied() {
    let rig = rig(&limits("deny"));
    let mut clerk = rig.engine.clerk();
    let call = request("web", &[descriptor(BAD[0].0)]);
    should_rate_limit(&mut clerk, RlsOptions::default(), &call).await.unwrap();
    let counts: Vec<(&str, u64)> =
        clerk.take_calls().each().map(|(outcome, count)| (outcome.name(), count)).collect();
    assert_eq!(counts, [("allowed", 0), ("denied", 1), ("error_allowed", 0), ("error_denied", 0)]);
}

/// Answers, item 13: a bad cost that is not denied takes the default cost.
#[tokio::test]
async fn a_bad_cost_takes_the_default_cost() {
    let rig = rig(&limits("default"));
    let ask = |size: &str| request("web", &[descriptor(&[("a", "1"), ("size", size)])]);
    assert_eq!(rig.told(ask("4")).await.1[0].2, 5);
    assert_eq!(rig.told(ask("four")).await.1[0].2, 4);
}

/// Answers, item 13: in shadow mode a bad value is counted and passes.
#[tokio::test]
async fn a_bad_value_passes_in_shadow_mode() {
    let rig = rig_with(&limits("deny"), RlsOptions { shadow_mode: true, ..RlsOptions::default() });
    for (entries, _) in BAD {
        let response = rig.ask(request("web", &[descriptor(entries)])).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok, "{entries:?}");
    }
    let large = vec![descriptor(&[("user", &"v".repeat(64 * 1024))]); 20];
    assert_eq!(rig.ask(request("web", &large)).await.unwrap().overall_code(), Code::Ok);
}

/// Answers, item 13: an empty descriptor has no limit, and the others keep theirs.
#[tokio::test]
async fn an_empty_descriptor_has_no_limit() {
    let rig =
        rig("domain = \"web\"\n[limit.user]\nkey = \"user\"\nrate = \"2/h\"\n[limit.all]\nrate = \"3/h\"\n");
    let (user, empty) = (descriptor(&[("user", "ann")]), RateLimitDescriptor::default());
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        let response = rig.ask(request("web", &[empty.clone(), user.clone()])).await.unwrap();
        assert_eq!(response.overall_code(), expected);
        assert_eq!(response.statuses[0].current_limit, None);
        assert_eq!(response.statuses[1].code(), expected);
    }
    for _ in 0..9 {
        let alone = rig.ask(request("web", std::slice::from_ref(&empty))).await.unwrap();
        assert_eq!(alone.overall_code(), Code::Ok);
    }
    assert_eq!(rig.told(request("web", &[costing(0, descriptor(&[("other", "x")]))])).await.1[0].2, 1);
}

/// Answers, item 13: a value of any length is counted as any other.
#[tokio::test]
async fn a_long_value_is_counted() {
    let rig = rig(&limits("default"));
    for length in [60 * 1024, 64 * 1024 + 1, 900 * 1024] {
        let long = "v".repeat(length);
        for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
            let response = rig.ask(request("web", &[descriptor(&[("user", &long)])])).await.unwrap();
            assert_eq!(response.overall_code(), expected, "{length}");
        }
    }
}

/// Answers, item 13: values that are too long together are over the limit, and the connection goes on.
#[tokio::test]
async fn a_message_that_is_too_large_is_over_the_limit() {
    let rig = rig(&limits("default"));
    let large = vec![descriptor(&[("user", &"v".repeat(64 * 1024))]); 20];
    assert_eq!(rig.ask(request("web", &large)).await.unwrap().overall_code(), Code::OverLimit);
    let small = rig.ask(request("web", &[descriptor(&[("user", "ann")])])).await.unwrap();
    assert_eq!(small.overall_code(), Code::Ok);
}

/// Answers, item 16: over gRPC, a call that no limit applies to is denied if its domain says so.
#[tokio::test]
async fn an_unmatched_call_is_denied_if_its_domain_says_so() {
    for (unmatched, expected) in [("allow", Code::Ok), ("deny", Code::OverLimit)] {
        let rig = rig(&format!("unmatched = \"{unmatched}\"\n{}", limits("default")));
        let ask = |entries: &[(&str, &str)]| request("web", &[descriptor(entries)]);
        let (code, statuses) = rig.told(ask(&[("usr", "ann")])).await;
        assert_eq!((code, statuses[0].0), (expected, expected), "{unmatched}");
        let empty = request("web", &[RateLimitDescriptor::default()]);
        assert_eq!(rig.told(empty).await.0, expected, "{unmatched}");
        assert_eq!(rig.told(ask(&[("user", "ann")])).await.0, Code::Ok, "{unmatched}");
        let both = request("web", &[descriptor(&[("usr", "ann")]), descriptor(&[("user", "ann")])]);
        assert_eq!(rig.told(both).await.0, Code::Ok, "{unmatched}: a limit applies to the call");
        let elsewhere = request("nope", &[descriptor(&[("user", "ann")])]);
        assert_eq!(rig.told(elsewhere).await.0, Code::Ok, "{unmatched}");
        assert_eq!(rig.engine.unmatched(), [("@unknown".to_owned(), 1), ("web".to_owned(), 2)]);
    }
}

/// Answers, item 22: Envoy prints whole seconds, so that the time until a reset is rounded up.
#[tokio::test]
async fn the_time_until_a_reset_is_rounded_up_to_seconds() {
    let rig =
        rig("domain = \"web\"\nalgorithm = \"fixed-window\"\n[limit.ip]\nkey = \"ip\"\nrate = \"1/s\"\n\
         [limit.user]\nkey = \"user\"\nrate = \"5/min\"\n");
    rig.clock.advance(std::time::Duration::from_millis(300));
    let ask = request("web", &[descriptor(&[("ip", "1")]), descriptor(&[("user", "ann")])]);
    for code in [Code::Ok, Code::OverLimit] {
        let response = rig.ask(ask.clone()).await.unwrap();
        let resets: Vec<_> = response.statuses.iter().map(|status| status.duration_until_reset).collect();
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        assert_eq!((response.overall_code(), &resets[..]), (code, &[seconds(1), seconds(40)][..]));
    }
}

/// Answers, item 22: the end of a window that nobody has used is that of the store, whatever time it is in this process.
#[tokio::test]
async fn the_end_of_an_unused_window_is_that_of_the_store() {
    use tollgate::ManualClock;
    use tollgate::store::MemoryStore;
    use tollgate_server::Keyring;

    use super::rig::{EVENING, Rig, secs};

    let clocks =
        [0, 20].map(|ahead| ManualClock::starting_at(EVENING + std::time::Duration::from_secs(ahead)));
    let [store, process] = clocks;
    let store = MemoryStore::builder().clock(store).build();
    let text = "domain = \"web\"\nalgorithm = \"fixed-window\"\n[limit.none]\nkey = \"none\"\nrate = \"0/h\"\n\
                [limit.ip]\nkey = \"ip\"\nrate = \"5/min\"\n";
    let rig = Rig::start(store, process, text, RlsOptions::default(), Keyring::open());
    let (refused, unused) = (descriptor(&[("none", "x")]), descriptor(&[("ip", "1")]));
    assert_eq!(rig.told(request("web", &[refused, unused.clone()])).await.1[1].3, secs(40));
    assert_eq!(rig.told(request("web", &[costing(0, unused)])).await.1[0].3, secs(40));
}
