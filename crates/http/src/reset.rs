//! When a budget comes back, in whatever way somebody wrote it.

use std::time::{Duration, SystemTime};

use crate::budget::Refill;
use crate::date::rfc3339;
use crate::duration::{go_duration, seconds_up_to};
use crate::field::number;

/// How a service writes the time of a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetForm {
    /// Whatever it looks like; this is right for every service we know of.
    ///
    /// A number from 10^11 up is a moment in milliseconds since 1970; from 10^9 up one in seconds; a smaller one is so many
    /// seconds from now. Else it may be a Go duration (`6m0s`), a moment by RFC 3339 or one of HTTP's dates.
    #[default]
    Guess,
    /// Seconds from now.
    Seconds,
    /// Seconds since 1970.
    Epoch,
    /// Milliseconds since 1970.
    EpochMillis,
}

const EPOCH_SECONDS: f64 = 1e9;
const EPOCH_MILLIS: f64 = 1e11;

/// What is known of the time: when the answer was written, and how far ahead anybody may look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reckoning {
    pub(crate) now: SystemTime,
    pub(crate) cap: Duration,
    pub(crate) form: ResetForm,
}

impl Reckoning {
    /// How long until the reset that `text` tells, and how the budget comes back by then.
    pub(crate) fn reset(&self, text: &str) -> Option<(Duration, Refill)> {
        if let Some(value) = number(text) {
            return Some((self.untyped(value), Refill::AtOnce));
        }
        if self.form != ResetForm::Guess {
            return None;
        }
        // Who writes durations (OpenAI) means the time until the budget is full.
        if let Some(span) = go_duration(text, self.cap) {
            return Some((span, Refill::Steady));
        }
        let moment = rfc3339(text).or_else(|| httpdate::parse_http_date(text).ok())?;
        Some((self.until(moment), Refill::AtOnce))
    }

    /// How long until `moment`.
    pub(crate) fn until(&self, moment: SystemTime) -> Duration {
        moment.duration_since(self.now).unwrap_or_default().min(self.cap)
    }

    fn untyped(&self, value: f64) -> Duration {
        match self.form {
            ResetForm::EpochMillis => self.until_unix(value / 1e3),
            ResetForm::Epoch => self.until_unix(value),
            ResetForm::Guess if value >= EPOCH_MILLIS => self.until_unix(value / 1e3),
            ResetForm::Guess if value >= EPOCH_SECONDS => self.until_unix(value),
            ResetForm::Seconds | ResetForm::Guess => seconds_up_to(value, self.cap),
        }
    }

    fn until_unix(&self, seconds: f64) -> Duration {
        let Ok(unix) = Duration::try_from_secs_f64(seconds) else {
            return self.cap;
        };
        SystemTime::UNIX_EPOCH.checked_add(unix).map_or(self.cap, |moment| self.until(moment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_794_735_000; // 2026-11-15T09:30:00Z
    const HOUR: Duration = Duration::from_secs(3_600);

    fn reset(form: ResetForm, text: &str) -> Option<(Duration, Refill)> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        Reckoning { now, cap: HOUR, form }.reset(text)
    }

    #[test]
    fn the_form_is_guessed() {
        use Refill::{AtOnce, Steady};
        let seconds = Duration::from_secs_f64;
        let cases = [
            ("0", seconds(0.0), AtOnce),
            ("30", seconds(30.0), AtOnce),
            ("1.5", seconds(1.5), AtOnce),
            ("999999999", HOUR, AtOnce),
            ("1794735060", seconds(60.0), AtOnce),
            ("1794735060.25", seconds(60.25), AtOnce),
            ("1794734000", seconds(0.0), AtOnce),
            ("1000000000", seconds(0.0), AtOnce),
            ("1794735060500", seconds(60.5), AtOnce),
            ("100000000000", seconds(0.0), AtOnce),
            ("6m0s", seconds(360.0), Steady),
            ("2026-11-15T09:31:00Z", seconds(60.0), AtOnce),
            ("2026-11-15T09:31Z", seconds(60.0), AtOnce),
            ("Sun, 15 Nov 2026 09:31:00 GMT", seconds(60.0), AtOnce),
            ("Sunday, 15-Nov-26 09:31:00 GMT", seconds(60.0), AtOnce),
            ("Sun Nov 15 09:31:00 2026", seconds(60.0), AtOnce),
        ];
        for (text, span, refill) in cases {
            let (found, how) = reset(ResetForm::Guess, text).unwrap_or_else(|| panic!("{text}"));
            assert!(found.abs_diff(span) < Duration::from_micros(1), "{text}: {found:?}");
            assert_eq!(how, refill, "{text}");
        }
    }

    #[test]
    fn garbage_is_none() {
        for text in ["", "soon", "-1", "T", "-", "1e9", "∞"] {
            assert_eq!(reset(ResetForm::Guess, text), None, "{text}");
        }
    }

    #[test]
    fn a_known_form_is_not_guessed() {
        let cases = [
            (ResetForm::Seconds, "1794735060", HOUR),
            (ResetForm::Epoch, "60", Duration::ZERO),
            (ResetForm::Epoch, "179473506000", HOUR),
            (ResetForm::EpochMillis, "1794735060500", Duration::from_millis(60_500)),
        ];
        for (form, text, span) in cases {
            assert_eq!(reset(form, text), Some((span, Refill::AtOnce)), "{form:?} {text}");
        }
        assert_eq!(reset(ResetForm::Seconds, "6m0s"), None);
    }

    #[test]
    fn a_moment_that_no_clock_can_tell_is_capped() {
        assert_eq!(reset(ResetForm::Guess, &"9".repeat(40)), Some((HOUR, Refill::AtOnce)));
        assert_eq!(reset(ResetForm::Guess, &"9".repeat(400)), Some((HOUR, Refill::AtOnce)));
    }
}
