//! Which limits apply, worked out by hand.

use tollgate_core::{Kind, Quota};
use tollgate_policy::{Cost, Descriptor, OnStoreFailure, Policy, Scratch, Source, Unmatched, convert, read};

fn policy(text: &str) -> Policy {
    Policy::parse("p.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// `name[key]` of each limit that applies.
fn met(policy: &Policy, descriptor: &Descriptor) -> Vec<String> {
    let mut scratch = Scratch::new();
    let matches = policy.matching(descriptor, &mut scratch);
    let show = |found: tollgate_policy::Match| {
        format!("{}[{}]", found.limit().name(), String::from_utf8_lossy(found.key()))
    };
    matches.iter().map(show).collect()
}

#[test]
fn every_kind_of_condition() {
    let policy = policy(
        r#"
        [limit.exact]
        match.method = "GET"
        rate = "1/s"
        [limit.one-of]
        match.method = ["POST", "PUT"]
        rate = "1/s"
        [limit.prefix]
        match.path = "/api/*"
        rate = "1/s"
        [limit.suffix]
        match.path = "*.png"
        rate = "1/s"
        [limit.inside]
        match.path = "*admin*"
        rate = "1/s"
        [limit.around]
        match.path = "/api/*/edit"
        rate = "1/s"
        [limit.absent]
        match.user = { absent = true }
        rate = "1/s"
        [limit.present]
        match.user = "*"
        rate = "1/s"
        [limit.network]
        match.ip = { network = ["10.0.0.0/8", "2001:db8::/32"] }
        rate = "1/s"
        [limit.star]
        match.path = { is = "/*" }
        rate = "1/s"
        "#,
    );
    let with = |name, value| met(&policy, &Descriptor::new().with("user", "ann").with(name, value));
    assert_eq!(with("method", "GET"), ["exact[]", "present[]"]);
    assert_eq!(with("method", "PUT"), ["one-of[]", "present[]"]);
    assert_eq!(with("method", "get"), ["present[]"]);
    assert_eq!(with("path", "/api/"), ["prefix[]", "present[]"]);
    assert_eq!(with("path", "/api"), ["present[]"]);
    assert_eq!(with("path", "/api/7/edit"), ["prefix[]", "around[]", "present[]"]);
    assert_eq!(with("path", "/api/edit"), ["prefix[]", "present[]"]); // the two slashes are two
    assert_eq!(with("path", "/sysadmin.png"), ["suffix[]", "inside[]", "present[]"]);
    assert_eq!(with("path", "/*"), ["present[]", "star[]"]);
    assert_eq!(with("ip", "10.1.2.3"), ["present[]", "network[]"]);
    assert_eq!(with("ip", "::ffff:10.1.2.3"), ["present[]", "network[]"]);
    assert_eq!(with("ip", "2001:db8:1::1"), ["present[]", "network[]"]);
    assert_eq!(with("ip", "2001:db9::1"), ["present[]"]);
    assert_eq!(with("ip", "10.1.2.3:80"), ["present[]"]);
    assert_eq!(met(&policy, &Descriptor::new()), ["absent[]"]);
    assert_eq!(met(&policy, &Descriptor::new().with("user", "")), ["present[]"]);
    assert_eq!(met(&policy, &Descriptor::new().with("user", &b"\xff\xfe"[..])), ["present[]"]);
}

#[test]
fn a_limit_does_not_apply_where_a_field_of_its_key_is_missing() {
    let policy = policy("[limit.a]\nkey = [\"ip\", \"user\"]\nrate = \"1/s\"");
    assert_eq!(met(&policy, &Descriptor::new().with("ip", "1")), [""; 0]);
    assert_eq!(met(&policy, &Descriptor::new().with("user", "x,y").with("ip", "1")), ["a[1,x\\,y]"]);
}

#[test]
fn domains_do_not_see_each_other() {
    let policy =
        policy("domain = \"web\"\n[limit.a]\nrate = \"1/s\"\n[limit.b]\ndomain = \"mail\"\nrate = \"1/s\"");
    assert_eq!(met(&policy, &Descriptor::in_domain("web")), ["a[]"]);
    assert_eq!(met(&policy, &Descriptor::in_domain("mail")), ["b[]"]);
    assert_eq!(met(&policy, &Descriptor::new()), [""; 0]);
    assert_eq!(policy.domains().collect::<Vec<_>>(), ["mail", "web"]);
}

#[test]
fn limits_come_in_the_order_of_the_file() {
    let policy = policy("[limit.z]\nrate = \"1/s\"\n[limit.m]\nrate = \"1/s\"\n[limit.a]\nrate = \"1/s\"\n");
    assert_eq!(met(&policy, &Descriptor::new()), ["z[]", "m[]", "a[]"]);
}

#[test]
fn what_is_replaced_is_left_out_only_where_the_other_applies() {
    let text = r#"
        [limit.all]
        rate = "1/s"
        [limit.vip]
        match.user = "ann"
        rate = "unlimited"
        envoy.replaces = ["all", "vip-old"]
        [limit.vip-old]
        match.user = "a*"
        rate = "2/s"
        envoy.replaces = "third"
        [limit.third]
        rate = "3/s"
    "#;
    let ann = Descriptor::new().with("user", "ann");
    // What is replaced still replaces.
    assert_eq!(met(&policy(text), &ann), ["vip[]"]);
    assert_eq!(met(&policy(text), &Descriptor::new().with("user", "al")), ["all[]", "vip-old[]"]);
    assert_eq!(met(&policy(text), &Descriptor::new()), ["all[]", "third[]"]);
    // Switched off, it replaces nothing; in shadow, nothing that is enforced.
    let off = text.replace("rate = \"unlimited\"", "rate = \"unlimited\"\nmode = \"off\"");
    assert_eq!(met(&policy(&off), &ann), ["all[]", "vip-old[]"]);
    let shadow = text.replace("rate = \"unlimited\"", "rate = \"unlimited\"\nmode = \"shadow\"");
    assert_eq!(met(&policy(&shadow), &ann), ["all[]", "vip[]", "vip-old[]"]);
    let both = shadow.replace("[limit.all]", "[limit.all]\nmode = \"shadow\"");
    assert_eq!(met(&policy(&both), &ann), ["vip[]", "vip-old[]"]);
}

#[test]
fn a_match_has_everything_that_deciding_takes() {
    let policy = policy(
        r#"
        [limit.a]
        key = "tenant"
        rate = ["5/s", "100/h"]
        algorithm = "fixed-window"
        cost = "tokens"
        overrides = [
            { field = "tenant", rates = { acme = "50/s" } },
            { field = "plan", rates = { gold = "500/s", free = ["5/s", "100/h"], platinum = "50/s" } },
        ]
        [limit.b]
        match.tenant = "acme"
        rate = "unlimited"
        mode = "shadow"
        on_store_failure = "deny"
        "#,
    );
    let rates: Vec<String> =
        policy.rates().map(|(limit, rates)| format!("{} {:?}", limit.name(), rates.quotas().len())).collect();
    // What has the same rates shares them: free has the usual ones, platinum those of acme.
    assert_eq!(rates, ["a 2", "a 1", "a 1", "b 1"]);
    assert!(policy.rates().enumerate().all(|(number, (_, rates))| rates.number() == number));

    let mut scratch = Scratch::new();
    let rates = |plan: &str, tenant: &str, scratch: &mut Scratch| {
        let descriptor = Descriptor::new().with("plan", plan).with("tenant", tenant);
        let found = policy.matching(&descriptor, scratch).get(0).unwrap();
        found.rates().number()
    };
    assert_eq!(rates("none", "x", &mut scratch), 0);
    assert_eq!(rates("free", "x", &mut scratch), 0);
    assert_eq!(rates("gold", "x", &mut scratch), 2);
    assert_eq!(rates("platinum", "x", &mut scratch), 1);
    assert_eq!(rates("gold", "acme", &mut scratch), 1); // the tenant was overridden first

    let acme = Descriptor::new().with("tenant", "acme").with("tokens", "12");
    let matches = policy.matching(&acme, &mut scratch);
    let (a, b) = (matches.get(0).unwrap(), matches.get(1).unwrap());
    assert_eq!((matches.len(), matches.get(2).is_none()), (2, true));
    assert_eq!(
        (a.key(), a.cost(), a.is_shadow(), a.on_store_failure()),
        (&b"acme"[..], Cost::Said(12), false, OnStoreFailure::Local)
    );
    assert_eq!(
        (b.key(), b.cost(), b.is_shadow(), b.on_store_failure()),
        (&b""[..], Cost::Asked, true, OnStoreFailure::Deny)
    );
    assert_eq!((a.limit().kind(), a.rates().quotas()), (Kind::FixedWindow, &[Quota::per_second(50)][..]));
    assert!(b.rates().is_unlimited() && !a.rates().is_unlimited());
}

/// Answers, item 13: a bad value is decided by the limit's own rule, and reported for that limit alone.
#[test]
fn a_bad_cost_counts_as_absent_or_denies() {
    let policy = policy(
        "[limit.a]\nrate = \"1/s\"\ncost = \"tokens\"\n[limit.b]\nrate = \"1/s\"\n\
         [limit.c]\nrate = \"1/s\"\ncost = \"tokens\"\non_bad_value = \"deny\"\n",
    );
    let mut scratch = Scratch::new();
    let mut read = |call: &Descriptor<'_>| {
        let matches = policy.matching(call, &mut scratch);
        let found: Vec<(String, Cost)> =
            matches.iter().map(|found| (found.limit().name().to_owned(), found.cost())).collect();
        let bad: Vec<(String, bool)> =
            matches.bad_values().map(|bad| (bad.limit().name().to_owned(), bad.denies())).collect();
        (found, bad)
    };
    let named = |name: &str, cost| (name.to_owned(), cost);
    let most = read(&Descriptor::new().with("tokens", "18446744073709551615"));
    let all = |cost| vec![named("a", cost), named("b", Cost::Asked), named("c", cost)];
    assert_eq!(most, (all(Cost::Said(u64::MAX)), Vec::new()));
    assert_eq!(read(&Descriptor::new()), (all(Cost::Asked), Vec::new()));
    for bad in [&b""[..], b"-1", b"1.5", b"18446744073709551616", b"many", b"\xff"] {
        let expected = (
            vec![named("a", Cost::Asked), named("b", Cost::Asked)],
            vec![("a".to_owned(), false), ("c".to_owned(), true)],
        );
        assert_eq!(read(&Descriptor::new().with("tokens", bad)), expected, "{bad:?}");
    }
}

/// Answers, item 13: a bad value of a limit that another one replaces does nothing.
#[test]
fn a_bad_value_of_a_replaced_limit_is_not_reported() {
    let policy = policy(
        "[limit.a]\nrate = \"1/s\"\ncost = \"tokens\"\non_bad_value = \"deny\"\n\
         [limit.b]\nmatch.user = \"ann\"\nrate = \"unlimited\"\nenvoy.replaces = \"a\"\n",
    );
    let mut scratch = Scratch::new();
    let call = Descriptor::new().with("tokens", "x").with("user", "ann");
    let matches = policy.matching(&call, &mut scratch);
    assert_eq!((matches.len(), matches.bad_values().len()), (1, 0));
}

/// Answers, item 21: an IPv6 address is counted by its network, and only where the file does not say otherwise.
#[test]
fn keys_count_ipv6_networks() {
    let key = |line: &str, field: &str, value: &str| {
        let policy = policy(&format!("[limit.a]\nkey = {line}\nrate = \"1/s\"\n"));
        let mut scratch = Scratch::new();
        let call = Descriptor::new().with(field, value).with("user", "a,b");
        let key = policy.matching(&call, &mut scratch).get(0).unwrap().key().to_vec();
        String::from_utf8(key).unwrap()
    };
    for field in ["ip", "remote_address"] {
        let usual = |value: &str| key(&format!("{field:?}"), field, value);
        assert_eq!(usual("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(usual("2001:DB8:1:2::"), "2001:db8:1:2::/64");
        assert_eq!(usual("2001:db8:1:3::1"), "2001:db8:1:3::/64");
        assert_eq!(usual("10.0.0.7"), "10.0.0.7");
        assert_eq!(usual("::ffff:10.0.0.7"), "10.0.0.7");
        for text in ["", "unknown", "2001:db8::1:80:x", "[2001:db8::1]:80", "10.0.0.7:80", "010.0.0.7"] {
            assert_eq!(usual(text), text);
        }
    }
    let address = "2001:db8:1:2::3";
    assert_eq!(key("\"address\"", "address", address), address);
    assert_eq!(key("{ field = \"address\", ipv6_prefix = 48 }", "address", address), "2001:db8:1::/48");
    assert_eq!(key("{ field = \"ip\", ipv6_prefix = 128 }", "ip", "2001:DB8::7"), "2001:db8::7");
    assert_eq!(key("{ field = \"ip\", ipv6_prefix = 1 }", "ip", "ffff::7"), "8000::/1");
    assert_eq!(key("{ field = \"ip\", ipv6_prefix = false }", "ip", "2001:DB8::7"), "2001:DB8::7");
    assert_eq!(key("[\"user\", \"ip\"]", "ip", address), "a\\,b,2001:db8:1:2::/64");
}

/// Answers, item 21: files of limitador count values as text, as limitador does, also when they are converted.
#[test]
fn imported_keys_count_text() {
    let text = "- {namespace: web, max_value: 1, seconds: 1, variables: [\"descriptors[0].ip\"]}\n";
    let original = Policy::parse("a.yaml", text).unwrap();
    let converted = convert(read(&Source::new("a.yaml", text)).unwrap()).unwrap();
    assert!(converted.contains("key = { field = \"ip\", ipv6_prefix = false }\n"), "{converted}");
    let call = Descriptor::in_domain("web").with("ip", "2001:DB8::7");
    for policy in [original, Policy::parse("a.toml", converted).unwrap()] {
        assert_eq!(policy.matching(&call, &mut Scratch::new()).get(0).unwrap().key(), b"2001:DB8::7");
    }
}

/// Answers, item 16: a domain says what becomes of calls that no limit applies to.
#[test]
fn unmatched_is_said_for_all_domains_of_a_file() {
    let text = "unmatched = \"deny\"\ndomain = \"web\"\n[limit.a]\nrate = \"1/s\"\n[limit.b]\ndomain = \"mail\"\nrate = \"1/s\"\n";
    let denying = policy(text);
    assert_eq!(["web", "mail"].map(|domain| denying.unmatched(domain)), [Some(Unmatched::Deny); 2]);
    assert_eq!(denying.unmatched("default"), None);
    let usual = policy("[limit.a]\nrate = \"1/s\"\n");
    assert_eq!(usual.unmatched("default"), Some(Unmatched::Allow));
}

#[test]
fn memory_of_an_earlier_search_leaves_no_trace() {
    let policy = policy("[limit.a]\nkey = \"ip\"\nrate = \"1/s\"");
    let mut scratch = Scratch::new();
    assert_eq!(policy.matching(&Descriptor::new().with("ip", "10.0.0.1"), &mut scratch).len(), 1);
    let empty = policy.matching(&Descriptor::in_domain("other"), &mut scratch);
    assert!(empty.is_empty() && empty.examined() == 0 && empty.get(0).is_none());
}

#[test]
fn a_policy_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Policy>();
}

#[test]
fn of_two_fields_of_one_name_only_the_first_counts() {
    let limits: Vec<String> = (0..9)
        .map(|index| format!("[limit.l{index}]\nmatch.a = \"{index}\"\nkey = \"a\"\nrate = \"1/s\""))
        .collect();
    let policy = policy(&limits.join("\n"));
    assert_eq!(met(&policy, &Descriptor::new().with("a", "3").with("a", "5")), ["l3[3]"]);
}

#[test]
fn a_policy_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Policy>();
    shared::<tollgate_policy::Draft>();
}
