//! Reads a `console` block: commands, and the output that the page shows for them.

/// A command and its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line of the command within the block, counted from 0.
    pub(crate) line: usize,
    pub(crate) action: Action,
    /// The lines up to the next command.
    pub(crate) shown: Vec<String>,
    /// The line of the first of them.
    pub(crate) shown_at: usize,
}

/// What is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// A command, after `$ `.
    Run(String),
    /// `^C`: stops the program that was started last.
    Interrupt,
}

/// The steps of a block.
pub(crate) fn steps(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((line, content)) = lines.next() {
        let action = if content == "^C" {
            Action::Interrupt
        } else if let Some(command) = content.strip_prefix("$ ") {
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                let Some((_, next)) = lines.next() else { break };
                command = command + "\n" + next;
            }
            Action::Run(command)
        } else if let Some(step) = steps.last_mut() {
            step.shown.push(content.to_owned());
            continue;
        } else if content.trim().is_empty() || content.starts_with("# ") {
            continue;
        } else {
            return Err(format!("output before the first command: {content:?}"));
        };
        let shown_at = lines.peek().map_or_else(|| text.lines().count(), |(line, _)| *line);
        steps.push(Step { line, action, shown: Vec::new(), shown_at });
    }
    if steps.is_empty() { Err("a console block without commands".to_owned()) } else { Ok(steps) }
}

/// A command that runs in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Background {
    /// The command without its `&`.
    pub(crate) command: String,
    /// A second program with the same identity takes the place of the first.
    pub(crate) identity: Option<String>,
}

impl Background {
    /// Servers run in the background, and so do commands that end with `&`.
    pub(crate) fn of(command: &str) -> Option<Self> {
        let words: Vec<&str> = command.split_whitespace().filter(|word| *word != "\\").collect();
        let first = words.iter().position(|word| !is_assignment(word)).unwrap_or(words.len());
        let program = &words[first..];
        let flag = |name: &str| flag(program, name).unwrap_or("default");
        let is_piped = command.contains('|')
            || program.iter().any(|word| matches!(*word, "--help" | "-h" | "--version"));
        let identity = match program {
            _ if is_piped => None,
            ["tollgate", "serve", ..] => Some(format!("tollgate {}", flag("--http-address"))),
            ["redis-server", ..] => Some(format!("redis-server {}", flag("--port"))),
            ["envoy", ..] => Some("envoy".to_owned()),
            _ => None,
        };
        let trimmed = command.trim_end();
        let ampersand = trimmed.strip_suffix('&').filter(|rest| !rest.ends_with('&'));
        (identity.is_some() || ampersand.is_some())
            .then(|| Self { command: ampersand.unwrap_or(trimmed).to_owned(), identity })
    }

    /// The command for a shell of its own, which is replaced by the program: signals then go to the program alone.
    pub(crate) fn script(&self) -> String {
        let is_simple = !self.command.contains(['|', ';', '&', '\n', '{']);
        let is_server = self.identity.is_some();
        if is_simple || is_server { format!("exec env {}", self.command) } else { self.command.clone() }
    }

    /// Whether its greeting can be seen: it is a server of ours, and does not write into a file.
    pub(crate) fn says_that_it_serves(&self) -> bool {
        self.is_tollgate() && !self.command.contains(" >")
    }

    /// Whether this is a server of ours.
    pub(crate) fn is_tollgate(&self) -> bool {
        self.identity.as_deref().is_some_and(|identity| identity.starts_with("tollgate "))
    }
}

/// Whether a word sets a variable for the command after it.
fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    })
}

/// The value of a flag: `--name value` or `--name=value`.
fn flag<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let joined = || words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let next = words.iter().position(|word| *word == name).and_then(|found| words.get(found + 1).copied());
    next.or_else(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_their_commands_and_output() {
        let steps = steps("# first\n$ one\nout\n\n$ two \\\n  -x\n^C\nbye\n").unwrap();
        let run = |command: &str| Action::Run(command.to_owned());
        let shown: Vec<(usize, &Action, &[String])> =
            steps.iter().map(|step| (step.line, &step.action, &*step.shown)).collect();
        assert_eq!(shown[0], (1, &run("one"), &["out".to_owned(), String::new()][..]));
        assert_eq!(shown[1], (4, &run("two \\\n  -x"), &[][..]));
        assert_eq!(shown[2], (6, &Action::Interrupt, &["bye".to_owned()][..]));
        assert_eq!(steps.iter().map(|step| step.shown_at).collect::<Vec<_>>(), [2, 6, 7]);
    }

    #[test]
    fn output_needs_a_command() {
        assert!(steps("out\n$ one\n").is_err());
        assert!(steps("# nothing\n").is_err());
    }

    #[test]
    fn servers_run_in_the_background() {
        let identity = |command: &str| Background::of(command).map(|found| found.identity);
        assert_eq!(identity("tollgate serve --policy a.toml"), Some(Some("tollgate default".to_owned())));
        let other = "A=1 tollgate serve \\\n --http-address=127.0.0.1:8090";
        assert_eq!(identity(other), Some(Some("tollgate 127.0.0.1:8090".to_owned())));
        assert_eq!(identity("redis-server --port 6381"), Some(Some("redis-server 6381".to_owned())));
        assert_eq!(identity("python3 up.py &"), Some(None));
        for foreground in ["tollgate policy check", "tollgate serve --help", "true && true", "curl -s x?a=1"]
        {
            assert_eq!(identity(foreground), None, "{foreground}");
        }
    }

    #[test]
    fn a_program_takes_the_place_of_its_shell() {
        let script = |command: &str| Background::of(command).unwrap().script();
        assert_eq!(script("A=1 tollgate serve > log 2>&1"), "exec env A=1 tollgate serve > log 2>&1");
        assert_eq!(script("sleep 9 &"), "exec env sleep 9 ");
        assert_eq!(script("{ a; b; } &"), "{ a; b; } ");
    }

    #[test]
    fn a_background_command_loses_its_ampersand() {
        assert_eq!(Background::of("python3 up.py &").unwrap().command, "python3 up.py ");
    }
}
