//! Ten million jobs in flat memory. Measures the memory of the process, so run it under nextest, which gives each test one of its own.

use tollgate_flow::{Fault, Pool};

/// The most memory the process ever had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn ten_million_jobs_in_flat_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut outcomes = Pool::new(64).run(0..10_000_000_u64, |job, _| async move { Ok::<_, Fault>(*job) });
        let (mut read, mut sum, mut early_kib) = (0_u64, 0_u64, 0);
        while let Some(outcome) = outcomes.next().await {
            sum += outcome.result.unwrap();
            read += 1;
            if read == 100_000 {
                early_kib = peak_kib();
            }
        }
        assert_eq!((read, sum), (10_000_000, 10_000_000 * 9_999_999 / 2));
        let grown_kib = peak_kib() - early_kib;
        assert!(grown_kib < 1_024, "memory grew by {grown_kib} KiB after the first hundred thousand jobs");
    });
}
