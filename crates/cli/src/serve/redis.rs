//! The store in Redis, shared with other processes.

use std::fs;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tollgate::store::{Store, StoreError};
use tollgate_flow::OrFault;
use tollgate_redis::{Guarded, Leased, Leases, RedisStore};

use crate::failure::Failure;
use crate::settings::{Address, Settings};

/// How long Redis may take to answer when all begins. It is only to be said whether it does.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// The store, and what keeps up its connection.
pub(super) struct Shared {
    pub(super) store: RedisStore,
    /// A thread of its own, so that it outlives the workers: they all go by one connection until the last of them is done.
    runtime: Runtime,
}

impl Shared {
    /// The store with leases, if there are to be any.
    pub(super) fn leased(&self, settings: &Settings) -> Option<Leased> {
        let most = settings.redis.lease.get();
        (most > 0).then(|| Leased::new(self.store.clone(), Leases::up_to(most as u64)))
    }

    /// Gives back what was borrowed, so that others need not wait until its time is over.
    pub(super) fn give_back(&self, leased: &Leased) {
        let late = |_| Err(StoreError::transient(format!("it did not answer within {FIRST_ANSWER:?}")));
        let closing = async { timeout(FIRST_ANSWER, leased.close()).await.unwrap_or_else(late) };
        match self.runtime.block_on(closing) {
            Ok(()) => {
                tracing::info!(returned = leased.stats().returned, "what was borrowed has been given back");
            }
            Err(error) => {
                tracing::warn!(%error, "what is borrowed could not be given back, and counts as spent");
            }
        }
    }
}

/// A store that is left alone while it does not answer.
pub(super) fn guarded<S: Store>(store: S, settings: &Settings) -> Guarded<S> {
    Guarded::new(store).within(settings.redis.timeout)
}

/// Opens the store, whether Redis is there or not.
pub(super) fn open(address: &Address, settings: &Settings) -> Result<Shared, Failure> {
    if settings.snapshot.folder.is_some() {
        return Err(Failure::Usage(
            "--snapshot-folder is for the store in memory: Redis keeps counters by itself, as its own settings say".to_owned(),
        ));
    }
    let address = &with_password(address, settings)?;
    let builder = address.store().names(settings.memory.names.get());
    let store = builder.build().map_err(|error| Failure::Usage(format!("--store: {error}")))?;
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).thread_name("tollgate-redis").enable_all();
    let runtime = runtime.build().or_fault("cannot start")?;
    tell(address, runtime.block_on(first_answer(&store)));
    Ok(Shared { store, runtime })
}

/// The address with the password of the file, if there is one.
fn with_password(address: &Address, settings: &Settings) -> Result<Address, Failure> {
    let Some(path) = &settings.store_password_file else { return Ok(address.clone()) };
    let failed = |why: String| Failure::Usage(format!("--store-password-file: {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(failed("the file is empty: it must hold the password".to_owned()));
    }
    address.with_password(password).ok_or_else(|| {
        failed("the address in --store has a password already: give one of the two".to_owned())
    })
}

async fn first_answer(store: &RedisStore) -> Result<(), StoreError> {
    let late = |_| Err(StoreError::transient(format!("it did not answer within {FIRST_ANSWER:?}")));
    timeout(FIRST_ANSWER, store.ping()).await.unwrap_or_else(late)
}

fn tell(address: &Address, answered: Result<(), StoreError>) {
    match answered {
        Ok(()) => tracing::info!(store = ?address, "the counters are in redis"),
        Err(error) => tracing::warn!(
            store = ?address, %error,
            "redis is not there yet: until it is, every limit decides by its on_store_failure"
        ),
    }
}
