//! Aligned windows decide as those of a clock whose origin lies at the moment they are aligned to.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Algorithm, Ask, FixedWindow, GiveBack, PacedWindow, Quota, SlidingCounter, SubWindows, Tick,
};

#[derive(Clone, Debug)]
enum Act {
    Ask {
        cost: u64,
        wait: u64,
    },
    /// Gives back what was admitted last.
    Return,
    Charge(u64),
    Refund(u64),
    Retune(Quota),
}

fn quota() -> impl Strategy<Value = Quota> {
    let period = prop_oneof![1..20u64, 1_000_000_000..4_000_000_000u64, (1u64 << 50)..(1 << 58)];
    (0..6u64, period).prop_map(|(count, period)| Quota::per(count, Duration::from_nanos(period)))
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![
        4 => (0..4u64, 0..40u64).prop_map(|(cost, wait)| Act::Ask { cost, wait }),
        1 => Just(Act::Return),
        1 => (0..9u64).prop_map(Act::Charge),
        1 => (0..9u64).prop_map(Act::Refund),
        1 => quota().prop_map(Act::Retune),
    ];
    prop::collection::vec((prop_oneof![0..15u64, 0..2_000_000_000u64, 0..1u64 << 53], act), 1..20)
}

/// Runs `acts` and notes everything that can be seen.
fn run<A: Algorithm>(mut algorithm: A, acts: &[(u64, Act)], shift: u64) -> Vec<String> {
    let (mut state, mut now) = (A::State::default(), Tick::from_nanos(shift));
    let (mut last, mut seen) = (None, Vec::new());
    for (pause, act) in acts {
        now = now.plus_nanos(*pause);
        let change = match act {
            Act::Ask { cost, wait } => {
                let step = algorithm.decide(&state, now, Ask::within(*cost, Duration::from_nanos(*wait)));
                if let Some(change) = &step.change {
                    last = Some(algorithm.claim(change, *cost, now + step.decision.delay()));
                }
                seen.push(format!("{:?}", step.decision));
                step.change
            }
            Act::Return => last.take().and_then(|claim| {
                algorithm.give_back(&state, GiveBack { claim, amount: claim.cost, ahead: now }, now)
            }),
            Act::Charge(extra) => algorithm.charge(&state, *extra, now),
            Act::Refund(amount) => algorithm.refund(&state, *amount, now),
            Act::Retune(quota) => {
                (algorithm, state) = algorithm.retune(&state, now, *quota);
                last = None;
                None
            }
        };
        if let Some(change) = change {
            algorithm.apply(&mut state, change);
        }
        let facts = algorithm.decide(&state, now, Ask::now(0)).decision;
        seen.push(format!("{act:?}: {facts:?}, idle: {}", algorithm.is_idle(&state, now)));
    }
    seen
}

/// The same history with a clock that began at the moment windows are aligned to.
fn agrees<A: Algorithm>(
    make: impl Fn(Quota) -> A,
    aligned: impl Fn(A, Duration) -> A,
    quota: Quota,
    acts: &[(u64, Act)],
    age: u64,
) {
    let expected = run(make(quota), acts, age);
    assert_eq!(run(aligned(make(quota), Duration::from_nanos(age)), acts, 0), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn fixed_windows(quota in quota(), acts in acts(), age in prop_oneof![0..40u64, 0..4_000_000_000u64, 0..1u64 << 57]) {
        agrees(FixedWindow::new, FixedWindow::aligned, quota, &acts, age);
    }

    #[test]
    fn paced_windows(quota in quota(), acts in acts(), age in prop_oneof![0..40u64, 0..4_000_000_000u64, 0..1u64 << 57]) {
        agrees(PacedWindow::new, PacedWindow::aligned, quota, &acts, age);
    }

    /// Answers, item 17: the windows of a counter can be aligned to the wall clock.
    #[test]
    fn sliding_counters(quota in quota(), acts in acts(), age in prop_oneof![0..40u64, 0..4_000_000_000u64, 0..1u64 << 57]) {
        agrees(SlidingCounter::new, SlidingCounter::aligned, quota, &acts, age);
    }

    /// Answers, item 17: sub-windows can be aligned to the wall clock.
    #[test]
    fn sub_windows(
        quota in quota(),
        acts in acts(),
        parts in 1..12u32,
        age in prop_oneof![0..40u64, 0..4_000_000_000u64, 0..1u64 << 57],
    ) {
        agrees(|quota| SubWindows::new(quota).parts(parts), SubWindows::aligned, quota, &acts, age);
    }
}
