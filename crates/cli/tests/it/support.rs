//! The command as a process of its own.

pub(crate) mod certificates;
pub(crate) mod grpc;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The command, without anything that this process was given.
pub(crate) fn tollgate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// Runs it to its end, which must come: the code, and what it wrote.
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    let mut command = tollgate();
    let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it starts");
    let (id, (tell, told)) = (child.id().to_string(), mpsc::channel());
    thread::spawn(move || tell.send(child.wait_with_output()));
    let output = told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = Command::new("kill").arg(id).status();
        panic!("it does not end: {arguments:?}")
    });
    ended(&output.expect("it can be waited for"))
}

pub(crate) fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it writes UTF-8");
    (output.status.code().expect("no signal ended it"), text(&output.stdout), text(&output.stderr))
}

/// A file of the repository.
pub(crate) fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

/// Looks until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (_keep, never) = mpsc::channel::<()>();
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(20));
    }
    panic!("it never came about that {what}");
}

/// Ports that the system chooses.
const ANYWHERE: [&str; 4] = [
    "--http-address=127.0.0.1:0",
    "--grpc-address=127.0.0.1:0",
    "--resp-address=127.0.0.1:0",
    "--admin-address=127.0.0.1:0",
];

/// A service that runs until it is dropped.
pub(crate) struct Service {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// What it said when it began.
    pub(crate) greeting: String,
    log: Arc<Mutex<String>>,
    /// Who reads the log, to its end.
    reader: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts one, on ports that the system chooses where nothing else is said.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// The same, with these variables.
    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = tollgate();
        let is_said = |flag: &&str| {
            let (name, _) = flag.split_once('=').unwrap();
            arguments.iter().any(|argument| argument.starts_with(name))
        };
        command.args(["serve", "--workers=2"]).args(arguments).envs(variables.iter().copied());
        command.args(ANYWHERE.iter().filter(|flag| !is_said(flag)));
        Self::of(&mut command)
    }

    /// Starts what a command says, and waits until it listens.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        let reader = thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut log = kept.lock().unwrap();
                *log = format!("{log}{line}\n");
            }
        });
        let greeting = greeting(BufReader::new(child.stdout.take().unwrap()));
        // A line such as "  http  http://127.0.0.1:8080".
        let address = |name: &str| {
            let line = greeting.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
            let address =
                line.and_then(|line| line.split_once("://")).map_or("127.0.0.1:0", |(_, address)| address);
            address.parse().expect("a real address")
        };
        let [http, grpc, resp, admin] = ["http", "grpc", "resp", "admin"].map(address);
        Self { child, http, grpc, resp, admin, greeting, log, reader: Some(reader) }
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log says something: it is read beside everything else.
    pub(crate) fn tells(&self, what: &str) {
        until(&format!("the log tells {what:?}"), || self.log().contains(what));
    }

    pub(crate) fn signal(&self, name: &str) {
        let told = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(told.expect("there is kill").success());
    }

    /// Waits for its end: its code, if no signal ended it, and its log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut status: Option<ExitStatus> = None;
        until("it ends", || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        self.reader.take().map(JoinHandle::join).transpose().expect("it has read the log to its end");
        (status.and_then(|status| status.code()), self.log())
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.http).expect("it listens")
    }

    /// A connection with a check on it that surely is in hand: it has been asked for the body, of which nothing was sent.
    pub(crate) fn begin_check(&self, body: &str) -> TcpStream {
        const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut stream = self.connect();
        let head = request("POST", "/v1/check", body).replace("host:", "expect: 100-continue\r\nhost:");
        stream.write_all(&head.as_bytes()[..head.len() - body.len()]).unwrap();
        let mut asked = [0; GO_ON.len()];
        stream.read_exact(&mut asked).expect("it asks for the body");
        assert_eq!(asked, GO_ON);
        stream
    }

    /// The status of a check.
    pub(crate) fn check(&self, descriptor: &str) -> u16 {
        ask(self.http, "POST", "/v1/check", &format!("{{\"descriptor\": {descriptor}}}")).0
    }

    /// What those who run it are shown.
    pub(crate) fn get(&self, path: &str) -> String {
        let (status, body) = ask(self.admin, "GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// What a command typed by hand is answered.
    pub(crate) fn redis(&self, line: &str) -> String {
        let mut stream = connect(self.resp).expect("it listens");
        stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("its log:\n{}", self.log());
        }
    }
}

/// What is written up to the last of the commands to try.
fn greeting(mut lines: impl BufRead + Send + 'static) -> String {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        while lines.read_line(&mut text).is_ok_and(|read| read > 0) && !text.contains(" policy check") {}
        let _ = tell.send(text);
        // And on, so that it never waits for a reader.
        let _ = std::io::copy(&mut lines, &mut std::io::sink());
    });
    match told.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("it does not begin"),
        said => said.unwrap_or_default(),
    }
}

pub(crate) fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A whole HTTP exchange: the status and the body.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = connect(address).expect("it listens");
    stream.write_all(request(method, path, body).as_bytes()).unwrap();
    answer(&mut stream)
}

pub(crate) fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// The status and the body of what is answered until the connection ends.
pub(crate) fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    (head[9..12].parse().expect("a status"), body.to_owned())
}

/// A folder with a policy in it.
pub(crate) fn policy(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}
