//! Decisions by the policy: `TG.CHECK`, `TG.SETTLE`, `TG.RESET` and `TG.LIMITS`.

mod limits;
mod question;

use std::str::FromStr;
use std::time::Duration;

use tollgate::store::{Mode, Store};

use super::reply::{Quoted, Replies};
use super::request::Arguments;
use super::session::{NEEDS_HOLD, NEEDS_SETTLE, wrong_count};
use crate::access::{Scope, Scopes};
use crate::engine::{Actual, Ask, Clerk, PermitId, Reset, Ruling, SettleError, Subject};
pub(super) use limits::limits;
pub use question::MAX_FIELDS;
use question::{Act, Question};

/// `TG.CHECK [DOMAIN domain] [COST cost] [PEEK | COUNT | CHARGE | REFUND | HOLD duration] [FIELDS] field value …`.
/// `CHARGE` and `REFUND` need the scope `settle`, `HOLD` needs `hold`.
pub(super) async fn check<S: Store>(
    clerk: &mut Clerk<S>,
    scopes: Scopes,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) {
    let question = match Question::read("tg.check", arguments) {
        Ok(question) => question,
        Err(mistake) => return replies.error(mistake),
    };
    if matches!(question.act, Act::Decide(Mode::Charge | Mode::Refund)) && !scopes.has(Scope::Settle) {
        return replies.error(NEEDS_SETTLE);
    }
    if matches!(question.act, Act::Hold(_)) && !scopes.has(Scope::Hold) {
        return replies.error(NEEDS_HOLD);
    }
    let subject = Subject::Policy(question.domain, &question.fields);
    let asks = [Ask { cost: question.cost, ..Ask::new(subject) }];
    match question.act {
        Act::Decide(mode) => match clerk.decide(mode, &asks).await {
            Ok(ruling) => tell(&ruling, 0, replies),
            Err(error) => replies.ask_error(&error),
        },
        Act::Hold(span) => match clerk.hold(&asks, span).await {
            Ok((ruling, id)) => {
                tell(&ruling, 1, replies);
                replies.bulk(b"id");
                match id {
                    Some(id) => replies.bulk(id.to_string().as_bytes()),
                    None => replies.null(),
                }
            }
            Err(error) => replies.ask_error(&error),
        },
    }
}

/// Answers with what was decided, and leaves room for `more` pairs.
fn tell(ruling: &Ruling<'_>, more: usize, replies: &mut Replies) {
    replies.map(8 + more);
    replies.bulk(b"allowed");
    replies.boolean(ruling.is_allowed());
    let decider = ruling.decided_by();
    replies.bulk(b"limit");
    match decider {
        Some(finding) => replies.bulk(finding.limit.rule.name().as_bytes()),
        None => replies.null(),
    }
    replies.bulk(b"rate");
    match decider {
        Some(finding) => replies.bulk(finding.limit.rule.quotas()[finding.quota].to_string().as_bytes()),
        None => replies.null(),
    }
    replies.bulk(b"remaining");
    match decider {
        Some(finding) => replies.integer(i64::try_from(finding.decision.remaining()).unwrap_or(i64::MAX)),
        None => replies.null(),
    }
    let reset = decider.map_or(Some(Duration::ZERO), |finding| finding.decision.reset_after());
    let retry = if ruling.is_allowed() { Some(Duration::ZERO) } else { ruling.retry_after() };
    for (name, span) in
        [("retry_after_ms", retry), ("reset_after_ms", reset), ("delay_ms", Some(ruling.delay()))]
    {
        replies.bulk(name.as_bytes());
        replies.integer(span.map_or(-1, millis_up));
    }
    replies.bulk(b"degraded");
    replies.boolean(ruling.is_degraded());
}

/// In milliseconds, rounded up: whoever waits that long is not too early.
fn millis_up(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// `TG.SETTLE id actual` or `TG.SETTLE id FIELDS name actual …`: 1 if the hold was settled, 0 if it does not exist any more.
pub(super) async fn settle<S: Store>(clerk: &mut Clerk<S>, arguments: Arguments<'_>, replies: &mut Replies) {
    let (Some(id), Some(actual)) = (arguments.get(1), arguments.get(2)) else {
        return wrong_count("tg.settle", replies);
    };
    let is_by_field = actual == b"FIELDS";
    if arguments.len() != 3 && !is_by_field || arguments.len() == 3 && is_by_field {
        return wrong_count("tg.settle", replies);
    }
    let id = match PermitId::from_str(&Quoted(id).to_string()) {
        Ok(id) => id,
        Err(error) => return replies.error(format_args!("ERR {error}")),
    };
    let settled = if is_by_field {
        match question::actual_costs(arguments.from(3)) {
            Ok(costs) => clerk.engine().settle(id, Actual::Fields(&costs)).await,
            Err(mistake) => return replies.error(mistake),
        }
    } else {
        match question::actual_cost(actual) {
            Ok(cost) => clerk.engine().settle(id, Actual::Cost(cost)).await,
            Err(mistake) => return replies.error(mistake),
        }
    };
    match settled {
        Ok(was_held) => replies.integer(i64::from(was_held)),
        Err(error @ SettleError::Store(_)) => replies.unavailable(&error),
        Err(error) => replies.error(format_args!("ERR {error}")),
    }
}

/// `TG.RESET [DOMAIN domain] [FIELDS] field value …`: the number of limits that had a counter. Returns the limits that were reset.
pub(super) async fn reset<S: Store>(
    clerk: &mut Clerk<S>,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) -> Vec<Reset> {
    let mut resets = Vec::new();
    let question = match Question::read("tg.reset", arguments) {
        Ok(question) => question,
        Err(mistake) => {
            replies.error(mistake);
            return resets;
        }
    };
    if question.act != Act::Decide(Mode::Take) || question.cost.is_some() {
        replies.error("ERR tg.reset accepts only the options DOMAIN and FIELDS");
        return resets;
    }
    let subject = Subject::Policy(question.domain, &question.fields);
    match clerk.engine().reset(&subject, &mut resets).await {
        Ok(()) => {
            let known = resets.iter().filter(|reset| reset.was_known).count();
            replies.integer((known as u64).cast_signed());
        }
        Err(error) => replies.unavailable(&error),
    }
    resets
}
