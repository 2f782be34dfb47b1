//! A load that takes less of its core than any server takes of its own.
//!
//! `redis-benchmark` writes every command anew and takes every answer apart. For five words and an answer of five numbers that
//! takes longer than deciding does, so it is busy all the time and the server is not: what it measures is itself. Here commands
//! are ready-made, and of answers only the lines are counted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// As many as `redis-benchmark` has.
const CONNECTIONS: usize = 50;

/// Some connections, each with one batch under way.
pub(crate) struct Lean {
    connections: Vec<Line>,
    batches: Vec<Vec<u8>>,
    next: usize,
    /// Of the answer to a batch.
    lines: usize,
}

impl Lean {
    pub(crate) fn new(port: u16, batches: Vec<Vec<u8>>, lines: usize) -> Self {
        let connections = (0..CONNECTIONS).map(|_| Line::new(port)).collect();
        Self { connections, batches, next: 0, lines }
    }

    /// Asks for so long. How many batches were answered.
    pub(crate) fn run(&mut self, span: Duration) -> usize {
        let Self { connections, batches, next, lines } = self;
        let mut batch = || {
            *next += 1;
            &batches[*next % batches.len()]
        };
        let (began, mut answered) = (Instant::now(), 0);
        for line in &mut *connections {
            line.send(batch());
        }
        while began.elapsed() < span {
            for line in &mut *connections {
                line.hear(*lines);
                line.send(batch());
            }
            answered += CONNECTIONS;
        }
        for line in &mut *connections {
            line.hear(*lines);
        }
        answered + CONNECTIONS
    }
}

/// One connection.
pub(crate) struct Line {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Line {
    pub(crate) fn new(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, heard: vec![0; 1 << 16] }
    }

    /// Sends commands, and waits for so many lines of answers.
    pub(crate) fn ask(&mut self, sent: &[u8], lines: usize) {
        self.send(sent);
        self.hear(lines);
    }

    fn send(&mut self, sent: &[u8]) {
        self.stream.write_all(sent).expect("it listens");
    }

    #[allow(clippy::naive_bytecount, reason = "what a load generator needs no crate for")]
    fn hear(&mut self, mut lines: usize) {
        while lines > 0 {
            let count = self.stream.read(&mut self.heard).expect("it answers");
            assert!(count > 0, "the server closed the connection");
            lines -= self.heard[..count].iter().filter(|byte| **byte == b'\n').count();
        }
    }
}
