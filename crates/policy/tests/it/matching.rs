//! Which limits apply, worked out by hand.

use tollgate_core::{Kind, Quota};
use tollgate_policy::{Cost, Descriptor, IfStoreFails, Policy, Scratch};

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
fn the_higher_priority_comes_first_and_then_the_order_of_the_file() {
    let policy = policy(
        "[limit.z]\nrate = \"1/s\"\n[limit.m]\nrate = \"1/s\"\npriority = 5\n[limit.a]\nrate = \"1/s\"\n[limit.low]\nrate = \"1/s\"\npriority = -1",
    );
    assert_eq!(met(&policy, &Descriptor::new()), ["m[]", "z[]", "a[]", "low[]"]);
}

#[test]
fn what_is_replaced_is_left_out_only_where_the_other_applies() {
    let text = r#"
        [limit.all]
        rate = "1/s"
        [limit.vip]
        match.user = "ann"
        rate = "unlimited"
        replaces = ["all", "vip-old"]
        [limit.vip-old]
        match.user = "a*"
        rate = "2/s"
        replaces = "third"
        priority = 1
        [limit.third]
        rate = "3/s"
    "#;
    let ann = Descriptor::new().with("user", "ann");
    // What is replaced still replaces.
    assert_eq!(met(&policy(text), &ann), ["vip[]"]);
    assert_eq!(met(&policy(text), &Descriptor::new().with("user", "al")), ["vip-old[]", "all[]"]);
    assert_eq!(met(&policy(text), &Descriptor::new()), ["all[]", "third[]"]);
    // Switched off, it replaces nothing; in shadow, nothing that is enforced.
    let off = text.replace("rate = \"unlimited\"", "rate = \"unlimited\"\nmode = \"off\"");
    assert_eq!(met(&policy(&off), &ann), ["vip-old[]", "all[]"]);
    let shadow = text.replace("rate = \"unlimited\"", "rate = \"unlimited\"\nmode = \"shadow\"");
    assert_eq!(met(&policy(&shadow), &ann), ["vip-old[]", "all[]", "vip[]"]);
    let both = shadow.replace("[limit.all]", "[limit.all]\nmode = \"shadow\"");
    assert_eq!(met(&policy(&both), &ann), ["vip-old[]", "vip[]"]);
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
        [limit.a.override.tenant]
        acme = "50/s"
        [limit.a.override.plan]
        gold = "500/s"
        free = ["5/s", "100/h"]
        platinum = "50/s"
        [limit.b]
        match.tenant = "acme"
        rate = "unlimited"
        mode = "shadow"
        if_store_fails = "deny"
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
        (a.key(), a.cost(), a.is_shadow(), a.if_store_fails()),
        (&b"acme"[..], Cost::Said(12), false, IfStoreFails::Local)
    );
    assert_eq!(
        (b.key(), b.cost(), b.is_shadow(), b.if_store_fails()),
        (&b""[..], Cost::Asked, true, IfStoreFails::Deny)
    );
    assert_eq!((a.limit().kind(), a.rates().quotas()), (Kind::FixedWindow, &[Quota::per_second(50)][..]));
    assert!(b.rates().is_unlimited() && !a.rates().is_unlimited());
}

#[test]
fn a_cost_that_is_no_number_is_told_and_not_guessed() {
    let policy = policy("[limit.a]\nrate = \"1/s\"\ncost = \"tokens\"");
    let mut scratch = Scratch::new();
    let mut cost = |value: &[u8]| {
        policy.matching(&Descriptor::new().with("tokens", value), &mut scratch).get(0).unwrap().cost()
    };
    assert_eq!(cost(b"18446744073709551615"), Cost::Said(u64::MAX));
    for bad in [&b""[..], b"-1", b"1.5", b"18446744073709551616", b"many", b"\xff"] {
        assert_eq!(cost(bad), Cost::Unreadable, "{bad:?}");
    }
    assert_eq!(policy.matching(&Descriptor::new(), &mut scratch).get(0).unwrap().cost(), Cost::Asked);
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
