//! Estimators against a server that queues: one window after the other by arithmetic, and call by call in virtual time.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::Semaphore;
use tollgate_flow::concurrency::Sample;
use tollgate_flow::{AdaptiveLimit, Aimd, Estimator, Gradient2, Time, Vegas};

/// A server that works on `capacity` calls at once, for `service` each; the others wait. Who would wait for more than
/// `patience` is dropped.
struct Server {
    capacity: u32,
    service: Duration,
    patience: Duration,
}

impl Server {
    fn of(capacity: u32) -> Self {
        Self { capacity, service: Duration::from_millis(100), patience: Duration::from_secs(1) }
    }

    /// What a client sees that always has as many calls under way as it may: by Little's law a call takes
    /// in flight / throughput.
    fn sample(&self, in_flight: u64) -> Sample {
        let load = f64::from(u32::try_from(in_flight).unwrap()) / f64::from(self.capacity);
        let rtt = self.service.mul_f64(load.max(1.0));
        Sample { rtt, in_flight, dropped: rtt.saturating_sub(self.service) > self.patience }
    }

    /// Lets `estimator` go on for so many windows.
    fn run(&self, estimator: &mut dyn Estimator, windows: u32) -> u64 {
        for _ in 0..windows {
            estimator.learn(self.sample(estimator.limit()));
        }
        estimator.limit()
    }
}

#[track_caller]
fn assert_within(limit: u64, range: RangeInclusive<u64>) {
    assert!(range.contains(&limit), "{limit} is not in {range:?}");
}

#[test]
fn vegas_settles_at_capacity_plus_a_short_queue_and_follows_it() {
    let mut vegas = Vegas::with_random(fastrand::Rng::with_seed(1));
    // 3 s to 6 s calls in the queue, s = log10 57 = 1.76: at 50 + 5.3 to 50 + 10.6.
    assert_within(Server::of(50).run(&mut vegas, 100), 54..=61);
    // Half of it: s = log10 30 = 1.48, at 25 + 4.4 to 25 + 8.9.
    assert_within(Server::of(25).run(&mut vegas, 100), 28..=34);
    assert_within(Server::of(50).run(&mut vegas, 100), 54..=61);
}

#[test]
fn gradient2_settles_within_its_tolerance_and_follows_capacity_down() {
    let mut gradient = Gradient2::new();
    // Round trips may be 1.5 times as long as usual, and "usual" grows slowly: a bit above 1.5 · 50.
    let full = Server::of(50).run(&mut gradient, 120);
    assert_within(full, 50..=100);
    let half = Server::of(25).run(&mut gradient, 60);
    assert!(half.abs_diff(full / 2) <= full / 8, "from {full} to {half}");
}

#[test]
fn gradient2_goes_down_under_constant_time_outs() {
    let mut gradient = Gradient2::new();
    Server::of(50).run(&mut gradient, 60);
    for _ in 0..60 {
        let in_flight = gradient.limit();
        gradient.learn(Sample { rtt: Duration::from_secs(1), in_flight, dropped: true });
    }
    assert_eq!(gradient.limit(), 1);
    // And comes back by 0.8 a window.
    assert_within(Server::of(50).run(&mut gradient, 50), 35..=45);
}

#[test]
fn aimd_saws_below_the_point_where_drops_begin() {
    let mut aimd = Aimd::new().within(1..=1_000);
    // A wait of a second is ten rounds of 100 ms: drops begin above 50 + 10 · 50.
    Server::of(50).run(&mut aimd, 1_000);
    let mut seen = (0..100).map(|_| Server::of(50).run(&mut aimd, 1)).collect::<Vec<_>>();
    seen.sort_unstable();
    assert_within(seen[0], 490..=500); // 0.9 · 551 = 495
    assert_within(seen[99], 545..=552);
    Server::of(25).run(&mut aimd, 100);
    assert_within(aimd.limit(), 240..=276);
}

/// The same, call by call: the server is a semaphore, and there is always somebody who wants to call.
async fn settle(limit: &AdaptiveLimit, server: &Arc<Semaphore>, span: Duration) -> u64 {
    let time = Time::tokio();
    let end = time.now() + span;
    let callers = (0..150).map(|_| {
        let (limit, server, time) = (limit.clone(), Arc::clone(server), time.clone());
        tokio::spawn(async move {
            while time.now() < end {
                let permit = limit.acquire().await.expect("nobody closes it");
                let slot = server.acquire().await.expect("nobody closes it");
                time.sleep(Duration::from_millis(100)).await;
                drop(slot);
                permit.success();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no caller panics");
    }
    limit.limit()
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_limit_finds_the_capacity_of_a_server_and_of_half_of_it() {
    let estimator = Vegas::with_random(fastrand::Rng::with_seed(1));
    let limit = AdaptiveLimit::new(estimator, Time::tokio());
    let server = Arc::new(Semaphore::new(40));
    assert_within(settle(&limit, &server, Duration::from_secs(60)).await, 40..=54);
    server.forget_permits(20);
    assert_within(settle(&limit, &server, Duration::from_secs(60)).await, 20..=30);
    assert_eq!(limit.concurrency().in_use(), 0);
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let nanos = prop_oneof![Just(0), Just(1), any::<u64>(), 0_u64..10_000_000_000];
    let rtt = prop_oneof![nanos.prop_map(Duration::from_nanos), Just(Duration::MAX)];
    let in_flight = prop_oneof![Just(0), Just(u64::MAX), 0_u64..2_000];
    let sample = (rtt, in_flight, any::<bool>());
    let sample = sample.prop_map(|(rtt, in_flight, dropped)| Sample { rtt, in_flight, dropped });
    proptest::collection::vec(sample, 0..300)
}

proptest! {
    #[test]
    fn no_sample_takes_a_limit_out_of_its_bounds(
        samples in samples(),
        least in 1_u64..50,
        more in 0_u64..1_000,
        start in any::<u64>(),
        seed in any::<u64>(),
    ) {
        let range = least..=least + more;
        let vegas = Vegas::with_random(fastrand::Rng::with_seed(seed));
        let mut estimators: [Box<dyn Estimator>; 3] = [
            Box::new(Aimd::new().within(range.clone()).starting_at(start)),
            Box::new(vegas.within(range.clone()).starting_at(start)),
            Box::new(Gradient2::new().within(range.clone()).starting_at(start)),
        ];
        for estimator in &mut estimators {
            for sample in &samples {
                estimator.learn(*sample);
                prop_assert!(range.contains(&estimator.limit()), "{estimator:?}");
            }
        }
    }
}
