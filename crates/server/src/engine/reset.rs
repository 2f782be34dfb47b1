//! Resetting counters.

use std::sync::atomic::Ordering;

use tollgate::store::{Rule, Store, StoreError};
use tollgate_policy::{Descriptor, Scratch};

use super::Engine;
use super::ask::Subject;
use super::loaded::Opened;

/// A limit that was reset for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The limit.
    pub rule: Rule,
    /// The key.
    pub key: Box<[u8]>,
    /// Whether there was a counter.
    pub was_known: bool,
}

impl<S: Store> Engine<S> {
    /// Resets the limits that apply to a subject, those in shadow mode too, and adds each of them to `resets`.
    ///
    /// # Errors
    /// If the store is unavailable. `resets` then has the limits that were reset before. It is safe to try again.
    ///
    /// # Cancel safety
    /// Limits that were reset before the future is dropped stay reset.
    pub async fn reset(&self, subject: &Subject<'_, S>, resets: &mut Vec<Reset>) -> Result<(), StoreError> {
        match subject {
            Subject::Limit(opened, key) => resets.push(self.reset_one(opened, key).await?),
            Subject::Nothing(_) => {}
            &Subject::Policy(domain, fields) => {
                let mut descriptor = Descriptor::in_domain(domain);
                for (name, value) in fields {
                    descriptor.push(name, value);
                }
                let (loaded, mut scratch) = (self.loaded(), Scratch::new());
                for found in loaded.policy().matching(&descriptor, &mut scratch).iter() {
                    let opened = &loaded.opened()[found.rates().number()];
                    resets.push(self.reset_one(opened, found.key()).await?);
                }
            }
        }
        Ok(())
    }

    async fn reset_one(&self, opened: &Opened<S>, key: &[u8]) -> Result<Reset, StoreError> {
        let was_known = self.store().reset(opened.limit(), key).await?;
        self.shared.resets.fetch_add(1, Ordering::Relaxed);
        Ok(Reset { rule: opened.told().rule.clone(), key: key.into(), was_known })
    }
}
