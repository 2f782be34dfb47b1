//! From a stream into a database that times out under load: nothing lost, nothing doubled, however often this is killed.
//!
//! ```sh
//! cargo run -p tollgate-flow --example ingest -- redis://127.0.0.1/ postgres://postgres@127.0.0.1/postgres
//! ```
//!
//! Events come from the Redis stream `events` and go into the table `events`. An event is acknowledged only when it is in the
//! table, so whatever was under way when this was killed is delivered again; and its id is the table's key, so what had
//! been written then is not written twice. How many are written at once follows what the database can take, and a write that
//! times out keeps its slot while it waits for its next try, so that trying again is no extra load. The first SIGTERM or Ctrl-C
//! finishes what was begun; a second one stops at once. With `--until-empty` it also ends when there is nothing left.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Pool as Connections, Runtime};
use futures_util::{Stream, stream};
use redis::AsyncCommands;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::streams::{StreamReadOptions, StreamReadReply};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};
use tollgate_flow::{AdaptiveLimit, Again, Aimd, Backoff, Fault, OrFault, Pool, Retry, Time};

const STREAM: &str = "events";
const GROUP: &str = "ingest";
/// Goes on with what it had been given in an earlier life.
const CONSUMER: &str = "one";

#[derive(Debug)]
struct Event {
    id: String,
    body: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    match ingest(std::env::args().skip(1).collect()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{}", fault.report());
            ExitCode::FAILURE
        }
    }
}

async fn ingest(arguments: Vec<String>) -> Result<(), Fault> {
    let until_empty = arguments.iter().any(|argument| argument == "--until-empty");
    let [redis, database, ..] = arguments.as_slice() else {
        return Err(Fault::new("please say where: ingest REDIS_URL DATABASE_URL [--until-empty]")
            .try_again(Again::Never));
    };
    let (redis, database) = (connect(redis).await?, connections(database)?);
    create(&redis, &database).await?;

    let at_once = AdaptiveLimit::new(Aimd::new().starting_at(16).within(1..=64), Time::tokio());
    let pool = Pool::adapting(&at_once)
        .retry(Retry::new().backoff(Backoff::new().initial(Duration::from_millis(50))).unbudgeted());

    let acknowledge = redis.clone();
    let mut outcomes = pool.run_stream(events(redis, until_empty), move |event: Arc<Event>, _| {
        let (database, redis) = (database.clone(), acknowledge.clone());
        async move { store(&event, &database, redis).await }
    });
    let _listening = outcomes.control().on_signals().or_fault("the signals cannot be heard")?;

    let (mut written, mut failed) = (0, 0);
    while let Some(outcome) = outcomes.next().await {
        match outcome.result {
            Ok(()) => written += 1,
            Err(fault) => {
                failed += 1;
                eprintln!("event {}: {}", outcome.job.id, fault.report());
            }
        }
        if (written + failed) % 500 == 0 {
            let stats = outcomes.control().stats();
            println!("{written} written, {} at once, {:.0} a second", at_once.limit(), stats.rate);
        }
    }
    let retries = outcomes.control().stats().retries;
    println!("{written} written, {retries} tried again, {failed} failed and left in the stream");
    Ok(())
}

async fn connect(url: &str) -> Result<ConnectionManager, Fault> {
    let client = redis::Client::open(url)
        .or_fault("that is no Redis URL")
        .map_err(|fault| fault.try_again(Again::Never))?;
    let config = ConnectionManagerConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
    client.get_connection_manager_with_config(config).await.or_fault("Redis does not answer")
}

fn connections(url: &str) -> Result<Connections, Fault> {
    let mut config: Config = url
        .parse()
        .or_fault("that is no PostgreSQL URL")
        .map_err(|fault: Fault| fault.try_again(Again::Never))?;
    config.options("-c statement_timeout=200");
    let manager = deadpool_postgres::Manager::new(config, NoTls);
    let connections = Connections::builder(manager).max_size(64).runtime(Runtime::Tokio1).build();
    connections.or_fault("the connections could not be set up")
}

/// Makes the table and the consumer group, if they are not there.
async fn create(redis: &ConnectionManager, database: &Connections) -> Result<(), Fault> {
    let client = database.get().await.or_fault("the database does not answer")?;
    let table = "CREATE TABLE IF NOT EXISTS events (id text PRIMARY KEY, body text NOT NULL)";
    client.batch_execute(table).await.or_fault("the table could not be made")?;
    let made: redis::RedisResult<()> = redis.clone().xgroup_create_mkstream(STREAM, GROUP, "0").await;
    match made {
        Err(error) if error.code() != Some("BUSYGROUP") => {
            Err(error).or_fault("the consumer group could not be made")
        }
        _ => Ok(()),
    }
}

/// Writes an event, then acknowledges it. Doing this twice is doing it once.
async fn store(event: &Event, database: &Connections, mut redis: ConnectionManager) -> Result<(), Fault> {
    let client = database.get().await.or_fault("the database does not answer")?;
    let insert = "INSERT INTO events (id, body) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
    client.execute(insert, &[&event.id, &event.body]).await.map_err(|error| could_not_write(error, event))?;
    redis
        .xack::<_, _, _, ()>(STREAM, GROUP, &[&event.id])
        .await
        .or_fault("the event could not be acknowledged")
}

/// What the database says about time and resources may pass; what it says about the event will not.
fn could_not_write(error: tokio_postgres::Error, event: &Event) -> Fault {
    let passes = [SqlState::QUERY_CANCELED, SqlState::TOO_MANY_CONNECTIONS, SqlState::ADMIN_SHUTDOWN];
    let again = match error.code() {
        Some(code) if !passes.contains(code) => Again::Never,
        _ => Again::Later,
    };
    Err::<(), _>(error)
        .or_fault("the event could not be written")
        .unwrap_err()
        .try_again(again)
        .with("event", &event.id)
}

/// All events: first those that were delivered in an earlier life and not acknowledged, then new ones.
fn events(redis: ConnectionManager, until_empty: bool) -> impl Stream<Item = Event> {
    let reader = Reader { redis, batch: VecDeque::new(), seen: Some("0".to_owned()), until_empty };
    stream::unfold(reader, |mut reader| async { reader.next().await.map(|event| (event, reader)) })
}

struct Reader {
    redis: ConnectionManager,
    batch: VecDeque<Event>,
    /// The last event of the earlier life that was read; `None` when all of those were.
    seen: Option<String>,
    until_empty: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        while self.batch.is_empty() {
            let retry = Retry::new().unbudgeted();
            let read = retry.run(|_| read(self.redis.clone(), self.seen.clone())).await;
            self.batch = match read.or_fault("no more events can be read") {
                Ok(batch) => batch.into(),
                Err(fault) => {
                    eprintln!("{}", fault.report());
                    return None;
                }
            };
            match (&mut self.seen, self.batch.back()) {
                (Some(seen), Some(last)) => seen.clone_from(&last.id),
                (seen @ Some(_), None) => *seen = None,
                (None, None) if self.until_empty => return None,
                (None, _) => {}
            }
        }
        self.batch.pop_front()
    }
}

async fn read(mut redis: ConnectionManager, seen: Option<String>) -> Result<Vec<Event>, Fault> {
    let options = StreamReadOptions::default().group(GROUP, CONSUMER).count(64).block(500);
    let from = seen.as_deref().unwrap_or(">");
    let reply: StreamReadReply =
        redis.xread_options(&[STREAM], &[from], &options).await.or_fault("the stream could not be read")?;
    let ids = reply.keys.into_iter().flat_map(|key| key.ids);
    Ok(ids.map(|id| Event { body: id.get("body").unwrap_or_default(), id: id.id }).collect())
}
