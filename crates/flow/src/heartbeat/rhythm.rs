//! How often, and what silence means.

use std::time::Duration;

use tollgate::Tick;

/// How a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It beats.
    Healthy,
    /// It missed some beats.
    Slow,
    /// It has not beaten for so long that nobody should wait for it.
    Dead,
    /// Its heart was dropped: it finished, failed or was stopped, and says nothing more. Which of these, its result tells.
    Ended,
}

/// How often a worker beats, and after how many missed beats it counts as slow or dead.
///
/// With an interval of i, after a silence s since the last beat of either kind:
///
/// ```text
/// healthy   s < slow · i            slow = 2 unless set
/// slow      slow · i <= s < dead · i
/// dead      dead · i <= s           dead = 5 unless set
/// ```
///
/// Nothing else counts: one beat makes a dead worker healthy. If dead is not above slow, nobody is ever slow.
///
/// Special values: an interval below a millisecond counts as a millisecond, zero missed beats as one.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::{Health, Rhythm};
///
/// let rhythm = Rhythm::every(Duration::from_secs(10)).dead_after(6);
/// assert_eq!(rhythm.health(Duration::from_secs(19)), Health::Healthy);
/// assert_eq!(rhythm.health(Duration::from_secs(20)), Health::Slow);
/// assert_eq!(rhythm.health(Duration::from_secs(60)), Health::Dead);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a rhythm is only a description"]
pub struct Rhythm {
    interval: Duration,
    slow: u32,
    dead: u32,
}

/// The finest that tokio's timer does.
const SHORTEST: Duration = Duration::from_millis(1);

impl Rhythm {
    /// A beat every `interval`.
    pub const fn every(interval: Duration) -> Self {
        let interval = if interval.as_nanos() < SHORTEST.as_nanos() { SHORTEST } else { interval };
        Self { interval, slow: 2, dead: 5 }
    }

    /// Slow after so many missed beats.
    pub const fn slow_after(self, missed: u32) -> Self {
        Self { slow: if missed == 0 { 1 } else { missed }, ..self }
    }

    /// Dead after so many missed beats.
    pub const fn dead_after(self, missed: u32) -> Self {
        Self { dead: if missed == 0 { 1 } else { missed }, ..self }
    }

    /// The time between two beats.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// How a worker is that has not beaten for `silence`. Never [`Health::Ended`].
    pub fn health(&self, silence: Duration) -> Health {
        if silence >= self.span(self.dead) {
            Health::Dead
        } else if silence >= self.span(self.slow) {
            Health::Slow
        } else {
            Health::Healthy
        }
    }

    /// When a worker that is `health` now and beat last at `last` will be worse, if it stays silent.
    pub(super) fn worse_at(&self, health: Health, last: Tick) -> Tick {
        match health {
            Health::Healthy => last + self.span(self.slow.min(self.dead)),
            Health::Slow => last + self.span(self.dead),
            Health::Dead | Health::Ended => Tick::MAX,
        }
    }

    fn span(&self, beats: u32) -> Duration {
        self.interval.saturating_mul(beats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NANO: Duration = Duration::from_nanos(1);

    /// A nanosecond before that many seconds.
    fn just_before(seconds: u32) -> Duration {
        (seconds * SECOND).saturating_sub(NANO)
    }

    #[test]
    fn each_threshold_holds_to_the_nanosecond() {
        let rhythm = Rhythm::every(SECOND);
        assert_eq!(rhythm.health(Duration::ZERO), Health::Healthy);
        assert_eq!(rhythm.health(just_before(2)), Health::Healthy);
        assert_eq!(rhythm.health(2 * SECOND), Health::Slow);
        assert_eq!(rhythm.health(just_before(5)), Health::Slow);
        assert_eq!(rhythm.health(5 * SECOND), Health::Dead);
        assert_eq!(rhythm.health(Duration::MAX), Health::Dead);
    }

    #[test]
    fn a_worker_gets_worse_at_the_moments_its_health_says() {
        let (rhythm, last) = (Rhythm::every(SECOND).slow_after(3).dead_after(4), Tick::from_nanos(7));
        assert_eq!(rhythm.worse_at(Health::Healthy, last), last + 3 * SECOND);
        assert_eq!(rhythm.worse_at(Health::Slow, last), last + 4 * SECOND);
        assert_eq!(rhythm.worse_at(Health::Dead, last), Tick::MAX);
    }

    #[test]
    fn dead_before_slow_is_dead_at_once() {
        let rhythm = Rhythm::every(SECOND).slow_after(4).dead_after(3);
        assert_eq!(rhythm.health(just_before(3)), Health::Healthy);
        assert_eq!(rhythm.health(3 * SECOND), Health::Dead);
        assert_eq!(rhythm.worse_at(Health::Healthy, Tick::ZERO), Tick::ZERO + 3 * SECOND);
    }

    #[test]
    fn extreme_rhythms_have_an_answer() {
        let never = Rhythm::every(Duration::MAX).slow_after(u32::MAX).dead_after(u32::MAX);
        assert_eq!(never.health(Duration::from_secs(u64::MAX)), Health::Healthy);
        assert_eq!(never.worse_at(Health::Healthy, Tick::from_nanos(1)), Tick::MAX);
        let restless = Rhythm::every(Duration::ZERO).slow_after(0).dead_after(0);
        assert_eq!(restless.interval(), Duration::from_millis(1));
        assert_eq!(restless.health(NANO), Health::Healthy);
        assert_eq!(restless.health(Duration::from_millis(1)), Health::Dead);
    }
}
