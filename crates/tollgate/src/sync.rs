//! The one door to atomics and locks, so that loom can stand behind it.

use std::time::Duration;

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

/// A mutex for some tens of nanoseconds. It is let go by a plain store, where one that can put others to sleep must look for
/// them by an atomic operation, which takes a tenth of a keyed decision; whoever finds it taken gives way. It does not
/// remember a holder's panic: no holder here panics between two writes that must be seen together.
#[derive(Debug, Default)]
pub(crate) struct Light<T>(Inner<T>);

#[cfg(loom)]
type Inner<T> = Mutex<T>;
#[cfg(loom)]
pub(crate) type LightGuard<'a, T> = MutexGuard<'a, T>;
#[cfg(not(loom))]
type Inner<T> = spin::mutex::SpinMutex<T>;
#[cfg(not(loom))]
pub(crate) type LightGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;

impl<T> Light<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> LightGuard<'_, T> {
        #[cfg(loom)]
        return lock(&self.0);
        #[cfg(not(loom))]
        return self.0.try_lock().unwrap_or_else(|| self.lock_when_free());
    }

    #[cfg(not(loom))]
    #[cold]
    fn lock_when_free(&self) -> LightGuard<'_, T> {
        for times in 0.. {
            give_way(times);
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
        unreachable!("it is tried for as long as it takes")
    }
}

/// Lets others go on: for some ten or hundred nanoseconds the first times, then for as long as they like, because whoever
/// has what is wanted may not be running. In the end it sleeps: where some threads go before others, as those of a real-time
/// class do, the one that has it may not get the core for as long as somebody asks.
#[cold]
#[allow(clippy::disallowed_methods, reason = "it waits for another thread to run, not for a time to pass")]
pub(crate) fn give_way(times: u32) {
    match times {
        0..5 if !cfg!(loom) => (0..2_u32 << times).for_each(|_| std::hint::spin_loop()),
        1_000.. if !cfg!(loom) => std::thread::sleep(Duration::from_micros(50)),
        _ => yield_now(),
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_light_mutex_lets_one_in_at_a_time() {
        let light = Light::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut both = light.lock();
                        both.0 += 1;
                        both.1 = both.0;
                    }
                });
            }
        });
        assert_eq!(*light.lock(), (80_000, 80_000));
    }

    /// Long enough that those who wait get through all the ways of giving way.
    #[test]
    fn a_light_mutex_that_is_held_for_long_is_waited_for() {
        let light = Light::new(0);
        let mut guard = light.lock();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| *light.lock());
            (0..1_100).for_each(give_way);
            assert!(!waiting.is_finished());
            *guard = 7;
            drop(guard);
            assert_eq!(waiting.join().unwrap(), 7);
        });
    }

    #[test]
    fn a_light_mutex_is_free_after_its_holder_panicked() {
        let light = Light::new(3);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = light.lock();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*light.lock(), 3);
    }
}
