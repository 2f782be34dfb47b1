//! A change of quota gives nobody anything.

use core::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, AnyAlgorithm, AnyState, Ask, GiveBack, Kind, Quota, Tick};

const MINUTE: Duration = Duration::from_secs(60);

/// A limit of any kind with its state.
struct Limit {
    algorithm: AnyAlgorithm,
    state: AnyState,
}

impl Limit {
    fn new(kind: Kind, count: u64) -> Self {
        Self { algorithm: AnyAlgorithm::new(kind, per_minute(count)), state: AnyState::default() }
    }

    /// How many are admitted at this moment, of a hundred.
    fn drain(&mut self, now: Tick) -> usize {
        (0..100).filter(|_| self.algorithm.step(&mut self.state, now, Ask::now(1)).is_allowed()).count()
    }

    fn set(&mut self, count: u64, now: Tick) {
        (self.algorithm, self.state) = self.algorithm.retune(&self.state, now, per_minute(count));
    }

    /// As a store does that has many states: the new algorithm is not made for this one.
    fn move_to(&mut self, count: u64, now: Tick) {
        let new = AnyAlgorithm::new(self.algorithm.kind(), per_minute(count));
        self.state = self.algorithm.moved(&self.state, now, per_minute(count), &new);
        self.algorithm = new;
    }

    fn charge(&mut self, extra: u64, now: Tick) {
        if let Some(change) = self.algorithm.charge(&self.state, extra, now) {
            self.algorithm.apply(&mut self.state, change);
        }
    }
}

/// With a burst of the whole count, as windows have it.
fn per_minute(count: u64) -> Quota {
    Quota::per(count, MINUTE).burst(count)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn counts_up_and_down_admit_no_more_than_the_highest(
        kind in kinds(),
        counts in prop::collection::vec(1..20_u64, 1..12),
        is_paused in any::<bool>(),
        at_ns in 0..200_000_000_000_u64,
        is_moved in any::<bool>(),
    ) {
        let (now, mut limit) = (Tick::from_nanos(at_ns), Limit::new(kind, counts[0]));
        let mut admitted = limit.drain(now);
        for count in &counts {
            if is_moved { limit.move_to(*count, now) } else { limit.set(*count, now) }
            admitted += limit.drain(now);
        }
        if is_paused {
            limit.set(0, now);
            limit.set(*counts.last().expect("one at least"), now);
            admitted += limit.drain(now);
        }
        let highest = counts.iter().max().copied().unwrap_or_default();
        prop_assert!(admitted as u64 <= highest, "{} of {}", admitted, highest);
    }

    #[test]
    fn a_debt_outlives_a_higher_count(
        kind in kinds(),
        [low, more, extra] in [1..20_u64, 0..20_u64, 0..40_u64],
        at_ns in 0..200_000_000_000_u64,
        is_moved in any::<bool>(),
    ) {
        let (now, mut limit) = (Tick::from_nanos(at_ns), Limit::new(kind, low));
        limit.drain(now);
        limit.charge(more + extra, now);
        if is_moved { limit.move_to(low + more, now) } else { limit.set(low + more, now) }
        prop_assert_eq!(limit.drain(now), 0);
    }
}

#[test]
fn what_was_used_before_is_no_debt_of_the_windows_that_follow() {
    for kind in [Kind::FixedWindow, Kind::PacedWindow] {
        let end_of = |minute: u64| Tick::from_nanos(minute * 60_000_000_000 - 1);
        let mut limit = Limit::new(kind, 10);
        assert_eq!(limit.drain(end_of(1)), 10, "{kind}");
        limit.set(3, end_of(1));
        assert_eq!([1, 2, 3].map(|minute| limit.drain(end_of(minute))), [0, 3, 3], "{kind}");
    }
}

/// A promise for the next window that was cancelled says nothing about this one.
#[test]
fn a_cancelled_promise_is_no_debt_after_a_change() {
    for kind in [Kind::FixedWindow, Kind::PacedWindow] {
        for [pause, then] in [[0, 10], [10, 10], [10, 1_000]] {
            let now = Tick::from_nanos(57_000_000_000);
            let mut limit = Limit::new(kind, 10);
            assert_eq!(limit.algorithm.step(&mut limit.state, now, Ask::now(8)).remaining(), 2, "{kind}");
            let promise = limit.algorithm.decide(&limit.state, now, Ask::whenever(3));
            let (change, act) = (promise.change.expect("of the next window"), now + promise.decision.delay());
            let claim = limit.algorithm.claim(&change, 3, act);
            limit.algorithm.apply(&mut limit.state, change);
            let back = GiveBack { claim, amount: 3, ahead: now };
            let change = limit.algorithm.give_back(&limit.state, back, now).expect("nobody is on top of it");
            limit.algorithm.apply(&mut limit.state, change);
            limit.set(pause, now);
            limit.set(then, now);
            let next = limit.algorithm.decide(&limit.state, now, Ask::now(1)).decision.retry_after();
            assert!(next <= Some(MINUTE), "{kind}, {pause} and {then}: {next:?}");
            assert!(limit.drain(now) <= 992, "what was used stays used");
        }
    }
}

/// A charge on a window that has used more than its count, by then, moves on to the next, and forgets nothing.
#[test]
fn what_was_used_under_a_higher_count_outlives_a_charge_and_a_pause() {
    for kind in [Kind::FixedWindow, Kind::PacedWindow] {
        let now = Tick::from_nanos(60_000_000_000 - 1);
        let mut limit = Limit::new(kind, 10);
        assert_eq!(limit.drain(now), 10, "{kind}");
        limit.set(1, now);
        limit.charge(1, now);
        limit.set(0, now);
        limit.set(10, now);
        assert_eq!(limit.drain(now), 0, "{kind}");
    }
}

/// What a promise pushed out of sight was used, and stays so in a longer window.
#[test]
fn a_cancelled_promise_gives_no_free_burst_in_a_longer_window() {
    for kind in [Kind::SlidingCounter, Kind::SubWindows, Kind::SlidingLog] {
        let now = Tick::ZERO;
        let mut limit = Limit::new(kind, 5);
        assert_eq!(limit.drain(now), 5, "{kind}");
        let promise = limit.algorithm.decide(&limit.state, now, Ask::whenever(5));
        let (change, act) = (promise.change.expect("later"), now + promise.decision.delay());
        let claim = limit.algorithm.claim(&change, 5, act);
        limit.algorithm.apply(&mut limit.state, change);
        let back = GiveBack { claim, amount: 5, ahead: now };
        if let Some(change) = limit.algorithm.give_back(&limit.state, back, now) {
            limit.algorithm.apply(&mut limit.state, change);
        }
        let hourly = Quota::per_hour(6);
        (limit.algorithm, limit.state) = limit.algorithm.retune(&limit.state, now, hourly);
        assert!(limit.drain(now) <= 1, "{kind}: six an hour, of which five were used");
    }
}

/// What a window used beyond its new count is owed by those that follow, and no longer that window's own to give back.
#[test]
fn what_is_owed_by_windows_to_come_cannot_be_given_back() {
    for kind in [Kind::FixedWindow, Kind::PacedWindow] {
        let (now, next) = (Tick::from_nanos(60_000_000_000 - 1), Tick::from_nanos(120_000_000_000 - 1));
        let mut limit = Limit::new(kind, 3);
        let change = limit.algorithm.decide(&limit.state, now, Ask::now(3)).change.expect("all three");
        let mut claim = Some(limit.algorithm.claim(&change, 3, now));
        limit.algorithm.apply(&mut limit.state, change);
        for count in [0, 2] {
            let before = (limit.algorithm, limit.state.clone());
            limit.set(count, now);
            claim = claim
                .and_then(|claim| before.0.carried(claim, &before.1, now, &limit.algorithm, &limit.state));
        }
        assert_eq!(limit.drain(next), 1, "{kind}: one of the two was used before");
        let back = claim.map(|claim| GiveBack { claim, amount: 3, ahead: next });
        if let Some(change) = back.and_then(|back| limit.algorithm.give_back(&limit.state, back, next)) {
            limit.algorithm.apply(&mut limit.state, change);
        }
        assert_eq!(limit.drain(next), 0, "{kind}");
    }
}
