//! Whether a dead worker is replaced: pure, on moments handed in.

use std::collections::VecDeque;
use std::time::Duration;

use tollgate::Tick;

/// When to give up, and when to forget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// So many restarts...
    pub(super) most: u32,
    /// ...within this span.
    pub(super) within: Duration,
    /// A worker that lived for so long was well.
    pub(super) steady_after: Duration,
}

/// The deaths that still count.
#[derive(Debug)]
pub(super) struct Restarts {
    rules: Rules,
    /// When each was, oldest first; never more than `rules.most`.
    deaths: VecDeque<Tick>,
    in_a_row: u32,
}

impl Restarts {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, deaths: VecDeque::new(), in_a_row: 0 }
    }

    /// Counts a death at `now` of a worker that `lived` so long. How many came right before it, for the backoff; `None` if
    /// it was one too many.
    pub(super) fn died(&mut self, now: Tick, lived: Duration) -> Option<u32> {
        while self.deaths.front().is_some_and(|death| now.since(*death) >= self.rules.within) {
            self.deaths.pop_front();
        }
        if self.deaths.len() >= self.rules.most as usize {
            return None;
        }
        self.deaths.push_back(now);
        let before = if lived >= self.rules.steady_after { 0 } else { self.in_a_row };
        self.in_a_row = before.saturating_add(1);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules =
        Rules { most: 2, within: Duration::from_secs(10), steady_after: Duration::from_secs(5) };

    fn at(second: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(second)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_death_too_many_within_the_span_is_the_end() {
        let mut restarts = Restarts::new(RULES);
        assert_eq!(restarts.died(at(0), secs(0)), Some(0));
        assert_eq!(restarts.died(at(1), secs(1)), Some(1));
        assert_eq!(restarts.died(at(9), secs(1)), None);
    }

    #[test]
    fn a_death_counts_no_longer_once_the_span_is_over() {
        let mut restarts = Restarts::new(RULES);
        assert_eq!(restarts.died(at(0), secs(0)), Some(0));
        assert_eq!(restarts.died(at(4), secs(4)), Some(1));
        assert_eq!(restarts.died(at(10), secs(4)), Some(2));
        assert_eq!(restarts.died(at(13), secs(3)), None);
    }

    #[test]
    fn a_worker_that_was_well_begins_a_new_row() {
        let mut restarts = Restarts::new(Rules { most: 9, ..RULES });
        assert_eq!(restarts.died(at(0), secs(0)), Some(0));
        assert_eq!(restarts.died(at(1), secs(1)), Some(1));
        assert_eq!(restarts.died(at(6), secs(5)), Some(0));
        assert_eq!(restarts.died(at(7), secs(1)), Some(1));
    }

    #[test]
    fn zero_restarts_gives_up_at_the_first_death_and_a_span_of_zero_never_does() {
        let mut never = Restarts::new(Rules { most: 0, ..RULES });
        assert_eq!(never.died(at(0), secs(100)), None);
        let mut always = Restarts::new(Rules { most: 1, within: Duration::ZERO, ..RULES });
        for n in 0..1_000 {
            assert_eq!(always.died(at(0), secs(0)), Some(n));
        }
        assert_eq!(always.deaths.len(), 1);
    }

    #[test]
    fn without_end_neither_moments_nor_memory_overflow() {
        let rules = Rules { most: u32::MAX, within: Duration::MAX, steady_after: Duration::MAX };
        let mut restarts = Restarts::new(rules);
        restarts.in_a_row = u32::MAX;
        assert_eq!(restarts.died(Tick::MAX, Duration::MAX), Some(0));
        restarts.in_a_row = u32::MAX;
        assert_eq!(restarts.died(Tick::MAX, secs(1)), Some(u32::MAX));
        assert_eq!(restarts.died(Tick::MAX, secs(1)), Some(u32::MAX));
    }

    proptest! {
        /// Checked against the definition: all restarts ever made, and how many of them lie within the span.
        #[test]
        fn a_restart_is_refused_exactly_when_the_span_holds_the_most(
            gaps in prop::collection::vec(0..8_u64, 1..60),
            most in 0..5_u32,
            within in 0..30_u64,
        ) {
            let mut restarts = Restarts::new(Rules { most, within: secs(within), ..RULES });
            let (mut now, mut made) = (0, Vec::new());
            for gap in gaps {
                now += gap;
                let recent = made.iter().filter(|death| now - **death < within).count();
                let restarted = restarts.died(at(now), secs(gap)).is_some();
                prop_assert_eq!(restarted, recent < most as usize);
                if restarted {
                    made.push(now);
                }
            }
        }
    }
}
