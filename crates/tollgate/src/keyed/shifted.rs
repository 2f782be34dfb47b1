//! The time that states are kept in.
//!
//! A clock's origin is usually the start of the process, so after a restart its ticks mean other moments than those in the
//! states that were saved. Rather than rewriting states, the limiter adds a constant to every reading, so that time goes on
//! where it stood when the limiter was saved, plus what has passed since.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Tick;

use crate::clock::Clock;
use crate::timer::Timer;

/// A state's time must stay below 2^59 ns. A limiter that was away for longer than this starts out from here: half of that
/// is left, and any quota but one of years has refilled.
const OLD: Tick = Tick::from_nanos(1 << 58);

/// A clock that goes on from some moment.
#[derive(Clone, Debug)]
pub struct Shifted<C> {
    clock: C,
    /// Whether it is not just the clock.
    differs: bool,
    /// Readings before this one count as this one: it is the first that can be told in the states' time.
    earliest: u64,
    /// How far the states' time is ahead of the clock's; it may wrap around and so be behind.
    ahead: u64,
    /// The time since 1970 when the states' time was zero, as it was found when the first limiter was made: what windows are
    /// aligned to never changes under a state.
    age: Duration,
}

impl<C: Clock> Shifted<C> {
    /// The clock as it is.
    pub(crate) fn unshifted(clock: C) -> Self {
        let age = clock.unix().saturating_sub(clock.now().since(Tick::ZERO));
        Self { clock, differs: false, earliest: 0, ahead: 0, age }
    }

    /// Goes on from `tick`, which was at `unix`, with what has passed since by the time of the day; with nothing, if that went
    /// back.
    pub(crate) fn resumed(clock: C, tick: Tick, unix: Duration, age: Duration) -> Self {
        let away = clock.unix().saturating_sub(unix);
        let (from, to) = (clock.now().as_nanos(), (tick + away).min(OLD).max(tick).as_nanos());
        Self { clock, differs: true, earliest: from.saturating_sub(to), ahead: to.wrapping_sub(from), age }
    }

    /// The time since 1970 when the states' time was zero.
    pub(crate) fn age(&self) -> Duration {
        self.age
    }

    /// The moment of a reading, in the states' time. Every call goes through here.
    #[inline]
    pub(crate) fn tick(&self, reading: Tick) -> Tick {
        if !self.differs {
            return reading;
        }
        Tick::from_nanos(reading.as_nanos().max(self.earliest).wrapping_add(self.ahead))
    }

    /// The end of somebody's patience, in the states' time: the end of time if it lies beyond.
    pub(crate) fn deadline(&self, reading: Tick) -> Tick {
        let tick = self.tick(reading);
        // If the states' time is ahead, a moment before the reading has wrapped around.
        let is_ahead = self.differs && self.earliest == 0;
        if reading == Tick::MAX || (is_ahead && tick < reading) { Tick::MAX } else { tick }
    }

    /// The reading at which it is that moment.
    pub(crate) fn reading(&self, tick: Tick) -> Tick {
        Tick::from_nanos(tick.as_nanos().wrapping_sub(self.ahead))
    }

    /// Whether it would be better to start again, if there is nothing to go on with.
    pub(crate) fn is_old(&self) -> bool {
        self.now() >= OLD
    }

    /// The clock itself.
    #[inline]
    pub(crate) fn clock(&self) -> &C {
        &self.clock
    }
}

impl<C: Clock> Clock for Shifted<C> {
    #[inline]
    fn now(&self) -> Tick {
        self.tick(self.clock.now())
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.earliest, self.ahead) == (other.earliest, other.ahead) && self.clock.is_same(&other.clock)
    }

    fn unix(&self) -> Duration {
        self.clock.unix()
    }

    fn timer(&self) -> Arc<dyn Timer> {
        self.clock.timer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn at(secs: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(secs)
    }

    /// Saved at 100 s of its own and 1000 s of everybody's time; resumed when a new clock has gone for 30 s.
    fn resumed(origin: Duration) -> Shifted<ManualClock> {
        let clock = ManualClock::starting_at(origin);
        clock.set(at(30));
        Shifted::resumed(clock, at(100), secs(1_000), secs(900))
    }

    #[test]
    fn time_goes_on_where_it_stood_plus_what_has_passed() {
        let clock = resumed(secs(1_000 - 30 + 7));
        assert_eq!(clock.now(), at(107));
        clock.clock().advance(secs(5));
        assert_eq!(clock.now(), at(112));
        assert_eq!(clock.tick(at(30)), at(107));
        assert!(!clock.is_old());
    }

    #[test]
    fn it_is_as_old_as_it_was_when_it_began() {
        let clock = ManualClock::starting_at(secs(70));
        clock.set(at(30));
        assert_eq!(Shifted::unshifted(clock).age(), secs(70));
        assert_eq!(resumed(secs(5_000)).age(), secs(900));
    }

    #[test]
    fn a_clock_that_went_back_meanwhile_gives_nothing() {
        assert_eq!(resumed(secs(3)).now(), at(100));
    }

    #[test]
    fn readings_from_before_time_began_do_not_wrap_around() {
        let clock = ManualClock::new();
        clock.set(at(500));
        let clock = Shifted::resumed(clock, at(100), secs(500), secs(400)); // 400 s behind
        assert_eq!((clock.now(), clock.tick(at(401))), (at(100), at(1)));
        assert_eq!((clock.tick(at(399)), clock.tick(Tick::ZERO)), (Tick::ZERO, Tick::ZERO));
    }

    #[test]
    fn after_ages_it_is_old_and_not_at_the_end_of_time() {
        let clock = resumed(secs(100 * 365 * 86_400));
        assert_eq!(clock.now(), OLD);
        assert!(clock.is_old());
        let later = Shifted::resumed(ManualClock::new(), OLD + secs(5), secs(0), secs(0));
        assert_eq!(later.now(), OLD + secs(5), "what was saved never lies ahead");
    }
}
