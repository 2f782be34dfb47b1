//! Many nodes over a slow network keep both bounds: never more than the limit, nor less by more than nodes × lease.

use std::time::Duration;

use fastrand::Rng;
use tollgate_core::{Kind, Quota};
use tollgate_sim::bound::Bound;
use tollgate_sim::fleet::Fleet;

#[test]
fn nobody_gets_more_than_the_limit_nor_much_less() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let quota = Quota::per_second([50, 1_000, 10_000][rng.usize(..3)]).burst(rng.u64(10..5_000));
        let fleet = Fleet {
            quota,
            nodes: [1, 3, 10, 100][rng.usize(..4)],
            lease: [0, 2, 10, 100][rng.usize(..4)],
            one_way: Duration::from_micros(rng.u64(10..30_000)),
            demand: rng.u64(20..20_000),
            seed,
        };
        let run = fleet.run(Duration::from_secs(3));
        if let Err(violation) = Bound::of(Kind::TokenBucket, quota).check(&run.admitted) {
            panic!("{fleet:?}: {violation}");
        }
        assert!(run.admitted.len() as u64 <= run.possible, "{fleet:?}");
        assert!(run.out <= u64::from(fleet.nodes) * fleet.lease, "{fleet:?}: {} out", run.out);
    }
}

/// Demand that never ends, from a full bucket: what is missing is out on lease, or on its way.
#[test]
fn what_is_missing_in_overload_is_at_most_nodes_times_lease() {
    for (nodes, lease) in [(10, 0), (10, 20), (100, 10), (100, 100)] {
        let quota = Quota::per_second(1_000).burst(2_000);
        let fleet = Fleet { quota, nodes, lease, one_way: Duration::from_millis(10), demand: 5_000, seed: 3 };
        let run = fleet.run(Duration::from_secs(10));
        // Answers to the last 20 ms are on their way, and what was refused is not asked for again for another 20 ms.
        let unasked = 20 + 20 + 10;
        assert!(run.missing() <= u64::from(nodes) * lease + unasked, "{nodes} × {lease}: {}", run.missing());
    }
}

#[test]
fn leases_spare_calls() {
    let quota = Quota::per_second(10_000);
    let fleet =
        Fleet { quota, nodes: 10, lease: 0, one_way: Duration::from_millis(1), demand: 5_000, seed: 5 };
    let (alone, leased) =
        (fleet.run(Duration::from_secs(5)), Fleet { lease: 100, ..fleet }.run(Duration::from_secs(5)));
    assert_eq!(alone.calls, alone.asked);
    assert!(leased.calls * 20 < leased.asked, "{} calls for {}", leased.calls, leased.asked);
    // Below the limit nobody is refused, but some of the last 2 ms have no answer yet.
    assert!(alone.missing() <= 30 && leased.missing() <= 30, "{} and {}", alone.missing(), leased.missing());
}
