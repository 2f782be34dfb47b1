//! Several processes hammer one limit, and together are admitted exactly what it says.

use std::process::{Command, Stdio};

use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Kind, Quota};
use tollgate_redis::{Leased, Leases, RedisStore};
use tollgate_testkit::Redis;

/// Tells a process that it is one of them: the address, then the algorithm, then the largest lease; zero for none.
const ORDERS: &str = "TOLLGATE_HAMMER";
const LIMIT: u64 = 2_000;
/// How many ask at once in each process.
const TASKS: usize = 16;
/// How often each of those is refused before it gives up.
const PATIENCE: u32 = 20;

fn rule(kind: Kind) -> Rule {
    let year = std::time::Duration::from_secs(365 * 86_400);
    // Nothing comes back while the test runs, and no window ends, whatever the date.
    let quota = if kind == Kind::TokenBucket { Quota::per_second(0) } else { Quota::per(LIMIT, 100 * year) };
    Rule::new("processes", kind.name(), quota.burst(LIMIT)).with_kind(kind)
}

/// What one of the processes does: takes one at a time until it has been refused often enough, and prints how many it got.
/// `cargo test -p tollgate-redis --test it processes` runs it, several times: the tests below start it with their orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the other tests, as a process of its own"]
async fn hammer() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let [url, kind, lease] = orders.split(' ').collect::<Vec<_>>()[..] else { panic!("{orders}") };
    let (store, kind) = (RedisStore::new(url).expect("a good address"), kind.parse().expect("an algorithm"));
    let admitted = match lease.parse().expect("a number") {
        0 => admitted(store, kind).await,
        most => admitted(Leased::new(store, Leases::up_to(most)), kind).await,
    };
    println!("admitted {admitted}");
}

async fn admitted<S: Store>(store: S, kind: Kind) -> u64 {
    let limit = store.open(&rule(kind));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let (store, limit) = (store.clone(), limit.clone());
        tasks.spawn(async move {
            let (mut admitted, mut refused) = (0_u64, 0);
            while refused < PATIENCE {
                match store.decide(Mode::Take, &[Hit::new(&limit, b"hot")]).await.expect("decided") {
                    answer if answer.is_admitted() => admitted += 1,
                    _ => refused += 1,
                }
            }
            admitted
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// What each of so many processes was admitted.
fn run(redis: &Redis, kind: Kind, processes: usize, lease: u64) -> Vec<u64> {
    let spawn = |_| {
        Command::new(std::env::current_exe().expect("this test has a name"))
            .args(["--ignored", "--exact", "processes::hammer", "--nocapture"])
            .env(ORDERS, format!("{} {kind} {lease}", redis.url()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be run again")
    };
    let children: Vec<_> = (0..processes).map(spawn).collect();
    let admitted = |child: std::process::Child| {
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.lines().find_map(|line| line.split_once("admitted ")?.1.trim().parse().ok());
        number.unwrap_or_else(|| panic!("a process said:\n{text}"))
    };
    children.into_iter().map(admitted).collect()
}

#[test]
fn two_and_eight_processes_are_admitted_exactly_the_limit() {
    let spaced = [Kind::LeakyBucket, Kind::LeakyQueue, Kind::PacedWindow];
    for kind in Kind::ALL.into_iter().filter(|kind| !spaced.contains(kind)) {
        for processes in [2, 8] {
            let redis = Redis::start();
            let admitted = run(&redis, kind, processes, 0);
            assert_eq!(admitted.iter().sum::<u64>(), LIMIT, "{kind}, {processes} processes: {admitted:?}");
            assert!(admitted.iter().filter(|admitted| **admitted > 0).count() > 1, "{kind}: {admitted:?}");
        }
    }
}

#[test]
fn one_is_admitted_where_there_is_no_burst() {
    let redis = Redis::start();
    let admitted = run(&redis, Kind::LeakyBucket, 4, 0);
    assert_eq!(admitted.iter().sum::<u64>(), 1, "{admitted:?}");
}

/// Each of them ends without giving back what it has on lease.
#[test]
fn with_leases_they_are_admitted_the_limit_or_less_by_what_is_out() {
    const LEASE: u64 = 20;
    for kind in [Kind::TokenBucket, Kind::FixedWindow] {
        for processes in [2, 8] {
            let redis = Redis::start();
            let admitted = run(&redis, kind, processes, LEASE);
            let (sum, missing) = (admitted.iter().sum::<u64>(), LEASE * processes as u64);
            assert!(sum <= LIMIT && sum >= LIMIT - missing, "{kind}, {processes} processes: {admitted:?}");
        }
    }
}
