//! `examples/ingest.rs` against a real Redis and a real PostgreSQL: killed once, told to end once, and nothing is lost or
//! doubled.
#![cfg(all(feature = "servers", feature = "signal"))]

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use redis::Commands;
use tokio_postgres::{Client, NoTls};
use tollgate_testkit::{Postgres, Redis};

const EVENTS: u64 = 3_000;

/// With more than a dozen writes at once each takes longer than a statement may. What was written is noted where
/// nothing keeps it from being noted twice.
const A_DATABASE_THAT_TIMES_OUT_UNDER_LOAD: &str = "
    CREATE TABLE events (id text PRIMARY KEY, body text NOT NULL);
    CREATE TABLE written (id text NOT NULL);
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF (SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'INSERT INTO events%') > 12 THEN
            PERFORM pg_sleep(1);
        END IF;
        PERFORM pg_sleep(0.005);
        RETURN NEW;
    END $$;
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO written VALUES (NEW.id);
        RETURN NEW;
    END $$;
    CREATE TRIGGER slow BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION slow();
    CREATE TRIGGER note AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION note();";

/// The example at work. Dropping it kills it.
struct Ingest {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Ingest {
    fn start(redis: &Redis, postgres: &Postgres, flags: &[&str]) -> Self {
        let mut command = Command::new(example("ingest"));
        command.arg(redis.url()).arg(postgres.url()).args(flags).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    /// Reads what it says until it says this.
    fn until(&mut self, words: &str) -> String {
        let said = self.lines.by_ref().map(|line| line.expect("text"));
        said.inspect(|line| println!("{line}"))
            .find(|line| line.contains(words))
            .expect("it says so before it ends")
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Cargo builds the examples next to the tests, unless it is told to build this test alone.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("it lies in target/PROFILE/deps");
    let example = profile.join("examples").join(name);
    assert!(
        example.exists(),
        "please run `cargo build -p tollgate-flow --example {name} --all-features` first"
    );
    example
}

async fn count(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.expect("it counts").get(0)
}

#[tokio::test]
async fn nothing_is_lost_and_nothing_doubled_however_it_ends() {
    let (redis, postgres) = (Redis::start(), Postgres::start());
    let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.expect("postgres is up");
    tokio::spawn(connection);
    client.batch_execute(A_DATABASE_THAT_TIMES_OUT_UNDER_LOAD).await.expect("tables and triggers");
    let mut stream = redis::Client::open(redis.url()).expect("a URL").get_connection().expect("redis is up");
    for number in 0..EVENTS {
        let _: String = stream.xadd("events", "*", &[("body", number)]).expect("added");
    }

    let mut killed = Ingest::start(&redis, &postgres, &[]);
    killed.until("1000 written");
    killed.signal("KILL");
    drop(killed);

    let mut told_to_end = Ingest::start(&redis, &postgres, &[]);
    told_to_end.until("500 written");
    told_to_end.signal("TERM");
    told_to_end.until("0 failed");
    assert!(told_to_end.child.wait().expect("it ends").success());

    let mut to_the_end = Ingest::start(&redis, &postgres, &["--until-empty"]);
    let last = to_the_end.until("0 failed");
    assert!(to_the_end.child.wait().expect("it ends").success());

    assert_eq!(count(&client, "SELECT count(DISTINCT body) FROM events").await, 3_000, "nothing is lost");
    assert_eq!(count(&client, "SELECT count(*) FROM written").await, 3_000, "nothing is doubled");
    let pending: redis::streams::StreamPendingReply = stream.xpending("events", "ingest").expect("a group");
    assert_eq!(pending.count(), 0, "everything is acknowledged");
    assert!(!last.contains(" 0 tried again"), "the database did time out under load: {last}");
}
