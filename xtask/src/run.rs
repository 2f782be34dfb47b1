//! Running other programs, in sight of whoever called.

use std::path::Path;
use std::process::{Command, Stdio};

/// Why a chore did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something that was run failed.
    Step(String),
    /// The call itself makes no sense.
    Misuse(String),
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ lies in the root")
}

/// A program to be run in the root, its arguments separated by spaces.
pub(crate) fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a line names a program"));
    command.args(words).current_dir(root());
    command
}

/// Prints a command, runs it and waits for it.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = show(command);
    println!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Step(format!("`{line}` failed: {status}"))),
        Err(error) => Err(Failure::Step(format!("`{line}` did not start: {error}"))),
    }
}

/// Whether a command succeeds; says nothing.
pub(crate) fn works(line: &str) -> bool {
    let status = command(line).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Whether a line for the shell succeeds; says nothing.
pub(crate) fn works_in_shell(line: &str) -> bool {
    let status = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let quoted = |word: &str| if word.contains(' ') { format!("\"{word}\"") } else { word.to_string() };
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        let value = value.unwrap_or_default().to_string_lossy();
        words.push(format!("{}={}", name.to_string_lossy(), quoted(&value)));
    }
    words.push(command.get_program().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut doc = command("cargo doc --no-deps");
        doc.env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(show(&doc), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let Err(Failure::Step(message)) = run(&mut command("no-such-program-anywhere -x")) else {
            panic!("it ran")
        };
        assert!(message.starts_with("`no-such-program-anywhere -x` did not start: "), "{message}");
        assert!(!works("no-such-program-anywhere"));
    }
}
