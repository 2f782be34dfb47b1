//! How long to wait before the next try: a pure schedule.

use std::time::Duration;

use fastrand::Rng;

use super::jitter::{Jitter, Span};

/// How long to wait after each failure: longer every time, and not to the same moment as everybody else.
///
/// The n-th wait is `initial · factor^(n-1)`, at most `cap`, spread by a [`Jitter`]. Once a wait would end later than `total`
/// after the start, there is none. By default: 500 ms, × 1.5, 60 s, 15 minutes, [`Jitter::Full`].
///
/// These are the figures; [`schedule`](Self::schedule) begins a schedule by them. Neither reads a clock, and no figure
/// overflows: what is too long to write down is [`Duration::MAX`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::{Backoff, Jitter};
///
/// let mut waits = Backoff::new().jitter(Jitter::None).total(Duration::from_secs(2)).schedule();
/// let mut rng = fastrand::Rng::with_seed(1);
/// assert_eq!(waits.next(Duration::ZERO, &mut rng), Some(Duration::from_millis(500)));
/// assert_eq!(waits.next(Duration::from_millis(500), &mut rng), Some(Duration::from_millis(750)));
/// assert_eq!(waits.next(Duration::from_millis(1_250), &mut rng), None); // 1.125 s more would be too late
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    initial: Duration,
    factor: f64,
    cap: Duration,
    total: Duration,
    jitter: Jitter,
}

impl Backoff {
    /// The defaults.
    pub const fn new() -> Self {
        Self {
            initial: Duration::from_millis(500),
            factor: 1.5,
            cap: Duration::from_secs(60),
            total: Duration::from_secs(15 * 60),
            jitter: Jitter::Full,
        }
    }

    /// The first wait, before jitter.
    #[must_use]
    pub const fn initial(mut self, initial: Duration) -> Self {
        self.initial = initial;
        self
    }

    /// How much longer each wait is than the one before; 1 waits equally long every time.
    ///
    /// # Panics
    /// If it is less than 1, infinite or not a number.
    #[must_use]
    pub const fn factor(mut self, factor: f64) -> Self {
        assert!(factor >= 1.0 && factor.is_finite(), "a backoff grows by a finite factor of 1 or more");
        self.factor = factor;
        self
    }

    /// The longest wait, before jitter; [`Jitter::Proportional`] goes up to one and a half times as far.
    #[must_use]
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// How long after the start the last wait may end; [`Duration::MAX`] for no limit.
    #[must_use]
    pub const fn total(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }

    /// How waits are spread.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The waits, from the first.
    pub fn schedule(&self) -> Schedule {
        let initial = self.initial.min(self.cap);
        Schedule { backoff: *self, planned: initial.as_secs_f64(), previous: initial }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// The waits of one piece of work, one after the other; made by [`Backoff::schedule`].
// The arithmetic is that of the crate backon, but in 64 bits: in its 32, twice 100 ms is 200.000003 ms. Its jitter adds up to
// the wait again, which is none of ours, and its total leaves out the attempts between the waits.
#[derive(Debug)]
pub struct Schedule {
    backoff: Backoff,
    /// The next wait before jitter, in seconds: not rounded, so that errors do not add up.
    planned: f64,
    /// The last wait, of which [`Jitter::Decorrelated`] makes the next.
    previous: Duration,
}

impl Schedule {
    /// The next wait, if it ends in time: `elapsed` is the time since the start.
    pub fn next(&mut self, elapsed: Duration, rng: &mut Rng) -> Option<Duration> {
        self.next_after(Duration::ZERO, elapsed, rng)
    }

    /// The next wait, but at least `stated`, as in a Retry-After. Jitter comes on top: nobody is early, and those who were
    /// told the same moment still come apart.
    pub fn next_after(&mut self, stated: Duration, elapsed: Duration, rng: &mut Rng) -> Option<Duration> {
        let spread = self.span();
        let random = spread.draw(rng);
        self.previous = spread.least.saturating_add(random);
        let wait = spread.least.max(stated).saturating_add(random);
        (elapsed.saturating_add(wait) <= self.backoff.total).then_some(wait)
    }

    fn span(&mut self) -> Span {
        let Backoff { initial, cap, jitter, .. } = self.backoff;
        let planned = Duration::try_from_secs_f64(self.planned).map_or(cap, |planned| planned.min(cap));
        self.planned = (self.planned * self.backoff.factor).min(cap.as_secs_f64());
        jitter.span(planned, self.previous, initial.min(cap), cap)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn all(backoff: Backoff) -> Vec<Duration> {
        let mut rng = Rng::with_seed(7);
        let (mut waits, mut elapsed) = (backoff.schedule(), Duration::ZERO);
        std::iter::from_fn(|| {
            let wait = waits.next(elapsed, &mut rng)?;
            elapsed += wait;
            Some(wait)
        })
        .collect()
    }

    #[test]
    fn the_defaults_are_500_ms_times_one_and_a_half_up_to_60_s_for_15_minutes() {
        // 500 ms · 1.5^n, rounded to whole nanoseconds: 10^9 · 3^n / 2^n, and half of that.
        let curve = (0..12_u32)
            .map(|n| Duration::from_nanos((1_000_000_000 * 3_u64.pow(n) / 2_u64.pow(n)).div_ceil(2)));
        // Those twelve take 128.7 s (a geometric series: (500·1.5^12 - 500)/0.5 ms); of the 771.2 s left, 12 minutes.
        let expected: Vec<_> = curve.chain(std::iter::repeat_n(60_000 * MS, 12)).collect();
        assert_eq!(all(Backoff::new().jitter(Jitter::None)), expected);
    }

    #[test]
    fn jitter_is_full_by_default() {
        assert_eq!(Backoff::default(), Backoff::new().jitter(Jitter::Full));
    }

    #[test]
    fn a_wait_that_ends_exactly_with_the_total_is_still_taken() {
        let backoff = Backoff::new().jitter(Jitter::None).total(1_250 * MS);
        assert_eq!(all(backoff), [500 * MS, 750 * MS]);
        assert_eq!(all(backoff.total(1_249 * MS)), [500 * MS]);
    }

    #[test]
    fn an_initial_wait_above_the_cap_is_cut_to_it() {
        let backoff = Backoff::new().jitter(Jitter::None).initial(10 * MS).cap(3 * MS).total(8 * MS);
        assert_eq!(all(backoff), [3 * MS, 3 * MS]);
    }

    #[test]
    fn the_longest_figures_saturate_with_every_jitter() {
        let longest =
            Backoff::new().initial(Duration::MAX).factor(f64::MAX).cap(Duration::MAX).total(Duration::MAX);
        let mut rng = Rng::with_seed(7);
        for jitter in Jitter::ALL {
            let mut waits = longest.jitter(jitter).schedule();
            for _ in 0..100 {
                assert!(waits.next(Duration::MAX, &mut rng).is_some(), "{jitter:?}");
                assert!(
                    waits.next_after(Duration::MAX, Duration::MAX, &mut rng) == Some(Duration::MAX),
                    "{jitter:?}"
                );
            }
        }
        let mut waits = longest.jitter(Jitter::None).schedule();
        assert_eq!(waits.next(Duration::MAX, &mut rng), Some(Duration::MAX));
    }

    #[test]
    fn a_huge_factor_reaches_the_cap_at_once_and_stays_for_millions_of_tries() {
        let mut waits = Backoff::new().factor(f64::MAX).jitter(Jitter::None).total(Duration::MAX).schedule();
        let mut rng = Rng::with_seed(7);
        assert_eq!(waits.next(Duration::ZERO, &mut rng), Some(500 * MS));
        for _ in 0..3_000_000 {
            assert_eq!(waits.next(Duration::ZERO, &mut rng), Some(60_000 * MS));
        }
    }

    #[test]
    fn no_wait_at_all_is_a_schedule_too() {
        let mut rng = Rng::with_seed(7);
        for jitter in Jitter::ALL {
            let mut waits = Backoff::new().initial(Duration::ZERO).jitter(jitter).schedule();
            assert_eq!(waits.next(Duration::ZERO, &mut rng), Some(Duration::ZERO));
            assert_eq!(waits.next(Duration::ZERO, &mut rng), Some(Duration::ZERO));
        }
    }

    #[test]
    fn factors_that_do_not_grow_are_refused() {
        for factor in [0.999, 0.0, -2.0, f64::INFINITY, f64::NAN] {
            let panic = std::panic::catch_unwind(|| Backoff::new().factor(factor)).unwrap_err();
            let message = panic.downcast_ref::<&str>().expect("a plain message");
            assert_eq!(*message, "a backoff grows by a finite factor of 1 or more");
        }
    }

    #[test]
    fn a_stated_wait_beyond_the_total_ends_the_schedule_at_once() {
        let mut waits = Backoff::new().jitter(Jitter::None).total(Duration::from_secs(30)).schedule();
        let mut rng = Rng::with_seed(7);
        assert_eq!(waits.next_after(Duration::from_secs(31), Duration::ZERO, &mut rng), None);
        assert_eq!(
            waits.next_after(Duration::from_secs(20), Duration::from_secs(10), &mut rng),
            Some(20_000 * MS)
        );
        assert_eq!(waits.next_after(Duration::from_secs(20), Duration::from_secs(11), &mut rng), None);
    }

    proptest! {
        #[test]
        fn a_stated_wait_is_a_minimum_and_the_jitter_comes_on_top(
            stated in 0..100_000_u64, tries in 1..40_usize, pick in 0..Jitter::ALL.len(), seed: u64,
        ) {
            let jitter = Jitter::ALL[pick];
            let stated = stated as u32 * MS;
            let backoff = Backoff::new().jitter(jitter).total(Duration::MAX);
            // Two schedules with the same random numbers, one of which is told how long to wait.
            let (mut free, mut told) = (backoff.schedule(), backoff.schedule());
            let (mut rng, mut same) = (Rng::with_seed(seed), Rng::with_seed(seed));
            for _ in 0..tries {
                let own = free.next(Duration::ZERO, &mut rng).unwrap();
                let wait = told.next_after(stated, Duration::ZERO, &mut same).unwrap();
                prop_assert!(wait >= stated && wait >= own);
                prop_assert!(wait <= stated + own);
                prop_assert!(jitter != Jitter::Full || wait == stated + own);
                prop_assert!(jitter != Jitter::None || wait == stated.max(own));
            }
        }

        #[test]
        fn no_figures_panic(
            initial: u64, factor in 1.0_f64.., cap: u64, elapsed: u64, stated: u64, pick in 0..Jitter::ALL.len(), seed: u64,
        ) {
            let (initial, cap) = (Duration::from_secs(initial), Duration::from_secs(cap));
            let backoff = Backoff::new().initial(initial).cap(cap).jitter(Jitter::ALL[pick]).total(Duration::MAX);
            let mut waits = backoff.factor(factor.min(f64::MAX)).schedule();
            let mut rng = Rng::with_seed(seed);
            for _ in 0..20 {
                let wait = waits.next(Duration::from_secs(elapsed), &mut rng).unwrap();
                prop_assert!(wait <= cap.saturating_add(cap / 2));
                let told = waits.next_after(Duration::from_secs(stated), Duration::MAX, &mut rng).unwrap();
                prop_assert!(told >= Duration::from_secs(stated));
            }
        }
    }
}
