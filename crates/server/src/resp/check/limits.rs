//! `TG.LIMITS`: the limits of the policy and their counters.

use tollgate::store::Store;

use super::super::reply::{Quoted, Replies};
use super::super::request::Arguments;
use super::super::session::number;
use crate::engine::{Clerk, Opened, Outcome};

/// The default and the maximum size of a page.
const PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;

/// The counters of each limit.
const COUNTED: [(&str, Outcome); 3] =
    [("allowed", Outcome::Allowed), ("denied", Outcome::Denied), ("shadow_denied", Outcome::ShadowDenied)];

/// `TG.LIMITS [offset [count]]`: the limits of the policy from the `offset`th on, at most `count` of them.
pub(in super::super) fn limits<S: Store>(clerk: &Clerk<S>, arguments: Arguments<'_>, replies: &mut Replies) {
    if arguments.len() > 3 {
        return super::wrong_count("tg.limits", replies);
    }
    let [mut offset, mut count] = [0, PAGE];
    for (place, name, into) in [(1, "offset", &mut offset), (2, "count", &mut count)] {
        let Some(text) = arguments.get(place) else { continue };
        let Some(number) = number(text) else {
            return replies.error(format_args!("ERR {name} must be a whole number, not '{}'", Quoted(text)));
        };
        *into = usize::try_from(number).unwrap_or(usize::MAX);
    }
    let loaded = clerk.engine().loaded();
    let opened = loaded.opened();
    let page = &opened[offset.min(opened.len())..];
    let page = &page[..page.len().min(count).min(LONGEST_PAGE)];
    replies.array(page.len());
    for limit in page {
        tell(limit, replies);
    }
}

fn tell<S: Store>(limit: &Opened<S>, replies: &mut Replies) {
    let told = limit.told();
    replies.map(4 + COUNTED.len());
    let pairs =
        [("domain", told.rule.domain()), ("name", told.rule.name()), ("algorithm", told.rule.kind().name())];
    for (name, value) in pairs {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"rates");
    replies.array(told.rule.quotas().len());
    for quota in told.rule.quotas() {
        replies.bulk(quota.to_string().as_bytes());
    }
    for (name, outcome) in COUNTED {
        replies.bulk(name.as_bytes());
        replies.integer(i64::try_from(told.tally().calls(outcome)).unwrap_or(i64::MAX));
    }
}
