use proptest::prelude::*;

use super::*;

fn at(millis: u64) -> Tick {
    Tick::from_nanos(millis * 1_000_000)
}

#[track_caller]
fn assert_rate(control: &RateControl, rate: f64) {
    assert!((control.rate() - rate).abs() < 1e-9, "{} is not {rate}", control.rate());
}

/// Answers that come 50 ms after they were asked for, one every `step` milliseconds.
fn accept(control: &mut RateControl, millis: std::ops::Range<u64>, step: usize) {
    for millis in millis.step_by(step) {
        control.hear(at(millis), Heard::accepted(at(millis - 50)));
    }
}

/// At 100/s for 2.25 s: answers from 50 ms to 2290 ms. Seconds are counted from the first, so 25 of the third have come.
fn steady() -> RateControl {
    let mut control = RateControl::new().starting_at(100.0).at_most(100.0);
    accept(&mut control, 50..2_300, 10);
    assert_rate(&control, 100.0);
    control
}

fn refuse(control: &mut RateControl, sent: u64, heard: u64) {
    control.hear(at(heard), Heard::refused(at(sent)));
}

#[test]
fn slow_start_doubles_as_far_as_the_last_second_bears_it_out() {
    let mut control = RateControl::new();
    accept(&mut control, 50..1_050, 100);
    assert_rate(&control, 10.0); // nothing was measured yet
    accept(&mut control, 1_050..1_051, 1);
    assert_rate(&control, 20.0); // ten in the first second
    accept(&mut control, 1_100..2_050, 50);
    assert_rate(&control, 20.0);
    accept(&mut control, 2_050..2_051, 1);
    // 1050, and 1100 to 2000 in steps of 50: twenty in the second one.
    assert_rate(&control, 40.0);
}

#[test]
fn a_refusal_takes_three_tenths() {
    let mut control = steady();
    refuse(&mut control, 2_250, 2_300);
    assert_rate(&control, 70.0); // 25 + 100 · 0.75 got through in a second
    assert_eq!(control.held_until(), Tick::ZERO);
}

#[test]
fn twenty_refusals_of_one_burst_are_one() {
    let mut control = steady();
    for late in 0..20 {
        refuse(&mut control, 2_250 + late, 2_300 + late);
    }
    assert_rate(&control, 70.0);
}

#[test]
fn a_late_refusal_of_what_was_sent_before_does_not_count_again() {
    let mut control = steady();
    refuse(&mut control, 2_250, 2_300);
    refuse(&mut control, 2_300, 4_000);
    assert_rate(&control, 70.0);
}

#[test]
fn the_rate_is_lowered_at_most_once_in_a_round() {
    let mut control = steady();
    refuse(&mut control, 2_250, 2_300);
    refuse(&mut control, 2_301, 2_399);
    assert_rate(&control, 70.0); // 99 ms later
    refuse(&mut control, 2_310, 2_400);
    assert_rate(&control, 49.0);
}

#[test]
fn a_round_is_as_long_as_a_round_trip() {
    let mut control = RateControl::new().starting_at(100.0);
    refuse(&mut control, 0, 1_000);
    assert_rate(&control, 35.0); // nothing got through, so half of it counts
    refuse(&mut control, 1_001, 1_999);
    assert_rate(&control, 35.0);
    refuse(&mut control, 1_002, 2_002);
    assert_rate(&control, 12.25); // 35 / 2 · 0.7
}

#[test]
fn refused_again_and_again_it_pauses_twice_as_long_each_time() {
    let mut control = RateControl::new().starting_at(100.0);
    let mut now = 0;
    for pause in [0, 100, 200, 400, 800, 1_000, 1_000] {
        refuse(&mut control, now + 1, now + 150);
        now += 150;
        assert_eq!(control.held_until().since(at(now)), Duration::from_millis(pause), "at {now} ms");
        now += pause;
    }
    control.hear(at(now + 150), Heard::accepted(at(now + 1)));
    refuse(&mut control, now + 150, now + 300);
    assert!(control.held_until() <= at(now + 300), "something got through in between");
}

#[test]
fn it_grows_by_a_20th_of_where_it_fell_from() {
    let mut control = steady();
    refuse(&mut control, 2_250, 2_300); // from 100, after two calm seconds
    refuse(&mut control, 2_310, 2_400); // from 70, at once: the limit is somewhere below; a pause of 100 ms
    control.hear(at(2_500), Heard::accepted(at(2_450)));
    assert_rate(&control, 49.0);
    control.hear(at(3_000), Heard::accepted(at(2_950)));
    assert_rate(&control, 51.5); // 49 + 0.05 · 100 · 0.5 s
}

#[test]
fn it_grows_by_one_at_least() {
    let mut control = RateControl::new().starting_at(10.0).at_most(10.0);
    accept(&mut control, 50..950, 100);
    refuse(&mut control, 900, 950); // nine got through in the first second, too soon to be calm
    assert_rate(&control, 6.3);
    accept(&mut control, 1_150..1_151, 1);
    assert_rate(&control, 6.5); // 6.3 + 1 · 0.2 s
}

#[test]
fn it_goes_back_quickly_to_where_all_was_well_and_rests() {
    let mut control = steady();
    refuse(&mut control, 2_250, 2_300);
    accept(&mut control, 2_320..2_321, 1);
    assert_rate(&control, 70.0 * 2_f64.powf(0.2)); // 20 ms of a round of 100 ms
    accept(&mut control, 2_400..2_401, 1);
    assert_rate(&control, 97.0);
    accept(&mut control, 2_410..4_410, 10);
    assert_rate(&control, 97.0); // two seconds' rest
    accept(&mut control, 4_410..4_411, 1);
    assert_rate(&control, 97.05); // + 5 · 0.01 s
}

#[test]
fn retry_after_is_a_hold_and_nothing_grows_meanwhile() {
    let mut control = steady();
    control.hear(at(2_300), Heard { wait: Duration::from_secs(5), ..Heard::refused(at(2_250)) });
    assert_eq!(control.held_until(), at(7_300));
    assert_rate(&control, 70.0);
    accept(&mut control, 2_310..2_400, 10); // what was under way
    assert_rate(&control, 70.0);
    accept(&mut control, 7_400..7_401, 1);
    assert_rate(&control, 97.0); // a round after the hold
}

#[test]
fn a_hold_is_never_shortened() {
    let mut control = steady();
    control.hear(at(2_300), Heard { wait: Duration::from_secs(5), ..Heard::refused(at(2_250)) });
    control.hear(at(2_310), Heard { wait: Duration::from_secs(1), ..Heard::refused(at(2_260)) });
    assert_eq!(control.held_until(), at(7_300));
    control.hear(at(2_320), Heard { wait: Duration::from_secs(6), ..Heard::refused(at(2_270)) });
    assert_eq!(control.held_until(), at(8_320));
    assert_rate(&control, 70.0);
}

#[test]
fn an_exhausted_budget_is_a_hold_and_not_a_refusal() {
    let mut control = steady();
    let last = Heard { wait: Duration::from_secs(1), ..Heard::accepted(at(2_250)) };
    control.hear(at(2_300), last);
    assert_eq!(control.held_until(), at(3_300));
    assert_rate(&control, 95.0);
    // Again within a second after that: 0.8 of what was used, and 0.95 of that. 95 is less than what got through, which is
    // 1 for itself and 0.6 of 26, but more than half of it is not believed: 47.5.
    control.hear(at(3_450), Heard { sent: at(3_400), ..last });
    assert_rate(&control, 47.5 * 0.8 * 0.95);
}

#[test]
fn what_is_stated_is_kept_to() {
    let mut control = steady();
    control.hear(at(2_300), Heard { stated: Some(50.0), ..Heard::accepted(at(2_250)) });
    assert_rate(&control, 47.5);
    accept(&mut control, 2_310..9_000, 20);
    assert_rate(&control, 47.5);
    control.hear(at(9_000), Heard { stated: Some(1e9), ..Heard::accepted(at(8_950)) });
    accept(&mut control, 9_010..12_000, 10);
    assert_rate(&control, 100.0); // and then its own most
}

#[test]
fn less_than_the_floor_can_be_stated_and_nothing_can_not() {
    let mut control = steady();
    control.hear(at(2_300), Heard { stated: Some(0.1), ..Heard::accepted(at(2_250)) });
    assert_rate(&control, 0.095);
    control.hear(at(2_310), Heard { stated: Some(0.0), ..Heard::accepted(at(2_260)) });
    assert_rate(&control, 1.0 / 600.0);
}

#[test]
fn the_floor_is_one_in_two_seconds() {
    let mut control = RateControl::new();
    for round in 0..100 {
        refuse(&mut control, round * 200 + 1, round * 200 + 150);
    }
    assert_rate(&control, 0.5);
}

#[test]
fn an_idle_client_earns_nothing() {
    let mut control = RateControl::new();
    accept(&mut control, 50..600_000, 10_000); // one in ten seconds
    assert_rate(&control, 10.0);
    let mut control = steady();
    refuse(&mut control, 2_250, 2_300);
    refuse(&mut control, 2_310, 2_400);
    accept(&mut control, 10_000..600_000, 10_000);
    assert_rate(&control, 49.0);
}

#[test]
#[should_panic(expected = "a start at NaN/s: expected a positive number")]
fn a_start_that_is_no_number_is_refused() {
    let _ = RateControl::new().starting_at(f64::NAN);
}

#[test]
#[should_panic(expected = "at most NaN/s: expected a number of at least 0.5")]
fn a_most_that_is_no_number_is_refused() {
    let _ = RateControl::new().at_most(f64::NAN);
}

fn heard() -> impl Strategy<Value = (u64, u64, Heard)> {
    let wait = prop_oneof![
        4 => Just(Duration::ZERO),
        1 => (0_u64..5_000).prop_map(Duration::from_millis),
        1 => Just(Duration::MAX)
    ];
    let stated = prop_oneof![
        6 => Just(None),
        1 => any::<f64>().prop_map(Some),
        1 => (0.0..1_000.0).prop_map(Some)
    ];
    let step = prop_oneof![6 => 0_u64..100_000_000, 1 => Just(10_000_000_000), 1 => Just(u64::MAX / 8)];
    let rtt = prop_oneof![4 => 0_u64..1_000_000_000, 1 => any::<u64>()];
    let cost = prop_oneof![4 => Just(1), 1 => any::<u64>()];
    (step, rtt, cost, any::<bool>(), wait, stated).prop_map(|(step, rtt, cost, refused, wait, stated)| {
        (step, rtt, Heard { sent: Tick::ZERO, cost, refused, wait, stated })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_takes_it_out_of_its_bounds(
        answers in proptest::collection::vec(heard(), 0..100),
        most in 0.5..1e9,
        is_cubic in any::<bool>(),
    ) {
        let control = RateControl::new().at_most(most);
        let mut control = if is_cubic { control.cubic() } else { control };
        let mut now = Tick::ZERO;
        for (step, rtt, heard) in answers {
            now = now.plus_nanos(step);
            let sent = Tick::from_nanos(now.as_nanos().saturating_sub(rtt));
            let before = control.clone();
            control.hear(now, Heard { sent, ..heard });
            prop_assert!(control.rate() >= LEAST_STATED * 0.999 && control.rate() <= most, "{control:?}");
            prop_assert!(control.held_until().since(now) <= LONGEST_WAIT);
            prop_assert!(control.held_until() >= before.held_until());
            if heard.refused {
                prop_assert!(control.rate() <= before.rate().max(FLOOR), "{before:?} {control:?}");
            }
            if let Some(stated) = heard.stated.filter(|stated| stated.is_finite()) {
                prop_assert!(control.rate() <= stated.max(LEAST_STATED));
            }
        }
    }
}
