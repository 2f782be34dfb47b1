//! How many share a store.

use tollgate::store::Store;
use tollgate_redis::RedisStore;
use tollgate_testkit::{Redis, RedisCluster};

use crate::kit::until;

async fn connected(url: &str) -> RedisStore {
    let store = RedisStore::new(url).expect("a good address");
    store.ping().await.expect("it is there");
    store
}

fn all_say(stores: &[RedisStore], nodes: u32) -> bool {
    stores.iter().all(|store| store.nodes() == nodes)
}

#[tokio::test]
async fn those_who_share_a_server_are_counted_until_they_end() {
    let redis = Redis::start();
    let mut stores = vec![connected(&redis.url()).await];
    assert_eq!(stores[0].nodes(), 1, "itself");
    stores.push(connected(&redis.url()).await);
    stores.push(connected(&redis.url()).await);
    let apart = RedisStore::builder(&redis.url()).prefix("apart:").build().unwrap();
    apart.ping().await.unwrap();
    until("all three are counted", || all_say(&stores, 3)).await;
    let clone = stores[0].clone();
    assert_eq!((clone.nodes(), apart.nodes()), (3, 1), "a clone is the same, another prefix another fleet");
    stores.pop();
    until("one has ended", || all_say(&stores, 2)).await;
    assert_eq!(redis.ask(&["ZCARD", "tg2:nodes"]), "2", "it said so");
    drop(redis);
    stores[0].ping().await.unwrap_err();
    assert!(all_say(&stores, 2), "what was last seen is kept");
}

#[tokio::test]
async fn one_that_ends_without_a_word_is_counted_for_three_seconds_more() {
    let redis = Redis::start();
    let store = connected(&redis.url()).await;
    let now: u64 = redis.ask(&["TIME"]).lines().next().unwrap().parse().unwrap();
    for (ghost, seen) in [("past", now), ("future", now + 3_600)] {
        redis.ask(&["ZADD", "tg2:nodes", &(seen * 1_000).to_string(), ghost]);
    }
    until("the ghost is seen", || store.nodes() == 2).await;
    until("it is forgotten", || store.nodes() == 1).await;
    assert_eq!(redis.ask(&["ZCARD", "tg2:nodes"]), "1");
    drop(store);
    until("the list has gone with the last of them", || redis.ask(&["EXISTS", "tg2:nodes"]) == "0").await;
}

#[tokio::test]
async fn those_who_share_a_cluster_are_counted() {
    let cluster = RedisCluster::start(3);
    let stores = [connected(&cluster.url()).await, connected(&cluster.url()).await];
    until("both are counted", || all_say(&stores, 2)).await;
}
