//! The history checker against the plainest possible one, and on a history as large as a real test records.

use fastrand::Rng;
use tollgate_core::Quota;
use tollgate_sim::history::{self, Excess, Operation};

/// Every pair of ends that has an operation between them, every operation counted anew.
fn naive_excess(count: i128, period: i128, burst: i128, operations: &[Operation]) -> Option<i128> {
    let spans = operations.iter().flat_map(|a| operations.iter().map(|b| (a.invoke_ns, b.response_ns)));
    spans
        .filter_map(|(start, end)| {
            let inside = operations.iter().filter(|o| start <= o.invoke_ns && o.response_ns <= end);
            let costs: Vec<i128> = inside.map(|o| i128::from(o.cost)).collect();
            let most = burst * period + count * (i128::from(end) - i128::from(start));
            (!costs.is_empty()).then(|| costs.iter().sum::<i128>() * period - most)
        })
        .max()
}

fn naive_trailing(period: u64, operations: &[Operation]) -> u128 {
    let inside = |end: u64| {
        let within = operations.iter().filter(move |o| o.response_ns <= end && o.invoke_ns + period > end);
        within.map(|o| u128::from(o.cost)).sum()
    };
    operations.iter().map(|o| inside(o.response_ns)).max().unwrap_or(0)
}

fn naive_window(period: u64, operations: &[Operation]) -> u128 {
    let inside = |window: u64| {
        let within = operations
            .iter()
            .filter(move |o| [o.invoke_ns, o.response_ns].map(|t| t / period) == [window; 2]);
        within.map(|o| u128::from(o.cost)).sum()
    };
    (0..20).map(inside).max().unwrap_or(0)
}

fn some_history(rng: &mut Rng) -> Vec<Operation> {
    let length = rng.usize(1..14);
    let mut operation = || {
        let invoke_ns = rng.u64(..60);
        Operation { invoke_ns, response_ns: invoke_ns + rng.u64(..25), cost: rng.u64(..5) }
    };
    (0..length).map(|_| operation()).collect()
}

#[test]
fn the_tree_finds_what_trying_everything_finds() {
    let mut rng = Rng::with_seed(5);
    for round in 0..20_000 {
        let operations = some_history(&mut rng);
        // Coprime, so that the fraction is already reduced.
        let (count, period, burst) = (rng.u64(1..4), [5, 7, 11][rng.usize(..3)], rng.u64(..8));
        let quota = Quota::per(count, std::time::Duration::from_nanos(period)).burst(burst);
        let worst: Excess = history::largest_excess(quota, &operations).unwrap();
        let naive = naive_excess(count.into(), period.into(), burst.into(), &operations).unwrap();
        assert_eq!(worst.numerator, naive, "round {round}: {quota} {operations:?}");
        let inside = |o: &&Operation| worst.start_ns <= o.invoke_ns && o.response_ns <= worst.end_ns;
        let cost: i128 = operations.iter().filter(inside).map(|o| i128::from(o.cost)).sum();
        assert_eq!(worst.cost, cost, "round {round}: the span named holds what is said");
    }
}

#[test]
fn the_fullest_windows_are_found() {
    let mut rng = Rng::with_seed(6);
    for round in 0..20_000 {
        let operations = some_history(&mut rng);
        let period = rng.u64(1..40);
        let trailing = history::fullest_trailing(period, &operations).unwrap();
        assert_eq!(
            trailing.cost,
            naive_trailing(period, &operations),
            "round {round}: {period} {operations:?}"
        );
        let window = history::fullest_window(period.max(5), &operations).map_or(0, |most| most.cost);
        assert_eq!(
            window,
            naive_window(period.max(5), &operations),
            "round {round}: {period} {operations:?}"
        );
    }
}

#[test]
fn a_history_survives_being_written_and_read() {
    let operations = some_history(&mut Rng::with_seed(7));
    let mut text = Vec::new();
    history::write_lines(&mut text, &operations).unwrap();
    assert_eq!(history::read_lines(text.as_slice()).unwrap(), operations);
}

#[test]
fn a_bad_line_is_named_with_what_is_wrong() {
    let good = "{\"invoke_ns\":1,\"response_ns\":2,\"cost\":1}";
    let cases = [
        ("{\"invoke_ns\":1,\"cost\":1}", "line 3: missing field `response_ns`"),
        (
            "{\"invoke_ns\":-1,\"response_ns\":2,\"cost\":1}",
            "line 3: invalid value: integer `-1`, expected u64",
        ),
        ("nonsense", "line 3: expected ident"),
        ("{\"invoke_ns\":9,\"response_ns\":2,\"cost\":1}", "line 3: the response at 2 ns comes before"),
    ];
    for (bad, what) in cases {
        let text = format!("{good}\n\n{bad}\n{good}\n");
        let error = history::read_lines(text.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(what), "{error}");
        assert_eq!(error.line(), 3);
    }
}

#[test]
fn millions_of_operations_are_no_trouble() {
    let mut rng = Rng::with_seed(8);
    let operation = |index: u64| {
        let invoke_ns = index * 100;
        Operation { invoke_ns, response_ns: invoke_ns + rng.u64(..5_000), cost: 1 }
    };
    // Ten million a second for a quarter of a second, each somewhere in the five microseconds after it was asked for.
    let operations: Vec<Operation> = (0..2_500_000).map(operation).collect();
    let quota = Quota::per_second(10_000_000);
    assert!(!history::largest_excess(quota.burst(1), &operations).unwrap().is_violation());
    let worst = history::largest_excess(Quota::per_second(5_000_000).burst(1), &operations).unwrap();
    assert!(worst.is_violation());
    assert!(worst.end_ns - worst.start_ns > 249_000_000, "at twice the rate the longest span is the worst");
}
