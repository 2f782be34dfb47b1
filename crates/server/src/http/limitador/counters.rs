//! The counters of a namespace, as limitador shows them.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate::store::{Mode, Store, Top};
use tollgate_policy::{Limit, escaped};

use super::super::refusal::Refusal;
use super::limits::{LimitShown, of_namespace, variable};
use crate::engine::{Ask, Clerk};
use crate::rls::{until_reset, whole_seconds};

/// The most keys that the store is asked for.
const MOST: usize = 1_000;

/// A counter of a limit.
#[derive(Debug, Serialize)]
pub(super) struct Counter {
    limit: LimitShown,
    set_variables: BTreeMap<String, String>,
    remaining: u64,
    expires_in_seconds: u64,
}

/// Returns the counters of a namespace that have counted hits: those of limits without variables, and those of the busiest keys.
pub(super) async fn counters<S: Store>(
    clerk: &mut Clerk<S>,
    namespace: &str,
) -> Result<Vec<Counter>, Refusal> {
    let loaded = clerk.engine().loaded();
    let busiest = clerk.engine().store().busiest(Top::Asked, MOST).await.map_err(Refusal::store)?;
    let mut all = Vec::new();
    for limit in of_namespace(loaded.policy().limits(), namespace) {
        let is_of_limit = |domain: &str, name: &str| domain == namespace && name == limit.name();
        let mut keys: Vec<&[u8]> = match limit.key() {
            [] => vec![&b""[..]],
            _ => busiest
                .iter()
                .filter(|busy| is_of_limit(&busy.domain, &busy.name))
                .map(|busy| &busy.key[..])
                .collect(),
        };
        keys.sort_unstable();
        let opened = &loaded.opened()[limit.rates()[0].number()];
        for key in keys {
            let asks = [Ask::limit(opened, key).costing(0)];
            let ruling = clerk.decide(Mode::Peek, &asks).await.map_err(|error| Refusal::ask(&error, ""))?;
            let finding = &ruling.findings()[0];
            let (quota, remaining) = (limit.rates()[0].quotas()[0], finding.decision.remaining());
            if remaining < quota.count() {
                all.push(Counter {
                    limit: LimitShown::new(limit),
                    set_variables: set_variables(limit, key),
                    remaining,
                    expires_in_seconds: whole_seconds(until_reset(finding, quota)),
                });
            }
        }
    }
    Ok(all)
}

/// The variables of a limit, with their values in a key.
fn set_variables(limit: &Limit, key: &[u8]) -> BTreeMap<String, String> {
    let text = escaped(key);
    let values = if limit.key().len() < 2 { vec![text.into_owned()] } else { parts(&text) };
    limit.key().iter().map(variable).zip(values).collect()
}

/// The parts of a key, which have commas between them.
fn parts(key: &str) -> Vec<String> {
    let (mut parts, mut chars) = (vec![String::new()], key.chars());
    while let Some(c) = chars.next() {
        let part = parts.last_mut().expect("there is always one");
        match c {
            ',' => parts.push(String::new()),
            '\\' => part.extend(chars.next()),
            c => part.push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_of_a_key_are_split_at_commas_that_are_not_escaped() {
        assert_eq!(parts("ann\\,b,1,"), ["ann,b", "1", ""]);
        assert_eq!(parts("a\\\\,b"), ["a\\", "b"]);
    }
}
