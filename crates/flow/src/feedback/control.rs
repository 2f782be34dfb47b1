//! The arithmetic of a rate that is learnt.

use std::time::Duration;

use tollgate::Tick;

use super::climb::{Climb, Cubic, Fall, Foothold, Linear, SlowStart};
use super::meter::Meter;

/// Finds the rate that an upstream stands, from how its answers go. Pure: it is told the time, and sends nothing.
///
/// ```text
/// start        10/s; twice as much each round trip, as far as the last second bears it out
/// refused      × 0.7, and slow start is over
/// refused again, with nothing accepted since:  nothing for 100 ms, then 200 ms, up to 1 s
/// Retry-After  nothing until then; then on at the lowered rate, without a burst
/// exhausted    nothing until the reset; × 0.95, × 0.76 if it is the second time within a second. Not a refusal
/// accepted     + 5 % of the top a second, at least + 1/s; the top is where the refusals began
/// ```
///
/// - *Once for each round trip* (or 100 ms, if that is longer). What was sent before the rate was lowered does not count
///   again, however late its refusal comes: twenty refusals of one burst are one.
/// - *Of what was really sent.* The rate that is lowered is the lesser of what was allowed and what got through in the last second,
///   but not below half of what was allowed.
/// - *Rests.* If things had gone well for a second before a refusal, the limit is about there. The rate then goes back to 97 %
///   of it as quickly as in slow start, and rests: for two seconds at first; if the limit is met about there again, for twice
///   as long each time, and at least twenty times as long as the last hold, up to a minute. Only then it grows further. Probing
///   costs refusals, and holds, so it gets rarer where nothing changes; a limit that was raised is noticed within that minute.
/// - *Never above what the upstream states*: 95 % of it, so that others' clocks and whole seconds do not matter.
/// - *Never above twice what got through in the last second*, so that a client with little to do earns no rate that
///   nobody has tried.
/// - *Never below 0.5/s*, unless less than that was stated.
///
/// With [`cubic`](Self::cubic) growth is `0.4 (t - K)³ + top` instead, without rests: quicker where limits change often, with more
/// refusals.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::Tick;
/// use tollgate_flow::feedback::Heard;
/// use tollgate_flow::RateControl;
///
/// let mut control = RateControl::new().starting_at(100.0);
/// let sent = Tick::ZERO;
/// let now = sent + Duration::from_millis(50);
/// let refused = Heard { wait: Duration::from_secs(2), ..Heard::refused(sent) };
/// control.hear(now, refused);
/// assert_eq!(control.held_until(), now + Duration::from_secs(2));
/// assert_eq!(control.rate(), 35.0); // 0.7 · 100/2, since nothing has got through yet
/// ```
#[derive(Clone, Debug)]
#[must_use = "it controls nothing by itself"]
pub struct RateControl {
    rate: f64,
    most: f64,
    burst: u64,
    /// What the upstream states, if it does.
    stated: Option<f64>,
    held_until: Tick,
    /// When the rate was lowered last.
    lowered: Option<Tick>,
    /// Since when nothing was refused and nothing on hold.
    quiet_since: Option<Tick>,
    /// How often it was lowered with nothing accepted in between.
    in_a_row: u32,
    /// None when it is over.
    slow_start: Option<SlowStart>,
    rtt: Duration,
    meter: Meter,
    climb: Climb,
}

/// An answer, as far as it says something of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heard {
    /// When the call was sent.
    pub sent: Tick,
    /// What it cost; mostly one.
    pub cost: u64,
    /// Whether it was refused.
    pub refused: bool,
    /// How long the upstream asks to send nothing; zero if it does not. On a call that was not refused: it used up the last
    /// of a budget.
    pub wait: Duration,
    /// The rate per second that the upstream states.
    pub stated: Option<f64>,
}

impl Heard {
    /// A call that was let through.
    pub const fn accepted(sent: Tick) -> Self {
        Self { sent, cost: 1, refused: false, wait: Duration::ZERO, stated: None }
    }

    /// A call that was refused.
    pub const fn refused(sent: Tick) -> Self {
        Self { refused: true, ..Self::accepted(sent) }
    }
}

const START: f64 = 10.0;
const FLOOR: f64 = 0.5;
/// A tenth of a microsecond apart is as good as unlimited, and keeps everything finite.
const MOST: f64 = 1e7;
const BACKOFF: f64 = 0.7;
const SHORTEST_ROUND: Duration = Duration::from_millis(100);
/// After so long without trouble, a limit that is met is about there.
const CALM: Duration = Duration::from_secs(1);
/// The share of a stated rate that is used.
const STATED_SHARE: f64 = 0.95;
/// The lowest stated rate that is taken at its word: one in ten minutes.
const LEAST_STATED: f64 = 1.0 / 600.0;
/// What is left of a rate that exhausted a budget; and if that was not the first time just now.
const EXHAUSTED: f64 = 0.95;
const EXHAUSTED_AGAIN: f64 = 0.8;
/// The longest pause of our own, where the upstream does not say.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest wait that is believed. Readers have a shorter cap of their own.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

impl RateControl {
    /// Starts at 10/s, with no other limit than the upstream's.
    pub fn new() -> Self {
        Self {
            rate: START,
            most: MOST,
            burst: 1,
            stated: None,
            held_until: Tick::ZERO,
            lowered: None,
            quiet_since: None,
            in_a_row: 0,
            slow_start: Some(SlowStart::default()),
            rtt: Duration::ZERO,
            meter: Meter::new(),
            climb: Climb::Linear(Linear::default()),
        }
    }

    /// Starts at `rate` per second.
    ///
    /// # Panics
    /// If it is not a positive number.
    pub fn starting_at(self, rate: f64) -> Self {
        assert!(rate.is_finite() && rate > 0.0, "a start at {rate}/s: expected a positive number");
        Self { rate: rate.clamp(FLOOR, self.most), ..self }
    }

    /// Never goes above `rate` per second.
    ///
    /// # Panics
    /// If it is not a number of at least 0.5.
    pub fn at_most(self, rate: f64) -> Self {
        assert!(rate >= FLOOR, "at most {rate}/s: expected a number of at least {FLOOR}");
        let most = rate.min(MOST);
        Self { most, rate: self.rate.min(most), ..self }
    }

    /// Lets the limiter admit up to `burst` at once. By default it is as small as can be, since evenly spaced calls are
    /// refused least: two, or what ten milliseconds bring. Must be at least what the dearest call costs.
    pub fn burst(self, burst: u64) -> Self {
        Self { burst: burst.max(1), ..self }
    }

    /// Grows by CUBIC's curve after a refusal.
    pub fn cubic(self) -> Self {
        Self { climb: Climb::Cubic(Cubic::default()), ..self }
    }

    /// The rate per second, while nothing is on hold.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Nothing should be sent before this moment.
    pub fn held_until(&self) -> Tick {
        self.held_until
    }

    pub(super) fn burst_size(&self) -> u64 {
        self.burst
    }

    /// Learns from an answer that came at `now`.
    pub fn hear(&mut self, now: Tick, heard: Heard) {
        self.measure(now, heard);
        self.hold(now, heard.wait);
        let counts = self.counts(now, heard.sent);
        match (heard.refused, heard.wait.is_zero()) {
            (false, true) => self.accepted(now, heard.sent),
            (false, false) if counts => self.exhausted(now),
            (true, _) if counts => self.refused(now),
            _ => {}
        }
        self.bound(heard.stated);
    }

    /// Hears an answer that says nothing of the rate, such as that of a server that failed. What it states still counts.
    pub fn overhear(&mut self, now: Tick, wait: Duration, stated: Option<f64>) {
        self.hold(now, wait);
        self.bound(stated);
    }

    /// Sends nothing for `wait`, for a reason that says nothing of the rate.
    pub fn hold(&mut self, now: Tick, wait: Duration) {
        if !wait.is_zero() {
            self.held_until = self.held_until.max(now + wait.min(LONGEST_WAIT));
        }
    }

    fn measure(&mut self, now: Tick, heard: Heard) {
        #[allow(clippy::cast_precision_loss, reason = "a rate need not be known to 16 digits")]
        let cost = if heard.refused { 0.0 } else { heard.cost as f64 };
        self.meter.add(now, cost);
        self.quiet_since.get_or_insert(heard.sent);
        let rtt = now.since(heard.sent);
        // As TCP smooths it; the first one counts in full.
        self.rtt = if self.rtt.is_zero() { rtt } else { self.rtt / 8 * 7 + rtt / 8 };
    }

    /// Whether bad news about something sent then is news.
    fn counts(&self, now: Tick, sent: Tick) -> bool {
        self.lowered.is_none_or(|lowered| sent > lowered && now.since(lowered) >= self.round())
    }

    /// How long it takes to see what a change does.
    fn round(&self) -> Duration {
        self.rtt.max(SHORTEST_ROUND)
    }

    fn refused(&mut self, now: Tick) {
        let is_calm = self.is_calm(now) && self.in_a_row == 0;
        self.in_a_row += 1;
        if self.in_a_row > 1 && self.held_until <= now {
            let pause =
                SHORTEST_ROUND.saturating_mul(1_u32.checked_shl(self.in_a_row - 2).unwrap_or(u32::MAX));
            self.held_until = now + pause.min(LONGEST_PAUSE);
        }
        let from = self.used(now);
        self.lower(now, from, BACKOFF * from, is_calm);
    }

    /// The budget is used up until the hold ends; the rate was about right if that happens for the first time.
    fn exhausted(&mut self, now: Tick) {
        let is_calm = self.is_calm(now);
        let from = self.used(now) * if is_calm { 1.0 } else { EXHAUSTED_AGAIN };
        self.lower(now, from, EXHAUSTED * from, true);
    }

    fn accepted(&mut self, now: Tick, sent: Tick) {
        if self.lowered.is_none_or(|lowered| sent > lowered) {
            self.in_a_row = 0;
        }
        let cap = self.rate.max(2.0 * self.meter.last_second());
        let foothold = Foothold { now, rate: self.rate, round: self.round(), cap };
        let next = match &mut self.slow_start {
            Some(slow_start) => slow_start.step(foothold),
            None => self.climb.step(foothold),
        };
        self.rate = next.max(self.rate);
    }

    fn is_calm(&self, now: Tick) -> bool {
        self.quiet_since.is_some_and(|since| now.since(since) >= CALM)
    }

    /// The rate that was really used, as far as one can tell so soon.
    fn used(&self, now: Tick) -> f64 {
        self.rate.min(self.meter.trailing(now).max(self.rate / 2.0))
    }

    fn lower(&mut self, now: Tick, from: f64, to: f64, is_calm: bool) {
        let (hold, until) = (self.held_until.since(now), self.held_until.max(now));
        self.climb.fall(Fall { from, to, is_calm, hold, until });
        (self.rate, self.slow_start) = (to, None);
        (self.lowered, self.quiet_since) = (Some(now), Some(until));
    }

    /// Keeps the rate within its bounds.
    fn bound(&mut self, stated: Option<f64>) {
        if let Some(rate) = stated.filter(|rate| rate.is_finite()) {
            self.stated = Some((STATED_SHARE * rate).max(LEAST_STATED));
        }
        let rate = self.rate.clamp(FLOOR, self.most);
        self.rate = self.stated.map_or(rate, |stated| rate.min(stated));
    }
}

impl Default for RateControl {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
