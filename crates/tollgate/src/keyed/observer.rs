//! Being told what a limiter does.

use std::sync::Arc;

use tollgate_core::Decision;

use super::KeyedBuilder;

/// Is told what a [`KeyedLimiter`](crate::KeyedLimiter) does, for metrics and logs. Set it with
/// [`KeyedBuilder::observer`]; without one, nothing is paid for it.
///
/// It is told on the thread that asked (a [`Sweeper`](crate::Sweeper) tells on its own), after everything is done and with
/// no lock held: an observer may ask the limiter, which is then reported as well. If it panics the call does too, but the
/// limiter goes on. One that holds the limiter it observes keeps it from ever being dropped.
///
/// A wait is reported when it is over, unless it was given up or the limiter was closed. What a [`Gate`](crate::Gate) decides
/// about a key is reported, too: whatever it admits, and of what it refuses that which the key would not have admitted by itself.
/// Whom it pushed out is reported by the next call.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{Decision, KeyedLimiter, Observer, Quota};
///
/// #[derive(Default)]
/// struct Denials(AtomicU64);
///
/// impl Observer<str> for Denials {
///     fn denied(&self, _key: &str, _decision: &Decision) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let denials = Arc::new(Denials::default());
/// let limiter =
///     KeyedLimiter::<str>::builder(Quota::per_hour(1)).observer(Arc::clone(&denials)).build();
/// let passed = (0..3).filter(|_| limiter.allow("alice")).count();
/// assert_eq!((passed, denials.0.load(Ordering::Relaxed)), (1, 2));
/// ```
pub trait Observer<K: ?Sized>: Send + Sync {
    /// A question about `key` was answered with yes, now or after a delay.
    fn allowed(&self, key: &K, decision: &Decision) {
        let _ = (key, decision);
    }

    /// A question about `key` was answered with no.
    fn denied(&self, key: &K, decision: &Decision) {
        let _ = (key, decision);
    }

    /// Keys were dropped. Which ones is not known: the store does not keep them.
    fn evicted(&self, evicted: Evicted) {
        let _ = evicted;
    }
}

impl<K: ?Sized, O: Observer<K> + ?Sized> Observer<K> for Arc<O> {
    fn allowed(&self, key: &K, decision: &Decision) {
        (**self).allowed(key, decision);
    }

    fn denied(&self, key: &K, decision: &Decision) {
        (**self).denied(key, decision);
    }

    fn evicted(&self, evicted: Evicted) {
        (**self).evicted(evicted);
    }
}

/// How many keys were dropped, of which sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted {
    /// Those that were idle, which changes no decision; as in [`Stats::swept`](crate::Stats::swept).
    pub idle: u64,
    /// Those that still counted, because the store was full; as in [`Stats::evicted`](crate::Stats::evicted).
    pub active: u64,
}

impl Evicted {
    /// Whether there were none.
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl<K: ?Sized, A, C> KeyedBuilder<K, A, C> {
    /// Tells `observer` what the limiter does. Give an [`Arc`] to keep a hand on it.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Evicted, KeyedLimiter, Observer, Quota};
    ///
    /// struct Complain;
    ///
    /// impl<K: ?Sized> Observer<K> for Complain {
    ///     fn evicted(&self, evicted: Evicted) {
    ///         if evicted.active > 0 {
    ///             eprintln!("max_keys is too low: {} keys start afresh", evicted.active);
    ///         }
    ///     }
    /// }
    ///
    /// let limiter = KeyedLimiter::<u64>::builder(Quota::per_second(5)).max_keys(10_000).observer(Complain).build();
    /// assert!(limiter.allow(&1));
    /// ```
    pub fn observer(mut self, observer: impl Observer<K> + 'static) -> Self {
        self.watch().observer = Some(Box::new(observer));
        self
    }
}
