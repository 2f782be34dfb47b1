//! Checks of limits of any file format.

mod entries;

use std::collections::{HashMap, HashSet};

use tollgate_core::{Kind, Quota, SlidingLog};

use super::{Draft, DraftDomain, DraftLimit};
use crate::condition::Condition;
use crate::problem::{Problem, Problems};
use crate::suggest::did_you_mean;

/// Where in the draft each limit is, by its domain and name.
type Names<'d> = HashMap<(&'d str, &'d str), usize>;

/// The labels in each domain.
type Labels<'d> = HashSet<(&'d str, &'d str)>;

/// More than a policy needs, and few enough that the checks are fast.
const MOST_RATES: usize = 16;
pub(crate) const MOST_FIELDS: usize = 64;

/// Everything.
pub(crate) fn check(draft: &Draft, problems: &mut Problems) {
    check_names(draft, problems);
    check_domains(draft, problems);
    entries::check_places(draft, problems);
    for limit in &draft.limits {
        entries::check_expressions(limit, problems);
        for message in contents(limit).into_iter().chain(entries::contents(limit)) {
            problems.add(|| Problem::new(&limit.place, format!("limit {:?}: {message}", limit.name)));
        }
    }
}

/// Checks names and references to them.
fn check_names<'d>(draft: &'d Draft, problems: &mut Problems) {
    let mut names = Names::new();
    for (index, limit) in draft.limits.iter().enumerate() {
        for (what, name) in [("domain", &limit.domain), ("limit", &limit.name)] {
            if let Some(message) = name_problem(what, name) {
                problems.add(|| Problem::new(&limit.place, message));
            }
        }
        if let Some(first) = names.insert((&limit.domain, &limit.name), index) {
            problems.add(|| {
                let first = &draft.limits[first].place;
                Problem::new(
                    &limit.place,
                    format!("the limit {:?} is already defined at {first}", limit.name),
                )
            });
        }
    }
    let label = |limit: &'d DraftLimit| Some((limit.domain.as_str(), limit.envoy.label.as_deref()?));
    let labels: Labels<'d> = draft.limits.iter().filter_map(label).collect();
    for limit in &draft.limits {
        check_replaces(limit, &names, &labels, problems);
    }
    check_circles(draft, &names, problems);
}

/// Checks that the files of a domain agree.
fn check_domains(draft: &Draft, problems: &mut Problems) {
    let mut first: HashMap<&str, &DraftDomain> = HashMap::new();
    for said in &draft.domains {
        let known = *first.entry(&said.name).or_insert(said);
        if known.unmatched != said.unmatched {
            let message = format!(
                "the domain {:?} has unmatched = \"{}\" here and \"{}\" at {}",
                said.name, said.unmatched, known.unmatched, known.place
            );
            let help = "use the same value in all files of the domain, or set it in one file only".to_owned();
            problems.add(|| Problem::new(&said.place, message).help(help));
        }
    }
}

/// How the domains begin that no policy has: those of limits that callers supply.
const RESERVED: char = '@';

/// Names go into metrics and header fields, where nothing else is safe.
pub(crate) fn name_problem(what: &str, name: &str) -> Option<String> {
    const LONGEST: usize = 128;
    if what != "limit" && name.starts_with(RESERVED) {
        let own = name.trim_start_matches(RESERVED);
        let better = if own.is_empty() { "web" } else { own };
        return Some(format!(
            "the name of a {what} cannot begin with '{RESERVED}', which marks the limits that callers supply; \
             use for example {better:?}"
        ));
    }
    let is_safe = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    if name.is_empty() {
        Some(format!("the name of a {what} cannot be empty"))
    } else if name.len() > LONGEST {
        Some(format!("the name of a {what} has at most {LONGEST} characters"))
    } else {
        let bad = name.chars().find(|c| !is_safe(*c))?;
        let allowed = "use letters, digits and signs such as - _ . : /";
        Some(format!("the name of a {what} cannot contain {bad:?}; {allowed}"))
    }
}

fn check_replaces(limit: &DraftLimit, names: &Names, labels: &Labels, problems: &mut Problems) {
    for other in &limit.envoy.replaces {
        let called = (limit.domain.as_str(), other.name.as_str());
        if limit.is_called(&other.name) {
            let message = format!("the limit {:?} cannot replace itself", other.name);
            problems.add(|| Problem::new(&other.place, message));
        } else if !names.contains_key(&called) && !labels.contains(&called) {
            problems.add(|| {
                let message = format!("unknown limit {:?} in the domain {:?}", other.name, limit.domain);
                let known = names.keys().chain(labels);
                let known = known.filter(|known| known.0 == limit.domain && !limit.is_called(known.1));
                let mut known: Vec<&str> = known.map(|known| known.1).collect();
                known.sort_unstable();
                Problem::new(&other.place, message).help(did_you_mean(&other.name, known))
            });
        }
    }
}

/// Limits that replace each other in a circle would all be gone, and nothing would be limited. Those with entries never meet
/// for one descriptor, so what they replace is in a call's other descriptors.
fn check_circles(draft: &Draft, names: &Names, problems: &mut Problems) {
    let replaced = |limit: &DraftLimit| -> Vec<usize> {
        let others = limit.envoy.replaces.iter();
        let others = others.filter(|other| other.name != limit.name && limit.envoy.entries.is_empty());
        others.filter_map(|other| names.get(&(limit.domain.as_str(), other.name.as_str())).copied()).collect()
    };
    let replaces: Vec<Vec<usize>> = draft.limits.iter().map(replaced).collect();
    for (index, other) in circles(&replaces) {
        let (limit, other) = (&draft.limits[index], &draft.limits[other]);
        let message = format!(
            "limits {:?} and {:?} replace each other, directly or through other limits",
            limit.name, other.name
        );
        problems.add(|| Problem::new(&limit.place, message));
    }
}

/// The edges of a graph that lie on a circle, one for each node on it.
fn circles(edges: &[Vec<usize>]) -> Vec<(usize, usize)> {
    // Nodes that nothing leads to, and then those that lead nowhere, are on no circle: what is left, is on or between some.
    let backwards = {
        let mut backwards = vec![Vec::new(); edges.len()];
        edges.iter().enumerate().for_each(|(from, to)| to.iter().for_each(|&to| backwards[to].push(from)));
        backwards
    };
    let (reached, reaching) = (peel(edges), peel(&backwards));
    let is_left = |node: usize| reached[node] && reaching[node];
    let nodes = (0..edges.len()).filter(|&node| is_left(node));
    nodes.filter_map(|node| Some((node, edges[node].iter().copied().find(|&next| is_left(next))?))).collect()
}

/// Takes away nodes that no remaining edge leads to, until there are none; tells which nodes remain.
fn peel(edges: &[Vec<usize>]) -> Vec<bool> {
    let mut incoming = vec![0_usize; edges.len()];
    edges.iter().flatten().for_each(|&to| incoming[to] += 1);
    let mut free: Vec<usize> = (0..edges.len()).filter(|&node| incoming[node] == 0).collect();
    let mut remains = vec![true; edges.len()];
    while let Some(node) = free.pop() {
        remains[node] = false;
        for &next in &edges[node] {
            incoming[next] -= 1;
            if incoming[next] == 0 {
                free.push(next);
            }
        }
    }
    remains
}

/// Returns the errors of a limit by itself.
fn contents(limit: &DraftLimit) -> Vec<String> {
    if limit.conditions.len().max(limit.key.len()) > MOST_FIELDS {
        return vec![format!("at most {MOST_FIELDS} fields per limit")];
    }
    let others = limit.overrides.iter().flat_map(|other| &other.rates);
    let rates = std::iter::once(&limit.rates).chain(others.map(|(_, rates)| rates));
    let mut messages: Vec<String> = rates.filter_map(|rates| rates_problem(rates, limit.kind)).collect();
    for (at, other) in limit.overrides.iter().enumerate() {
        if limit.overrides[..at].iter().any(|earlier| earlier.field == other.field) {
            messages.push(format!("duplicate override of the field {:?}", other.field));
        }
    }
    let fields: Vec<&str> = limit.key_fields().collect();
    for (at, field) in fields.iter().enumerate() {
        if fields[..at].contains(field) {
            messages.push(format!("duplicate field {field:?} in the key"));
        }
        if limit.conditions.iter().any(|(name, condition)| name == *field && *condition == Condition::Absent)
        {
            messages.push(format!("the key needs field {field:?}, but match requires it to be absent"));
        }
    }
    for (at, (field, condition)) in limit.conditions.iter().enumerate() {
        if *condition == Condition::AnyOf(Vec::new()) {
            messages.push(format!("the condition on field {field:?} can never hold"));
        }
        if limit.conditions[..at].iter().any(|(name, _)| name == field) {
            messages.push(format!("duplicate condition on the field {field:?}"));
        }
    }
    messages
}

/// Returns the error of a list of rates, if there is one.
pub(crate) fn rates_problem(rates: &[Quota], kind: Kind) -> Option<String> {
    let has_burst = |rate: &&Quota| !rate.is_unlimited() && rate.burst_size() != rate.count();
    let twice = rates.iter().enumerate().take(MOST_RATES).find(|(at, rate)| rates[..*at].contains(rate));
    if rates.is_empty() {
        Some("expected at least one rate, such as \"10/s\"".to_owned())
    } else if rates.len() > MOST_RATES {
        Some(format!("at most {MOST_RATES} rates per limit"))
    } else if rates.len() > 1 && rates.iter().any(Quota::is_unlimited) {
        Some("\"unlimited\" cannot be combined with another rate".to_owned())
    } else if let Some((_, rate)) = twice {
        Some(format!("duplicate rate \"{rate}\""))
    } else if let Some(rate) = rates.iter().find(|rate| is_too_deep(rate, kind)) {
        let most = SlidingLog::MAX_ENTRIES;
        let better = Kind::SubWindows;
        Some(format!(
            "{kind} stores at most {most} requests per key, but the rate \"{rate}\" needs more; use {better}"
        ))
    } else {
        let useless = rates.iter().find(has_burst).filter(|_| !uses_burst(kind));
        useless.map(|rate| format!("{kind} has no burst, but the rate \"{rate}\" sets one"))
    }
}

/// Whether the store would need more entries than it keeps.
fn is_too_deep(rate: &Quota, kind: Kind) -> bool {
    kind == Kind::SlidingLog && !rate.is_unlimited() && rate.count() > SlidingLog::MAX_ENTRIES
}

fn uses_burst(kind: Kind) -> bool {
    matches!(kind, Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::Reference;
    use crate::key_part::KeyPart;
    use crate::source::Place;

    fn limits(names: &[(&str, &[&str])]) -> Draft {
        let limit = |(name, replaces): &(&str, &[&str])| {
            let mut limit = DraftLimit::new(*name, Quota::per_second(1));
            let reference = |name: &&str| Reference { name: (*name).to_owned(), place: Place::default() };
            limit.envoy.replaces = replaces.iter().map(reference).collect();
            limit
        };
        Draft::new(names.iter().map(limit).collect())
    }

    fn messages(draft: &Draft) -> Vec<String> {
        let mut problems = Problems::default();
        check(draft, &mut problems);
        problems.iter().map(|problem| problem.message.clone()).collect()
    }

    #[test]
    fn circles_are_found_and_chains_are_not() {
        assert_eq!(
            messages(&limits(&[("a", &["b"]), ("b", &["c"]), ("c", &[]), ("d", &["c", "b"])])),
            [""; 0]
        );
        let circle = |from, to| {
            format!("limits {from:?} and {to:?} replace each other, directly or through other limits")
        };
        // e only leads to the circle, and f only hangs from it.
        let draft = limits(&[("a", &["b"]), ("b", &["c"]), ("c", &["f", "a"]), ("e", &["a"]), ("f", &[])]);
        assert_eq!(messages(&draft), [circle("a", "b"), circle("b", "c"), circle("c", "a")]);
    }

    #[test]
    fn names_are_fit_for_header_fields_and_metrics() {
        let message = |name: &str| messages(&limits(&[(name, &[])])).pop().unwrap_or_default();
        assert_eq!(message("per-ip:/v1.2_x"), "");
        assert_eq!(message(""), "the name of a limit cannot be empty");
        assert_eq!(message(&"x".repeat(129)), "the name of a limit has at most 128 characters");
        for (name, bad) in
            [("a b", "' '"), ("a\r\n", "'\\r'"), ("é", "'é'"), ("a\"", "'\"'"), ("a\\", "'\\\\'")]
        {
            let allowed = "use letters, digits and signs such as - _ . : /";
            assert_eq!(message(name), format!("the name of a limit cannot contain {bad}; {allowed}"));
        }
    }

    // Guards, item 6: no policy has a domain in which callers supply limits, whatever it was read from.
    #[test]
    fn a_reserved_domain_is_refused() {
        let mut draft = limits(&[("@a", &[])]);
        assert_eq!(messages(&draft), [""; 0], "only domains are reserved");
        let message = |better: &str| {
            format!(
                "the name of a domain cannot begin with '@', which marks the limits that callers supply; \
                 use for example {better:?}"
            )
        };
        for (domain, better) in [("@http", "http"), ("@", "web"), ("@@envoy", "envoy")] {
            draft.limits[0].domain = domain.to_owned();
            assert_eq!(messages(&draft), [message(better)]);
        }
        draft.limits[0].domain = "a@http".to_owned();
        assert_eq!(messages(&draft), [""; 0]);
    }

    #[test]
    fn one_name_in_two_domains_is_two_limits() {
        let mut draft = limits(&[("a", &[]), ("a", &[])]);
        assert_eq!(messages(&draft), ["the limit \"a\" is already defined at nowhere"]);
        draft.limits[1].domain = "other".to_owned();
        assert_eq!(messages(&draft), [""; 0]);
        draft.limits[1].envoy.replaces = vec![Reference { name: "b".to_owned(), place: Place::default() }];
        assert_eq!(messages(&draft), ["unknown limit \"b\" in the domain \"other\""]);
    }

    #[test]
    fn what_a_program_made_up_is_checked_too() {
        let mut draft = limits(&[("a", &[])]);
        let limit = &mut draft.limits[0];
        limit.rates = vec![Quota::per_second(1); 17];
        limit.key = vec!["ip".into(), KeyPart::text("ip")];
        limit.conditions =
            vec![("ip".to_owned(), Condition::Absent), ("ip".to_owned(), Condition::present())];
        let expected = [
            "limit \"a\": at most 16 rates per limit",
            "limit \"a\": the key needs field \"ip\", but match requires it to be absent",
            "limit \"a\": duplicate field \"ip\" in the key",
            "limit \"a\": the key needs field \"ip\", but match requires it to be absent",
            "limit \"a\": duplicate condition on the field \"ip\"",
        ];
        assert_eq!(messages(&draft), expected);
        draft.limits[0].key = (0..65).map(|index| KeyPart::field(index.to_string())).collect();
        assert_eq!(messages(&draft), ["limit \"a\": at most 64 fields per limit"]);
    }
}
