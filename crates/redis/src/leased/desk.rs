//! What all clones of a leased store share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tollgate::{BootClock, Clock, ManualClock, Tick};

use super::Leases;
use super::account::{Account, Report, Tally, Why};
use super::book::Book;
use super::upkeep;
use crate::draft::Tier;
use crate::store::RedisStore;

/// After a call that failed, none is made for so long but to answer somebody.
const REST: Duration = Duration::from_millis(50);

pub(super) struct Desk {
    pub(super) book: Book,
    pub(super) leases: Leases,
    /// By which Redis knows this node: a whole number that no other node has drawn.
    pub(super) node: f64,
    /// The number of the last call.
    numbers: AtomicU64,
    clock: Watch,
    pub(super) is_closed: AtomicBool,
    /// When calls may be made again, in nanoseconds.
    resting: AtomicU64,
    keeper: Mutex<Option<JoinHandle<()>>>,
    pub(super) here: AtomicU64,
    pub(super) refused_here: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// The clock by which leases end here: that of this machine, unless Redis is given one. It goes on while the machine is suspended, as
/// the clock of Redis does, where a lease then counts as spent.
enum Watch {
    Own(BootClock),
    Given(ManualClock),
}

impl Desk {
    #[allow(clippy::cast_precision_loss, reason = "below 2^52")]
    pub(super) fn new(leases: Leases, clock: Option<&ManualClock>) -> Self {
        Self {
            book: Book::new(),
            leases,
            node: fastrand::u64(1..1 << 52) as f64,
            numbers: AtomicU64::new(0),
            clock: clock.cloned().map_or_else(|| Watch::Own(BootClock::new()), Watch::Given),
            is_closed: AtomicBool::new(leases.most() < 2),
            resting: AtomicU64::new(0),
            keeper: Mutex::default(),
            here: AtomicU64::new(0),
            refused_here: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> Tick {
        match &self.clock {
            Watch::Own(clock) => clock.now(),
            Watch::Given(clock) => clock.now(),
        }
    }

    /// Whether anything is borrowed.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// Does something with the account of a state, if it has one.
    pub(super) fn account<T>(
        &self,
        tier: &Tier,
        with: impl FnOnce(&mut Account, &mut Tally) -> T,
    ) -> Option<T> {
        let label = tier.label.as_bytes();
        let (shard, hash) = self.book.shard(label);
        let mut page = shard.lock();
        page.find(hash, label).map(|(entry, tally)| with(&mut entry.account, tally))
    }

    /// Begins a call about a state, unless one is under way or there is no need for one. An account is opened for it if there is room.
    pub(super) fn begin(&self, tier: &Tier, why: Why, now: Tick) -> Option<Report> {
        if !self.is_open() {
            return None;
        }
        let label = tier.label.as_bytes();
        let (shard, hash) = self.book.shard(label);
        let mut page = shard.lock();
        if why == Why::Short {
            page.open(hash, tier, now);
        }
        let (entry, tally) = page.find(hash, label)?;
        self.begin_for(&mut entry.account, why, now, tally)
    }

    /// The same for an account that is at hand.
    pub(super) fn begin_for(
        &self,
        account: &mut Account,
        why: Why,
        now: Tick,
        tally: &mut Tally,
    ) -> Option<Report> {
        if account.is_calling() {
            return None;
        }
        account.expire(now, tally);
        // While the account is held, so that of two calls about it the later one has the larger number.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        account.begin(why, number, now, &self.leases, tally)
    }

    /// Tells those who wait that a call about a state has ended.
    pub(super) fn tell(&self, tier: &Tier) {
        let (shard, _) = self.book.shard(tier.label.as_bytes());
        shard.ended.notify_waiters();
    }

    /// A call has failed: Redis is left alone for a moment.
    pub(super) fn rest(&self, now: Tick) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.resting.fetch_max((now + REST).as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn is_resting(&self, now: Tick) -> bool {
        now.as_nanos() < self.resting.load(Ordering::Relaxed)
    }

    /// Makes sure that somebody looks after the leases, unless time is given: then it does not pass by itself.
    pub(super) fn keep(self: &Arc<Self>, store: &RedisStore) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = keeper.as_ref().is_some_and(|task| !task.is_finished());
        if is_kept || matches!(self.clock, Watch::Given(_)) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            *keeper = Some(runtime.spawn(keep(Arc::downgrade(self), store.clone(), self.leases.pause())));
        }
    }
}

/// The task that looks after the leases, as long as somebody has the store.
async fn keep(desk: Weak<Desk>, store: RedisStore, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(desk) = desk.upgrade() else { return };
        // What failed is tried again the next time, or ends by itself.
        let _ = upkeep::tend(&desk, &store).await;
    }
}
