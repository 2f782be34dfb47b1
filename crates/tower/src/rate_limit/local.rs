//! Who decides while the store cannot.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate::store::{MemoryStore, Rule};

use super::desk::Desk;

/// This process's share of every limit, by how many processes there are.
#[derive(Default)]
pub(super) struct Local {
    latest: Mutex<Option<Share>>,
}

struct Share {
    processes: u32,
    desk: Arc<Desk<MemoryStore>>,
}

impl Local {
    /// The limits of one of so many processes, with their state in `store`.
    pub(super) fn desk<'a>(
        &self,
        processes: u32,
        store: &MemoryStore,
        rules: impl Iterator<Item = &'a Rule>,
    ) -> Arc<Desk<MemoryStore>> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = latest.as_ref().filter(|share| share.processes == processes) {
            return Arc::clone(&share.desk);
        }
        let rules: Vec<Rule> = rules.map(|rule| rule.share(processes)).collect();
        let desk = Arc::new(Desk::new(store.clone(), &rules));
        *latest = Some(Share { processes, desk: Arc::clone(&desk) });
        desk
    }
}
