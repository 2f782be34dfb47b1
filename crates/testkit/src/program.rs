//! A server that runs while somebody holds it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a server may take to come up.
const START: Duration = Duration::from_secs(60);

/// A running program. Dropping it ends it, and waits until it has ended.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    farewell: &'static str,
}

/// Where a program writes what it has to say.
#[derive(Clone, Copy)]
pub(crate) enum Says {
    Out,
    Err,
}

impl Program {
    /// Starts a server, and returns when it has said `ready`. Panics with what it said instead.
    pub(crate) fn start(command: &mut Command, says: Says, ready: &'static str) -> Self {
        let (out, err) = match says {
            Says::Out => (Stdio::piped(), Stdio::null()),
            Says::Err => (Stdio::null(), Stdio::piped()),
        };
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{name} did not start: {error}"));
        let words: Box<dyn Read + Send> = match says {
            Says::Out => Box::new(child.stdout.take().expect("piped")),
            Says::Err => Box::new(child.stderr.take().expect("piped")),
        };
        let program = Self { child, farewell: "KILL" };
        if let Err(said) = wait_for(words, ready) {
            panic!("{name} did not say {ready:?} but:\n{said}");
        }
        program
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends by this signal, where a server has things to tidy up.
    pub(crate) fn ending_by(mut self, signal: &'static str) -> Self {
        self.farewell = signal;
        self
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let told =
            Command::new("kill").arg(format!("-{}", self.farewell)).arg(self.child.id().to_string()).status();
        if !told.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Reads until a line holds `ready`; whatever comes after that is read too, so that the program never waits for a reader.
fn wait_for(words: Box<dyn Read + Send>, ready: &'static str) -> Result<(), String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        for line in BufReader::new(words).lines().map_while(Result::ok) {
            if line.contains(ready) {
                let _ = tell.send(Ok(()));
            }
            said = said + &line + "\n";
        }
        let _ = tell.send(Err(said));
    });
    told.recv_timeout(START).unwrap_or_else(|_| Err(format!("nothing of the kind within {START:?}")))
}

/// Finds a program on the path, or in one of the directories where distributions hide them.
pub(crate) fn find(name: &str, elsewhere: &[PathBuf], package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(elsewhere.iter().cloned());
    let found = places.map(|place| place.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: it is in the package {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_says_it_is_ready_is() {
        let program =
            Program::start(Command::new("sh").args(["-c", "echo I am ready; exec cat"]), Says::Out, "ready");
        let id = program.child.id();
        drop(program);
        assert!(!PathBuf::from(format!("/proc/{id}")).exists(), "it has ended and was waited for");
    }

    #[test]
    #[should_panic(expected = "no space left")]
    fn what_it_says_instead_is_told() {
        Program::start(Command::new("sh").args(["-c", "echo no space left >&2"]), Says::Err, "ready");
    }

    #[test]
    #[should_panic(expected = "it is in the package nowhere")]
    fn a_program_that_is_missing_is_named_with_its_package() {
        find("no-such-program-anywhere", &[], "nowhere");
    }
}
