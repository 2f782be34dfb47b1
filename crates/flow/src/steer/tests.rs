use std::collections::VecDeque;
use std::sync::Mutex;

use tollgate::{ConcurrencyLimit, Kind, Limiter, ManualClock, Quota};

use super::Advice::{Hold, Lower, Raise};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Reads one after the other; after the last, nothing.
struct Script(VecDeque<io::Result<Option<f64>>>);

impl Signal for Script {
    fn read(&mut self) -> io::Result<Option<f64>> {
        self.0.pop_front().unwrap_or(Ok(None))
    }
}

fn script(readings: impl IntoIterator<Item = f64>) -> Script {
    Script(readings.into_iter().map(|reading| Ok(Some(reading))).collect())
}

fn unreadable() -> io::Result<Option<f64>> {
    Err(io::Error::other("sensor unplugged"))
}

/// The limits after each of `steps` steps, a second apart.
fn limits(steer: &mut Steer, steps: u32) -> Vec<f64> {
    (0..steps).map(|n| steer.step(Tick::ZERO + n * SECOND).unwrap().limit).collect()
}

#[test]
fn one_signal_drives_a_limit_down_and_up_within_its_bounds() {
    let readings = [0.9, 0.9, 0.7, 0.5, 0.5, 0.8, 0.6, 0.81, 0.95, 0.95, 0.1];
    let mut steer = Steer::any(100.0, 20.0..=120.0, |_| {})
        .signal("cpu", script(readings), 0.6..=0.8)
        .lower_to(0.5)
        .raise_by(30.0)
        .build()
        .unwrap();
    let expected = [50.0, 25.0, 25.0, 55.0, 85.0, 85.0, 85.0, 42.5, 21.25, 20.0, 50.0];
    assert_eq!(limits(&mut steer, 11), expected);
}

#[test]
fn of_several_signals_the_tightest_wins() {
    let mut steer = Steer::any(100.0, 1.0..=1_000.0, |_| {})
        .signal("cpu", script([0.1, 0.1, 0.1, 0.7, 0.9]), 0.6..=0.8)
        .signal("lag", script([1.0, 5.0, 50.0, 50.0, 50.0]), 2.0..=10.0)
        .lower_to(0.5)
        .raise_by(10.0)
        .build()
        .unwrap();
    let steps: Vec<_> = (0..5).map(|n| steer.step(Tick::ZERO + n * SECOND).unwrap()).collect();
    let told: Vec<_> = steps
        .iter()
        .map(|step| (step.readings[0].advice, step.readings[1].advice, step.advice, step.limit))
        .collect();
    assert_eq!(
        told,
        [
            (Raise, Raise, Raise, 110.0),
            (Raise, Hold, Hold, 110.0),
            (Raise, Lower, Lower, 55.0),
            (Hold, Lower, Lower, 27.5),
            (Lower, Lower, Lower, 13.75),
        ]
    );
}

#[test]
fn an_unreadable_signal_holds_and_is_reported() {
    let broken =
        Script(VecDeque::from([unreadable(), Ok(Some(f64::NAN)), Ok(Some(f64::INFINITY)), unreadable()]));
    let mut steer = Steer::any(100.0, 1.0..=200.0, |_| {})
        .signal("broken", broken, 0.6..=0.8)
        .signal("fine", script([0.0, 0.0, 0.0, 1.0]), 0.6..=0.8)
        .build()
        .unwrap();
    let errors = ["sensor unplugged", "a reading of NaN says nothing", "a reading of inf says nothing"];
    for (n, error) in (0..).zip(errors) {
        let step = steer.step(Tick::ZERO + n * SECOND).unwrap();
        assert_eq!((step.advice, step.limit.to_bits()), (Hold, 100_f64.to_bits()));
        assert_eq!(step.readings[0].value.as_ref().unwrap_err().to_string(), error);
        assert_eq!((&*step.readings[1].name, step.readings[1].advice), ("fine", Raise));
    }
    let step = steer.step(Tick::ZERO + 3 * SECOND).unwrap();
    assert_eq!((step.advice, step.limit.to_bits()), (Lower, 70_f64.to_bits()), "another can still lower it");
}

#[test]
fn a_signal_with_nothing_to_tell_holds_without_an_error() {
    let errors = Average::new();
    let mut steer =
        Steer::any(100.0, 1.0..=200.0, |_| {}).signal("errors", errors.clone(), 0.01..=0.05).build().unwrap();
    let step = steer.step(Tick::ZERO).unwrap();
    assert!(matches!(step.readings[0].value, Ok(None)));
    assert_eq!((step.advice, step.limit.to_bits()), (Hold, 100_f64.to_bits()));
    for call in 0..10 {
        errors.add_outcome(call == 3);
    }
    let step = steer.step(Tick::ZERO + SECOND).unwrap();
    assert!(matches!(step.readings[0].value, Ok(Some(share)) if share.to_bits() == 0.1_f64.to_bits()));
    assert_eq!(step.advice, Lower);
    let step = steer.step(Tick::ZERO + 2 * SECOND).unwrap();
    assert!(matches!(step.readings[0].value, Ok(None)), "what was read is not read again");
}

#[test]
fn there_is_at_most_one_step_in_an_interval() {
    let mut steer = Steer::any(100.0, 1.0..=200.0, |_| {})
        .signal("load", || 1.0, 0.6..=0.8)
        .lower_to(0.5)
        .every(10 * SECOND)
        .build()
        .unwrap();
    let stepped: Vec<_> = [0, 1, 9, 10, 12, 19, 20]
        .map(|second| steer.step(Tick::ZERO + second * SECOND).map(|step| step.limit))
        .to_vec();
    assert_eq!(stepped, [Some(50.0), None, None, Some(25.0), None, None, Some(12.5)]);
}

#[test]
fn a_limit_is_only_set_when_it_moves() {
    let applied = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&applied);
    let mut steer = Steer::any(500.0, 50.0..=100.0, move |limit| seen.lock().unwrap().push(limit))
        .signal("load", script([0.0, 0.7, 0.9, 0.9]), 0.6..=0.8)
        .lower_to(0.5)
        .build()
        .unwrap();
    assert_eq!(limits(&mut steer, 4), [100.0, 100.0, 50.0, 50.0]);
    assert_eq!(*applied.lock().unwrap(), [100.0, 50.0], "at the start, and when it fell");
}

#[test]
fn a_concurrency_limit_is_rounded_down_and_grows_from_one() {
    let limit = ConcurrencyLimit::new(3);
    let mut steer = Steer::concurrency(&limit, 1..=10)
        .signal("load", script([0.9, 0.9, 0.9, 0.0, 0.0, 0.0]), 0.6..=0.8)
        .raise_percent(30.0)
        .build()
        .unwrap();
    let mut seen = Vec::new();
    for n in 0..6 {
        steer.step(Tick::ZERO + n * SECOND);
        seen.push(limit.limit());
    }
    // 2.1, 1.47, 1.029, 1.3377, 1.739, 2.26
    assert_eq!(seen, [2, 1, 1, 1, 1, 2]);
}

#[test]
fn a_rate_keeps_its_period_and_burst() {
    let clock = ManualClock::new();
    let limiter =
        Limiter::builder(Quota::per_hour(1_000).burst(7)).kind(Kind::FixedWindow).clock(clock).build();
    let mut steer =
        Steer::rate(&limiter, 100..=800).signal("load", script([0.9, 0.0]), 0.6..=0.8).build().unwrap();
    assert_eq!(limiter.quota(), Quota::per_hour(800).burst(7), "brought within its bounds");
    steer.step(Tick::ZERO);
    assert_eq!(limiter.quota(), Quota::per_hour(560).burst(7));
    steer.step(Tick::ZERO + SECOND);
    assert_eq!(limiter.quota(), Quota::per_hour(588).burst(7));
}

#[tokio::test(start_paused = true)]
async fn running_takes_a_step_each_interval_until_it_is_stopped() {
    let (time, stop) = (Time::tokio(), CancellationToken::new());
    let told = Arc::new(Mutex::new(Vec::new()));
    let (clock, seen) = (time.clone(), Arc::clone(&told));
    let limit = ConcurrencyLimit::new(80);
    let mut steer = Steer::concurrency(&limit, 1..=100)
        .signal("load", script([0.9, 0.9, 0.0]), 0.6..=0.8)
        .lower_to(0.5)
        .raise_by(3.0)
        .every(10 * SECOND)
        .on_step(move |step| seen.lock().unwrap().push((clock.now().since(Tick::ZERO), step.limit)))
        .build()
        .unwrap();
    let (clock, token) = (time.clone(), stop.clone());
    let running = tokio::spawn(async move { steer.run(&clock, &token).await });
    time.sleep(45 * SECOND).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(time.now(), Tick::ZERO + 45 * SECOND);
    let expected = [(10, 40.0), (20, 20.0), (30, 23.0), (40, 23.0)];
    assert_eq!(*told.lock().unwrap(), expected.map(|(second, limit)| (second * SECOND, limit)));
    assert_eq!(limit.limit(), 23);
}

#[tokio::test(start_paused = true)]
async fn running_that_is_dropped_goes_on_later() {
    let time = Time::tokio();
    let mut steer =
        Steer::any(64.0, 1.0..=64.0, |_| {}).signal("load", || 1.0, 0.6..=0.8).lower_to(0.5).build().unwrap();
    for limit in [16_f64, 4.0] {
        let stop = CancellationToken::new();
        let run = steer.run(&time, &stop);
        assert!(time.timeout(5 * SECOND / 2, run).await.is_err());
        assert_eq!(steer.limit().to_bits(), limit.to_bits());
    }
}

#[test]
fn what_could_never_work_is_refused_in_clear_words() {
    let say = |builder: SteerBuilder| builder.build().unwrap_err().to_string();
    let any =
        |bounds| Steer::any(1.0, bounds, |_| panic!("nothing to apply")).signal("load", || 0.0, 0.0..=1.0);
    assert_eq!(say(Steer::any(1.0, 1.0..=2.0, |_| {})), "nothing to steer by: add a signal");
    assert_eq!(
        say(any(5.0..=2.0)),
        "bounds 5..=2: the first must be at least 0, the second finite and no less than the first"
    );
    assert_eq!(
        say(any(1.0..=2.0).signal("lag", || 0.0, 9.0..=3.0)),
        "signal \"lag\": marks 9..=3 must be finite, the second no less than the first"
    );
    assert_eq!(
        say(any(1.0..=2.0).lower_to(1.5)),
        "lower_to(1.5): must be more than 0 and less than 1, such as 0.7"
    );
    assert_eq!(say(any(1.0..=2.0).raise_by(0.0)), "a rise of 0: must be more than 0 and finite");
    assert_eq!(
        say(any(0.0..=2.0)),
        "a limit of 0 cannot rise by per cent: use raise_by, or bounds that begin above 0"
    );
    assert_eq!(
        say(any(1.0..=2.0).every(Duration::ZERO)),
        "an interval of zero: must be longer, such as a second"
    );
    let unlimited = Limiter::new(Quota::UNLIMITED);
    assert_eq!(
        say(Steer::rate(&unlimited, 1..=2).signal("load", || 0.0, 0.0..=1.0)),
        "an unlimited quota has no rate to steer: set one, such as 100/s, first"
    );
    assert!(unlimited.quota().is_unlimited());
}

#[test]
fn a_limit_may_be_steered_down_to_a_pause_and_up_again() {
    let limit = ConcurrencyLimit::new(2);
    let mut steer = Steer::concurrency(&limit, 0..=u64::MAX)
        .signal("load", script([0.9, 0.9, 0.9, 0.0]), 0.6..=0.8)
        .raise_by(1.0)
        .build()
        .unwrap();
    limits(&mut steer, 3); // 1.4, 0.98, 0.686
    assert_eq!(limit.limit(), 0);
    steer.step(Tick::ZERO + 3 * SECOND);
    assert_eq!(limit.limit(), 1);
}
