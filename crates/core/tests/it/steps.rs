//! One-word states: the short ways to a decision end where the long one does.

use core::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, AnyLevel, Ask, Kind, Tick};

use crate::strategies::{number, quota};

/// Any of those whose state is one word.
fn algorithm() -> impl Strategy<Value = AnyLevel> {
    let levels = |quota| Kind::ALL.into_iter().filter_map(move |kind| AnyLevel::new(kind, quota));
    (quota(), any::<prop::sample::Index>()).prop_map(move |(quota, index)| {
        let levels: Vec<AnyLevel> = levels(quota).collect();
        levels[index.index(levels.len())]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_step_is_a_decision_whose_change_is_written(
        algorithm in algorithm(),
        calls in prop::collection::vec((0..2_000_000_000_u64, prop_oneof![Just(1), 0..4_u64, number()], 0..3_u8), 1..40),
    ) {
        let (mut level, mut now) = (0, Tick::ZERO);
        for (pause, cost, patience) in calls {
            now = now.plus_nanos(pause);
            let ask = match patience {
                0 => Ask::now(cost),
                1 => Ask::within(cost, Duration::from_millis(300)),
                _ => Ask::now(cost).with_patience(algorithm.patience()),
            };
            let expected = algorithm.decide(&level, now, ask);
            let after = expected.change.unwrap_or(level);
            if ask == Ask::now(1) {
                let mut by_allow = level;
                prop_assert_eq!(algorithm.allow(&mut by_allow, now), expected.decision.is_allowed());
                prop_assert_eq!(by_allow, after);
            }
            prop_assert_eq!(algorithm.step(&mut level, now, ask), expected.decision);
            prop_assert_eq!(level, after);
        }
    }
}
