//! A limit that stays within bounds.

use std::ops::RangeInclusive;

use tollgate::ConcurrencyLimit;

/// A limit, with the fractions that it grows by, between a least and a most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    value: f64,
    least: f64,
    most: f64,
}

impl Bounded {
    pub(super) fn new(start: u64, range: RangeInclusive<u64>) -> Self {
        let (least, most) = range.into_inner();
        assert!(
            1 <= least && least <= most && most <= ConcurrencyLimit::MOST,
            "limits from {least} to {most}: expected 1 <= least <= most <= {}",
            ConcurrencyLimit::MOST
        );
        let mut bounded = Self { value: 0.0, least: as_f64(least), most: as_f64(most) };
        bounded.set(as_f64(start.min(ConcurrencyLimit::MOST)));
        bounded
    }

    /// The same limit between other bounds.
    pub(super) fn within(self, range: RangeInclusive<u64>) -> Self {
        Self::new(self.value as u64, range)
    }

    /// Another limit between the same bounds.
    pub(super) fn starting_at(self, start: u64) -> Self {
        Self::new(start, self.least as u64..=self.most as u64)
    }

    pub(super) fn set(&mut self, value: f64) {
        self.value = value.clamp(self.least, self.most);
    }

    pub(super) fn value(&self) -> f64 {
        self.value
    }

    pub(super) fn whole(&self) -> u64 {
        self.value as u64
    }
}

/// Counts here stay below 2^30, which a float holds exactly.
#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_outside_the_bounds_is_moved_inside() {
        assert_eq!(Bounded::new(5, 10..=20).whole(), 10);
        assert_eq!(Bounded::new(u64::MAX, 10..=20).whole(), 20);
    }

    #[test]
    #[should_panic(expected = "limits from 0 to 20: expected 1 <= least <= most")]
    fn no_limit_may_be_zero() {
        let _ = Bounded::new(5, 0..=20);
    }

    #[test]
    #[should_panic(expected = "limits from 21 to 20")]
    fn the_least_is_not_above_the_most() {
        #[allow(clippy::reversed_empty_ranges, reason = "this is what must be refused")]
        let _ = Bounded::new(5, 21..=20);
    }
}
