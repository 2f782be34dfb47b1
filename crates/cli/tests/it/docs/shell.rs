//! The shell of a session: one `bash`, so that variables and `cd` last, and the programs that it runs in the background.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tempfile::TempDir;
use tollgate_testkit::{Envoy, Redis};

use super::console::Background;
use super::ports::{LISTENERS, Ports, REDIS};

/// How long a command may take: `go run` compiles.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a program may take to start, and to stop.
const START: Duration = Duration::from_secs(60);

/// How long a program that serves may take to print what the page shows.
const OUTPUT: Duration = Duration::from_secs(5);

/// How long a server may take to load a file again.
const RELOAD: Duration = Duration::from_secs(3);

/// What the shell does at its end, also if the test is killed: it ends its programs, and waits for them.
const FAREWELL: &str = r#"trap 'for job in $(jobs -p); do kill -KILL -- "-$job"; done; wait' EXIT"#;

/// Runs commands in an empty directory.
pub(crate) struct Shell {
    bash: Child,
    /// Taken at the end.
    input: Option<ChildStdin>,
    done: Receiver<String>,
    /// Where commands run.
    directory: TempDir,
    /// Where the harness keeps its own files.
    state: TempDir,
    ports: Ports,
    programs: Vec<Program>,
    outputs: usize,
}

/// A program in the background.
struct Program {
    background: Background,
    group: Pid,
    output: PathBuf,
    /// How much of its output has been shown.
    seen: usize,
}

/// How a command ended.
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) lines: Vec<String>,
}

impl Shell {
    /// Starts a shell for a page with this text.
    pub(crate) fn start(page: &str) -> Self {
        let (directory, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ports = Ports::of(page);
        write_programs(&state.path().join("bin"), &ports, page);
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]).current_dir(directory.path()).process_group(0);
        command.env_clear().envs(environment(state.path()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut bash = command.spawn().expect("bash starts");
        let (mut input, lines) =
            (bash.stdin.take().unwrap(), BufReader::new(bash.stdout.take().unwrap()).lines());
        writeln!(input, "{FAREWELL}").expect("bash listens");
        let (sender, done) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { bash, input: Some(input), done, directory, state, ports, programs: Vec::new(), outputs: 0 }
    }

    /// Writes a file of the page. Servers that use it have loaded it when this returns.
    pub(crate) fn write(&mut self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        let text = self.ports.to_session(text);
        let is_changed = path.exists() && read(&path) != text;
        let is_in_folder = name.contains('/'); // of policies, perhaps
        let lengths: Vec<usize> = self.servers().map(|server| server.output().len()).collect();
        fs::create_dir_all(path.parent().expect("a file is in a directory")).unwrap();
        fs::write(path, text).unwrap();
        if (is_changed || is_in_folder) && !lengths.is_empty() && !is_script(name) {
            // A server that does not use the file logs nothing; then this takes its whole time.
            wait(RELOAD, || {
                self.servers().zip(&lengths).any(|(server, length)| server.output().len() > *length)
            });
        }
    }

    fn servers(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| program.background.is_tollgate() && program.is_running())
    }

    /// Runs a command to its end.
    pub(crate) fn run(&mut self, command: &str) -> Result<Outcome, String> {
        let (script, output) = self.next(&self.ports.to_session(command));
        let line = format!(
            "__failed=0; trap '__failed=$?' ERR; . {} </dev/null >{} 2>&1; trap - ERR; echo \"$__failed\"",
            script.display(),
            output.display()
        );
        let status = self.ask(&line);
        let lines = self.shown(&read(&output));
        let status = status.map_err(|problem| format!("{problem}; its output:\n{}", lines.join("\n")))?;
        Ok(Outcome { status: status.parse().expect("a status"), lines })
    }

    /// Starts a program, and waits until it serves and `is_shown` accepts its output, or it ends. Returns its output.
    pub(crate) fn spawn(
        &mut self,
        background: Background,
        is_shown: impl Fn(&[String]) -> bool,
    ) -> Result<Vec<String>, String> {
        self.stop_same(&background);
        let command = self.ports.to_session(&background.script());
        let closed: Vec<u16> = self.listens_on(&command).into_iter().filter(|port| !is_open(*port)).collect();
        let (script, output) = self.next(&command);
        let line =
            format!("set -m; . {} </dev/null >{} 2>&1 & set +m; echo $!", script.display(), output.display());
        let group = self.ask(&line)?.parse().ok().and_then(Pid::from_raw).expect("the id of a process");
        let mut program = Program { background, group, output, seen: 0 };
        let listens = || closed.iter().any(|port| is_open(*port));
        let is_serving = || {
            if program.background.says_that_it_serves() {
                program.is_greeting()
            } else {
                closed.is_empty() || listens()
            }
        };
        // What is missing after that is shown as a difference.
        wait(START, || !program.is_running() || is_serving());
        wait(OUTPUT, || !program.is_running() || is_shown(&self.shown(&program.output())));
        let text = program.output();
        program.seen = text.len();
        self.programs.push(program);
        Ok(self.shown(&text))
    }

    /// Presses `^C` in the terminal of the program that was started last. Returns its further output.
    pub(crate) fn interrupt(&mut self) -> Result<Vec<String>, String> {
        let program = self.programs.pop().ok_or("^C, and nothing runs")?;
        program.stop(Signal::INT);
        Ok(self.shown(program.output().get(program.seen..).unwrap_or_default()))
    }

    /// The ports that a program may listen on: those in its command, and in the files that it names.
    fn listens_on(&self, command: &str) -> Vec<u16> {
        let files = command.split_whitespace().map(|word| self.directory.path().join(word));
        let texts = files.filter(|file| file.is_file()).filter_map(|file| fs::read_to_string(file).ok());
        let mut ports: Vec<u16> = texts.flat_map(|text| self.ports.named_in(&text)).collect();
        ports.extend(self.ports.named_in(command));
        if command.contains("redis-server") {
            ports.push(self.ports.in_use(REDIS));
        }
        if command.contains("tollgate serve") {
            ports.extend(LISTENERS.iter().map(|(_, port)| self.ports.in_use(*port)));
        }
        ports
    }

    /// Stops a program whose place another one takes.
    fn stop_same(&mut self, background: &Background) {
        let is_same = |other: &Program| {
            background.identity.is_some() && other.background.identity == background.identity
        };
        if let Some(found) = self.programs.iter().position(is_same) {
            self.programs.remove(found).stop(Signal::TERM);
        }
    }

    /// The files of the next command: its script, and its output.
    fn next(&mut self, command: &str) -> (PathBuf, PathBuf) {
        self.outputs += 1;
        let file = |kind: &str| self.state.path().join(format!("{}.{kind}", self.outputs));
        fs::write(file("sh"), command).unwrap();
        (file("sh"), file("out"))
    }

    /// Has the shell run a line that prints a line.
    fn ask(&mut self, line: &str) -> Result<String, String> {
        let ended = |_| "the shell has ended".to_owned();
        let input = self.input.as_mut().expect("it is taken at the end only");
        writeln!(input, "{line}").map_err(|error| format!("the shell has ended: {error}"))?;
        match self.done.recv_timeout(PATIENCE) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                self.kill();
                Err(format!("it takes longer than {PATIENCE:?}"))
            }
            answer => answer.map_err(ended),
        }
    }

    fn shown(&self, output: &str) -> Vec<String> {
        self.ports.to_page(output).lines().map(str::to_owned).collect()
    }

    fn kill(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.bash), Signal::KILL);
        let _ = self.bash.wait();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.input = None;
        // The channel closes when the shell has ended.
        while self.done.recv_timeout(START).is_ok() {}
        self.kill();
    }
}

impl Program {
    fn output(&self) -> String {
        read(&self.output)
    }

    /// Whether a server of ours has printed the last line of its greeting.
    fn is_greeting(&self) -> bool {
        self.output().contains(" policy check")
    }

    fn is_running(&self) -> bool {
        test_kill_process_group(self.group).is_ok()
    }

    /// Sends a signal, and waits for the end.
    fn stop(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
        if !wait(START, || !self.is_running()) {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// Looks until it is so, for this time at most.
fn wait(time: Duration, is_so: impl Fn() -> bool) -> bool {
    const STEP: Duration = Duration::from_millis(20);
    let (_keep, never) = mpsc::channel::<()>();
    for _ in 0..time.as_millis() / STEP.as_millis() {
        if is_so() {
            return true;
        }
        let _ = never.recv_timeout(STEP);
    }
    is_so()
}

fn is_open(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Whether a file is a program of the page, which no server loads.
fn is_script(name: &str) -> bool {
    [".py", ".js", ".mjs", ".go", ".sh", ".lua"].iter().any(|extension| name.ends_with(extension))
}

/// The variables of the shell.
fn environment(state: &Path) -> Vec<(&'static str, String)> {
    let path = std::env::var("PATH").unwrap_or_default();
    let home = state.display();
    vec![
        ("PATH", format!("{home}/bin:{path}")),
        ("HOME", home.to_string()),
        ("LANG", "C.UTF-8".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ("GOCACHE", format!("{}/go", env!("CARGO_TARGET_TMPDIR"))),
    ]
}

/// Writes the programs that pages run, with the ports of the session.
fn write_programs(folder: &Path, ports: &Ports, page: &str) {
    fs::create_dir_all(folder).unwrap();
    let (program, redis) = (env!("CARGO_BIN_EXE_tollgate"), ports.in_use(REDIS));
    let listeners: String =
        LISTENERS.iter().map(|(name, port)| listener(name, *port, ports.in_use(*port))).collect();
    let serve = format!(
        "if [ \"${{1:-}}\" = serve ]; then\nsettings=$('{program}' settings \"${{@:2}}\" 2>&1)\n{listeners}fi\n"
    );
    write_program(folder, "tollgate", &format!("{serve}exec -a tollgate '{program}' \"$@\""));
    if page.contains("$ redis-server") {
        let server = Redis::program();
        let bind = format!("case \" $*\" in *' --port '*) ;; *) set -- \"$@\" --port {redis};; esac");
        let run = format!("exec '{}' \"$@\" --bind 127.0.0.1", server.display());
        write_program(folder, "redis-server", &format!("{bind}\n{run}"));
    }
    let port = format!("case \" $*\" in *' -p '*|*' -u '*) ;; *) set -- -p {redis} \"$@\";; esac");
    // As in a terminal, unless its output goes into a pipe.
    let format = "[ ! -f /dev/stdout ] || set -- --no-raw \"$@\"";
    write_program(
        folder,
        "redis-cli",
        &format!("{port}\n{format}\nPATH=${{PATH#*:}}; exec redis-cli \"$@\""),
    );
    if page.contains("$ envoy") {
        // Several of them run at the same time.
        let run = format!(
            "exec -a envoy '{}' --disable-hot-restart --concurrency 1 \"$@\"",
            Envoy::program().display()
        );
        write_program(folder, "envoy", &run);
    }
}

/// Has a listener use the port of the session, if the settings leave its usual address.
fn listener(name: &str, usual: u16, used: u16) -> String {
    let (variable, address) = (name.to_uppercase(), "127.0.0.1");
    format!(
        "case $settings in *'{name}.address = \"{address}:{usual}\"'*) export TOLLGATE_{variable}_ADDRESS={address}:{used};; esac\n"
    )
}

fn write_program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/usr/bin/env bash\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> Shell {
        Shell::start("$ echo 127.0.0.1:9001")
    }

    #[test]
    fn variables_and_directories_last() {
        let mut shell = shell();
        assert_eq!(shell.run("mkdir sub; cd sub; name='a b'").unwrap().status, 0);
        let outcome = shell.run("echo \"$name\" \\\n  $(basename \"$PWD\")").unwrap();
        assert_eq!(outcome.lines, ["a b sub"]);
    }

    #[test]
    fn output_and_errors_are_kept_in_order() {
        let outcome = shell().run("echo one; echo two >&2; false\necho three").unwrap();
        assert_eq!((outcome.lines.join(" ").as_str(), outcome.status), ("one two three", 1));
    }

    #[test]
    fn the_end_of_the_shell_is_an_error() {
        assert!(shell().run("echo bye; exit 3").is_err_and(|problem| problem.contains("bye")));
    }

    #[test]
    fn files_have_the_ports_of_the_session_and_output_those_of_the_page() {
        let mut shell = shell();
        shell.write("conf/a.txt", "http://127.0.0.1:9001\n");
        assert_eq!(shell.run("cat conf/a.txt").unwrap().lines, ["http://127.0.0.1:9001"]);
        let text = fs::read_to_string(shell.directory.path().join("conf/a.txt")).unwrap();
        assert!(!text.contains("9001"), "{text}");
    }

    #[test]
    fn programs_run_until_they_are_interrupted() {
        let mut shell = shell();
        let script = "trap 'echo bye; exit' INT; echo ready; while :; do sleep 0.1; done";
        let background = Background::of(&format!("{{ {script}; }} &")).expect("it ends with &");
        let output = shell.spawn(background, |lines| lines.contains(&"ready".to_owned())).unwrap();
        assert_eq!(output, ["ready"]);
        assert_eq!(shell.interrupt().unwrap(), ["bye"]);
        assert!(shell.interrupt().is_err(), "nothing runs");
    }

    #[test]
    fn a_program_that_ends_is_not_waited_for() {
        let background = Background::of("echo wrong &").expect("it ends with &");
        assert_eq!(shell().spawn(background, |_| false).unwrap(), ["wrong"]);
    }

    #[test]
    fn a_second_server_on_the_same_address_stops_the_first() {
        let mut shell = shell();
        let background = || Background::of("tollgate serve").expect("a server");
        shell.spawn(background(), |_| true).unwrap();
        let output = shell.spawn(background(), |_| true).unwrap();
        assert!(output.join("\n").contains("http://127.0.0.1:8080"), "{output:?}");
        assert_eq!(shell.programs.len(), 1);
        assert!(shell.programs[0].is_running());
    }
}
