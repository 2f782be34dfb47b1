//! The header fields of draft-polli-ratelimit-headers-03, as limitador writes them.

use std::fmt::Write as _;

use crate::engine::{Finding, Ruling};
use crate::rls::{until_reset, whole_seconds};

/// Returns `X-RateLimit-Limit` with all limits, and `X-RateLimit-Remaining` and `X-RateLimit-Reset` of the limit with the least
/// left. Limits in shadow mode are left out if others apply. No field is returned if no limit applies.
pub(crate) fn fields(ruling: &Ruling<'_>) -> Vec<(&'static str, String)> {
    let has_enforced = ruling.findings().iter().any(|finding| !finding.is_shadow);
    let mut all: Vec<&Finding<'_>> =
        ruling.findings().iter().filter(|finding| !(has_enforced && finding.is_shadow)).collect();
    all.sort_by_key(|finding| finding.decision.remaining());
    let Some(first) = all.first() else { return Vec::new() };
    let quota = first.limit.rule.quotas()[first.quota];
    let mut limit = quota.count().to_string();
    for finding in &all {
        push_policy(&mut limit, finding);
    }
    vec![
        ("X-RateLimit-Limit", limit),
        ("X-RateLimit-Remaining", first.decision.remaining().to_string()),
        ("X-RateLimit-Reset", whole_seconds(until_reset(first, quota)).to_string()),
    ]
}

/// Adds `, 10;w=60;name="toys"`.
fn push_policy(text: &mut String, finding: &Finding<'_>) {
    let quota = finding.limit.rule.quotas()[finding.quota];
    let _ = write!(text, ", {};w={}", quota.count(), quota.period().as_secs());
    if let Some(name) = &finding.limit.label {
        let _ = write!(text, ";name=\"{}\"", quotable(name));
    }
}

/// A name without the characters that would end the text in quotes, or that header fields do not have.
fn quotable(name: &str) -> String {
    let safe = |c: char| match c {
        '"' => '\'',
        ' '..='~' => c,
        _ => '?',
    };
    name.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotable_names_keep_what_header_fields_can_have() {
        assert_eq!(quotable("Toys \"per\" user"), "Toys 'per' user");
        assert_eq!(quotable("a\r\nSet-Cookie: é"), "a??Set-Cookie: ?");
    }
}
