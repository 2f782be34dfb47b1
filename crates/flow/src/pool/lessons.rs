//! Those who learn from attempts.

use std::time::Duration;

use super::control::Control;
use super::observer::{Attempted, Observer};
use crate::{AdaptiveLimit, Again, Elapsed, Fault, Feedback, Finish, Heart};

/// It beats when an attempt begins. Where jobs are long, or a run may be held, let the reader beat as well:
/// `heart.beating(outcomes.next()).await`.
impl Observer for Heart {
    fn begins(&self) {
        self.begin_unit();
    }
}

/// Successes count with the time they took. What took too long, or says that it may work later ([`Again::Later`],
/// [`Again::After`]), counts as dropped; other faults say nothing of the other side's capacity.
impl Observer for AdaptiveLimit {
    fn ended(&self, attempt: &Attempted<'_>, _: &Control) {
        let finish = match attempt.fault {
            None => Finish::Success,
            Some(fault) if is_drop(fault) => Finish::Dropped,
            Some(_) => Finish::Ignored,
        };
        self.report(attempt.took, finish);
    }
}

fn is_drop(fault: &Fault) -> bool {
    matches!(fault.again(), Again::Later | Again::After(_)) || fault.find::<Elapsed>().is_some()
}

/// Successes raise the rate. A fault that says to come back later is a refusal ([`Again::Later`], [`Again::After`]): it lowers
/// the rate, and stops the limiter until then if it says when. Other faults say nothing about the rate.
///
/// For an upstream whose answers say more than that, such as by `RateLimit` fields, let the work call
/// [`Feedback::read`] instead, and not both.
impl Observer for Feedback {
    fn ended(&self, attempt: &Attempted<'_>, _: &Control) {
        match attempt.fault.map(Fault::again) {
            None => self.hear_attempt(attempt.took, attempt.cost, None),
            Some(Again::After(wait)) => self.hear_attempt(attempt.took, attempt.cost, Some(wait)),
            Some(Again::Later) => self.hear_attempt(attempt.took, attempt.cost, Some(Duration::ZERO)),
            Some(_) => {}
        }
    }
}
