//! What is left of what.

use std::time::Duration;

/// One budget of a service, as far as an answer describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Its name; empty if it has none.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// How much there is in all.
    pub limit: Option<u64>,
    /// How much is left.
    pub remaining: Option<u64>,
    /// The span that the limit is for.
    pub window: Option<Duration>,
    /// When there will be more.
    pub resets_in: Option<Duration>,
    /// How it comes back.
    pub refill: Refill,
}

/// What a budget counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Calls.
    #[default]
    Requests,
    /// Calls that are going on at the same time.
    Concurrent,
    /// Bytes of content.
    Bytes,
    /// Tokens of a language model.
    Tokens,
    /// Something that we do not know.
    Other,
}

/// How a budget comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refill {
    /// All of it, or at least some, at the end of [`resets_in`](Budget::resets_in).
    #[default]
    AtOnce,
    /// Steadily, so that it is full at the end of [`resets_in`](Budget::resets_in).
    Steady,
}

/// A reset that is said in whole seconds may be nearer by almost this much.
const GRAIN: Duration = Duration::from_secs(1);

impl Budget {
    /// Whether nothing is left.
    pub fn is_exhausted(&self) -> bool {
        self.remaining == Some(0)
    }

    /// The rate per second at which the budget can be used for good, if it tells.
    ///
    /// - With a window: limit / window.
    /// - If it refills steadily: what is missing / the time until it is full.
    /// - Otherwise what is left, spread over the time until the reset. That time is taken to be a second shorter, since it is
    ///   usually told in whole seconds, rounded up; a second or less tells nothing.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use http::{HeaderMap, StatusCode};
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-ratelimit-remaining", "4800".parse()?);
    /// headers.insert("x-ratelimit-reset", "2401".parse()?); // seconds
    /// let advice = tollgate_http::read(StatusCode::OK, &headers, b"", SystemTime::UNIX_EPOCH);
    /// assert_eq!(advice.budgets[0].rate(), Some(2.0));
    /// # Ok::<(), http::header::InvalidHeaderValue>(())
    /// ```
    pub fn rate(&self) -> Option<f64> {
        if self.unit == Unit::Concurrent {
            return None;
        }
        match (self.limit, self.window, self.remaining, self.resets_in) {
            (Some(limit), Some(window), ..) => per(limit, window),
            (Some(limit), None, Some(left), Some(full_in)) if self.refill == Refill::Steady => {
                (left < limit).then(|| per(limit - left, full_in)).flatten()
            }
            (_, None, Some(left), Some(reset)) if self.refill == Refill::AtOnce => {
                per(left, reset.saturating_sub(GRAIN))
            }
            _ => None,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate need not be known to 16 digits")]
fn per(count: u64, span: Duration) -> Option<f64> {
    (!span.is_zero()).then(|| count as f64 / span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn budget(limit: u64, remaining: u64, resets_in: Duration) -> Budget {
        let (limit, remaining, resets_in) = (Some(limit), Some(remaining), Some(resets_in));
        Budget { limit, remaining, resets_in, ..Budget::default() }
    }

    #[test]
    fn a_window_tells_the_rate_whatever_is_left() {
        let budget = Budget { window: Some(MINUTE), ..budget(90, 0, MINUTE) };
        assert_eq!(budget.rate(), Some(1.5));
    }

    #[test]
    fn without_a_window_what_is_left_is_spread_over_the_time_left() {
        assert_eq!(budget(5_000, 120, Duration::from_secs(61)).rate(), Some(2.0));
        assert_eq!(budget(5_000, 0, Duration::from_secs(61)).rate(), Some(0.0));
        assert_eq!(budget(50, 20, Duration::from_secs(1)).rate(), None);
    }

    #[test]
    fn what_refills_steadily_tells_its_rate_by_what_is_missing() {
        let steady = |left, full_in| Budget { refill: Refill::Steady, ..budget(60, left, full_in) };
        assert_eq!(steady(58, Duration::from_millis(500)).rate(), Some(4.0));
        assert_eq!(steady(60, Duration::ZERO).rate(), None);
        assert_eq!(steady(61, MINUTE).rate(), None);
    }

    #[test]
    fn how_many_at_once_is_no_rate() {
        let budget = Budget { unit: Unit::Concurrent, window: Some(MINUTE), ..budget(10, 0, MINUTE) };
        assert_eq!(budget.rate(), None);
    }
}
