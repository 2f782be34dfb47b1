//! The store in this process.

use std::error::Error;
use std::fs;
use std::path::Path;

use tollgate::store::{MemoryStore, MemoryStoreBuilder, Restored};
use tollgate::{AtCap, DefaultClock};
use tollgate_server::{EngineOptions, Snapshots};

use crate::failure::Failure;
use crate::settings::{self, Memory, Settings};

/// Creates the store, and restores its snapshot if `snapshot.folder` is set.
pub(super) fn open(settings: &Settings) -> Result<(MemoryStore, Option<Snapshots>), Failure> {
    let builder = builder(&settings.memory);
    let Some(folder) = &settings.snapshot.folder else { return Ok((builder.build(), None)) };
    let failed = |error| Failure::Failed(format!("cannot save counters in {}: {error}", folder.display()));
    // An unusable folder is reported at the start, not at the end.
    fs::create_dir_all(folder).map_err(failed)?;
    let (store, restored) = builder.restore(folder);
    tell(&restored, folder);
    let snapshots = Snapshots::start(store.clone(), folder, settings.snapshot.every).map_err(failed)?;
    Ok((store, Some(snapshots)))
}

/// What part of `memory.max_bytes` the permits that are held may take: an eighth. The counters have the rest.
const HOLDS: usize = 8;

/// How the engine uses the memory beside a store in this process.
pub(super) fn options(store: &MemoryStore, memory: &Memory) -> EngineOptions {
    with_holds(EngineOptions::new().fallback(store.sibling()), memory)
}

/// How the engine uses the memory where the counters are in Redis: those that it keeps while Redis is away have what a store in
/// this process would have.
pub(super) fn options_without_store(memory: &Memory) -> EngineOptions {
    with_holds(EngineOptions::new().fallback(builder(memory).build()), memory)
}

fn with_holds(options: EngineOptions, memory: &Memory) -> EngineOptions {
    let options = options.holds_per_caller(memory.holds_per_caller.get());
    match memory.max_bytes {
        Some(size) => options.hold_bytes((size.bytes() / HOLDS) as u64),
        None => options,
    }
}

fn builder(memory: &Memory) -> MemoryStoreBuilder<DefaultClock> {
    let at_cap = match memory.at_cap.0 {
        settings::AtCap::Evict => AtCap::Evict,
        settings::AtCap::Refuse => AtCap::Refuse,
    };
    let mut builder = MemoryStore::builder().at_cap(at_cap);
    if let Some(keys) = memory.max_keys {
        builder = builder.max_keys(keys.get());
    }
    if let Some(size) = memory.max_bytes {
        builder = builder.max_bytes(size.bytes() - size.bytes() / HOLDS);
    }
    if let Some(every) = memory.sweep_every {
        builder = builder.sweep_every(every);
    }
    match memory.names.get() {
        0 => builder,
        names => builder.names(names),
    }
}

fn tell(restored: &Restored, folder: &Path) {
    for problem in &restored.problems {
        let cause = problem.source().map(ToString::to_string);
        tracing::error!(%problem, cause, "cannot restore snapshot, its counters start at zero");
    }
    for path in &restored.set_aside {
        tracing::warn!(path = %path.display(), "kept the unreadable snapshot");
    }
    tracing::info!(keys = restored.keys, folder = %folder.display(), "restored counters");
}
