//! A worker that hangs, a steward that replaces it, and a steward of that steward.
//!
//! `cargo run -p tollgate-flow --example heartbeat`

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate::Tick;
use tollgate_flow::steward::StewardEvent;
use tollgate_flow::{Health, Heart, Rhythm, Steward, Time};

/// A beat every 50 ms: slow after 100 ms of silence, dead after 250.
const RHYTHM: Rhythm = Rhythm::every(Duration::from_millis(50));

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tollgate_flow::steward::StewardGaveUp> {
    listen_to_one_heart().await;
    println!();
    look_after_a_worker_that_hangs().await
}

/// A heart, and somebody who listens.
async fn listen_to_one_heart() {
    println!("A worker does three jobs, then thinks for too long:");
    let heart = Heart::new(RHYTHM, Time::tokio());
    let mut monitor = heart.monitor();
    tokio::spawn(async move {
        for _job in 0..3 {
            heart.begin_unit(); // a pulse at the start of each unit of work
            heart.beating(tokio::time::sleep(Duration::from_millis(80))).await; // and one at each interval meanwhile
        }
        tokio::time::sleep(Duration::from_millis(300)).await; // nobody hears of this
        heart.beat();
    });
    while let Some(health) = monitor.changed().await {
        println!("  {health:?} after {} units", monitor.latest().units);
        if health == Health::Ended {
            break;
        }
    }
}

/// The first worker hangs, the second panics, the third does its work.
async fn look_after_a_worker_that_hangs() -> Result<(), tollgate_flow::steward::StewardGaveUp> {
    println!("A steward replaces one that hangs and one that panics; another looks after the steward:");
    let lives = Arc::new(AtomicU32::new(0));
    let inner =
        Steward::new(RHYTHM, move |heart, stop| work(lives.fetch_add(1, Ordering::Relaxed), heart, stop))
            .grace(Duration::from_millis(100))
            .give_up_after(5, Duration::from_secs(10))
            .on_event(diary("worker"));
    let outer =
        Steward::new(RHYTHM, move |heart, stop| inner.work(heart, stop)).on_event(diary("inner steward"));

    let stop = CancellationToken::new();
    let shutdown = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        println!("  (shutting down)");
        shutdown.cancel();
    });
    outer.run(stop).await
}

async fn work(life: u32, heart: Heart, stop: CancellationToken) -> Result<(), std::io::Error> {
    heart.begin_unit();
    match life {
        0 => pending().await, // ignores its token, too
        1 => panic!("a bug"),
        _ => heart.beating(stop.cancelled()).await,
    }
    Ok(())
}

/// Prints what happens to `whom`, with the time.
fn diary(whom: &'static str) -> impl Fn(&StewardEvent) {
    let time = Time::tokio();
    move |event| println!("  {:>4} ms  {whom}: {event:?}", time.now().since(Tick::ZERO).as_millis())
}
