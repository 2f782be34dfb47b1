//! The one door to atomics and locks, so that loom can stand behind it.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread_local,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread_local,
};

/// Locks, and goes on with what a panicking holder left behind: no holder here panics between two writes that must be
/// seen together, so the state is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Counts those who asked.
#[cfg(not(loom))]
pub(crate) fn next_ticket() -> u64 {
    static TICKETS: AtomicU64 = AtomicU64::new(0);
    TICKETS.fetch_add(1, Ordering::Relaxed)
}

/// Counts those who asked, anew in every execution of a model; an atomic of the standard library, because its order is
/// of no interest.
#[cfg(loom)]
pub(crate) fn next_ticket() -> u64 {
    loom::lazy_static! {
        static ref TICKETS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    }
    TICKETS.fetch_add(1, Ordering::Relaxed)
}
