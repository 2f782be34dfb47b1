//! `TG.ALLOW`: decides by a limit that is sent with the command.

use tollgate::store::{Mode, Store};
use tollgate::{Quota, QuotaError};

use super::reply::{Quoted, Replies};
use super::request::Arguments;
use super::session::{MAX_KEY_BYTES, check_key, number, wrong_count};
use crate::engine::{Clerk, Family, Own, Reset, Subject};

/// The limits that callers supply.
const FAMILY: Family = Family::new("@tg.allow");

/// The longest limit that is read, in bytes.
const LONGEST_LIMIT: usize = 100;

/// The limit that a caller wrote last, and will mostly write again: it need not be read twice.
#[derive(Debug, Default)]
pub(super) struct Remembered(Option<(Box<[u8]>, Quota)>);

impl Remembered {
    #[inline]
    fn read(&mut self, text: &[u8]) -> Result<Quota, String> {
        match &self.0 {
            Some((known, quota)) if **known == *text => Ok(*quota),
            _ => self.read_new(text),
        }
    }

    #[cold]
    fn read_new(&mut self, text: &[u8]) -> Result<Quota, String> {
        let readable = std::str::from_utf8(text).ok().filter(|text| text.len() <= LONGEST_LIMIT);
        let Some(readable) = readable else {
            return Err(format!(
                "limit must be a rate such as 10/s or 600/min burst 50, not '{}'",
                Quoted(text)
            ));
        };
        let quota: Quota = readable.parse().map_err(|error: QuotaError| error.to_string())?;
        self.0 = Some((text.into(), quota));
        Ok(quota)
    }
}

/// `TG.ALLOW key limit [cost]`: 1 if a limit such as `10/s` allows the cost, which is then counted; else 0.
pub(super) async fn allow<S: Store>(
    clerk: &mut Clerk<S>,
    remembered: &mut Remembered,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) {
    let Some((key, limit, cost)) = words(arguments) else {
        return wrong_count("tg.allow", replies);
    };
    if !check_key(key, replies) {
        return;
    }
    let quota = match remembered.read(limit) {
        Ok(quota) => quota,
        Err(why) => return replies.error(format_args!("ERR {why}")),
    };
    let Some(cost) = number(cost) else {
        let (most, cost) = (u64::MAX, Quoted(cost));
        return replies.error(format_args!("ERR cost must be a whole number from 0 to {most}, not '{cost}'"));
    };
    match clerk.decide_own(Mode::Take, Own::fixed(FAMILY, quota), key, cost).await {
        Ok(decision) => replies.boolean(decision.is_admitted()),
        Err(error) => replies.ask_error(&error),
    }
}

/// `TG.RESET ALLOW key limit`: 1 if there was a counter. Returns the limits that were reset.
pub(super) async fn reset<S: Store>(
    clerk: &mut Clerk<S>,
    remembered: &mut Remembered,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) -> Vec<Reset> {
    let mut resets = Vec::new();
    let Some((key, limit, _)) = words(arguments.from(1)) else {
        wrong_count("tg.reset", replies);
        return resets;
    };
    let quota = match remembered.read(limit) {
        Ok(quota) => quota,
        Err(why) => {
            replies.error(format_args!("ERR {why}"));
            return resets;
        }
    };
    let opened = clerk.open_own(Own::fixed(FAMILY, quota));
    match clerk.engine().reset(&Subject::Limit(&opened, key), &mut resets).await {
        Ok(()) => replies.integer(i64::from(resets.iter().any(|reset| reset.was_known))),
        Err(error) => replies.unavailable(&error),
    }
    resets
}

/// Whether what [`allow`] counted is to be reset: `ALLOW` and two more words are no fields with values.
pub(super) fn is_reset(arguments: Arguments<'_>) -> bool {
    arguments.len() == 4 && arguments.get(1) == Some(b"ALLOW")
}

/// What [`allow`] answers, if there is nothing to complain about and the store can tell at once. `None` says nothing and did
/// nothing.
#[inline]
pub(super) fn allow_now<S: Store>(
    clerk: &mut Clerk<S>,
    remembered: &mut Remembered,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) -> Option<()> {
    let (key, limit, cost) = words(arguments)?;
    if key.len() > MAX_KEY_BYTES {
        return None;
    }
    let (quota, cost) = (remembered.read(limit).ok()?, number(cost)?);
    let decision = clerk.decide_own_now(Mode::Take, Own::fixed(FAMILY, quota), key, cost)?;
    replies.boolean(decision.is_admitted());
    Some(())
}

/// Tells the clerk whose state the next command will be about, if its limit is the one before.
#[inline]
pub(super) fn prepare<S: Store>(clerk: &Clerk<S>, remembered: &Remembered, arguments: Arguments<'_>) {
    if let (Some(key), Some((_, quota))) = (arguments.get(1), &remembered.0) {
        clerk.prepare_own(Own::fixed(FAMILY, *quota), key);
    }
}

/// The key, the limit and the cost.
#[inline]
fn words(arguments: Arguments<'_>) -> Option<(&[u8], &[u8], &[u8])> {
    let words = (arguments.get(1)?, arguments.get(2)?, arguments.get(3).unwrap_or(b"1"));
    (arguments.len() <= 4).then_some(words)
}
