//! One server, or a primary and its replica.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tollgate_testkit::{Redis, RedisSentinel};

use super::load::{End, Load, PROCESSES};
use super::page::Fault;

/// What may be admitted, over all time; a part of it before anything breaks; and how often callers are refused until it is
/// believed that no more is.
const BOUND: u64 = 3_000;
const BEFORE: usize = 500;
const REFUSED: usize = 300;

async fn begin(url: &str, bound: u64) -> (Load, Instant) {
    let (start, load) = (Instant::now(), Load::start(url, 1, bound));
    load.until(start, End::Admitted, BEFORE).await;
    (load, start)
}

fn signal(redis: &Redis, name: &str) {
    let told = Command::new("kill").args([name, &redis.process().to_string()]).status();
    assert!(told.expect("there is kill").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed() {
    let redis = Redis::start();
    let (load, _) = begin(&redis.url(), BOUND).await;
    let begin = Instant::now();
    drop(redis);
    load.until(begin, End::Unanswered, 2_000).await;
    let outcome = load.end().await;
    let fault = Fault { name: "killed", begin, end: None };
    fault.report(&outcome, 0, "", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused() {
    let redis = Redis::start();
    let (load, _) = begin(&redis.url(), BOUND).await;
    let begin = Instant::now();
    signal(&redis, "-STOP");
    load.until(begin, End::Unanswered, 2_000).await;
    signal(&redis, "-CONT");
    let end = Instant::now();
    load.until(end, End::Refused, REFUSED).await;
    let outcome = load.end().await;
    assert!(outcome.unanswered()[0] > 0, "somebody waited for it");
    Fault { name: "paused (SIGSTOP)", begin, end: Some(end) }.report(&outcome, 0, "", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn started_again_empty() {
    let redis = Redis::start();
    let (port, (load, start)) = (redis.port(), begin(&redis.url(), BOUND).await);
    let begin = Instant::now();
    drop(redis);
    load.until(begin, End::Unanswered, 1_000).await;
    let used = load.count(start, End::Admitted) as u64;
    let _redis = Redis::start_on(port, &[]);
    let end = Instant::now();
    load.until(end, End::Refused, REFUSED).await;
    let outcome = load.end().await;
    assert!(outcome.over() > 0, "it has forgotten what was used");
    let fault = Fault { name: "killed and restarted empty", begin, end: Some(end) };
    fault.report(&outcome, used, "requests admitted before the restart", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slowed() {
    let redis = Arc::new(Redis::start_with(&["--enable-debug-command", "yes"]));
    let (load, _) = begin(&redis.url(), BOUND).await;
    let begin = Instant::now();
    let slow = Arc::clone(&redis);
    let slowed = spawn_blocking(move || {
        for _ in 0..15 {
            assert_eq!(slow.ask(&["DEBUG", "SLEEP", "0.06"]), "OK");
        }
    });
    slowed.await.expect("it was slow");
    let end = Instant::now();
    load.until(end, End::Refused, REFUSED).await;
    let outcome = load.end().await;
    assert!(outcome.unanswered()[0] > 0, "somebody was told too late");
    Fault { name: "slowed by repeated pauses of 60 ms", begin, end: Some(end) }.report(&outcome, 0, "", "");
}

/// How far replication has come: of the primary, and of its replica as far as it knows.
fn offsets(primary: &Redis) -> (u64, u64) {
    let info = primary.ask(&["INFO", "replication"]);
    let number = |after: &str| {
        let rest = info.split_once(after).map_or("", |(_, rest)| rest);
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    (number("master_repl_offset:"), number(",offset="))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_promoted() {
    let servers = Arc::new(RedisSentinel::start());
    let (load, start) = begin(&servers.url(), 10_000).await;
    let (replicated, offset) = (load.count(start, End::Admitted), offsets(&servers.servers()[0]).0);
    while offsets(&servers.servers()[0]).1 < offset {
        sleep(Duration::from_millis(10)).await;
    }
    let begin = Instant::now();
    let promoting = Arc::clone(&servers);
    spawn_blocking(move || promoting.fail_over()).await.expect("it takes over");
    let end = Instant::now();
    // Until they have heard of it, they ask the old one, which goes on answering.
    let new = &servers.servers()[1];
    while new.ask(&["CLIENT", "LIST"]).matches(" cmd=evalsha ").count() < PROCESSES {
        sleep(Duration::from_millis(10)).await;
    }
    let most = (load.count(start, End::Admitted) - replicated) as u64;
    load.until(Instant::now(), End::Refused, REFUSED).await;
    let outcome = load.end().await;
    let fault = Fault { name: "replica promoted under load", begin, end: Some(end) };
    fault.report(&outcome, most, "requests admitted since the last confirmed replication", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_cache_flushed() {
    let redis = Arc::new(Redis::start());
    let (load, _) = begin(&redis.url(), BOUND).await;
    let begin = Instant::now();
    let flushed = Arc::clone(&redis);
    spawn_blocking(move || (0..30).for_each(|_| assert_eq!(flushed.ask(&["SCRIPT", "FLUSH"]), "OK")))
        .await
        .expect("all are flushed");
    let end = Instant::now();
    load.until(end, End::Refused, REFUSED).await;
    let outcome = load.end().await;
    assert_eq!(outcome.unanswered()[1], 0, "nobody notices");
    Fault { name: "script cache flushed", begin, end: Some(end) }.report(&outcome, 0, "", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_full() {
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let (load, _) = begin(&redis.url(), BOUND).await;
    let begin = Instant::now();
    assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    load.until(begin, End::Unanswered, 1_000).await;
    assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    let end = Instant::now();
    load.until(end, End::Refused, REFUSED).await;
    let outcome = load.end().await;
    Fault { name: "memory full", begin, end: Some(end) }.report(&outcome, 0, "", "");
}
