//! What the system says of this process, under the names that all exporters of Prometheus use.

use std::fs;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::family::Family;

const MEMORY: Family = Family::new("process_resident_memory_bytes", "Resident memory");
const CPU: Family = Family::new("process_cpu_seconds", "CPU time");
const FILES: Family = Family::new("process_open_fds", "Open files");
const MOST_FILES: Family = Family::new("process_max_fds", "Maximum number of open files");
const START: Family = Family::new("process_start_time_seconds", "Start time, Unix time");

/// What is known of this process at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Process {
    memory: u64,
    cpu_seconds: f64,
    files: u64,
    most_files: Option<u64>,
    start_seconds: f64,
}

impl Process {
    /// Reads what Linux says of it; `None` on other systems.
    pub(super) fn read() -> Option<Self> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let boot = Duration::from_secs(boot_seconds(&fs::read_to_string("/proc/stat").ok()?)?);
        let second = rustix::param::clock_ticks_per_second();
        let span = |ticks: u64| Duration::from_millis(ticks.saturating_mul(1_000) / second);
        Some(Self {
            memory: stat.resident_pages * rustix::param::page_size() as u64,
            cpu_seconds: span(stat.cpu_ticks).as_secs_f64(),
            // One of them is the folder that is read here.
            files: (fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1),
            most_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            start_seconds: (boot + span(stat.start_ticks)).as_secs_f64(),
        })
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        MEMORY.gauge(encoder, self.memory)?;
        CPU.begin(encoder, MetricType::Counter)?
            .encode_counter::<NoLabelSet, f64, f64>(&self.cpu_seconds, None)?;
        FILES.gauge(encoder, self.files)?;
        if let Some(most) = self.most_files {
            MOST_FILES.gauge(encoder, most)?;
        }
        START.begin(encoder, MetricType::Gauge)?.encode_gauge(&self.start_seconds)
    }
}

/// Some fields of `/proc/self/stat`; see proc(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name of the command stands in parentheses, and may have spaces and parentheses itself. Its state, field 3, follows.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, start_ticks: field(22)?, resident_pages: field(24)? })
    }
}

/// When the system started, in seconds since 1970, as `/proc/stat` says.
fn boot_seconds(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_finds_the_fields_whatever_the_command_is_called() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 105 0 0 0 11 22 0 0 20 0 1 0 3333 8000000 444 18446744073709551615 1\n";
        assert_eq!(Stat::parse(stat), Some(Stat { cpu_ticks: 33, start_ticks: 3333, resident_pages: 444 }));
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(Stat::parse("7 (a) S 1"), None);
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000));
    }
}
