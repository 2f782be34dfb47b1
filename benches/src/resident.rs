//! How much memory the process really has.

use std::fs;

/// Bytes of resident memory of this process, counted page by page rather than from the kernel's batched counters.
pub fn resident_bytes() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").expect("a Linux that says what is resident");
    let kilobytes = rollup.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB"));
    kilobytes.and_then(|number| number.parse::<u64>().ok()).expect("a line with the resident memory") * 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = resident_bytes();
        let touched = std::hint::black_box(vec![1_u8; 32 << 20]);
        assert!(resident_bytes() >= before + (32 << 20), "{}", touched.len());
        drop(touched);
        assert!(resident_bytes() < before + (16 << 20));
    }
}
