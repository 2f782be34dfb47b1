//! Runs a page.

use std::env;
use std::fmt::{self, Display};
use std::fs;
use std::ops::Range;

use super::block::Kind;
use super::console::{self, Action, Background, Step};
use super::markdown::{Block, Page};
use super::output::{blessed, is_comment, matches};
use super::root;
use super::shell::Shell;
use crate::support;

/// Runs a page of the repository, or writes its output into it.
pub(crate) fn run(path: &str) {
    let page = Page::read(path);
    let report = Session::of(&page);
    if env::var_os("TOLLGATE_BLESS").is_some() {
        fs::write(root().join(path), report.bless(&page.text)).unwrap();
    }
    let failures: Vec<String> =
        report.failures.iter().filter(|failure| !is_blessed(failure)).map(ToString::to_string).collect();
    assert!(
        failures.is_empty(),
        "{path}: {} of its examples fail. TOLLGATE_BLESS=1 writes the actual output into the page.\n\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn is_blessed(failure: &Failure) -> bool {
    env::var_os("TOLLGATE_BLESS").is_some() && matches!(failure.what, What::Differs { .. })
}

/// What is wrong with an example.
#[derive(Debug)]
struct Failure {
    page: String,
    line: usize,
    /// The command, or the kind of block.
    subject: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The output is not the one on the page.
    Differs { shown: Vec<String>, actual: Vec<String> },
    /// Anything else.
    Failed(String),
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, line, subject, what } = self;
        writeln!(f, "{page}:{line}: {subject}")?;
        match what {
            What::Differs { shown, actual } => {
                writeln!(f, "--- expected\n{}\n--- actual\n{}", shown.join("\n"), actual.join("\n"))
            }
            What::Failed(problem) => writeln!(f, "{problem}"),
        }
    }
}

/// The actual output of a command, for the page.
#[derive(Debug)]
struct Change {
    /// The line of the command, counted from 0.
    command: usize,
    /// The lines of its output on the page.
    shown: Range<usize>,
    actual: Vec<String>,
}

/// What came of a page.
#[derive(Debug, Default)]
struct Report {
    failures: Vec<Failure>,
    changes: Vec<Change>,
}

impl Report {
    /// The page with the actual output.
    fn bless(&self, page: &str) -> String {
        let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
        for Change { command, shown, actual } in self.changes.iter().rev() {
            let command = &lines[*command];
            let indent = command[..command.len() - command.trim_start().len()].to_owned();
            let actual = actual.iter().map(|line| format!("{indent}{line}").trim_end().to_owned());
            lines.splice(shown.clone(), actual);
        }
        lines.join("\n") + "\n"
    }
}

struct Session<'a> {
    page: &'a Page,
    shell: Shell,
    report: Report,
}

impl<'a> Session<'a> {
    fn of(page: &'a Page) -> Report {
        let mut session = Self { page, shell: Shell::start(&page.text), report: Report::default() };
        for block in &page.blocks {
            if let Err(problem) = session.block(block) {
                let subject = format!("```{}", block.info.as_deref().unwrap_or_default());
                session.fail(block.line, subject, What::Failed(problem));
            }
        }
        session.report
    }

    fn block(&mut self, block: &Block) -> Result<(), String> {
        match Kind::of(block.info.as_deref())? {
            Kind::File(name) => self.shell.write(&name, &block.text),
            Kind::Policy(extension) => check_policy(&extension, &block.text)?,
            Kind::Console => {
                for step in console::steps(&block.text)? {
                    self.step(block.line, &step);
                }
            }
            Kind::Shell => self.commands(block),
            Kind::Rust | Kind::Shown => {}
        }
        Ok(())
    }

    /// A step of a block that begins after this line.
    fn step(&mut self, fence: usize, step: &Step) {
        let (subject, result) = match &step.action {
            Action::Run(command) => (format!("$ {command}"), self.command(command, &step.shown)),
            Action::Interrupt => ("^C".to_owned(), self.interrupt(&step.shown)),
        };
        match result {
            Ok(actual) if matches(&step.shown, &actual) => {}
            Ok(actual) => {
                let start = fence + step.shown_at;
                self.report.changes.push(Change {
                    command: fence + step.line,
                    shown: start..start + step.shown.len(),
                    actual: blessed(&step.shown, &actual),
                });
                self.fail(
                    fence + step.line + 1,
                    subject,
                    What::Differs { shown: step.shown.clone(), actual },
                );
            }
            Err(problem) => self.fail(fence + step.line + 1, subject, What::Failed(problem)),
        }
    }

    /// The output of a command, as far as the page shows it.
    fn command(&mut self, command: &str, shown: &[String]) -> Result<Vec<String>, String> {
        let Some(background) = Background::of(command) else {
            return self.shell.run(command).map(|outcome| outcome.lines);
        };
        let open = with_more(shown);
        let actual = self.shell.spawn(background, |actual| matches(&open, actual))?;
        Ok(if matches(&open, &actual) { shown.to_vec() } else { first_lines(shown, actual) })
    }

    fn interrupt(&mut self, shown: &[String]) -> Result<Vec<String>, String> {
        let actual = self.shell.interrupt()?;
        // A page that shows nothing leaves its last words out.
        let is_left_out = shown.iter().all(|line| is_comment(line));
        Ok(if is_left_out { shown.to_vec() } else { actual })
    }

    /// The commands of a `sh` block, which must succeed.
    fn commands(&mut self, block: &Block) {
        for (line, command) in chunks(&block.text) {
            let problem = match Background::of(&command) {
                Some(background) => self.shell.spawn(background, |_| true).err(),
                None => self.shell.run(&command).map_or_else(Some, |outcome| {
                    let output = outcome.lines.join("\n");
                    (outcome.status != 0)
                        .then(|| format!("its status is {}; its output:\n{output}", outcome.status))
                }),
            };
            if let Some(problem) = problem {
                self.fail(block.line + line + 1, command, What::Failed(problem));
            }
        }
    }

    fn fail(&mut self, line: usize, subject: String, what: What) {
        self.report.failures.push(Failure { page: self.page.path.clone(), line, subject, what });
    }
}

/// The first lines of what a program prints; more may follow.
fn with_more(shown: &[String]) -> Vec<String> {
    let end = shown.len() - shown.iter().rev().take_while(|line| is_comment(line)).count();
    shown[..end].iter().cloned().chain(["…".to_owned()]).collect()
}

/// As much of the output as the page shows.
fn first_lines(shown: &[String], actual: Vec<String>) -> Vec<String> {
    let has_any = shown.iter().any(|line| line.trim() == "…");
    let count = if has_any { actual.len() } else { shown.len() };
    actual.into_iter().take(count).collect()
}

/// The commands of a script: each server by itself, and what stands between them together. The line of each, counted from 0.
fn chunks(text: &str) -> Vec<(usize, String)> {
    let mut chunks: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let mut command = line.to_owned();
        while command.ends_with('\\') {
            let Some((_, next)) = lines.next() else { break };
            command = command + "\n" + next;
        }
        let is_server = Background::of(&command).is_some();
        match chunks.last_mut().filter(|_| is_open && !is_server) {
            Some((_, script)) => *script = format!("{script}\n{command}"),
            None => chunks.push((at, command)),
        }
        is_open = !is_server;
    }
    chunks
}

/// Checks a policy that stands alone.
fn check_policy(extension: &str, text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("policy.{extension}"));
    fs::write(&path, text).unwrap();
    let (code, out, err) = support::run(&["policy", "check", path.to_str().expect("UTF-8")]);
    if code == 0 { Ok(()) } else { Err(format!("tollgate policy check: {out}{err}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(text: &str) -> (Report, String) {
        let page = Page::parse("page.md", text.to_owned());
        let report = Session::of(&page);
        let blessed = report.bless(text);
        (report, blessed)
    }

    fn failures(text: &str) -> Vec<String> {
        session(text).0.failures.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_is_one_session() {
        let page = "```toml conf.toml\na = 1\n```\n\n```sh\nx=7\n```\n\n```console\n$ cat conf.toml; echo $x\na = 1\n7\n```\n";
        assert_eq!(failures(page), [""; 0]);
    }

    #[test]
    fn a_failure_has_its_page_line_command_and_output() {
        let page = "# T\n\n```console\n$ echo one\none\n\n$ echo two\nthree\n```\n";
        assert_eq!(failures(page), ["page.md:7: $ echo two\n--- expected\nthree\n--- actual\ntwo\n"]);
    }

    #[test]
    fn a_script_must_succeed() {
        let found = failures("```sh\ntrue\nfalse\n```\n");
        assert!(found[0].starts_with("page.md:2: true\nfalse\nits status is 1"), "{found:?}");
    }

    #[test]
    fn an_unknown_info_string_is_a_failure() {
        assert!(failures("```consol\n$ echo\n```\n")[0].starts_with("page.md:1: ```consol"));
    }

    #[test]
    fn policies_are_checked() {
        assert_eq!(failures("```toml policy\n[limit.a]\nkey = \"ip\"\nrate = \"1/s\"\n```\n"), [""; 0]);
        assert_eq!(failures("```toml policy\n[limit.a]\nrte = 1\n```\n").len(), 1);
    }

    #[test]
    fn blessing_changes_only_what_differs() {
        let page =
            "```console\n$ echo a; echo 7\na\n…\n\n# And:\n$ echo b\nold\nolder\n$ echo c\n```\n\nText.\n";
        let (_, blessed) = session(page);
        let expected = page.replace("old\nolder\n", "b\n").replace("$ echo c\n", "$ echo c\nc\n");
        assert_eq!(blessed, expected);
        assert!(session(&blessed).0.failures.is_empty());
    }

    #[test]
    fn blessing_keeps_the_indentation_of_a_list() {
        let (_, blessed) = session("- one\n\n  ```console\n  $ echo a\n  ```\n");
        assert_eq!(blessed, "- one\n\n  ```console\n  $ echo a\n  a\n  ```\n");
    }

    #[test]
    fn a_server_is_asked_and_stopped() {
        let page = "```toml limits.toml\n[limit.a]\nkey = \"ip\"\nrate = \"3/min\"\n```\n\n\
            ```console\n$ tollgate serve --policy limits.toml\n…\n  http  http://127.0.0.1:8080\n\n\
            $ curl -s 127.0.0.1:8080/healthz\n{\"status\":\"ok\"}\n```\n\n\
            ```toml limits.toml\n[limit.b]\nkey = \"ip\"\nrate = \"3/min\"\n```\n\n\
            ```console\n$ curl -s '127.0.0.1:8082/v1/limits'\n…\"name\":\"b\"…\n^C\n$ curl -s 127.0.0.1:8080/healthz || echo gone\ngone\n```\n";
        assert_eq!(failures(page), [""; 0]);
    }

    #[test]
    fn scripts_are_split_at_servers() {
        let chunks = chunks("a\nb \\\n  c\ntollgate serve\nd\n");
        assert_eq!(chunks, [(0, "a\nb \\\n  c".into()), (3, "tollgate serve".into()), (4, "d".into())]);
    }
}
