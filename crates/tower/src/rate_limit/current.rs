//! The rules that are in force.

use std::ops::Deref;
use std::sync::Arc;

#[cfg(feature = "policy")]
use arc_swap::ArcSwap;
use tollgate::store::Store;

use super::rules::Rules;

/// The rules that are in force, for all clones of a layer and all services that it wraps.
pub(super) struct Current<S: Store> {
    #[cfg(not(feature = "policy"))]
    rules: Arc<Rules<S>>,
    /// A policy may be replaced at any time. Calls end by the rules that they began by.
    #[cfg(feature = "policy")]
    rules: Arc<ArcSwap<Rules<S>>>,
}

#[cfg(not(feature = "policy"))]
impl<S: Store> Current<S> {
    pub(super) fn new(rules: Rules<S>) -> Self {
        Self { rules: Arc::new(rules) }
    }

    #[inline]
    pub(super) fn rules(&self) -> impl Deref<Target = Arc<Rules<S>>> {
        &self.rules
    }
}

#[cfg(feature = "policy")]
impl<S: Store> Current<S> {
    pub(super) fn new(rules: Rules<S>) -> Self {
        Self { rules: Arc::new(ArcSwap::from_pointee(rules)) }
    }

    #[inline]
    pub(super) fn rules(&self) -> impl Deref<Target = Arc<Rules<S>>> {
        self.rules.load()
    }

    pub(super) fn replace(&self, rules: Rules<S>) {
        self.rules.store(Arc::new(rules));
    }
}

impl<S: Store> Clone for Current<S> {
    fn clone(&self) -> Self {
        Self { rules: Arc::clone(&self.rules) }
    }
}
