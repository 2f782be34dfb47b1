//! Who wants to hear when something comes back.

use std::task::Waker;

use crate::queue::wake_all;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// Wakers to be called once, the next time something changes for the better.
///
/// Whoever watches looks at the state again after that, and whoever changes the state looks for watchers after that; with
/// a full fence between the two steps on both sides, one of them sees the other.
#[derive(Debug)]
pub(crate) struct Watchers {
    /// Not zero while there may be any.
    any: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self { any: AtomicU64::new(0), wakers: Mutex::new(Vec::new()) }
    }
}

impl Watchers {
    pub(crate) fn add(&self, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        self.any.store(1, Ordering::SeqCst);
        drop(wakers);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, waker: &Waker) {
        lock(&self.wakers).retain(|known| !known.will_wake(waker));
    }

    pub(crate) fn tell(&self) {
        wake_all(self.take());
    }

    /// Those who are to be told, for whoever cannot do so yet.
    #[must_use = "they do not hear of it by themselves"]
    pub(crate) fn take(&self) -> Vec<Waker> {
        fence(Ordering::SeqCst);
        if self.any.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut wakers = lock(&self.wakers);
        self.any.store(0, Ordering::SeqCst);
        std::mem::take(&mut *wakers)
    }
}
