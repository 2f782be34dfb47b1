//! `CL.THROTTLE` as redis-cell has it, and `THROTTLE` as throttlecrab has it.

use tollgate::Quota;
use tollgate::store::{Mode, Store};

use super::cell::{Cell, Outcome, seconds_down, seconds_of_cell};
use super::reply::{Quoted, Replies};
use super::request::Arguments;
use super::session::{MAX_KEY_BYTES, check_key};
use crate::access::{Scope, Scopes};
use crate::engine::{AskError, Clerk, Family, Own};

/// The limits that callers supply. The two commands mean different things by a burst, so a key of one is not a key of the other.
const CL_THROTTLE: Family = Family::new("@cl.throttle");
const THROTTLE: Family = Family::new("@throttle");

const USAGE: &str =
    "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";

/// `CL.THROTTLE key max_burst count period [quantity]`. A refund needs the scope `settle`.
#[inline]
pub(super) async fn cl_throttle<S: Store>(
    clerk: &mut Clerk<S>,
    scopes: Scopes,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) {
    let asked = match Numbers::read(arguments) {
        Ok(asked) => asked,
        Err(Unread::Count) => return replies.error(USAGE),
        Err(Unread::Number(text)) => {
            return replies
                .error(format_args!("Cell error: Store error: Couldn't parse as integer: {}", Quoted(text)));
        }
    };
    let Numbers { key, max_burst, count, period, quantity } = asked;
    if !check_key(key, replies) {
        return;
    }
    if quantity < 0 && !scopes.has(Scope::Settle) {
        return replies.error("NOPERM a negative quantity needs the scope settle");
    }
    let Some(cell) = Cell::new(max_burst.saturating_add(1), count, period, quantity) else {
        let wrong = if count > 0 && period > 0 { "Rates above 1000000000 per second" } else { "Zero rates" };
        return replies.error(format_args!("Cell error: Store error: {wrong} are not supported"));
    };
    match decide(clerk, CL_THROTTLE, key, cell).await {
        Ok(outcome) => tell_as_cell(&outcome, replies),
        Err(error) => replies.ask_error_as("Cell error: Store error:", &error),
    }
}

/// Answers `CL.THROTTLE` if it takes something and the store can tell at once, as most do. `None` says nothing and did nothing.
/// There is no future to be made for that, which would take a tenth of the time.
#[inline]
pub(super) fn cl_throttle_now<S: Store>(
    clerk: &mut Clerk<S>,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) -> Option<()> {
    let Numbers { key, max_burst, count, period, quantity } = Numbers::read(arguments).ok()?;
    if quantity <= 0 || key.len() > MAX_KEY_BYTES {
        return None;
    }
    let cell = Cell::new(max_burst.saturating_add(1), count, period, quantity)?;
    let cost = quantity.unsigned_abs();
    let decision = clerk.decide_own_now(Mode::Take, Own::floating(CL_THROTTLE, cell.quota()), key, cost)?;
    tell_as_cell(&cell.taken(&decision), replies);
    Some(())
}

#[inline]
fn tell_as_cell(outcome: &Outcome, replies: &mut Replies) {
    let Outcome { is_limited, limit, remaining, retry_after, reset_after } = *outcome;
    replies.array(5);
    replies.integer(i64::from(is_limited));
    replies.integer(limit);
    replies.integer(remaining);
    replies.integer(retry_after.map_or(-1, seconds_of_cell));
    replies.integer(seconds_of_cell(reset_after));
}

/// `THROTTLE key max_burst count period [quantity]`.
pub(super) async fn throttle<S: Store>(
    clerk: &mut Clerk<S>,
    arguments: Arguments<'_>,
    replies: &mut Replies,
) {
    let asked = match Numbers::read(arguments) {
        Ok(asked) => asked,
        Err(Unread::Count) => return replies.error("ERR wrong number of arguments for 'throttle' command"),
        Err(Unread::Number(text)) => {
            return replies
                .error(format_args!("ERR value is not an integer or out of range: '{}'", Quoted(text)));
        }
    };
    let Numbers { key, max_burst, count, period, quantity } = asked;
    if !check_key(key, replies) {
        return;
    }
    if max_burst <= 0 || count <= 0 || period <= 0 {
        return replies.error("ERR max_burst, count and period must be positive");
    }
    if quantity < 0 {
        return replies.error("ERR quantity must not be negative");
    }
    let Some(cell) = Cell::new(max_burst, count, period, quantity) else {
        return replies.error("ERR count must not be above 1000000000 per second");
    };
    let outcome = match decide(clerk, THROTTLE, key, cell).await {
        Ok(outcome) => outcome,
        Err(error) => return replies.ask_error(&error),
    };
    let Outcome { is_limited, limit, remaining, retry_after, reset_after } = outcome;
    let retry_after = match retry_after {
        Some(wait) => seconds_down(wait),
        None if is_limited => -1, // no wait can help
        None => 0,
    };
    replies.array(5);
    for number in [i64::from(!is_limited), limit, remaining, seconds_down(reset_after), retry_after] {
        replies.integer(number);
    }
}

/// Tells that a command that begins like `CL.THROTTLE` comes next.
#[inline]
pub(super) fn prepare_cl_throttle<S: Store>(clerk: &Clerk<S>, arguments: Arguments<'_>) {
    if let Some(key) = arguments.get(1) {
        clerk.prepare_own(Own::floating(CL_THROTTLE, Quota::UNLIMITED), key); // the same state for any quota
    }
}

/// Takes, looks or gives back, as the quantity says.
#[inline]
async fn decide<S: Store>(
    clerk: &mut Clerk<S>,
    family: Family,
    key: &[u8],
    cell: Cell,
) -> Result<Outcome, AskError> {
    let (own, quantity) = (Own::floating(family, cell.quota()), cell.quantity.unsigned_abs());
    if cell.quantity > 0 {
        return Ok(cell.taken(&clerk.decide_own(Mode::Take, own, key, quantity).await?));
    }
    let before = cell.looked(&clerk.decide_own(Mode::Peek, own, key, 0).await?);
    if cell.quantity == 0 || before.is_limited {
        return Ok(before);
    }
    Ok(cell.given_back(&clerk.decide_own(Mode::Refund, own, key, quantity).await?))
}

/// What a command says, as numbers.
struct Numbers<'a> {
    key: &'a [u8],
    max_burst: i64,
    count: i64,
    period: i64,
    quantity: i64,
}

/// Why it does not.
enum Unread<'a> {
    Count,
    Number(&'a [u8]),
}

impl<'a> Numbers<'a> {
    #[inline]
    fn read(arguments: Arguments<'a>) -> Result<Self, Unread<'a>> {
        if !(5..=6).contains(&arguments.len()) {
            return Err(Unread::Count);
        }
        let text = |place: usize| arguments.get(place).unwrap_or_default();
        let number = |place: usize| number(text(place)).ok_or(Unread::Number(text(place)));
        Ok(Self {
            key: text(1),
            max_burst: number(2)?,
            count: number(3)?,
            period: number(4)?,
            quantity: if arguments.len() == 6 { number(5)? } else { 1 },
        })
    }
}

/// A whole number as these commands have always read them: a plus and zeros in front are fine.
#[inline]
fn number(text: &[u8]) -> Option<i64> {
    short_number(text).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
}

/// Some digits that cannot be too many. Most numbers are.
#[inline]
fn short_number(text: &[u8]) -> Option<i64> {
    if !(1..=18).contains(&text.len()) {
        return None;
    }
    let mut number = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them() {
        for text in [
            "",
            "0",
            "7",
            "007",
            "+7",
            "-7",
            "--7",
            "1x",
            "x",
            "999999999999999999",
            "1000000000000000000",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "1 ",
        ] {
            assert_eq!(number(text.as_bytes()), text.parse().ok(), "{text:?}");
        }
        assert_eq!(number(b"1\xff"), None);
    }
}
