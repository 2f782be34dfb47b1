//! Signals end a run. They are sent to the process, so run this under nextest, which gives each test one of its own.
#![cfg(all(unix, feature = "signal"))]

use std::process::Command;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tollgate_flow::{Fault, Pool};

fn send(signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &std::process::id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn the_first_signal_drains_and_the_second_stops() {
    let go = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&go);
    let work = move |job: Arc<u64>, _| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, Fault>(*job)
        }
    };
    let mut outcomes = Pool::new(2).queued(3).run(0_u64.., work);
    let _signals = outcomes.control().on_signals().unwrap();

    go.add_permits(1);
    assert_eq!(outcomes.next().await.unwrap().job, 0.into());
    send("TERM");
    // Once the signal has arrived it takes no more, and what is queued shrinks.
    while outcomes.control().stats().queued > 0 {
        go.add_permits(1);
        assert!(outcomes.next().await.unwrap().result.is_ok());
        tokio::task::yield_now().await;
    }
    let drained = outcomes.control().stats();
    assert_eq!(drained.in_flight, 2);

    send("INT");
    assert!(outcomes.next().await.is_none());
    let mut rest = outcomes.stop().await;
    assert_eq!(rest.unfinished.len(), 2);
    assert!(rest.unfinished.iter().all(tollgate_flow::pool::Unfinished::was_started));
    assert_eq!(rest.source.next(), Some(drained.taken));
}
