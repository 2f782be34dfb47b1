//! What a search costs, counted in limits looked at: it does not grow with the limits that cannot apply.

use tollgate_policy::{Descriptor, Policy, Scratch};

/// A policy of the limits that some of which a call meets, and `others` that it does not.
fn policy(met: &str, others: usize, other: impl Fn(usize) -> String) -> Policy {
    let limit = |index: usize| format!("[limit.other-{index}]\nrate = \"1/s\"\n{}\n", other(index));
    let text = (0..others).map(limit).fold(met.to_owned(), |text, limit| text + &limit);
    Policy::parse("p.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

const MET: &str =
    "[limit.all]\nkey = \"ip\"\nrate = \"1/s\"\n[limit.acme]\nmatch.tenant = \"acme\"\nrate = \"1/s\"\n";

fn call() -> Descriptor<'static> {
    Descriptor::new()
        .with("ip", "10.9.8.7")
        .with("tenant", "acme")
        .with("path", "/v1/orders/17/items")
        .with("host", "www.example.com")
        .with("method", "GET")
}

/// Limits found and looked at, with ten others and with ten thousand.
fn costs(other: impl Fn(usize) -> String) -> [(usize, usize); 2] {
    [10, 10_000].map(|others| {
        let policy = policy(MET, others, &other);
        let mut scratch = Scratch::new();
        let matches = policy.matching(&call(), &mut scratch);
        (matches.len(), matches.examined())
    })
}

/// Both that apply are found, and nothing else is looked at.
const ONLY_THOSE_THAT_APPLY: [(usize, usize); 2] = [(2, 2), (2, 2)];

#[test]
fn other_values() {
    assert_eq!(costs(|index| format!("match.tenant = \"t{index}\"")), ONLY_THOSE_THAT_APPLY);
    assert_eq!(costs(|index| format!("match.tenant = \"t{index}\"\nkey = \"ip\"")), ONLY_THOSE_THAT_APPLY);
}

#[test]
fn other_values_beside_one_that_fits() {
    let both = |index| format!("match.method = \"GET\"\nmatch.tenant = \"t{index}\"");
    assert_eq!(costs(both), ONLY_THOSE_THAT_APPLY);
}

#[test]
fn lists_of_other_values() {
    assert_eq!(costs(|index| format!("match.tenant = [\"t{index}\", \"u{index}\"]")), ONLY_THOSE_THAT_APPLY);
}

#[test]
fn other_beginnings_and_ends() {
    assert_eq!(costs(|index| format!("match.path = \"/v{}/*\"", index + 2)), ONLY_THOSE_THAT_APPLY);
    assert_eq!(
        costs(|index| format!("match.path = \"/v1/orders/{}/*/x\"", index + 100)),
        ONLY_THOSE_THAT_APPLY
    );
    assert_eq!(costs(|index| format!("match.host = \"*.example{index}.com\"")), ONLY_THOSE_THAT_APPLY);
}

#[test]
fn other_networks() {
    let network = |index: usize| {
        format!("match.ip = {{ network = \"10.{}.{}.0/24\" }}", index / 100 + 100, index % 100)
    };
    assert_eq!(costs(network), ONLY_THOSE_THAT_APPLY);
    assert_eq!(
        costs(|index| format!("match.ip = {{ network = \"2001:db8:{index:x}::/48\" }}")),
        ONLY_THOSE_THAT_APPLY
    );
}

#[test]
fn other_fields_and_other_domains() {
    assert_eq!(costs(|index| format!("match.field{index} = \"x\"")), ONLY_THOSE_THAT_APPLY);
    assert_eq!(costs(|index| format!("key = \"field{index}\"")), ONLY_THOSE_THAT_APPLY);
    assert_eq!(costs(|_| "domain = \"other\"".to_owned()), ONLY_THOSE_THAT_APPLY);
}

#[test]
fn fields_that_are_there_but_should_not_be() {
    assert_eq!(costs(|_| "match.ip = { absent = true }".to_owned()), ONLY_THOSE_THAT_APPLY);
}

#[test]
fn combinations_of_values_that_each_fit_some_of_the_others() {
    // A hundred tenants times a hundred beginnings of paths. The call's tenant and its path are each in a hundred of them,
    // and both in one.
    let both = |index: usize| {
        let (tenant, path) = (["acme".to_owned(), format!("t{}", index / 100)], index % 100);
        format!("match.tenant = \"{}\"\nmatch.path = \"/v{path}/*\"", tenant[usize::from(index >= 100)])
    };
    let [_, (found, examined)] = costs(both);
    assert_eq!((found, examined), (3, 3));
}

#[test]
fn switched_off() {
    assert_eq!(costs(|_| "mode = \"off\"".to_owned()), ONLY_THOSE_THAT_APPLY);
}

#[test]
fn a_long_list_of_values_is_not_gone_through() {
    let values: Vec<String> = (0..10_000).map(|index| format!("\"t{index}\"")).collect();
    let text = format!("[limit.a]\nmatch.tenant = [{}]\nrate = \"1/s\"\n", values.join(","));
    let policy = Policy::parse("p.toml", text).unwrap();
    let mut scratch = Scratch::new();
    assert_eq!(policy.matching(&call(), &mut scratch).examined(), 0);
    assert_eq!(policy.matching(&Descriptor::new().with("tenant", "t7"), &mut scratch).len(), 1);
}

#[test]
fn what_starts_and_ends_with_a_star_is_tried_one_by_one() {
    // The documented exception, so that a change of it is noticed.
    let [few, many] = costs(|index| format!("match.path = \"*x{index}*\""));
    assert_eq!((few, many), ((2, 12), (2, 10_002)));
}

#[test]
fn conditions_with_many_alternatives_each_do_not_explode() {
    let list = |name: &str| (0..300).map(|index| format!("\"{name}{index}\"")).collect::<Vec<_>>().join(",");
    let both = |index| format!("match.a = [{}]\nmatch.b = [{}]\nmatch.c = \"{index}\"", list("a"), list("b"));
    let policy = policy("", 20, both);
    let mut scratch = Scratch::new();
    let call = Descriptor::new().with("a", "a7").with("b", "b9").with("c", "3");
    let matches = policy.matching(&call, &mut scratch);
    assert_eq!((matches.len(), matches.examined()), (1, 1));
}

/// A tree with a limit that the call meets, and so many others.
fn tree(others: usize, other: impl Fn(usize) -> String) -> (usize, usize) {
    let met = "[limit.met]\nenvoy.entries = [\"path_/a\", \"ip\"]\nrate = \"1/s\"\n";
    let policy = policy(met, others, other);
    let call = Descriptor::new().with("path", "/a").with("ip", "10.9.8.7");
    let mut scratch = Scratch::new();
    let matches = policy.matching(&call, &mut scratch);
    (matches.len(), matches.examined())
}

#[test]
fn other_entries() {
    for others in [10, 10_000] {
        assert_eq!(
            tree(others, |index| format!("envoy.entries = [\"path_/a\", \"ip_10.0.0.{index}\"]")),
            (1, 1)
        );
        assert_eq!(tree(others, |index| format!("envoy.entries = [\"path_/{index}\", \"ip\"]")), (1, 1));
        assert_eq!(
            tree(others, |index| format!("envoy.entries = [\"path_/a\", \"ip\", \"k{index}\"]")),
            (1, 1)
        );
        assert_eq!(tree(others, |index| format!("envoy.entries = [\"path_/a\", \"ip_x{index}*\"]")), (1, 1));
    }
}

#[test]
fn entries_with_stars_that_start_alike_are_tried_one_by_one() {
    // The documented exception, so that a change of it is noticed.
    let alike = |index| format!("envoy.entries = [\"path_/a\", \"ip_*.{index}x\"]");
    assert_eq!((tree(10, alike), tree(1_000, alike)), ((1, 11), (1, 1_001)));
}
