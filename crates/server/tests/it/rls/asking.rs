//! What descriptors ask, and what they are told.

use tollgate_server::rls::proto::{Code, RateLimitDescriptor, RateLimitOverride, Unit};
use tollgate_server::{Outcome, RlsOptions};

use super::rig::{costing, descriptor, request, rig, rig_with, secs};

/// Per address three a minute, per path five an hour, all in windows; whoever is staff is not limited; and one in shadow.
const WEB: &str = r#"
domain = "web"
algorithm = "fixed-window"

[limit.per-ip]
key = "ip"
rate = "3/min"

[limit.per-path]
key = "path"
rate = "5/h"

[limit.staff]
match.role = "staff"
rate = "unlimited"

[limit.tried-out]
key = "client"
rate = "1/h"
mode = "shadow"
"#;

fn ip(value: &str) -> RateLimitDescriptor {
    descriptor(&[("ip", value)])
}

#[tokio::test]
async fn a_limit_is_told_with_what_is_left_and_until_when() {
    let rig = rig(WEB);
    let ask = request("web", &[ip("1")]);
    let limit = Some((3, Unit::Minute));
    for left in [2, 1, 0] {
        assert_eq!(rig.told(ask.clone()).await, (Code::Ok, vec![(Code::Ok, limit, left, secs(40))]));
    }
    rig.clock.advance(std::time::Duration::from_secs(15));
    let over = (Code::OverLimit, vec![(Code::OverLimit, limit, 0, secs(25))]);
    assert_eq!(rig.told(ask.clone()).await, over);
    let name = rig.ask(ask.clone()).await.unwrap().statuses[0].current_limit.as_ref().unwrap().name.clone();
    assert_eq!(name, "per-ip");
    rig.clock.advance(std::time::Duration::from_secs(25));
    assert_eq!(rig.told(ask).await, (Code::Ok, vec![(Code::Ok, limit, 2, secs(60))]));
}

#[tokio::test]
async fn descriptors_are_decided_together_and_answered_in_their_order() {
    let rig = rig(WEB);
    let (ann, path) = (ip("ann"), descriptor(&[("path", "/")]));
    let both = request("web", &[path.clone(), descriptor(&[("nobody", "knows")]), ann.clone()]);
    let (by_path, by_ip) = (Some((5, Unit::Hour)), Some((3, Unit::Minute)));
    for taken in 1..=3 {
        let statuses = vec![
            (Code::Ok, by_path, 5 - taken, secs(1_240)),
            (Code::Ok, None, 0, None),
            (Code::Ok, by_ip, 3 - taken, secs(40)),
        ];
        assert_eq!(rig.told(both.clone()).await, (Code::Ok, statuses));
    }
    // Refused by one: nothing is taken of the other.
    let refused = vec![
        (Code::Ok, by_path, 2, secs(1_240)),
        (Code::Ok, None, 0, None),
        (Code::OverLimit, by_ip, 0, secs(40)),
    ];
    for _ in 0..3 {
        assert_eq!(rig.told(both.clone()).await, (Code::OverLimit, refused.clone()));
    }
    let (code, statuses) = rig.told(request("web", &[path])).await;
    assert_eq!((code, statuses[0].2), (Code::Ok, 1));
}

#[tokio::test]
async fn what_nobody_limits_is_free() {
    let rig = rig(WEB);
    let free = (Code::Ok, vec![(Code::Ok, None, 0, None)]);
    assert_eq!(rig.told(request("web", &[descriptor(&[("nobody", "knows")])])).await, free);
    assert_eq!(rig.told(request("elsewhere", &[ip("1")])).await, free);
    let unlimited = (Code::Ok, vec![(Code::Ok, None, u32::MAX, None)]);
    assert_eq!(rig.told(request("web", &[descriptor(&[("role", "staff")])])).await, unlimited);
}

#[tokio::test]
async fn a_limit_in_shadow_counts_and_never_refuses() {
    let rig = rig(WEB);
    let ask = request("web", &[descriptor(&[("client", "c")])]);
    let limit = Some((1, Unit::Hour));
    for _ in 0..3 {
        assert_eq!(rig.told(ask.clone()).await, (Code::Ok, vec![(Code::Ok, limit, 0, secs(1_240))]));
    }
    let tallies = rig.engine.tallies();
    let tally = &tallies.iter().find(|tallied| &*tallied.name == "tried-out").unwrap().tally;
    assert_eq!((tally.calls(Outcome::Allowed), tally.calls(Outcome::ShadowDenied)), (1, 2));
}

#[tokio::test]
async fn costs_are_those_of_the_descriptor_else_of_the_call_else_one() {
    let rig = rig(WEB);
    let mut ask = request("web", &[descriptor(&[("path", "/a")]), costing(1, descriptor(&[("path", "/b")]))]);
    ask.hits_addend = 4;
    let left = |told: (Code, Vec<super::rig::Told>)| (told.0, told.1[0].2, told.1[1].2);
    assert_eq!(left(rig.told(ask.clone()).await), (Code::Ok, 1, 4));
    assert_eq!(
        left(rig.told(ask).await),
        (Code::OverLimit, 1, 4),
        "four do not fit, so the one is not taken"
    );
    let huge = request("web", &[costing(u64::MAX, ip("huge"))]);
    let over = rig.told(huge).await;
    assert_eq!((over.0, over.1[0].2), (Code::OverLimit, 3), "what never fits takes nothing");
}

#[tokio::test]
async fn zero_looks_and_takes_nothing() {
    let rig = rig(WEB);
    let look = request("web", &[costing(0, ip("1"))]);
    let limit = Some((3, Unit::Minute));
    for _ in 0..3 {
        assert_eq!(rig.told(look.clone()).await, (Code::Ok, vec![(Code::Ok, limit, 3, secs(40))]));
    }
    rig.ask(request("web", &[costing(2, ip("1"))])).await.unwrap();
    assert_eq!(rig.told(look.clone()).await.1, [(Code::Ok, limit, 1, secs(40))]);
    rig.ask(request("web", &[ip("1")])).await.unwrap();
    let over = (Code::OverLimit, vec![(Code::OverLimit, limit, 0, secs(40))]);
    assert_eq!(rig.told(look).await, over);
    // Looking at what is used up refuses all that is asked with it.
    let with = request("web", &[descriptor(&[("path", "/")]), costing(0, ip("1"))]);
    assert_eq!(rig.told(with).await.0, Code::OverLimit);
    assert_eq!(rig.told(request("web", &[costing(0, descriptor(&[("path", "/")]))])).await.1[0].2, 5);
    let tallies = rig.engine.tallies();
    let tally = &tallies.iter().find(|tallied| &*tallied.name == "per-ip").unwrap().tally;
    assert_eq!((tally.calls(Outcome::Allowed), tally.calls(Outcome::Denied)), (2, 0), "looking is no call");
}

#[tokio::test]
async fn negative_costs_give_back_and_are_never_over() {
    let rig = rig(WEB);
    let back = |hits| RateLimitDescriptor { is_negative_hits: true, ..costing(hits, ip("1")) };
    rig.ask(request("web", &[costing(3, ip("1"))])).await.unwrap();
    let limit = Some((3, Unit::Minute));
    let told = rig.told(request("web", &[back(2)])).await;
    assert_eq!(told, (Code::Ok, vec![(Code::Ok, limit, 2, secs(40))]));
    assert_eq!(rig.told(request("web", &[costing(2, ip("1"))])).await.1[0].2, 0);
    let one = RateLimitDescriptor { is_negative_hits: true, ..ip("1") };
    assert_eq!(rig.told(request("web", &[one])).await.1[0].2, 1, "one, if nothing is said");
    for hits in [0, 7, u64::MAX] {
        let told = rig.told(request("web", &[back(hits)])).await;
        let left = if hits == 0 { 1 } else { 3 };
        assert_eq!((told.0, told.1[0].2), (Code::Ok, left), "never better than fresh");
    }
    // Whatever becomes of the others.
    rig.ask(request("web", &[costing(3, ip("1")), costing(5, descriptor(&[("path", "/")]))])).await.unwrap();
    let told = rig.told(request("web", &[descriptor(&[("path", "/")]), back(1)])).await;
    assert_eq!(
        (told.0, told.1[0].0, told.1[1].0, told.1[1].2),
        (Code::OverLimit, Code::OverLimit, Code::Ok, 1)
    );
}

#[tokio::test]
async fn a_limit_that_is_brought_along_replaces_the_configured_one() {
    let rig = rig(WEB);
    let bring = |requests_per_unit, unit: Unit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into() }),
        ..ip("1")
    };
    let limit = Some((1, Unit::Day));
    let day = secs(19_240);
    let ask = request("web", &[bring(1, Unit::Day)]);
    assert_eq!(rig.told(ask.clone()).await, (Code::Ok, vec![(Code::Ok, limit, 0, day)]));
    assert_eq!(rig.told(ask).await, (Code::OverLimit, vec![(Code::OverLimit, limit, 0, day)]));
    assert_eq!(rig.told(request("web", &[ip("1")])).await.1[0].2, 2, "the configured one was not touched");
    let other = RateLimitDescriptor { limit: bring(1, Unit::Day).limit, ..ip("2") };
    assert_eq!(rig.told(request("web", &[other])).await.0, Code::Ok, "others have their own");
    assert_eq!(rig.told(request("web", &[bring(0, Unit::Second)])).await.0, Code::OverLimit);
    // Nobody is limited in a domain that has no limits.
    let free = (Code::Ok, vec![(Code::Ok, None, 0, None)]);
    assert_eq!(rig.told(request("elsewhere", &[bring(0, Unit::Second)])).await, free);
}

#[tokio::test]
async fn units_are_told_and_what_has_no_unit_says_so() {
    let text =
        |rate: &str| format!("domain = \"d\"\nalgorithm = \"fixed-window\"\n[limit.a]\nrate = \"{rate}\"\n");
    let cases = [
        ("7/s", 7, Unit::Second),
        ("7/min", 7, Unit::Minute),
        ("7/h", 7, Unit::Hour),
        ("7/d", 7, Unit::Day),
        ("7/7d", 7, Unit::Week),
        ("7/30d", 7, Unit::Month),
        ("7/365d", 7, Unit::Year),
        ("7/90s", 7, Unit::Unknown),
        ("18446744073709551615/30d", u32::MAX, Unit::Month),
    ];
    for (rate, count, unit) in cases {
        let rig = rig(&text(rate));
        let (_, statuses) = rig.told(request("d", &[descriptor(&[("any", "")])])).await;
        assert_eq!(statuses[0].1, Some((count, unit)), "{rate}");
    }
}

#[tokio::test]
async fn a_bucket_says_when_to_come_back_and_when_it_is_full() {
    let rig = rig("domain = \"d\"\n[limit.a]\nrate = \"60/min burst 2\"\n");
    let ask = request("d", &[descriptor(&[("any", "")])]);
    let limit = Some((60, Unit::Minute));
    assert_eq!(rig.told(ask.clone()).await.1, [(Code::Ok, limit, 1, secs(1))]);
    assert_eq!(rig.told(ask.clone()).await.1, [(Code::Ok, limit, 0, secs(2))]);
    assert_eq!(rig.told(ask).await.1, [(Code::OverLimit, limit, 0, secs(1))]);
}

#[tokio::test]
async fn of_several_limits_of_a_descriptor_the_one_that_decides_is_told() {
    let text = "domain = \"d\"\nalgorithm = \"fixed-window\"\n[limit.a]\nrate = [\"3/min\", \"2/h\"]\n";
    let rig = rig(text);
    let ask = request("d", &[descriptor(&[("any", "")])]);
    assert_eq!(rig.told(ask.clone()).await.1, [(Code::Ok, Some((2, Unit::Hour)), 1, secs(1_240))]);
    rig.ask(ask.clone()).await.unwrap();
    assert_eq!(rig.told(ask).await.1, [(Code::OverLimit, Some((2, Unit::Hour)), 0, secs(1_240))]);
}

#[tokio::test]
async fn values_need_not_be_text() {
    let rig = rig(WEB);
    let with = |value: &'static [u8]| {
        let mut descriptor = ip("");
        descriptor.entries[0].value = value.into();
        request("web", &[descriptor])
    };
    for left in [2, 1, 0] {
        assert_eq!(rig.told(with(b"\xff\xfe")).await.1[0].2, left);
    }
    assert_eq!(
        rig.told(with(b"\xff\xfe")).await.0,
        Code::OverLimit,
        "nobody slips past by sending such bytes"
    );
    assert_eq!(rig.told(with(b"\xff")).await.0, Code::Ok);
}

#[tokio::test]
async fn a_key_that_is_not_utf8_is_no_error_and_the_other_descriptors_count() {
    let rig = rig(WEB);
    let mut strange = ip("10.0.0.7");
    strange.entries[0].key = b"\xff"[..].into();
    let call = request("web", &[strange, ip("10.0.0.7")]);
    for code in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
        let statuses = rig.told(call.clone()).await.1;
        assert_eq!((statuses[0].0, statuses[1].0), (Code::Ok, code));
    }
}

#[tokio::test]
async fn fields_and_metadata_come_if_asked_for() {
    let rig = rig_with(WEB, RlsOptions { headers: true, dynamic_metadata: true, ..RlsOptions::default() });
    let mut ask = request("web", &[ip("1"), costing(2, descriptor(&[("path", "/"), ("b", "c=d")]))]);
    ask.hits_addend = 1;
    let response = rig.ask(ask).await.unwrap();
    let fields: Vec<_> =
        response.response_headers_to_add.iter().map(|field| (&*field.key, &*field.value)).collect();
    assert_eq!(fields, [("RateLimit-Limit", "3"), ("RateLimit-Remaining", "2"), ("RateLimit-Reset", "40")]);
    let metadata = format!("{:?}", response.dynamic_metadata.unwrap());
    for part in ["\"web\"", "\"ip=1\"", "\"path=/\"", "\"b=c=d\"", "hitsAddend", "NumberValue(2.0)"] {
        assert!(metadata.contains(part), "{part} in {metadata}");
    }
    let plain = super::rig::rig(WEB).ask(request("web", &[ip("1")])).await.unwrap();
    assert!(plain.response_headers_to_add.is_empty() && plain.dynamic_metadata.is_none());
}

/// A descriptor with a limit of its own: one an hour.
fn brought(value: &str) -> RateLimitDescriptor {
    let limit = RateLimitOverride { requests_per_unit: 1, unit: Unit::Hour.into() };
    RateLimitDescriptor { limit: Some(limit), ..descriptor(&[("own", value)]) }
}

#[tokio::test]
async fn in_shadow_mode_every_call_is_counted_and_passes() {
    let rig = rig_with(WEB, RlsOptions { shadow_mode: true, ..RlsOptions::default() });
    let told = async |ask| {
        let (overall, statuses) = rig.told(ask).await;
        (overall, statuses.into_iter().map(|status| (status.0, status.2)).collect::<Vec<_>>())
    };
    // Item 26.4: the call passes, and its status is over the limit.
    for (descriptor, most) in [(ip("1"), 3), (brought("1"), 1)] {
        let ask = request("web", &[descriptor]);
        for left in (0..most).rev() {
            assert_eq!(told(ask.clone()).await, (Code::Ok, vec![(Code::Ok, left)]));
        }
        for _ in 0..2 {
            assert_eq!(told(ask.clone()).await, (Code::Ok, vec![(Code::OverLimit, 0)]));
        }
    }
    let tallies = rig.engine.tallies();
    let tally = &tallies.iter().find(|tallied| &*tallied.name == "per-ip").unwrap().tally;
    assert_eq!((tally.calls(Outcome::Allowed), tally.calls(Outcome::ShadowDenied)), (3, 2));
}

#[tokio::test]
async fn in_quota_mode_a_call_is_refused_only_if_all_of_its_limits_refuse() {
    let rig = rig_with(WEB, RlsOptions { quota_mode: true, ..RlsOptions::default() });
    let all = request("web", &[ip("1"), descriptor(&[("path", "/")]), brought("1")]);
    // Three an address, five a path, one of its own: each goes on to be taken while one of them is left.
    let left = [(2, 4, 0), (1, 3, 0), (0, 2, 0), (0, 1, 0), (0, 0, 0)];
    for (ip, path, own) in left {
        let (overall, statuses) = rig.told(all.clone()).await;
        let told: Vec<u32> = statuses.iter().map(|status| status.2).collect();
        assert_eq!((overall, told), (Code::Ok, vec![ip, path, own]));
    }
    assert_eq!(rig.told(all).await.0, Code::OverLimit, "none of them is left");
    assert_eq!(rig.told(request("web", &[ip("1")])).await.0, Code::OverLimit, "nor of the only one");
    assert_eq!(rig.told(request("web", &[descriptor(&[("nobody", "knows")])])).await.0, Code::Ok);
}
