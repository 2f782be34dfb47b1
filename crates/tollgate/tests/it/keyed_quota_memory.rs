//! Changes of quota that no call comes after. Measures the memory of the process, so run it under nextest, which gives each test one of
//! its own.
#![cfg(target_os = "linux")]

use std::time::Duration;

use tollgate::{KeyedLimiter, ManualClock, Quota};

fn resident() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// A controller that sets the quota ten times a second, while nobody calls.
#[test]
fn changes_of_quota_take_no_memory() {
    let limiter =
        KeyedLimiter::<u64>::builder(Quota::per_second(1).burst(10)).clock(ManualClock::new()).build();
    for key in 0..30_000 {
        assert!(limiter.allow(&key));
    }
    let (before, bytes) = (resident(), limiter.bytes());
    for round in 0..2_000_u64 {
        limiter.set_quota(Quota::per_second(1).burst(10 + round % 2));
        limiter.clock().advance(Duration::from_millis(100));
    }
    let (grown, counted) = (resident().saturating_sub(before), limiter.bytes() - bytes);
    assert!(grown < 1 << 20, "{grown} bytes more, of which bytes() knows {counted}");
    assert!(!limiter.allow_n(&1, 11), "one was taken, and comes back in time, not by a change");
}
