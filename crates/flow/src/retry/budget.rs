//! How many retries there may be for all that is asked: in an outage every call fails, and retries must not multiply them.
//!
//! Credits are counted in billionths of a retry, so that a rate of r per second gives exactly r of them each nanosecond.
//! What requests earned lies in a ring of ten slots, each a tenth of a credit's life; what comes with time is one number
//! that stops growing at a life's worth, which is the same as each credit expiring.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::Tick;

use crate::Time;

/// Keeps retries to a share of the requests, however many calls fail: who finds it empty does not retry.
///
/// A limit on the tries of each call alone is no protection. In an outage three tries each are three times the load,
/// just when the other side can bear the least. A budget looks at all calls together: each request earns a share of a retry,
/// and a few come with time, so that callers of few requests can retry at all. Credits not used in time expire.
///
/// Over any span T, retries are at most `share` of the requests made in T and in the `lasting` before it, plus `per_second` · T,
/// plus a reserve of `per_second` · `lasting`: by default 20 % of the requests, plus 10 per second, plus 100. In the long run
/// that is 20 % and 10 per second. What requests earned lives between nine tenths of `lasting` and all of it.
///
/// Clones share one budget, and so may several [`Retry`](crate::Retry) policies. Its memory does not grow.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::retry::Allowance;
/// use tollgate_flow::{RetryBudget, Time};
/// # use tollgate::ManualClock;
/// # let (clock, time) = { let clock = ManualClock::new(); (clock.clone(), Time::of(clock)) };
///
/// let budget = RetryBudget::of(time, Allowance { share: 0.5, per_second: 0, ..Allowance::default() });
/// assert!(!budget.withdraw()); // nothing was asked yet
/// budget.deposit();
/// budget.deposit();
/// assert!(budget.withdraw()); // one retry for two requests
/// assert!(!budget.withdraw());
/// ```
#[derive(Clone)]
pub struct RetryBudget {
    time: Time,
    ledger: Arc<Mutex<Ledger>>,
}

/// The figures of a [`RetryBudget`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Retries for each request, 0 to 1.
    pub share: f64,
    /// Retries for each second, whatever is requested.
    pub per_second: u32,
    /// How long either may be used.
    pub lasting: Duration,
}

impl Default for Allowance {
    /// A fifth of the requests and 10 per second, to be used within 10 s.
    fn default() -> Self {
        Self { share: 0.2, per_second: 10, lasting: Duration::from_secs(10) }
    }
}

impl RetryBudget {
    /// A budget with the default [`Allowance`].
    pub fn new(time: Time) -> Self {
        Self::of(time, Allowance::default())
    }

    /// A budget with these figures. It starts with its reserve full.
    ///
    /// # Panics
    /// If the share is not within 0 and 1.
    pub fn of(time: Time, allowance: Allowance) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger::new(allowance, time.now())));
        Self { time, ledger }
    }

    /// A request is made, for the first time.
    pub fn deposit(&self) {
        self.ledger().deposit(self.time.now());
    }

    /// Pays for a retry, if there is enough; a refusal costs nothing.
    #[must_use = "without it, the retry is not paid for"]
    pub fn withdraw(&self) -> bool {
        self.ledger().withdraw(self.time.now())
    }

    /// How many retries it would pay for now.
    pub fn balance(&self) -> u64 {
        self.ledger().balance(self.time.now()) / RETRY
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Nothing in there panics half way, so a poisoned ledger is a sound one.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBudget").field("balance", &self.balance()).finish_non_exhaustive()
    }
}

/// What a retry costs.
const RETRY: u64 = 1_000_000_000;
const SLOTS: usize = 10;

/// The account itself, which reads no clock.
#[derive(Clone, Debug)]
struct Ledger {
    /// What a request earns.
    earning: u64,
    /// What each nanosecond gives, and the most of it that is kept.
    per_nano: u64,
    reserve: u64,
    slot_nanos: u64,
    /// The latest moment it was told.
    now: Tick,
    given: u64,
    /// By [`place`]; only those of the last [`SLOTS`] slots hold anything.
    earned: [u64; SLOTS],
}

impl Ledger {
    fn new(allowance: Allowance, now: Tick) -> Self {
        let Allowance { share, per_second, lasting } = allowance;
        assert!((0.0..=1.0).contains(&share), "a retry budget's share of requests is within 0 and 1");
        let lasting = u64::try_from(lasting.as_nanos()).unwrap_or(u64::MAX);
        let reserve = u64::from(per_second).saturating_mul(lasting);
        Self {
            earning: (share * 1e9) as u64, // billionths, rounded down
            per_nano: per_second.into(),
            reserve,
            slot_nanos: (lasting / SLOTS as u64).max(1),
            now,
            given: reserve,
            earned: [0; SLOTS],
        }
    }

    fn deposit(&mut self, now: Tick) {
        self.advance(now);
        let newest = &mut self.earned[place(self.slot())];
        *newest = newest.saturating_add(self.earning);
    }

    fn withdraw(&mut self, now: Tick) -> bool {
        if self.balance(now) < RETRY {
            return false;
        }
        let mut due = RETRY;
        let newest = place(self.slot());
        for after in 1..=SLOTS {
            pay(&mut due, &mut self.earned[(newest + after) % SLOTS]); // the oldest first
        }
        pay(&mut due, &mut self.given);
        true
    }

    fn balance(&mut self, now: Tick) -> u64 {
        self.advance(now);
        self.earned.iter().fold(self.given, |sum, credits| sum.saturating_add(*credits))
    }

    /// Adds what time gave and drops what expired. A clock that steps back changes nothing.
    fn advance(&mut self, now: Tick) {
        let was = self.slot();
        let passed = now.as_nanos().saturating_sub(self.now.as_nanos());
        self.now = self.now.max(now);
        self.given = self.given.saturating_add(passed.saturating_mul(self.per_nano)).min(self.reserve);
        let begun = (self.slot() - was).min(SLOTS as u64);
        for slot in 1..=begun {
            self.earned[place(was + slot)] = 0;
        }
    }

    fn slot(&self) -> u64 {
        self.now.as_nanos() / self.slot_nanos
    }
}

/// Where a slot lies in the ring.
fn place(slot: u64) -> usize {
    (slot % SLOTS as u64) as usize
}

/// Pays as much of `due` as there is.
fn pay(due: &mut u64, purse: &mut u64) {
    let part = (*due).min(*purse);
    *due -= part;
    *purse -= part;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate::ManualClock;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: f64) -> Tick {
        Tick::from_nanos((seconds * 1e9) as u64)
    }

    fn ledger(share: f64, per_second: u32) -> Ledger {
        Ledger::new(Allowance { share, per_second, ..Allowance::default() }, Tick::ZERO)
    }

    fn withdrawals(ledger: &mut Ledger, now: Tick) -> usize {
        std::iter::from_fn(|| ledger.withdraw(now).then_some(())).count()
    }

    #[test]
    fn ten_a_second_of_the_last_ten_seconds_are_there_without_a_request() {
        let mut ledger = Ledger::new(Allowance::default(), Tick::ZERO);
        assert_eq!(withdrawals(&mut ledger, at(0.0)), 100);
        assert_eq!(withdrawals(&mut ledger, at(0.099)), 0);
        assert_eq!(withdrawals(&mut ledger, at(0.1)), 1);
        assert_eq!(withdrawals(&mut ledger, at(3.1)), 30);
        assert_eq!(withdrawals(&mut ledger, at(99.0)), 100); // what is older than 10 s expired
    }

    #[test]
    fn five_requests_pay_for_a_retry() {
        let mut ledger = ledger(0.2, 0);
        (0..4).for_each(|_| ledger.deposit(at(0.0)));
        assert!(!ledger.withdraw(at(0.0)));
        ledger.deposit(at(0.0));
        assert!(ledger.withdraw(at(0.0)));
        assert!(!ledger.withdraw(at(0.0)));
    }

    #[test]
    fn what_requests_earned_expires_within_ten_seconds() {
        for (deposited, alive, expired) in [(0.0, 9.999, 10.0), (0.9, 9.999, 10.0), (5.0, 14.999, 15.0)] {
            let mut ledger = ledger(1.0, 0);
            ledger.deposit(at(deposited));
            assert_eq!(ledger.clone().balance(at(alive)), RETRY);
            assert_eq!(ledger.balance(at(expired)), 0);
        }
    }

    #[test]
    fn the_oldest_credits_are_used_first() {
        let mut ledger = ledger(1.0, 0);
        ledger.deposit(at(0.0));
        ledger.deposit(at(5.0));
        assert!(ledger.withdraw(at(6.0)));
        assert_eq!(ledger.balance(at(10.0)), RETRY); // the one of 5 s is still there
    }

    #[test]
    fn parts_of_both_kinds_make_up_a_retry() {
        let mut ledger = ledger(0.2, 10);
        assert_eq!(withdrawals(&mut ledger, at(0.0)), 100);
        ledger.deposit(at(0.0));
        assert!(!ledger.withdraw(at(0.079)));
        assert!(ledger.withdraw(at(0.08))); // 0.2 of the request, 0.8 of the time
        assert_eq!(ledger.balance(at(0.08)), 0);
    }

    #[test]
    fn a_refusal_costs_nothing() {
        let mut ledger = ledger(0.2, 0);
        ledger.deposit(at(0.0));
        for _ in 0..1_000 {
            assert!(!ledger.withdraw(at(0.0)));
        }
        (0..4).for_each(|_| ledger.deposit(at(0.0)));
        assert!(ledger.withdraw(at(0.0)));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let mut ledger = ledger(0.2, 10);
        assert_eq!(withdrawals(&mut ledger, at(50.0)), 100);
        assert_eq!(withdrawals(&mut ledger, at(0.0)), 0);
        assert_eq!(withdrawals(&mut ledger, at(50.0)), 0);
        assert_eq!(withdrawals(&mut ledger, at(50.1)), 1);
    }

    #[test]
    fn the_largest_figures_saturate() {
        for lasting in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let mut ledger = Ledger::new(Allowance { share: 1.0, per_second: u32::MAX, lasting }, Tick::ZERO);
            ledger.earned = [u64::MAX; SLOTS];
            ledger.deposit(Tick::ZERO);
            assert_eq!(ledger.balance(Tick::ZERO), u64::MAX);
            assert!(ledger.withdraw(Tick::ZERO));
            ledger.deposit(Tick::MAX);
            ledger.deposit(Tick::ZERO);
            assert!(ledger.balance(Tick::MAX) >= 2 * RETRY);
        }
    }

    #[test]
    fn a_share_that_is_none_is_refused() {
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let panic = std::panic::catch_unwind(|| ledger(share, 0)).unwrap_err();
            let message = panic.downcast_ref::<&str>().expect("a plain message");
            assert_eq!(*message, "a retry budget's share of requests is within 0 and 1");
        }
    }

    #[test]
    fn clones_share_one_budget() {
        let time = Time::of(ManualClock::new());
        let budget = RetryBudget::of(time, Allowance { share: 1.0, per_second: 0, ..Allowance::default() });
        budget.deposit();
        assert!(budget.clone().withdraw());
        assert_eq!(budget.balance(), 0);
        assert!(!budget.withdraw());
    }

    #[test]
    fn in_ten_minutes_of_full_outage_retries_are_a_fifth_and_ten_a_second() {
        // 500 requests a second, all of them failing and wanting five retries each, 100 ms apart.
        let mut ledger = Ledger::new(Allowance::default(), Tick::ZERO);
        let (mut requests, mut retries) = (0_u64, 0_u64);
        for step in 0..6_000 {
            let now = Tick::from_nanos(step * SECOND / 10);
            (0..50).for_each(|_| ledger.deposit(now));
            requests += 50;
            retries += (0..250).filter(|_| ledger.withdraw(now)).count() as u64;
        }
        assert_eq!(requests, 300_000);
        // 20 % of them, and 10 for each of the 599.9 s, and the reserve of 100: to the last one, for all are used.
        assert_eq!(retries, 60_000 + 5_999 + 100);
    }

    proptest! {
        #[test]
        fn over_any_span_retries_stay_within_the_stated_bound(
            steps in prop::collection::vec((0..3_000_u64, 0..20_u64, 0..20_u64), 1..120),
            percent in 0..=100_u32, per_second in 0..20_u32,
        ) {
            let mut ledger = ledger(f64::from(percent) / 100.0, per_second);
            let mut now = Tick::ZERO;
            // At each moment: how many requests, and how many retries were let through.
            let mut history: Vec<(u64, u64, u64)> = Vec::new();
            for (ms, requests, wanted) in steps {
                now = now + Duration::from_millis(ms);
                (0..requests).for_each(|_| ledger.deposit(now));
                let paid = (0..wanted).filter(|_| ledger.withdraw(now)).count() as u64;
                history.push((now.as_nanos(), requests, paid));
            }
            for (i, &(from, ..)) in history.iter().enumerate() {
                let mut retries = 0;
                for &(to, _, paid) in &history[i..] {
                    retries += paid;
                    let counted = |at: u64| at + 10 * SECOND > from && at <= to;
                    let requests: u64 = history.iter().filter(|h| counted(h.0)).map(|h| h.1).sum();
                    // All in billionths of a retry.
                    let timely = u64::from(per_second) * (to - from + 10 * SECOND);
                    prop_assert!(retries * RETRY <= u64::from(percent) * RETRY / 100 * requests + timely);
                }
            }
        }
    }
}
