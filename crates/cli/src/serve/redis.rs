//! The store in Redis, shared with other processes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tollgate::store::{Store, StoreError};
use tollgate_redis::{Guarded, Leased, Leases, RedisStore, RedisStoreBuilder};

use crate::failure::Failure;
use crate::settings::{Address, KeyForm, Settings};

/// The longest wait for Redis at the start and at the end.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// The store, and the runtime of its connection.
pub(super) struct Shared {
    pub(super) store: RedisStore,
    /// Runs on its own thread, because the connection must outlive the workers.
    runtime: Runtime,
}

impl Shared {
    /// Returns the store with leases, or `None` if leasing is off.
    pub(super) fn leased(&self, settings: &Settings) -> Option<Leased> {
        let most = settings.redis.lease.get();
        let leases = Leases::up_to(most as u64).lasting(settings.redis.lease_time);
        (most > 0).then(|| Leased::new(self.store.clone(), leases))
    }

    /// Returns leased tokens to Redis, so that other processes can use them before the leases end.
    pub(super) fn give_back(&self, leased: &Leased) {
        let late = |_| Err(StoreError::transient(format!("no response within {FIRST_ANSWER:?}")));
        let closing = async { timeout(FIRST_ANSWER, leased.close()).await.unwrap_or_else(late) };
        match self.runtime.block_on(closing) {
            Ok(()) => {
                tracing::info!(returned = leased.stats().returned, "returned leased tokens to Redis");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot return leased tokens; they count as used");
            }
        }
    }
}

/// Adds a timeout and a circuit breaker to a store.
pub(super) fn guarded<S: Store>(store: S, settings: &Settings) -> Guarded<S> {
    Guarded::new(store).within(settings.redis.timeout)
}

/// Opens the store. Redis may be unavailable.
pub(super) fn open(address: &Address, settings: &Settings) -> Result<Shared, Failure> {
    if settings.snapshot.folder.is_some() {
        return Err(Failure::Usage(
            "--snapshot-folder needs the in-memory store; with Redis, configure its own persistence"
                .to_owned(),
        ));
    }
    let address = &with_password(address, settings)?;
    let store =
        builder(address, settings)?.build().map_err(|error| Failure::Usage(format!("--store: {error}")))?;
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).thread_name("tollgate-redis").enable_all();
    let runtime = runtime.build().map_err(super::cannot_start("the Redis thread"))?;
    tell(address, runtime.block_on(first_answer(&store)));
    Ok(Shared { store, runtime })
}

/// Returns a builder of the store that the settings describe.
fn builder(address: &Address, settings: &Settings) -> Result<RedisStoreBuilder, Failure> {
    let redis = &settings.redis;
    let mut builder = address.store().names(settings.memory.names.get());
    if let Some(prefix) = &redis.prefix {
        builder = builder.prefix(&prefix.0);
    }
    if redis.keys.0 == KeyForm::Clear {
        builder = builder.clear_keys();
    }
    if let Some(user) = &redis.sentinel_user {
        builder = builder.sentinel_user(&user.0);
    }
    if let Some(path) = &redis.sentinel_password_file {
        builder = builder.sentinel_password(password("--redis-sentinel-password-file", path)?);
    }
    if let (Some(certificate), Some(key)) = (&redis.tls_certificate, &redis.tls_key) {
        let certificate = read("--redis-tls-certificate", certificate)?;
        builder = builder.certificate(certificate, read("--redis-tls-key", key)?);
    }
    Ok(builder)
}

/// Adds the password of `store_password_file`, if it is set.
fn with_password(address: &Address, settings: &Settings) -> Result<Address, Failure> {
    const FLAG: &str = "--store-password-file";
    let Some(path) = &settings.store_password_file else { return Ok(address.clone()) };
    let password = password(FLAG, path)?;
    address.with_password(&password).ok_or_else(|| {
        unusable(FLAG, path, "the address in --store already has a password: use one of the two")
    })
}

/// Reads a password from a file. A file that cannot be read is not named: a password may have been given in place of its path.
fn password(flag: &str, path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("{flag}: the file cannot be read: {error}")))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(unusable(flag, path, "the file is empty; expected a password"));
    }
    Ok(password.to_owned())
}

fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unusable(flag, path, &error.to_string()))
}

fn unusable(flag: &str, path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("{flag}: {}: {why}", path.display()))
}

async fn first_answer(store: &RedisStore) -> Result<(), StoreError> {
    let late = |_| Err(StoreError::transient(format!("no response within {FIRST_ANSWER:?}")));
    timeout(FIRST_ANSWER, store.ping()).await.unwrap_or_else(late)
}

fn tell(address: &Address, answered: Result<(), StoreError>) {
    match answered {
        Ok(()) => tracing::info!(store = ?address, "connected to Redis"),
        Err(error) => tracing::warn!(
            store = ?address, %error,
            "Redis is unavailable, applying on_store_failure until it responds"
        ),
    }
}
