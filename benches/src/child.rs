//! Measurements that need a process of their own: resident memory, and what an allocator's past would change.
//!
//! A bench calls its own program with an argument that is not for people. The child prints its findings as lines of
//! a name and a number; the parent reads them.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a child found out, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings(BTreeMap<String, f64>);

impl Findings {
    /// Notes a finding.
    pub fn note(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    /// A finding, if there is one of that name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Tells the parent.
    pub fn print(&self) {
        for (name, value) in &self.0 {
            println!("{name} {value}");
        }
    }

    fn parse(text: &str) -> Self {
        let pair = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self(text.lines().filter_map(pair).collect())
    }
}

/// Runs this program with `arguments` and reads what it found.
///
/// # Errors
/// If it cannot be run, fails, or takes longer than `longest`; it is then ended.
pub fn findings_of(arguments: &[&str], longest: Duration) -> Result<Findings, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cannot start a child: {error}"))?;
    let until = Instant::now() + longest;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
            None => {
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                return Err(format!("{} took longer than {longest:?}", arguments.join(" ")));
            }
        }
    };
    // A few lines: they fit the pipe, so the child never had to wait for us to read.
    let mut text = String::new();
    let mut stdout = child.stdout.take().ok_or("a child without output")?;
    stdout.read_to_string(&mut text).map_err(|error| error.to_string())?;
    if status.success() {
        Ok(Findings::parse(&text))
    } else {
        Err(format!("{} failed: {status}", arguments.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_lines_of_a_name_and_a_number() {
        let mut expected = Findings::default();
        expected.note("bytes-1m", 31.5);
        expected.note("keys-left", 0.0);
        assert_eq!(Findings::parse("bytes-1m 31.5\nnot a finding\nkeys-left 0\n"), expected);
        assert_eq!((expected.get("bytes-1m"), expected.get("bytes-10m")), (Some(31.5), None));
    }
}
