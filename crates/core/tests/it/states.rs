//! States as plain words: what is written is read back, and no words whatever can make an algorithm stumble.

use proptest::prelude::*;
use tollgate_core::{Algorithm, AnyAlgorithm, AnyState, Ask, Claim, GiveBack, Kind, Quota, SubWindows, Tick};

use crate::strategies::{number, quota};

fn algorithm() -> impl Strategy<Value = AnyAlgorithm> {
    (0..Kind::ALL.len(), quota(), 1..30_u32).prop_map(|(kind, quota, parts)| match Kind::ALL[kind] {
        Kind::SubWindows => AnyAlgorithm::SubWindows(SubWindows::new(quota).parts(parts)),
        kind => AnyAlgorithm::new(kind, quota),
    })
}

/// Words as they may be in a file: the right number of them, or about so many, in order or not.
fn words() -> impl Strategy<Value = Vec<u64>> {
    let any_words = prop::collection::vec(number(), 0..40);
    (any_words, any::<bool>()).prop_map(|(mut words, in_order)| {
        if in_order {
            words.sort_unstable();
        }
        words
    })
}

fn written(algorithm: &AnyAlgorithm, state: &AnyState) -> Vec<u64> {
    let mut words = Vec::new();
    algorithm.write_state(state, &mut words);
    words
}

/// Does everything to a state that can be done to one.
fn use_it(algorithm: &AnyAlgorithm, mut state: AnyState, now: Tick, numbers: [u64; 3], quota: Quota) {
    let [cost, mark, amount] = numbers;
    for ask in [Ask::now(1), Ask::now(0), Ask::now(cost), Ask::whenever(1), Ask::whenever(cost)] {
        let _ = algorithm.decide(&state, now, ask);
    }
    let _ = algorithm.is_idle(&state, now);
    let new = AnyAlgorithm::new(algorithm.kind(), quota);
    let _ = algorithm.moved(&state, now, quota, &new);
    let _ = algorithm.retune(&state, now, quota);
    let claim = Claim { cost, act: now, mark };
    if let Some(change) = algorithm.give_back(&state, GiveBack { claim, amount, ahead: now }, now) {
        algorithm.apply(&mut state, change);
    }
    if let Some(change) = algorithm.charge(&state, amount, now) {
        algorithm.apply(&mut state, change);
    }
    if let Some(change) = algorithm.refund(&state, amount, now) {
        algorithm.apply(&mut state, change);
    }
    let _ = algorithm.step(&mut state, now, Ask::whenever(cost));
    let _ = algorithm.step(&mut state, now, Ask::now(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_written_is_read_back(
        algorithm in algorithm(),
        calls in prop::collection::vec((0..2_000_000_000_u64, 0..4_u64, 0..7_u8), 0..20),
    ) {
        let (mut state, mut now) = (AnyState::default(), Tick::ZERO);
        for (pause, cost, act) in calls {
            now = now.plus_nanos(pause);
            let change = match act {
                0 => algorithm.charge(&state, cost, now),
                1 => algorithm.decide(&state, now, Ask::whenever(cost)).change,
                6 => algorithm.refund(&state, cost, now),
                _ => algorithm.decide(&state, now, Ask::now(cost)).change,
            };
            let Some(change) = change else { continue };
            let claim = algorithm.claim(&change, cost, now);
            algorithm.apply(&mut state, change);
            if act == 2
                && let Some(change) = algorithm.give_back(&state, GiveBack { claim, amount: 1, ahead: now }, now)
            {
                algorithm.apply(&mut state, change);
            }
        }
        let words = written(&algorithm, &state);
        let read = algorithm.read_state(&words);
        // A log from which everything was taken back has no words, and is fresh.
        let wanted = if words.is_empty() { AnyState::Fresh } else { state };
        prop_assert_eq!(read, Some(wanted));
    }

    #[test]
    fn no_words_make_an_algorithm_stumble(
        algorithm in algorithm(),
        words in words(),
        now in number(),
        numbers in [number(), number(), number()],
        quota in quota(),
    ) {
        let now = Tick::from_nanos(now);
        if let Some(state) = algorithm.read_state(&words) {
            prop_assert_eq!(&written(&algorithm, &state), &words);
            use_it(&algorithm, state, now, numbers, quota);
        }
        // Most words are not a state at all; these are, if anything of this kind is.
        let fitting = match algorithm.kind() {
            Kind::SlidingLog => words[..words.len() / 2 * 2].to_vec(),
            Kind::SlidingCounter => numbers.to_vec(),
            Kind::SubWindows => words.iter().copied().cycle().take(algorithm.parts() as usize + 2).collect(),
            _ => vec![numbers[1]],
        };
        if let Some(state) = algorithm.read_state(&fitting) {
            use_it(&algorithm, state, now, numbers, quota);
        }
    }
}

#[test]
fn states_that_cannot_be_are_not_read() {
    let of = |kind| AnyAlgorithm::new(kind, Quota::per_second(10));
    let second = 1_000_000_000;
    let mut parts = vec![0; 12];
    (parts[0], parts[1]) = (9, 1); // the newest is part 9, so the first of eleven would be part -1
    let impossible: [(Kind, &[u64], &str); 11] = [
        (Kind::TokenBucket, &[1, 2], "two levels"),
        (Kind::FixedWindow, &[1, 2, 3], "three levels"),
        (Kind::SlidingCounter, &[1], "a window without counts"),
        (Kind::SlidingCounter, &[u64::MAX / second + 1, 1, 1], "a window after the end of time"),
        (Kind::SlidingLog, &[0, 5, 1], "forgotten before the beginning of time"),
        (Kind::SlidingLog, &[5, 1, 5, 1], "a time twice"),
        (Kind::SlidingLog, &[5, 1, 4, 1], "out of order"),
        (Kind::SlidingLog, &[5, 0], "a cost of nothing"),
        (Kind::SubWindows, &parts[..11], "ten counts instead of eleven"),
        (Kind::SubWindows, &parts, "a part before the first"),
        (Kind::SubWindows, &[u64::MAX, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "a part after the end of time"),
    ];
    for (kind, words, why) in impossible {
        assert_eq!(of(kind).read_state(words), None, "{kind}: {why}");
    }
    parts[0] = 10;
    assert!(of(Kind::SubWindows).read_state(&parts).is_some());
    assert!(of(Kind::SlidingCounter).read_state(&[u64::MAX / second, 1, 1]).is_some());
    assert!(of(Kind::SlidingLog).read_state(&[5, 1, 6, 1]).is_some());
    assert!(of(Kind::SlidingLog).read_state(&[3, 5, 1]).is_some(), "with what was forgotten by 3");
}

#[test]
fn it_does_not_matter_whether_an_algorithm_was_chosen_at_run_time() {
    let quota = Quota::per_second(10);
    for kind in Kind::ALL {
        assert_eq!(AnyAlgorithm::new(kind, quota).kind(), kind);
    }
    let (chosen, fixed) = (AnyAlgorithm::new(Kind::SubWindows, quota), SubWindows::new(quota));
    let mut state = AnyState::default();
    assert!(chosen.step(&mut state, Tick::ZERO, Ask::now(3)).is_allowed());
    let read = fixed.read_state(&written(&chosen, &state)).expect("the same form");
    assert_eq!(AnyState::Parts(read), state);
}
