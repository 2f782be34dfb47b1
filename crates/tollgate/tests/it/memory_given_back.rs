//! What a million keys took goes back to the system when they are idle. Measures the memory of the process, so run it under nextest,
//! which gives each test one of its own.
#![cfg(target_os = "linux")]

use std::time::Duration;

use tollgate::{KeyedLimiter, ManualClock, Quota};

const KEYS: u64 = 1_000_000;

#[test]
fn the_memory_of_idle_keys_goes_back_to_the_system() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(1).burst(1);
    let limiter = KeyedLimiter::<u64>::builder(quota).clock(clock.clone()).build();
    let before = resident();
    (0..KEYS).for_each(|key| assert!(limiter.allow(&key)));
    let took = resident() - before;
    assert!(took >= 16 * KEYS as usize, "{took} bytes cannot hold them");
    clock.advance(Duration::from_secs(1));
    limiter.sweep();
    assert!(limiter.is_empty());
    let kept = resident().saturating_sub(before);
    assert!(kept * 10 <= took, "{kept} of {took} bytes are still there");
}

/// Bytes of memory that the process has, counted page by page.
fn resident() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
