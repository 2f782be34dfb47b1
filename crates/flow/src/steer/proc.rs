//! What the files of Linux say: pure, on their texts. `None` means that a text is not as expected.

/// Time the processors spent, in ticks since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTimes {
    busy: u64,
    idle: u64,
}

impl CpuTimes {
    /// The share that was busy; `None` if no time passed. The kernel lets waiting for disks run backwards at times, so each part
    /// counts from zero up.
    pub(super) fn busy_share_since(self, earlier: Self) -> Option<f64> {
        let busy = self.busy.saturating_sub(earlier.busy);
        let idle = self.idle.saturating_sub(earlier.idle);
        let all = busy.saturating_add(idle);
        (all > 0).then(|| share(busy, all))
    }
}

/// The sum over all processors, from `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. What follows, time
/// of guests, is in user and nice already.
pub(super) fn cpu_times(stat: &str) -> Option<CpuTimes> {
    let fields = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = fields.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [user, nice, system, idle, rest @ ..] = times.as_slice() else { return None };
    // Kernels before 2.6 end here.
    let (io_wait, other) = rest.split_first().unwrap_or((&0, &[]));
    let sum = |parts: &[u64]| parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
    Some(CpuTimes { busy: sum(&[*user, *nice, *system, sum(other)]), idle: sum(&[*idle, *io_wait]) })
}

/// How many processors `/proc/stat` lists.
pub(super) fn cpus(stat: &str) -> Option<f64> {
    let numbered = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let count = stat.lines().filter(numbered).count();
    (count > 0).then(|| float(count as u64))
}

/// The share of memory that is not available, from `/proc/meminfo`.
pub(super) fn memory_share(meminfo: &str) -> Option<f64> {
    let (total, available) = (field(meminfo, "MemTotal:")?, field(meminfo, "MemAvailable:")?);
    (total > 0).then(|| share(total.saturating_sub(available), total))
}

/// What `/proc/loadavg` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) last_minute: f64,
    /// Threads that run or want to.
    pub(super) running: f64,
}

pub(super) fn load(loadavg: &str) -> Option<Load> {
    let mut words = loadavg.split_whitespace();
    let last_minute: f64 = words.next()?.parse().ok()?;
    let (running, _) = words.nth(2)?.split_once('/')?;
    let load = Load { last_minute, running: float(running.parse().ok()?) };
    (last_minute.is_finite() && last_minute >= 0.0).then_some(load)
}

/// Where a process's control group lies below the mount, from `/proc/self/cgroup`; `None` without version 2.
pub(super) fn group_path(groups: &str) -> Option<&str> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A path out of what the process may see tells nothing about its own limit.
    (!path.split('/').any(|part| part == "..")).then_some(path)
}

/// A limit of a control group, from such as `memory.max`; no limit is the greatest there is.
pub(super) fn group_limit(text: &str) -> Option<u64> {
    if text.trim() == "max" { Some(u64::MAX) } else { number(text) }
}

/// Cached files that can go, from `memory.stat`.
pub(super) fn inactive_file(stat: &str) -> Option<u64> {
    field(stat, "inactive_file")
}

/// A file that is one number.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The share of `whole` that `part` is, 0 to 1; of nothing it is all.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if part >= whole { 1.0 } else { float(part) / float(whole) }
}

/// The number in the line whose first word is `name`.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok())).flatten()
}

#[allow(clippy::cast_precision_loss, reason = "a share or a load is no better known than to 53 bits")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on a machine with two processors.
    const STAT: &str = "\
cpu  1000 50 300 8000 200 0 40 10 5 0
cpu0 500 25 150 4000 100 0 20 5 5 0
cpu1 500 25 150 4000 100 0 20 5 0 0
intr 12345 0 9 0
ctxt 987654
btime 1731686400
procs_running 3
";

    const MEMINFO: &str = "\
MemTotal:        8000000 kB
MemFree:          500000 kB
MemAvailable:    6000000 kB
Buffers:          100000 kB
";

    #[test]
    fn cpu_times_are_summed_without_counting_guests_twice() {
        // user 1000 + nice 50 + system 300 + softirq 40 + steal 10; idle 8000 + iowait 200.
        assert_eq!(cpu_times(STAT), Some(CpuTimes { busy: 1_400, idle: 8_200 }));
        assert_eq!(cpu_times("cpu 1 2 3 4\n"), Some(CpuTimes { busy: 6, idle: 4 }));
        assert_eq!(cpus(STAT).map(f64::to_bits), Some(2_f64.to_bits()));
    }

    #[test]
    fn the_busy_share_is_that_of_the_time_between_two_readings() {
        let at = |busy, idle| CpuTimes { busy, idle };
        assert_eq!(at(160, 140).busy_share_since(at(100, 100)), Some(0.6));
        assert_eq!(at(100, 200).busy_share_since(at(100, 100)), Some(0.0));
        assert_eq!(at(200, 100).busy_share_since(at(100, 100)), Some(1.0));
        assert_eq!(at(100, 100).busy_share_since(at(100, 100)), None);
        assert_eq!(at(110, 90).busy_share_since(at(100, 100)), Some(1.0), "idle ran backwards");
        assert_eq!(at(u64::MAX, u64::MAX).busy_share_since(at(0, 0)), Some(1.0), "saturated");
    }

    #[test]
    fn memory_counts_what_is_not_available() {
        assert_eq!(memory_share(MEMINFO), Some(0.25));
        assert_eq!(memory_share("MemTotal: 5 kB\nMemAvailable: 9 kB\n"), Some(0.0));
        assert_eq!(memory_share("MemTotal: 0 kB\nMemAvailable: 0 kB\n"), None);
        assert_eq!(memory_share("MemTotal: 5 kB\nMemFree: 1 kB\n"), None, "before Linux 3.14");
    }

    #[test]
    fn load_is_that_of_the_last_minute_and_of_this_moment() {
        assert_eq!(load("0.75 1.20 2.05 3/512 40817\n"), Some(Load { last_minute: 0.75, running: 3.0 }));
    }

    #[test]
    fn control_groups_say_where_they_are_and_what_they_allow() {
        assert_eq!(group_path("0::/\n"), Some(""));
        assert_eq!(group_path("0::/user.slice/app.service\n"), Some("user.slice/app.service"));
        assert_eq!(group_path("12:memory:/docker/abc\n0::/system.slice\n"), Some("system.slice"));
        assert_eq!(group_path("12:memory:/docker/abc\n"), None, "version 1 only");
        assert_eq!(group_path("0::/../../other\n"), None);
        assert_eq!(group_limit("max\n"), Some(u64::MAX));
        assert_eq!(group_limit("268435456\n"), Some(268_435_456));
        assert_eq!(group_limit("many\n"), None);
        assert_eq!(inactive_file("anon 7\ninactive_file 4096\nactive_file 9\n"), Some(4_096));
    }

    #[test]
    fn shares_stay_between_none_and_all() {
        assert_eq!(share(1, 4).to_bits(), 0.25_f64.to_bits());
        assert_eq!(share(5, 4).to_bits(), 1_f64.to_bits());
        assert_eq!(share(0, 0).to_bits(), 1_f64.to_bits());
        assert_eq!(share(u64::MAX - 1, u64::MAX).to_bits(), 1_f64.to_bits());
    }

    #[test]
    fn texts_that_are_not_as_expected_mean_nothing() {
        for text in [
            "",
            "\n",
            "cpu",
            "cpu ",
            "cpu  1 2 3\n",
            "cpu  1 2 x 4\n",
            "cpu  -1 2 3 4\n",
            "MemTotal:\n",
            "1.0 2.0",
        ] {
            assert_eq!(cpu_times(text), None, "{text:?}");
            assert_eq!(cpus(text), None, "{text:?}");
            assert_eq!(memory_share(text), None, "{text:?}");
            assert_eq!(load(text), None, "{text:?}");
            assert_eq!(group_path(text), None, "{text:?}");
            assert_eq!(number(text), None, "{text:?}");
            assert_eq!(inactive_file(text), None, "{text:?}");
        }
        for text in ["NaN 1 1 1/2 3", "inf 1 1 1/2 3", "-1 1 1 1/2 3", "1 1 1 12 3", "1 1 1 x/2 3"] {
            assert_eq!(load(text), None, "{text:?}");
        }
    }
}
