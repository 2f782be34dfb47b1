//! Servers in processes of their own.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use tollgate_benches::pin_to_core;

use crate::certificate::{Certificate, Files};
use crate::servers::{Kind, serve};

/// For children: which server to be, on which core, and where its certificate is.
const SERVE: &str = "--serve";

/// A server in a process of its own, which ends with this.
pub(crate) struct Child {
    process: std::process::Child,
    port: u16,
}

impl Child {
    /// Starts one, which speaks TLS if it has a certificate.
    pub(crate) fn start(kind: Kind, core: usize, certificate: Option<&Certificate>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args([SERVE, kind.name(), &core.to_string()]);
        command.args(certificate.map(Certificate::directory));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        Self { process, port: line.trim().parse().expect("a port") }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The processor time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it runs");
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        // The twelfth and thirteenth field after the name, in hundredths of a second.
        let ticks =
            after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        Duration::from_millis(10 * ticks.sum::<u64>())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Is a server until nobody holds the other end, if the arguments of this process say so.
pub(crate) fn serve_if_told() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    arguments.next().filter(|flag| flag == SERVE)?;
    let kind = Kind::parse(&arguments.next()?);
    pin_to_core(arguments.next()?.parse().ok()?); // and so the threads that it starts
    serve(kind, arguments.next().map(|directory| Files::of(Path::new(&directory))).as_ref());
    let _ = std::io::stdin().read(&mut [0]);
    Some(ExitCode::SUCCESS)
}
