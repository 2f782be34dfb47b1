//! The one door to atomics and locks, so that loom can stand behind it.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

/// Lets others go on: for some ten or hundred nanoseconds the first times, then for as long as they like, because whoever
/// has what is wanted may not be running.
#[cold]
pub(crate) fn give_way(times: u32) {
    if times < 5 && !cfg!(loom) {
        for _ in 0..2_u32 << times {
            std::hint::spin_loop();
        }
    } else {
        yield_now();
    }
}

/// Locks, and goes on with what a panicking holder left behind: no holder here panics between two writes that must be
/// seen together, so the state is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
