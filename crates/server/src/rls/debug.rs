//! The pages of the debug port of envoyproxy/ratelimit.

use std::fmt::Write as _;

use tollgate::Quota;
use tollgate::store::Store;
use tollgate_policy::{Limit, Mode, Policy};

use super::proto::Unit;
use crate::engine::{Counter, Engine, Statistics};

/// The page `/rlconfig`: a line for each limit of the policy.
pub(crate) fn config(policy: &Policy) -> String {
    let mut page = String::new();
    for limit in policy.limits().iter().filter(|limit| limit.mode() != Mode::Off) {
        for quota in limit.rates()[0].quotas() {
            let (unit, requests) = unit_and_requests(*quota);
            let is_shadow = limit.mode() == Mode::Shadow;
            let _ = writeln!(
                page,
                "{}: unit={} requests_per_unit={requests}, shadow_mode: {is_shadow}",
                path(limit),
                unit.name()
            );
        }
    }
    page
}

/// The page `/stats`: a line for each counter of each limit. It is empty if the engine does not count them.
pub(crate) fn stats<S: Store>(engine: &Engine<S>) -> String {
    let mut page = String::new();
    let limits = engine.statistics().map(Statistics::limits).unwrap_or_default();
    for (limit, counts) in limits {
        for counter in Counter::ALL {
            let (name, count) = (counter.name(), counts[counter as usize]);
            let _ = writeln!(page, "ratelimit.service.rate_limit.{limit}.{name}: {count}");
        }
    }
    page
}

/// The domain and the entries of a limit, or its name if it has no entries, with dots between them.
fn path(limit: &Limit) -> String {
    let entries: Vec<&str> = limit.entries().iter().map(|entry| entry.text.as_str()).collect();
    let within = if entries.is_empty() { limit.name().to_owned() } else { entries.join(".") };
    format!("{}.{within}", limit.domain())
}

/// An unlimited limit has no unit and no requests there.
fn unit_and_requests(quota: Quota) -> (Unit, u64) {
    if quota.is_unlimited() { (Unit::Unknown, 0) } else { (Unit::of(quota.period()), quota.count()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 26.6: the page has the lines that envoyproxy/ratelimit writes.
    #[test]
    fn config_has_a_line_for_each_limit() {
        let file = "domain: web
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: /login
    descriptors:
      - key: user
        shadow_mode: true
        rate_limit: {unit: week, requests_per_unit: 5, name: logins}
  - key: path
    value: /free
    rate_limit: {unlimited: true}
  - key: listed
";
        let policy = Policy::parse("web.yaml", file).unwrap();
        let page = config(&policy);
        let mut lines: Vec<&str> = page.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "web.path_/free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false",
                "web.path_/login.user: unit=WEEK requests_per_unit=5, shadow_mode: true",
                "web.remote_address: unit=MINUTE requests_per_unit=3, shadow_mode: false",
            ]
        );
    }
}
