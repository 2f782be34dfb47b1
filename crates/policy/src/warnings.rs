//! Warnings: settings that are valid but look like mistakes. They need the whole policy; the reader of a file notes the others.

use std::collections::{HashMap, HashSet};

use crate::choice::{Mode, Unmatched};
use crate::condition::{Condition, Test};
use crate::draft::{DraftLimit, toml_key};
use crate::format::Format;
use crate::limit::Limit;
use crate::pattern::Pattern;
use crate::policy::Policy;
use crate::problem::{Problem, Problems};

/// How many pairs of limits are compared at most. The checks of a larger policy end early.
const MOST_PAIRS: usize = 1_000_000;

/// Adds the warnings about the limits of a policy.
pub(crate) fn add(policy: &Policy, warnings: &mut Problems) {
    let mut pairs = MOST_PAIRS;
    behind_stars(policy.limits(), &mut pairs, warnings);
    always_replaced(policy.limits(), warnings);
    beyond_the_first_descriptor(policy.limits(), warnings);
    missing_key_fields(policy, &mut pairs, warnings);
}

fn warn(limit: &DraftLimit, message: String, help: String, warnings: &mut Problems) {
    warnings.add(|| Problem::new(&limit.place, message).help(help));
}

fn unreachable(limit: &Limit, why: &str, help: String, warnings: &mut Problems) {
    warn(limit.draft(), format!("limit {:?} never applies: {why}", limit.name()), help, warnings);
}

/// Warns of limits with entries that no descriptor reaches, because an earlier text with stars matches first.
fn behind_stars(limits: &[Limit], pairs: &mut usize, warnings: &mut Problems) {
    let with_entries = || limits.iter().filter(|limit| !limit.entries().is_empty());
    let mut stars: HashMap<(&str, Vec<&str>), Vec<&str>> = HashMap::new();
    let mut covered: HashMap<(&str, Vec<&str>), &str> = HashMap::new();
    let mut seen: HashSet<(&str, Vec<&str>)> = HashSet::new();
    for limit in with_entries() {
        let texts: Vec<&str> = limit.entries().iter().map(|entry| entry.text.as_str()).collect();
        for (level, text) in texts.iter().enumerate() {
            let place = (limit.domain(), texts[..=level].to_vec());
            if !text.contains('*') || !seen.insert(place.clone()) {
                continue;
            }
            let earlier = stars.entry((limit.domain(), texts[..level].to_vec())).or_default();
            if let Some(first) = first_covering(earlier, text, pairs) {
                covered.insert(place, first);
            }
            earlier.push(text);
        }
    }
    for limit in with_entries() {
        let texts: Vec<&str> = limit.entries().iter().map(|entry| entry.text.as_str()).collect();
        let found = (0..texts.len()).find_map(|level| {
            let key_only = !texts[level].contains(['*', '_']);
            let with_value = format!("{}_*", texts[level]);
            let siblings = stars.get(&(limit.domain(), texts[..level].to_vec())).filter(|_| key_only);
            let by_key = siblings.and_then(|siblings| first_covering(siblings, &with_value, pairs));
            let first = by_key.or_else(|| covered.get(&(limit.domain(), texts[..=level].to_vec())).copied());
            first.map(|first| (texts[level], first))
        });
        if let Some((text, first)) = found {
            let why = format!("{first:?} already matches everything that {text:?} matches");
            unreachable(limit, &why, format!("remove it, or make {first:?} match less"), warnings);
        }
    }
}

/// Returns the first of these texts with stars that matches all that `text` matches.
fn first_covering<'t>(earlier: &[&'t str], text: &str, pairs: &mut usize) -> Option<&'t str> {
    let covers = |other: &&&str| {
        *pairs = pairs.saturating_sub(1);
        *pairs > 0 && is_within(text, &Pattern::new(**other))
    };
    earlier.iter().find(covers).copied()
}

/// Whether a pattern matches all that a text with stars matches. Each star is replaced by a character that only a star can match.
fn is_within(text: &str, pattern: &Pattern) -> bool {
    pattern.matches(text.replace('*', "\0").as_bytes())
}

/// Warns of limits that another limit replaces wherever they apply.
fn always_replaced(limits: &[Limit], warnings: &mut Problems) {
    let mut told: HashSet<u32> = HashSet::new();
    for by in
        limits.iter().filter(|by| by.entries().is_empty() && by.mode() != Mode::Off && !has_expressions(by))
    {
        for &rank in by.replaces() {
            let limit = &limits[rank as usize];
            let may = by.mode() == Mode::Enforce || limit.mode() == Mode::Shadow;
            let is_met = by.clauses().iter().all(|(field, condition)| {
                limit.clauses().iter().any(|(own, narrower)| own == field && implies(narrower, condition))
            });
            if may && is_met && limit.entries().is_empty() && told.insert(rank) {
                let why = format!("{:?} always applies as well and replaces it", by.name());
                unreachable(limit, &why, format!("remove it, or give {:?} a condition", by.name()), warnings);
            }
        }
    }
}

fn has_expressions(limit: &Limit) -> bool {
    !limit.draft().when.is_empty() || limit.draft().key_expressions().next().is_some()
}

/// Whether one condition on a field holds wherever another does.
fn implies(narrower: &Condition, wider: &Condition) -> bool {
    match (narrower, wider) {
        (Condition::AnyOf(tests), Condition::AnyOf(others)) => tests.iter().all(|test| match test {
            Test::Is(text) => wider.holds(Some(text.as_bytes())),
            Test::Like(pattern) => {
                let covers =
                    |other: &Test| matches!(other, Test::Like(wider) if is_within(pattern.as_str(), wider));
                others.iter().any(covers)
            }
            Test::In(net) => others.iter().any(|other| match other {
                Test::In(wider) => wider.contains(net),
                Test::Like(pattern) => pattern.as_str() == "*",
                Test::Is(_) => false,
            }),
        }),
        (Condition::Absent, Condition::Absent) => true,
        _ => false,
    }
}

/// Warns of expressions that read a second descriptor in limits that see only one.
fn beyond_the_first_descriptor(limits: &[Limit], warnings: &mut Problems) {
    for limit in limits.iter().filter(|limit| !limit.is_once()) {
        let draft = limit.draft();
        let beyond = draft.when.iter().chain(draft.key_expressions()).find(|one| sees_another(one.text()));
        if let Some(expression) = beyond {
            let message =
                format!("limit {:?} never applies: expressions see only descriptors[0]", limit.name());
            let help = "write limitador.once = true to see all descriptors of a request".to_owned();
            warnings.add(|| Problem::new(expression.place(), message).help(help));
        }
    }
}

/// Whether an expression cannot do without `descriptors[1]` or a later one.
fn sees_another(expression: &str) -> bool {
    let is_choice = expression.contains("||") || expression.contains('?');
    let mut numbers = expression.split("descriptors[").skip(1).filter_map(|rest| rest.split(']').next());
    !is_choice && numbers.any(|number| number.trim().parse::<u32>().is_ok_and(|number| number > 0))
}

/// Warns of key fields without which no limit applies to a call. Each field is considered alone: the call lacks that field and has
/// all others that the keys of its domain need.
fn missing_key_fields(policy: &Policy, pairs: &mut usize, warnings: &mut Problems) {
    let mut by_domain: HashMap<&str, Vec<&Limit>> = HashMap::new();
    for limit in
        policy.limits().iter().filter(|limit| limit.entries().is_empty() && limit.mode() == Mode::Enforce)
    {
        by_domain.entry(limit.domain()).or_default().push(limit);
    }
    let mut told: HashSet<(&str, &str)> = HashSet::new();
    for limit in policy.limits().iter().filter(|limit| is_ours(limit) && limit.mode() == Mode::Enforce) {
        let is_strict = policy.unmatched(limit.domain()) == Some(Unmatched::Deny);
        let others = by_domain.get(limit.domain()).map(Vec::as_slice).unwrap_or_default();
        let draft = limit.draft();
        let is_asked = |field: &str| draft.conditions.iter().any(|(name, _)| name == field);
        let fields = draft.key_fields().filter(|field| !is_asked(field));
        for field in fields.filter(|_| !is_strict && !limit.rates()[0].is_unlimited()) {
            let mut covers = |other: &&Limit| {
                *pairs = pairs.saturating_sub(1);
                *pairs == 0 || applies_without(field, draft, other.draft())
            };
            if !others.iter().any(&mut covers) && told.insert((limit.domain(), field)) {
                let message = format!(
                    "requests without the field {field:?} are not limited by {:?} or any other limit",
                    limit.name()
                );
                let help = format!(
                    "add a limit with match.{} = {{ absent = true }}, or write unmatched = \"deny\" at the top of the file",
                    toml_key(field)
                );
                warn(draft, message, help, warnings);
            }
        }
    }
}

fn is_ours(limit: &Limit) -> bool {
    limit.draft().place.source().is_none_or(|source| Format::of(source) == Format::Native)
}

/// Whether a limit applies to the calls that another would apply to, had they the field.
fn applies_without(field: &str, limit: &DraftLimit, other: &DraftLimit) -> bool {
    let of =
        |name: &str| limit.conditions.iter().find(|(own, _)| own == name).map(|(_, condition)| condition);
    let holds = |(name, condition): &(String, Condition)| {
        if name == field {
            return *condition == Condition::Absent;
        }
        let is_there = || limit.key_fields().any(|own| own == name) && *condition == Condition::present();
        of(name).map_or_else(is_there, |narrower| implies(narrower, condition))
    };
    other.when.iter().all(|condition| limit.when.contains(condition))
        && other.key_fields().all(|name| name != field)
        && other.conditions.iter().all(holds)
}
