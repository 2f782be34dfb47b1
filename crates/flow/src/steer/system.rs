//! The load of the machine, as Linux tells it.
//!
//! The files of `/proc` are made in memory when they are read, in microseconds, so reading one blocks nobody.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Signal;
use super::proc::{self, CpuTimes};

/// The share of time in which the processors were busy since the last reading: 0 to 1, of the whole machine, also
/// inside a container.
///
/// Waiting for a disk counts as idle; time that a hypervisor took away counts as busy.
#[derive(Clone, Debug)]
pub struct CpuShare {
    last: CpuTimes,
}

impl CpuShare {
    /// Measures from now on.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) on anything but Linux; otherwise what went wrong with `/proc/stat`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { last: cpu_times()? })
    }
}

impl Signal for CpuShare {
    fn read(&mut self) -> io::Result<Option<f64>> {
        let now = cpu_times()?;
        let share = now.busy_share_since(self.last);
        self.last = now;
        Ok(share)
    }
}

/// The share of memory in use: 0 to 1, where what the system could free without swapping is not in use.
///
/// In a control group (cgroup v2) with a limit of its own, such as most containers, the share of that limit if it is greater. The limits of
/// enclosing groups are not looked at.
#[derive(Clone, Debug)]
pub struct MemoryShare {
    group: Option<PathBuf>,
}

impl MemoryShare {
    /// Measures the machine and this process's control group.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) on anything but Linux; otherwise what went wrong with `/proc/meminfo`.
    pub fn new() -> io::Result<Self> {
        parse("/proc/meminfo", proc::memory_share)?;
        Ok(Self { group: limited_group() })
    }
}

impl Signal for MemoryShare {
    fn read(&mut self) -> io::Result<Option<f64>> {
        let machine = parse("/proc/meminfo", proc::memory_share)?;
        let group = self.group.as_deref().map_or(Ok(0.0), group_share)?;
        Ok(Some(machine.max(group)))
    }
}

/// How many threads run or want to, for each processor, at this moment: above 1 somebody waits. The thread that
/// reads is not counted. It jumps about; [`LoadAverage`] is steadier and slower.
#[derive(Clone, Debug)]
pub struct RunQueue {
    cpus: f64,
}

impl RunQueue {
    /// Measures the whole machine.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) on anything but Linux; otherwise what went wrong with `/proc/stat`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { cpus: parse("/proc/stat", proc::cpus)? })
    }
}

impl Signal for RunQueue {
    fn read(&mut self) -> io::Result<Option<f64>> {
        let load = parse("/proc/loadavg", proc::load)?;
        Ok(Some((load.running - 1.0).max(0.0) / self.cpus))
    }
}

/// The load average over the last minute, for each processor. It counts threads that wait for a disk too.
#[derive(Clone, Debug)]
pub struct LoadAverage {
    cpus: f64,
}

impl LoadAverage {
    /// Measures the whole machine.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) on anything but Linux; otherwise what went wrong with `/proc/stat`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { cpus: parse("/proc/stat", proc::cpus)? })
    }
}

impl Signal for LoadAverage {
    fn read(&mut self) -> io::Result<Option<f64>> {
        Ok(Some(parse("/proc/loadavg", proc::load)?.last_minute / self.cpus))
    }
}

fn cpu_times() -> io::Result<CpuTimes> {
    parse("/proc/stat", proc::cpu_times)
}

/// The directory of this process's control group, if it has a limit on memory to tell of.
fn limited_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = Path::new("/sys/fs/cgroup").join(proc::group_path(&groups)?);
    group.join("memory.max").exists().then_some(group)
}

/// The share of a control group's limit that is in use.
fn group_share(group: &Path) -> io::Result<f64> {
    let limit = parse(group.join("memory.max"), proc::group_limit)?;
    let current = parse(group.join("memory.current"), proc::number)?;
    let cache = parse(group.join("memory.stat"), proc::inactive_file)?;
    Ok(proc::share(current.saturating_sub(cache), limit))
}

/// What `meaning` makes of a file.
fn parse<T>(path: impl AsRef<Path>, meaning: impl Fn(&str) -> Option<T>) -> io::Result<T> {
    only_on_linux(std::env::consts::OS)?;
    let path = path.as_ref();
    let text = fs::read_to_string(path).map_err(|error| {
        io::Error::new(error.kind(), format!("could not read {}: {error}", path.display()))
    })?;
    let unclear =
        || io::Error::new(io::ErrorKind::InvalidData, format!("{} is not as expected", path.display()));
    meaning(&text).ok_or_else(unclear)
}

fn only_on_linux(os: &str) -> io::Result<()> {
    if os == "linux" {
        return Ok(());
    }
    let message = format!(
        "the load of the system is read from /proc, which {os} does not have; steer by another signal"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_systems_are_refused_with_a_clear_error() {
        let error = only_on_linux("macos").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "the load of the system is read from /proc, which macos does not have; steer by another signal"
        );
        assert!(only_on_linux("linux").is_ok());
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let gone = parse("/nowhere/stat", proc::number).unwrap_err();
        let expected =
            if cfg!(target_os = "linux") { io::ErrorKind::NotFound } else { io::ErrorKind::Unsupported };
        assert_eq!(gone.kind(), expected);
        if cfg!(target_os = "linux") {
            assert!(gone.to_string().starts_with("could not read /nowhere/stat: "), "{gone}");
            let odd = parse("/proc/version", proc::number).unwrap_err();
            assert_eq!(odd.to_string(), "/proc/version is not as expected");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_control_group_counts_what_it_cannot_free_against_its_limit() {
        let group = std::env::temp_dir().join(format!("tollgate-group-{}", std::process::id()));
        let write = |file: &str, text: &str| fs::write(group.join(file), text).unwrap();
        fs::create_dir_all(&group).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "600\n");
        write("memory.stat", "anon 450\ninactive_file 100\n");
        let limited = group_share(&group).unwrap();
        write("memory.max", "max\n");
        let unlimited = group_share(&group).unwrap();
        fs::remove_dir_all(&group).unwrap();
        assert_eq!(limited.to_bits(), 0.5_f64.to_bits());
        assert!(unlimited < 1e-9, "{unlimited}");
        assert_eq!(group_share(&group).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_gives_readings_within_their_ranges() {
        let memory = MemoryShare::new().unwrap().read().unwrap().unwrap();
        assert!(memory > 0.0 && memory <= 1.0, "{memory}");
        assert!(RunQueue::new().unwrap().read().unwrap().unwrap() >= 0.0);
        assert!(LoadAverage::new().unwrap().read().unwrap().unwrap() >= 0.0);
        let mut cpu = CpuShare::new().unwrap();
        let share = (0..).find_map(|_| cpu.read().unwrap()).unwrap();
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
}
