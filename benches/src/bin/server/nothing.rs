//! A server that decides nothing: as many ready-made answers as commands came. What a load gets out of it is the most that it gets
//! out of any server that answers the same.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate::store::MemoryStore;
use tollgate::{Clock, DefaultClock};
use tollgate_server::{Connection, Meter, Metrics, Protocol, Timeouts};

use crate::child::{MINUTE, Started, start as start_by};

/// What `CL.THROTTLE` answers.
const ANSWER: &[u8] = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";

pub(crate) fn start() -> Started {
    start_by(
        "[limit.none]\nrate = \"1/h\"\nmatch.nobody = \"here\"\n",
        Nothing(Metrics::new().meter("nothing")),
    )
}

struct Nothing(Arc<Meter>);

impl Protocol<MemoryStore> for Nothing {
    fn meter(&self) -> &Arc<Meter> {
        &self.0
    }

    fn serve(&self, connection: Connection<MemoryStore>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(answer(connection))
    }

    fn timeouts(&self) -> Timeouts {
        MINUTE
    }

    fn full(&self) -> &'static [u8] {
        b""
    }
}

async fn answer(connection: Connection<MemoryStore>) {
    let Connection { mut stream, vigil, activity, .. } = connection;
    let (clock, mut received, ready) = (DefaultClock::default(), vec![0; 16 * 1024], ANSWER.repeat(256));
    while let Ok(length @ 1..) = stream.read(&mut received).await {
        vigil.begin(clock.now());
        activity.answered();
        // Each command begins with a star, and nothing else has one.
        let commands = received[..length].split(|byte| *byte == b'*').count() - 1;
        if stream.write_all(&ready[..commands * ANSWER.len()]).await.is_err() {
            return;
        }
        vigil.done(clock.now());
    }
}
