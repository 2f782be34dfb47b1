//! The one door to atomics and locks, so that loom can stand behind it.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
    thread_local,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
    thread_local,
};

/// A mutex that does not remember a holder's panic: remembering costs a tenth of a keyed decision. No holder here panics
/// between two writes that must be seen together.
#[derive(Debug, Default)]
pub(crate) struct Light<T>(Inner<T>);

#[cfg(loom)]
type Inner<T> = Mutex<T>;
#[cfg(loom)]
pub(crate) type LightGuard<'a, T> = MutexGuard<'a, T>;
#[cfg(not(loom))]
type Inner<T> = parking_lot::Mutex<T>;
#[cfg(not(loom))]
pub(crate) type LightGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Light<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> LightGuard<'_, T> {
        #[cfg(loom)]
        return lock(&self.0);
        #[cfg(not(loom))]
        return self.0.lock();
    }
}

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
