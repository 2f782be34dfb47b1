//! The one door to atomics and locks, so that loom can stand behind it.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
};

/// Locks, and goes on with what a panicking holder left behind: no holder here panics between two writes that must be
/// seen together, so the state is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
