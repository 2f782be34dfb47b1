//! Explanations, word by word.

use tollgate_policy::{Descriptor, Outcome, Policy};

const POLICY: &str = r#"
    [limit.login]
    match.path = "/login*"
    match.method = ["POST", "PUT"]
    key = ["ip", "user"]
    rate = ["1/s", "20/h"]

    [limit.per-ip]
    key = "ip"
    rate = "10/s burst 20"
    cost = "weight"
    overrides = [{ field = "plan", rates = { gold = "1000/s" } }]

    [limit.internal]
    match.ip = { network = "10.0.0.0/8" }
    rate = "unlimited"
    mode = "shadow"
    envoy.replaces = "tried"

    [limit.tried]
    rate = "1/s"
    mode = "shadow"

    [limit.later]
    rate = "1/s"
    mode = "off"

    [limit.nameless]
    match.user = { absent = true }
    rate = "1/s"
"#;

fn policy() -> Policy {
    Policy::parse("p.toml", POLICY).unwrap()
}

#[test]
fn tells_people_why() {
    let descriptor = Descriptor::new()
        .with("ip", "10.0.0.7")
        .with("user", "ann")
        .with("path", "/login")
        .with("method", "POST")
        .with("plan", "gold")
        .with("weight", "3")
        .with("pth", "x");
    let mut explanation = policy().explain(&descriptor);
    explanation.limits[0].answer = Some("allow, 0 left".to_owned());
    let expected = r#"domain default: 3 of 6 limits apply
hint: no limit looks at the field "pth"; did you mean "path"?

1. login: 1/s and 20/h, token-bucket
   path like "/login*": yes, it is "/login"
   method is "POST" or is "PUT": yes, it is "POST"
   ip present (for the key): yes, it is "10.0.0.7"
   user present (for the key): yes, it is "ann"
   key: "10.0.0.7,ann"
   would answer: allow, 0 left

2. per-ip: 1000/s, token-bucket
   ip present (for the key): yes, it is "10.0.0.7"
   key: "10.0.0.7"
   cost: 3
   rate overridden by: plan

3. internal: unlimited, token-bucket, shadow
   ip in 10.0.0.0/8: yes, it is "10.0.0.7"

do not apply:
  tried: replaced by internal
  later: switched off
  nameless: user absent: no, it is "ann"
"#;
    assert_eq!(explanation.to_string(), expected);
}

#[test]
fn tells_programs_why() {
    let explanation = policy().explain(&Descriptor::new().with("user", "ann"));
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(explanation.limits[0].outcome, Outcome::Applies);
    assert_eq!(
        json["limits"][0],
        serde_json::json!({
            "name": "tried", "outcome": "applies", "conditions": [], "mode": "shadow",
            "algorithm": "token-bucket", "rates": ["1/s"], "on_store_failure": "local",
            "on_bad_value": "default",
        })
    );
    let internal =
        json["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == "internal").unwrap();
    assert_eq!(
        internal["conditions"],
        serde_json::json!([{
            "field": "ip", "expected": "in 10.0.0.0/8", "found": null, "holds": false, "for_key": false,
        }])
    );
}

#[test]
fn a_misspelled_domain_is_noticed() {
    let explanation = policy().explain(&Descriptor::in_domain("defualt"));
    let expected = "domain defualt: 0 of 0 limits apply\nhint: the domain \"defualt\" has no limits; did you mean \"default\"?\n";
    assert_eq!(explanation.to_string(), expected);
}

#[test]
fn of_many_that_do_not_apply_some_are_named() {
    let text = (0..50)
        .map(|index| format!("[limit.a{index}]\nmatch.x = \"1\"\nrate = \"1/s\"\n"))
        .collect::<Vec<_>>()
        .concat();
    let explanation = Policy::parse("p.toml", text).unwrap().explain(&Descriptor::new());
    assert_eq!(explanation.limits.len(), 50);
    let text = explanation.to_string();
    assert_eq!(text.lines().count(), 24, "{text}");
    assert!(
        text.contains("\n  a0: x is \"1\": no, it is absent\n") && text.ends_with("\n  and 30 more\n"),
        "{text}"
    );
}
