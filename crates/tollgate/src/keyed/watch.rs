//! Who looks on: an observer, and the sketches that remember names.
//!
//! A limiter that nobody watches pays one test of a pointer for it. One that is watched leaves out the quick path, and
//! reports what it did when it has let go of every lock.

use std::sync::Arc;

use tollgate_core::Decision;

use super::names::Names;
use super::observer::{Evicted, Observer};

/// Everybody who looks on.
pub(crate) struct Watch<K: ?Sized> {
    pub(crate) observer: Option<Box<dyn Observer<K>>>,
    pub(crate) names: Option<Names<K>>,
}

impl<K: ?Sized> Watch<K> {
    /// Nobody.
    pub(crate) const NOBODY: Self = Self { observer: None, names: None };

    /// Itself, if there is anybody.
    pub(crate) fn if_any(self: Arc<Self>) -> Option<Arc<Self>> {
        (self.observer.is_some() || self.names.is_some()).then_some(self)
    }

    pub(crate) fn decided(&self, key: &K, print: u64, decision: &Decision) {
        // Names first: they are counted even if the observer panics.
        if let Some(names) = &self.names {
            names.decided(key, print, decision);
        }
        match &self.observer {
            Some(observer) if decision.is_admitted() => observer.allowed(key, decision),
            Some(observer) => observer.denied(key, decision),
            None => {}
        }
    }

    pub(crate) fn evicted(&self, evicted: Evicted) {
        if let Some(observer) = &self.observer {
            observer.evicted(evicted);
        }
    }
}
