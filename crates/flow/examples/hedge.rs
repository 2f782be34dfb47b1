//! A request that ten handlers can answer, of which each is slow now and then: one handler alone, all ten at once, and hedged.
//!
//! ```sh
//! cargo run -p tollgate-flow --example hedge
//! ```
//!
//! Runs in virtual time: two minutes of calls take less than a second. An answer takes about 20 ms; one in fifty takes 800.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tollgate_flow::{Fault, Hedge, Time};

const CALLS: u32 = 5_000;
const HANDLERS: u32 = 10;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Fault> {
    println!("{:14} {:>8} {:>8} {:>8} {:>12}", "", "p50", "p99", "p99.9", "extra load");
    measure("one handler", &Hedge::new().copies(1)).await?;
    measure("after p95", &Hedge::new()).await?;
    measure("all at once", &Hedge::new().at_once()).await?;
    Ok(())
}

/// Makes the same calls through `hedge`, and prints how long they took and how many more requests that was.
async fn measure(name: &str, hedge: &Hedge) -> Result<(), Fault> {
    let service = Service::new();
    let mut times = Vec::new();
    for call in 0..CALLS {
        let start = service.time.now();
        // Each call begins with another handler, so that the load is the same for all.
        let handlers = (0..HANDLERS).map(|n| (call + n) % HANDLERS);
        hedge.run(handlers, |handler| service.ask(handler)).await?;
        times.push(service.time.now().since(start).as_millis());
    }
    times.sort_unstable();
    let at = |per_mille: usize| format!("{} ms", times[times.len() * per_mille / 1_000]);
    let extra = 100.0 * (f64::from(service.asked.get()) / f64::from(CALLS) - 1.0);
    println!("{name:14} {:>8} {:>8} {:>8} {extra:>10.1} %", at(500), at(990), at(999));
    Ok(())
}

/// What the handlers serve: each answer by itself, so it may be asked for twice.
struct Service {
    time: Time,
    rng: RefCell<fastrand::Rng>,
    asked: Cell<u32>,
}

impl Service {
    fn new() -> Self {
        Self { time: Time::tokio(), rng: RefCell::new(fastrand::Rng::with_seed(1)), asked: Cell::new(0) }
    }

    async fn ask(&self, handler: u32) -> Result<u32, Fault> {
        self.asked.set(self.asked.get() + 1);
        let ms = self.takes_ms();
        self.time.sleep(Duration::from_millis(ms)).await;
        Ok(handler)
    }

    fn takes_ms(&self) -> u64 {
        let mut rng = self.rng.borrow_mut();
        if rng.u8(..50) == 0 { 800 } else { rng.u64(10..=30) }
    }
}
