//! A cluster of three primaries.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tollgate_testkit::{Redis, RedisCluster};

use super::load::{End, Load, name};
use super::page::Fault;

/// The keys of states on a node.
fn states(node: &Redis) -> Vec<String> {
    node.ask(&["KEYS", "*:{*"]).lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_lost() {
    const KEYS: usize = 30;
    let mut cluster = RedisCluster::start(3);
    let (start, load) = (Instant::now(), Load::start(&cluster.url(), KEYS, 100));
    load.until(start, End::Admitted, 600).await;
    let gone = cluster.take_node(1);
    let lost: HashSet<String> =
        states(&gone).iter().filter_map(|key| Some(key.rsplit_once('=')?.1.to_owned())).collect();
    assert!(!lost.is_empty() && lost.len() < KEYS, "{lost:?}");
    let begin = Instant::now();
    drop(gone);
    load.until(begin, End::Unanswered, 300).await;
    load.until(begin, End::Refused, 600).await;
    let outcome = load.end().await;
    let (mut lives, mut unanswered) = (0, 0);
    for call in outcome.calls.iter().filter(|call| call.began >= begin) {
        let is_lost = lost.contains(&name(call.key));
        // For an instant after it was killed, what was on its way was still answered.
        lives += u64::from(!is_lost);
        unanswered += u64::from(!is_lost && call.end == End::Unanswered);
    }
    println!(
        "{lives} calls for keys of the others, {unanswered} of them not answered; {:?}",
        outcome.unanswered()
    );
    let more = format!(" ({unanswered} of {lives} calls for keys on the other nodes)");
    Fault { name: "cluster of three loses a primary", begin, end: None }.report(&outcome, 0, "", &more);
}

/// Moves the slot of the only key there is to another node, and says which that is.
fn move_slot(cluster: &RedisCluster) {
    let from = cluster.nodes().iter().position(|node| states(node).len() == 1).expect("one key");
    let to = &cluster.nodes()[(from + 1) % 3];
    let from = &cluster.nodes()[from];
    let key = &states(from)[0];
    let slot = from.ask(&["CLUSTER", "KEYSLOT", key]);
    let ids = [from, to].map(|node| node.ask(&["CLUSTER", "MYID"]));
    assert_eq!(to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]), "OK");
    assert_eq!(from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]), "OK");
    assert_eq!(from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]), "OK");
    for node in [to, from] {
        assert_eq!(node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]), "OK");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves() {
    let cluster = Arc::new(RedisCluster::start(3));
    let (start, load) = (Instant::now(), Load::start(&cluster.url(), 1, 3_000));
    load.until(start, End::Admitted, 500).await;
    let begin = Instant::now();
    for _ in 0..3 {
        let moving = Arc::clone(&cluster);
        spawn_blocking(move || move_slot(&moving)).await.expect("it moves");
    }
    let end = Instant::now();
    load.until(end, End::Refused, 300).await;
    let outcome = load.end().await;
    Fault { name: "hash slot moved under load", begin, end: Some(end) }.report(&outcome, 0, "", "");
}
