//! A client of a limited API that keeps within everybody's limits at once: the API's requests per second, the disk's bytes
//! per second, and so many connections at a time.
//!
//! It runs in tokio's paused time, so a minute of work takes a moment: `cargo run -p tollgate-flow --example api_client`.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{ConcurrencyLimit, Costing, Gate, Limiter, Quota, TokioClock};
use tollgate_flow::pool::JobContext;
use tollgate_flow::{Again, Backoff, Fault, Pool, Retry};

/// Something to fetch and save.
struct Document {
    number: u64,
    kilobytes: u64,
}

/// A server that is busy now and then, and says when to come back.
async fn fetch(document: &Document, attempt: u32) -> Result<Vec<u8>, Fault> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    if document.number % 50 == 7 && attempt == 1 {
        let busy = Fault::untraced("the server is busy").with("document", document.number);
        return Err(busy.try_again(Again::After(Duration::from_secs(2))));
    }
    if document.number == 100 {
        return Err(Fault::untraced("there is no such document").try_again(Again::Never));
    }
    Ok(vec![0; document.kilobytes as usize * 1_000])
}

async fn download(document: Arc<Document>, context: JobContext) -> Result<usize, Fault> {
    let content = fetch(&document, context.attempt).await?;
    Ok(content.len()) // and save it
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let clock = TokioClock::new();
    let requests = Limiter::builder(Quota::per_second(10).burst(5)).clock(clock.clone()).build();
    let disk_kilobytes = Limiter::builder(Quota::per_second(1_500)).clock(clock).build();
    let connections = ConcurrencyLimit::new(6);

    // A document is one request and one connection, and as many kilobytes as it has: all of them, or it waits.
    let gate = Gate::new(Costing::new(requests.clone(), 1))
        .and(Costing::new(connections.clone(), 1))
        .and(disk_kilobytes.clone());
    let pool = Pool::new(16)
        .gate(gate)
        .cost(|document: &Document| document.kilobytes)
        .retry(Retry::new().backoff(Backoff::new().initial(Duration::from_millis(250))).tries(4))
        .attempt_timeout(Duration::from_secs(5))
        .heed_pushback(); // whoever is told to come back later stops everybody until then

    let documents = (0..1_000).map(|number| Document { number, kilobytes: 10 + number % 80 });
    let start = tokio::time::Instant::now();
    let mut downloads = pool.run(documents, download);
    let control = downloads.control();

    let (mut saved_bytes, mut read) = (0, 0);
    while let Some(outcome) = downloads.next().await {
        match outcome.result {
            Ok(bytes) => saved_bytes += bytes,
            Err(fault) => println!("document {}: {}", outcome.job.number, fault.report()),
        }
        read += 1;
        if read == 400 {
            println!("after {:?} the API doubles our rate: {:?}", start.elapsed(), control.stats());
            requests.set_quota(Quota::per_second(20).burst(5));
        }
    }
    println!("{saved_bytes} bytes in {:?}: {:?}", start.elapsed(), control.stats());
}
