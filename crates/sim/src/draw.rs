//! Random quotas and questions, drawn to hit the awkward cases far more often than chance would.

use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{Ask, Quota, Tick};

use crate::Outcome;
use crate::outcome::nanos;
use crate::subject::Subject;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Count and period: from once a year to once a nanosecond, round and odd, and nothing at all.
const RATES: [(u64, u64); 20] = [
    (1, 365 * DAY),
    (1, DAY),
    (1, SECOND),
    (3, SECOND),
    (7, 60 * SECOND),
    (10, SECOND),
    (60, 60 * SECOND),
    (1_000, SECOND),
    (1_000_000, SECOND),
    (30_000_000, SECOND),
    (300_000_000, SECOND),
    (600_000_000, SECOND),
    (1_000_000_000, SECOND),
    (2_500_000_000, SECOND),
    (101, SECOND),
    (17, 60 * SECOND),
    (999_983, 3_600 * SECOND),
    (123_456_789, SECOND),
    (0, SECOND),
    (5, 7),
];

/// The latest moment that is drawn: well before the end of time, so that waits can be answered.
pub const LATEST_NS: u64 = 1 << 58;

/// A quota that may be given to any algorithm.
pub fn quota(rng: &mut Rng) -> Quota {
    let (count, period_ns) = match rng.u8(0..32) {
        0 => return Quota::UNLIMITED,
        1..=4 => (rng.u64(1..5_000), rng.u64(1..100 * SECOND)),
        _ => RATES[rng.usize(..RATES.len())],
    };
    let plain = Quota::per(count, Duration::from_nanos(period_ns));
    match rng.u8(0..8) {
        0 => plain.burst(0),
        1 | 2 => plain.burst(1),
        3 => plain.burst(rng.u64(2..20)),
        4 => plain.burst(rng.u64(20..100_000)),
        _ => plain,
    }
}

/// Somebody who asks awkward questions and listens to the answers.
///
/// # Examples
/// ```
/// use tollgate_core::Quota;
/// use tollgate_sim::draw::Caller;
///
/// let ask_twice = |seed| {
///     let mut caller = Caller::new(fastrand::Rng::with_seed(seed), Quota::per_second(3));
///     [caller.ask(), caller.ask()]
/// };
/// assert_eq!(ask_twice(7), ask_twice(7));
/// ```
#[derive(Clone, Debug)]
pub struct Caller {
    rng: Rng,
    now_ns: u64,
    /// Nanoseconds a token.
    interval_ns: u64,
    period_ns: u64,
    sizes: [u64; 2],
    /// The last wait that was named.
    wait_ns: u64,
    steps_back: bool,
    /// How far it may be behind the latest moment.
    most_behind_ns: u64,
    furthest_ns: u64,
    patient: bool,
    latest_ns: u64,
}

impl Caller {
    /// Somebody who asks about `quota`.
    pub fn new(mut rng: Rng, quota: Quota) -> Self {
        let period_ns = nanos(quota.period()).max(1);
        let interval_ns = (period_ns / quota.count().max(1)).max(1);
        let now_ns = if rng.bool() { 0 } else { any_size(&mut rng, 56) };
        let sizes = [quota.burst_size(), quota.count()];
        let wait_ns = interval_ns;
        Self {
            rng,
            now_ns,
            interval_ns,
            period_ns,
            sizes,
            wait_ns,
            steps_back: true,
            most_behind_ns: u64::MAX,
            furthest_ns: 0,
            patient: true,
            latest_ns: LATEST_NS,
        }
    }

    /// The same, with a clock that never steps back.
    #[must_use]
    pub fn with_steady_clock(self) -> Self {
        Self { steps_back: false, ..self }
    }

    /// The same, never ready to wait.
    #[must_use]
    pub fn impatient(self) -> Self {
        Self { patient: false, ..self }
    }

    /// The same, never ready to wait if `subject` cannot promise anything, and never later or further behind than it can be asked.
    #[must_use]
    pub fn of(self, subject: &dyn Subject) -> Self {
        let latest_ns = subject.latest().as_nanos();
        let most_behind_ns = nanos(subject.most_behind());
        let same = Self { latest_ns, most_behind_ns, now_ns: self.now_ns.min(latest_ns), ..self };
        if subject.can_promise() { same } else { same.impatient() }
    }

    /// The same, no earlier than `now`.
    #[must_use]
    pub fn from(self, now: Tick) -> Self {
        Self { now_ns: now.as_nanos(), ..self }
    }

    /// The next question: when, how much, and how long it may take.
    pub fn ask(&mut self) -> (Tick, Ask) {
        let earliest_ns = self.furthest_ns.saturating_sub(self.most_behind_ns);
        self.now_ns = self.next_moment().clamp(earliest_ns, self.latest_ns);
        self.furthest_ns = self.furthest_ns.max(self.now_ns);
        (Tick::from_nanos(self.now_ns), Ask::within(self.cost(), Duration::from_nanos(self.patience())))
    }

    /// Takes note of an answer, so that the next question can come exactly when it said, or a little sooner.
    pub fn hear(&mut self, answer: Outcome, ask: Ask) {
        if let Some(wait_ns) = answer.wait_ns(nanos(ask.patience())).filter(|wait_ns| *wait_ns > 0) {
            self.wait_ns = wait_ns;
        }
    }

    /// The source of everything that is drawn.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn next_moment(&mut self) -> u64 {
        let (now, wait, interval) = (self.now_ns, self.wait_ns, self.interval_ns);
        match self.rng.u8(0..20) {
            0 => now + 1,
            1 | 2 => now.saturating_add(wait),
            3 => now.saturating_add(wait - 1),
            4 if self.steps_back => now.saturating_sub(1),
            5 if self.steps_back => now.saturating_sub(self.up_to(2 * interval)),
            6 if self.steps_back => now.saturating_sub(self.up_to(self.period_ns)),
            7 => now + self.up_to(30 * interval.min(1 << 50)),
            8 => now + any_size(&mut self.rng, 57),
            9 | 10 => self.near_a_boundary(),
            11..=13 => now + self.up_to(interval),
            _ => now,
        }
    }

    /// The next multiple of the period, or of a tenth of it, or a nanosecond to either side.
    fn near_a_boundary(&mut self) -> u64 {
        let width = if self.rng.bool() { self.period_ns } else { self.period_ns.div_ceil(10) };
        let boundary = (self.now_ns / width + 1).saturating_mul(width);
        (boundary - 1 + self.rng.u64(0..3)).max(self.now_ns)
    }

    fn cost(&mut self) -> u64 {
        let size = self.sizes[self.rng.usize(..2)];
        match self.rng.u8(0..20) {
            0 => 0,
            1 => size,
            2 => size.saturating_add(1),
            3 | 4 => self.up_to(size),
            5 => size - self.up_to(size.min(2)),
            6..=8 => self.rng.u64(2..5),
            9 => size / 2,
            _ => 1,
        }
    }

    fn patience(&mut self) -> u64 {
        if !self.patient {
            return 0;
        }
        match self.rng.u8(0..20) {
            0 => u64::MAX,
            1 => self.wait_ns,
            2 => self.wait_ns - 1,
            3 | 4 => self.up_to(self.interval_ns.saturating_mul(4)),
            5 => self.up_to(self.period_ns.saturating_mul(2)),
            _ => 0,
        }
    }

    fn up_to(&mut self, most: u64) -> u64 {
        self.rng.u64(..=most)
    }
}

/// A number of up to `bits` bits, short ones as likely as long ones.
fn any_size(rng: &mut Rng, bits: u32) -> u64 {
    let end = 1 << rng.u32(..=bits);
    rng.u64(..end)
}
