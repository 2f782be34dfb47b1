//! Did a recorded history keep within its limit?
//!
//! A history says of each admitted operation when it was asked for and when the answer was there. The limiter decided
//! somewhere in between, nobody outside can know when, so an operation counts against a span only if the span contains
//! both ends. A bucket broke its promise if some span [s, e] contains more than `burst + rate·(e - s)`.
//!
//! Trying every pair of ends is quadratic. Going through the operations by their response instead, and keeping for every
//! possible start s the sum `cost inside + rate·s` in a tree that knows its greatest, costs a logarithm for each: all
//! comparisons are of whole numbers, so there is no tolerance to argue about.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use tollgate_core::Quota;

use crate::lines::{self, LineError};
use crate::oracle::Rate;

/// One admitted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// When it was asked for, or any moment before it was decided.
    pub invoke_ns: u64,
    /// When it was known to be admitted, or any moment after.
    pub response_ns: u64,
    /// What it cost.
    pub cost: u64,
}

impl Operation {
    /// An operation known to have happened exactly at `moment_ns`.
    pub fn at(moment_ns: u64, cost: u64) -> Self {
        Self { invoke_ns: moment_ns, response_ns: moment_ns, cost }
    }

    /// An operation that was promised the moment `act_ns`. Promises are rounded up to a whole nanosecond, so the exact
    /// moment lies within the nanosecond before.
    pub fn promised(act_ns: u64, cost: u64) -> Self {
        Self { invoke_ns: act_ns.saturating_sub(1), response_ns: act_ns, cost }
    }
}

/// Reads one operation to a line: `{"invoke_ns":1,"response_ns":2,"cost":1}`. Other fields are ignored.
///
/// # Errors
/// Names the first line that is not an operation, and what is wrong with it.
///
/// # Examples
/// ```
/// use tollgate_sim::history;
///
/// let log = "{\"invoke_ns\":5,\"response_ns\":9,\"cost\":1}\n{\"invoke_ns\":7,\"response_ns\":6,\"cost\":1}\n";
/// let error = history::read_lines(log.as_bytes()).unwrap_err();
/// assert_eq!(error.to_string(), "line 2: the response at 6 ns comes before the invocation at 7 ns");
/// ```
pub fn read_lines(reader: impl BufRead) -> Result<Vec<Operation>, LineError> {
    lines::read(reader, |operation: &Operation| {
        let Operation { invoke_ns, response_ns, .. } = operation;
        if invoke_ns <= response_ns {
            return Ok(());
        }
        Err(format!("the response at {response_ns} ns comes before the invocation at {invoke_ns} ns"))
    })
}

/// Writes one operation to a line.
///
/// # Errors
/// Passes on what the writer reports.
pub fn write_lines(writer: impl Write, operations: &[Operation]) -> io::Result<()> {
    lines::write(writer, operations)
}

/// How far a history goes beyond `burst + rate·T`, at its worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Tokens above the bound, times [`denominator`](Self::denominator); negative or zero if it was kept.
    pub numerator: i128,
    /// What to divide by.
    pub denominator: i128,
    /// Where the worst span begins.
    pub start_ns: u64,
    /// Where the worst span ends.
    pub end_ns: u64,
    /// The cost of the operations inside it.
    pub cost: i128,
}

impl Excess {
    /// Whether the bound was broken.
    pub fn is_violation(&self) -> bool {
        self.numerator > 0
    }
}

/// The span that goes furthest beyond `burst + rate·T`, or comes nearest to it. `None` if there is nothing to check: no
/// operations, or no limit.
///
/// # Examples
/// ```
/// use tollgate_core::Quota;
/// use tollgate_sim::history::{self, Operation};
///
/// let history = [0, 10, 20, 600_000_000].map(|ns| Operation::at(ns, 1));
/// let worst = history::largest_excess(Quota::per_second(2).burst(3), &history).unwrap();
/// assert!(!worst.is_violation());
/// let worst = history::largest_excess(Quota::per_second(2).burst(2), &history).unwrap();
/// assert!(worst.is_violation());
/// assert_eq!((worst.start_ns, worst.end_ns, worst.cost), (0, 20, 3));
/// ```
pub fn largest_excess(quota: Quota, operations: &[Operation]) -> Option<Excess> {
    if quota.is_unlimited() {
        return None;
    }
    let Rate { count, period } = Rate::of(quota);
    let full = period * i128::from(quota.burst_size());
    let origin_ns = operations.iter().map(|operation| operation.invoke_ns).min()?;
    let starts = sorted_starts(operations);
    let mut tree = Tree::new(starts.len());
    let mut worst: Option<Excess> = None;
    for (end_ns, leaf, cost) in by_response(operations, &starts) {
        let given = |moment_ns: u64| count * i128::from(moment_ns - origin_ns);
        tree.add(leaf, period * i128::from(cost), given(starts[leaf]));
        let numerator = tree.greatest() - given(end_ns) - full;
        if worst.is_none_or(|worst| numerator > worst.numerator) {
            let start_ns = starts[tree.greatest_leaf()];
            let cost = (tree.greatest() - given(start_ns)) / period;
            worst = Some(Excess { numerator, denominator: period, start_ns, end_ns, cost });
        }
    }
    worst
}

/// The most that lies within one span, and the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// The cost of the operations inside.
    pub cost: u128,
    /// The beginning of the span.
    pub start_ns: u64,
    /// The last moment of the span.
    pub end_ns: u64,
}

/// The fullest window of `period_ns` aligned to the origin; an operation that straddles a boundary may belong to either
/// side and is left out.
pub fn fullest_window(period_ns: u64, operations: &[Operation]) -> Option<Most> {
    let mut windows = std::collections::BTreeMap::<u64, u128>::new();
    for operation in operations {
        let window = operation.invoke_ns / period_ns;
        if window == operation.response_ns / period_ns {
            *windows.entry(window).or_default() += u128::from(operation.cost);
        }
    }
    let (window, cost) = windows.into_iter().max_by_key(|(_, cost)| *cost)?;
    let start_ns = window * period_ns;
    Some(Most { cost, start_ns, end_ns: start_ns.saturating_add(period_ns - 1) })
}

/// The fullest span of `period_ns` wherever it begins: what counts at e is what lies wholly within (e - period, e].
pub fn fullest_trailing(period_ns: u64, operations: &[Operation]) -> Option<Most> {
    let mut sorted = operations.to_vec();
    sorted.sort_unstable_by_key(|operation| operation.response_ns);
    let mut inside = std::collections::BinaryHeap::new();
    let (mut cost, mut fullest) = (0_u128, None::<Most>);
    for operation in sorted {
        let end_ns = operation.response_ns;
        inside.push((std::cmp::Reverse(operation.invoke_ns), operation.cost));
        cost += u128::from(operation.cost);
        while let Some((_, gone)) =
            inside.peek().filter(|(invoke, _)| end_ns - invoke.0 >= period_ns).copied()
        {
            inside.pop();
            cost -= u128::from(gone);
        }
        if fullest.is_none_or(|most| cost > most.cost) {
            fullest = Some(Most { cost, start_ns: (end_ns + 1).saturating_sub(period_ns), end_ns });
        }
    }
    fullest
}

fn sorted_starts(operations: &[Operation]) -> Vec<u64> {
    let mut starts: Vec<u64> = operations.iter().map(|operation| operation.invoke_ns).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Response, index of the invocation in `starts`, and cost, by response.
fn by_response(operations: &[Operation], starts: &[u64]) -> Vec<(u64, usize, u64)> {
    let leaf = |operation: &Operation| starts.partition_point(|start| *start < operation.invoke_ns);
    let mut events: Vec<_> =
        operations.iter().map(|operation| (operation.response_ns, leaf(operation), operation.cost)).collect();
    events.sort_unstable();
    events
}

/// Keeps, for every start, `cost of the operations at or after it + given(start)`, and knows the greatest.
///
/// An operation adds to all starts up to its own invocation. Instead of adding to a whole prefix, a node keeps the sum of
/// what was added within it, and the greatest of its starts counting only that: the left half then lacks exactly the sum
/// of the right one.
struct Tree {
    nodes: Vec<Node>,
    leaves: usize,
}

#[derive(Clone, Copy)]
struct Node {
    sum: i128,
    greatest: i128,
}

/// A start at which no operation has begun yet: never the greatest, and far from overflowing.
const UNUSED: Node = Node { sum: 0, greatest: i128::MIN / 4 };

impl Tree {
    fn new(starts: usize) -> Self {
        let leaves = starts.next_power_of_two();
        Self { nodes: vec![UNUSED; 2 * leaves], leaves }
    }

    fn add(&mut self, leaf: usize, cost: i128, given: i128) {
        let mut index = self.leaves + leaf;
        let sum = self.nodes[index].sum + cost;
        self.nodes[index] = Node { sum, greatest: sum + given };
        while index > 1 {
            index /= 2;
            let (left, right) = (self.nodes[2 * index], self.nodes[2 * index + 1]);
            let greatest = right.greatest.max(left.greatest + right.sum);
            self.nodes[index] = Node { sum: left.sum + right.sum, greatest };
        }
    }

    fn greatest(&self) -> i128 {
        self.nodes[1].greatest
    }

    fn greatest_leaf(&self) -> usize {
        let mut index = 1;
        while index < self.leaves {
            let (left, right) = (self.nodes[2 * index], self.nodes[2 * index + 1]);
            index = 2 * index + usize::from(right.greatest > left.greatest + right.sum);
        }
        index - self.leaves
    }
}
