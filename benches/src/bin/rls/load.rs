//! Callers.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// How many calls are under way.
pub(crate) const AT_ONCE: usize = 50;
/// How many there are to be told apart, on whose behalf calls are made.
pub(crate) const KEYS: usize = 20_000;
/// By which fields.
pub(crate) const FIELDS: [&str; 3] = ["user", "path", "tenant"];

/// What a field says of one of them.
pub(crate) fn value(field: &str, key: usize) -> String {
    format!("{field}-{key:08}")
}

/// Who makes one call after the other.
pub(crate) trait Caller: 'static {
    /// Calls on behalf of one of the [`KEYS`], and sees to it that the answer is right.
    fn call(&mut self, key: usize) -> impl Future<Output = ()>;
}

/// Makes callers that are connected.
pub(crate) trait Connect<C>: FnOnce(&Runtime) -> Vec<C> {}

impl<C, F: FnOnce(&Runtime) -> Vec<C>> Connect<C> for F {}

pub(crate) struct Callers<C> {
    runtime: Runtime,
    callers: Vec<C>,
}

/// What callers saw.
pub(crate) struct Seen {
    pub(crate) latencies_us: Vec<f64>,
    pub(crate) wall: Duration,
}

impl<C: Caller> Callers<C> {
    pub(crate) fn new(connect: impl Connect<C>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let callers = connect(&runtime);
        Self { runtime, callers }
    }

    /// Calls for so long.
    pub(crate) fn run(&mut self, span: Duration) -> Seen {
        let (next, began) = (Rc::new(Cell::new(0)), Instant::now());
        let (tasks, mut latencies_us) = (LocalSet::new(), Vec::new());
        let call = |caller| tasks.spawn_local(call_until(began + span, caller, Rc::clone(&next)));
        let calling: Vec<_> = self.callers.drain(..).map(call).collect();
        tasks.block_on(&self.runtime, async {
            for call in calling {
                let (caller, own) = call.await.expect("no caller panics");
                self.callers.push(caller);
                latencies_us.extend(own);
            }
        });
        Seen { latencies_us, wall: began.elapsed() }
    }
}

async fn call_until<C: Caller>(end: Instant, mut caller: C, next: Rc<Cell<usize>>) -> (C, Vec<f64>) {
    let mut latencies = Vec::new();
    loop {
        let began = Instant::now();
        if began >= end {
            return (caller, latencies);
        }
        caller.call(next.replace((next.get() + 1) % KEYS)).await;
        latencies.push(began.elapsed().as_secs_f64() * 1e6);
    }
}
