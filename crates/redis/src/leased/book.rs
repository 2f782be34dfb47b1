//! All accounts of a node, by the label of their state.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use tokio::sync::Notify;
use tollgate::{Decision, Tick};

use super::account::{Account, Tally};
use crate::draft::Tier;
use crate::keys::Label;

/// Few enough to look at all of them, and enough that threads rarely meet.
const SHARDS: usize = 64;
/// How many states are remembered. What comes when all places are taken is decided by Redis.
const MOST_STATES: usize = 1 << 17;

/// The accounts.
pub(super) struct Book {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

/// Some of them.
pub(super) struct Shard {
    page: Mutex<Page>,
    /// Tells that a call about one of them has ended.
    pub(super) ended: Notify,
}

/// Accounts by the hash of their label. Labels with the same hash are told apart: the second one gets no account.
#[derive(Default)]
pub(super) struct Page {
    entries: HashMap<u64, Entry, foldhash::fast::RandomState>,
    pub(super) tally: Tally,
}

pub(super) struct Entry {
    /// The state, at no cost.
    pub(super) tier: Tier,
    pub(super) account: Account,
}

/// What there is in all accounts.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) out: u64,
    pub(super) states: u64,
    pub(super) under_way: u64,
    pub(super) tally: Tally,
}

/// So much of one state.
pub(super) struct Want {
    hash: u64,
    label: Label,
    cost: u64,
}

/// What could be said here about one thing.
pub(super) enum Said {
    /// Admitted, and whether it is time to ask for more.
    Paid(Decision, bool),
    Refused(Decision),
    /// Ask Redis.
    Unknown,
}

impl Book {
    pub(super) fn new() -> Self {
        let shard = |_| Shard { page: Mutex::default(), ended: Notify::new() };
        Self { shards: (0..SHARDS).map(shard).collect(), hasher: RandomState::default() }
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Where a state's account is.
    pub(super) fn shard(&self, label: &[u8]) -> (&Shard, u64) {
        let hash = self.hasher.hash_one(label);
        (&self.shards[place(hash)], hash)
    }

    pub(super) fn want(&self, label: Label, cost: u64) -> Want {
        Want { hash: self.hasher.hash_one(label.as_bytes()), label, cost }
    }

    /// Spends, if all of it is here; with `takes` false it only says what would be.
    pub(super) fn try_one(&self, want: &Want, takes: bool, now: Tick) -> Said {
        self.shards[place(want.hash)].lock().try_one(want, takes, now)
    }

    /// Spends of all, or of none.
    pub(super) fn try_all(&self, wants: &[Want], takes: bool, now: Tick) -> Option<Vec<Said>> {
        let mut places: Vec<usize> = wants.iter().map(|want| place(want.hash)).collect();
        // In order, so that two who want the same do not wait for each other.
        places.sort_unstable();
        places.dedup();
        let mut pages: Vec<_> = places.iter().map(|place| self.shards[*place].lock()).collect();
        let of = |want: &Want| places.partition_point(|known| *known < place(want.hash));
        let said: Vec<Said> = wants.iter().map(|want| pages[of(want)].try_one(want, true, now)).collect();
        let is_admitted = said.iter().all(|said| matches!(said, Said::Paid(..)));
        if !takes || !is_admitted {
            for (want, said) in wants.iter().zip(&said) {
                if matches!(said, Said::Paid(..)) {
                    pages[of(want)].unpay(want);
                }
            }
        }
        let is_known = said.iter().all(|said| !matches!(said, Said::Unknown));
        is_known.then_some(said)
    }

    /// All accounts together.
    pub(super) fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        for shard in &self.shards {
            let page = shard.lock();
            sum.tally.add(&page.tally);
            for Entry { account, .. } in page.entries.values() {
                sum.out += account.out();
                sum.states += u64::from(account.out() > 0);
                sum.under_way += u64::from(account.is_calling());
            }
        }
        sum
    }
}

impl Shard {
    pub(super) fn lock(&self) -> MutexGuard<'_, Page> {
        // Whoever panics here leaves nothing half done.
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    /// The account of a state, with where its doings are counted.
    pub(super) fn find(&mut self, hash: u64, label: &[u8]) -> Option<(&mut Entry, &mut Tally)> {
        let entry = self.entries.get_mut(&hash).filter(|entry| entry.tier.label.as_bytes() == label)?;
        Some((entry, &mut self.tally))
    }

    /// The same, made if there is room for it.
    pub(super) fn open(&mut self, hash: u64, tier: &Tier, now: Tick) {
        if self.entries.len() < MOST_STATES / SHARDS && !self.entries.contains_key(&hash) {
            let tier = Tier { cost: 0, ..tier.clone() };
            self.entries.insert(hash, Entry { tier, account: Account::new(now) });
        }
    }

    /// Looks at all accounts, and keeps those for which this says so.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&mut Entry, &mut Tally) -> bool) {
        let tally = &mut self.tally;
        self.entries.retain(|_, entry| keeps(entry, tally));
    }

    fn try_one(&mut self, want: &Want, takes: bool, now: Tick) -> Said {
        let Some((Entry { account, .. }, tally)) = self.find(want.hash, want.label.as_bytes()) else {
            return Said::Unknown;
        };
        account.expire(now, tally);
        if account.pay(want.cost, now, tally) {
            let said = Said::Paid(account.decision(), takes && account.is_low());
            if !takes {
                account.unpay(want.cost, tally);
            }
            return said;
        }
        let Some(refusal) = account.refusal(want.cost, now) else { return Said::Unknown };
        account.note(want.cost, now);
        Said::Refused(refusal)
    }

    fn unpay(&mut self, want: &Want) {
        if let Some((entry, tally)) = self.find(want.hash, want.label.as_bytes()) {
            entry.account.unpay(want.cost, tally);
        }
    }
}

impl Want {
    pub(super) fn label(&self) -> &[u8] {
        self.label.as_bytes()
    }
}

/// Which shard.
fn place(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARDS.trailing_zeros())) as usize
}
