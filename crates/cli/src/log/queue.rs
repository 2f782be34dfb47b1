//! Lines that a thread of their own writes.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tollgate::{Limiter, Quota};
use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait. When there are more, further ones are dropped and counted.
const MOST_WAITING: usize = 4_096;
/// How long the end of the process may take for the lines that wait.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Takes lines without waiting for their reader.
#[derive(Clone, Debug)]
pub(super) struct LineQueue {
    waiting: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// All lines before it are written once it is answered.
    End(SyncSender<()>),
}

impl LineQueue {
    /// A queue whose lines go to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<(Self, Written)> {
        let (waiting, lines) = sync_channel(MOST_WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let lost = Arc::clone(&dropped);
        thread::Builder::new()
            .name("tollgate-log".to_owned())
            .spawn(move || write_all(&lines, &lost, out))?;
        let written = Written(waiting.clone());
        Ok((Self { waiting, dropped }, written))
    }
}

fn write_all(lines: &Receiver<Message>, dropped: &AtomicU64, mut out: impl Write) {
    let telling = Limiter::new(Quota::per_second(1).burst(1));
    while let Ok(message) = lines.recv() {
        match message {
            Message::Line(line) => _ = out.write_all(&line), // nobody else could be told
            Message::End(done) => _ = done.try_send(()),
        }
        if dropped.load(Ordering::Relaxed) > 0 && telling.check().is_admitted() {
            let lines = dropped.swap(0, Ordering::Relaxed);
            tracing::warn!(
                lines,
                "dropped lines of the decision log or audit log: the reader of stderr is too slow"
            );
        }
    }
}

/// One line is one call of `write`.
impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.waiting.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Waits until all lines are written when it is dropped, for a second at most.
#[derive(Debug)]
pub(crate) struct Written(SyncSender<Message>);

impl Drop for Written {
    fn drop(&mut self) {
        let (tell, told) = sync_channel(1);
        // Where there is no room, the reader is gone.
        if self.0.try_send(Message::End(tell)).is_ok() {
            let _ = told.recv_timeout(LAST_LINES);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Announces each line, and writes it only when the test allows it.
    struct Slow(Sender<Vec<u8>>, Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.send(line.to_vec()).map_err(io::Error::other)?;
            self.1.recv().map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Answers, item 25: a reader of the log that does not read delays no request; lines that find no room are dropped and counted.
    #[test]
    fn write_never_waits_for_a_slow_reader() {
        let ((tell, told), (go, wait)) = (channel(), channel());
        let (mut queue, written) = LineQueue::start(Slow(tell, wait)).unwrap();
        assert_eq!(queue.write(b"first").unwrap(), 5);
        assert_eq!(told.recv().unwrap(), b"first", "it is being written");
        for _ in 0..MOST_WAITING + 3 {
            assert_eq!(queue.write(b"more").unwrap(), 4);
        }
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 3);
        drop(go);
        drop((queue, written));
        assert!(told.iter().count() >= MOST_WAITING);
    }

    #[test]
    fn written_waits_for_all_lines() {
        let (tell, told) = channel();
        let (go, wait) = channel();
        for _ in 0..2 {
            go.send(()).unwrap();
        }
        let (mut queue, written) = LineQueue::start(Slow(tell, wait)).unwrap();
        for line in [b"one", b"two"] {
            queue.write_all(line).unwrap();
        }
        drop(written);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [b"one", b"two"]);
    }
}
