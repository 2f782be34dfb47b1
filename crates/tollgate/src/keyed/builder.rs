//! How a keyed limiter is set up.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tollgate_core::{AnyAlgorithm, Kind, Quota};

use super::KeyedLimiter;
use super::cap::{AtCap, Pool, Room};
use super::hash::Seed;
use super::line::Lines;
use super::plans::Plans;
use super::shard::{Common, Shard};
use super::shifted::Shifted;
use super::store::{Padded, QuotaOf, Rest, Store};
use super::watch::Watch;
use crate::cell::Held;
use crate::clock::Clock;
use crate::name::{Name, intern};
use crate::queue::LONGEST_QUEUE;
use crate::sync::{Light, Mutex};
use crate::timer::Timer;
use crate::watch::Watchers;

/// Builds a [`KeyedLimiter`].
///
/// # Examples
/// ```
/// use tollgate::{AtCap, KeyedLimiter, Kind, ManualClock, Quota};
///
/// let limiter = KeyedLimiter::<str>::builder(Quota::per_minute(100))
///     .kind(Kind::SlidingCounter)
///     .quota_of(|user: &str| if user == "alice" { Quota::per_minute(1_000) } else { Quota::per_minute(100) })
///     .max_keys(1_000_000)
///     .at_cap(AtCap::Refuse)
///     .clock(ManualClock::new())
///     .build();
/// assert!(limiter.allow_n("alice", 1_000));
/// assert!(!limiter.allow_n("bob", 101));
/// ```
#[must_use = "a builder builds nothing until build() is called"]
pub struct KeyedBuilder<K: ?Sized, A, C> {
    pub(super) quota: Quota,
    make: MakeAligned<A>,
    pub(super) clock: C,
    options: Options<K>,
}

/// Makes the algorithm of a quota, for states whose time was zero so long after 1970.
type MakeAligned<A> = Arc<dyn Fn(Quota, Duration) -> A + Send + Sync>;

/// What does not depend on the algorithm or the clock.
struct Options<K: ?Sized> {
    quota_of: Option<QuotaOf<K>>,
    max_keys: u64,
    max_bytes: u64,
    pool: Option<Arc<Pool>>,
    reuses_plans: bool,
    at_cap: AtCap,
    timer: Option<Arc<dyn Timer>>,
    longest_queue: usize,
    name: Option<Name>,
    watch: Arc<Watch<K>>,
}

impl<K: ?Sized, A, C> KeyedBuilder<K, A, C> {
    /// Whoever must be told what happens.
    pub(super) fn watch(&mut self) -> &mut Watch<K> {
        Arc::get_mut(&mut self.options.watch).expect("it is shared only once it is built")
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedBuilder<K, A, C> {
    pub(super) fn new(quota: Quota, make: impl Fn(Quota) -> A + Send + Sync + 'static, clock: C) -> Self {
        let options = Options {
            quota_of: None,
            max_keys: u64::MAX,
            max_bytes: u64::MAX,
            pool: None,
            reuses_plans: false,
            at_cap: AtCap::default(),
            timer: None,
            longest_queue: LONGEST_QUEUE,
            name: None,
            watch: Arc::new(Watch::NOBODY),
        };
        Self { quota, make: Arc::new(move |quota, _| make(quota)), clock, options }
    }

    fn with(mut self, set: impl FnOnce(&mut Options<K>)) -> Self {
        set(&mut self.options);
        self
    }

    /// Uses the algorithm of that kind, chosen at run time.
    pub fn kind(self, kind: Kind) -> KeyedBuilder<K, AnyAlgorithm, C> {
        self.algorithm(move |quota| AnyAlgorithm::new(kind, quota))
    }

    /// Uses the algorithm that `make` makes of a quota, chosen at compile time.
    pub fn algorithm<B: Held>(
        self,
        make: impl Fn(Quota) -> B + Send + Sync + 'static,
    ) -> KeyedBuilder<K, B, C> {
        self.aligned_algorithm(move |quota, _| make(quota))
    }

    /// Uses the algorithm that `make` makes of a quota and of the time since 1970 when the time that states are kept in was zero.
    pub(crate) fn aligned_algorithm<B: Held>(
        self,
        make: impl Fn(Quota, Duration) -> B + Send + Sync + 'static,
    ) -> KeyedBuilder<K, B, C> {
        let Self { quota, clock, options, .. } = self;
        KeyedBuilder { quota, make: Arc::new(make), clock, options }
    }

    /// Uses `clock`, and its timer unless another is set.
    pub fn clock<D: Clock>(self, clock: D) -> KeyedBuilder<K, A, D> {
        let Self { quota, make, options, .. } = self;
        KeyedBuilder { quota, make, clock, options }
    }

    /// Gives each key the quota that `quota_of` says. It is asked when a key is new to the store, and again by
    /// [`refresh`](KeyedLimiter::refresh); a hundred keys with the same quota take no more memory for it than one. Every
    /// different quota takes some 200 bytes for good, which no bound on the store counts: let there be plans, and not a quota for
    /// each key.
    pub fn quota_of(self, quota_of: impl Fn(&K) -> Quota + Send + Sync + 'static) -> Self {
        self.with(|options| options.quota_of = Some(Arc::new(quota_of)))
    }

    /// Remembers at most about `keys` keys, those that somebody waits for among them.
    pub fn max_keys(self, keys: usize) -> Self {
        self.with(|options| options.max_keys = keys as u64)
    }

    /// Takes at most about `bytes` of memory. A key that somebody waits for takes about a kilobyte of it; where that is not left,
    /// nobody can start to wait for another.
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.with(|options| options.max_bytes = bytes as u64)
    }

    /// Shares a bound with others.
    pub(crate) fn pool(self, pool: Arc<Pool>) -> Self {
        self.with(|options| options.pool = Some(pool))
    }

    /// Forgets the quotas of keys that are gone, unless limits are [open](KeyedLimiter::open_quota) with them. Nobody may wait for
    /// such keys, or change their quotas.
    pub(crate) fn reusing_plans(self) -> Self {
        self.with(|options| options.reuses_plans = true)
    }

    /// Wakes those who wait by `timer`.
    pub fn timer(self, timer: impl Timer + 'static) -> Self {
        self.with(|options| options.timer = Some(Arc::new(timer)))
    }

    /// Lets at most `waiters` wait for each key; further ones are refused at once. The default is 65 536.
    pub fn longest_queue(self, waiters: usize) -> Self {
        self.with(|options| options.longest_queue = waiters)
    }

    /// Names it, so that the decision of a [`Gate`](crate::Gate) can say which of its limits decided. Names are kept for good.
    pub fn name(self, name: &str) -> Self {
        self.with(|options| options.name = Some(intern(name)))
    }

    /// What happens to new keys when there is no room for them.
    pub fn at_cap(self, at_cap: AtCap) -> Self {
        self.with(|options| options.at_cap = at_cap)
    }

    /// The limiter.
    pub fn build(self) -> KeyedLimiter<K, A, C> {
        let clock = Shifted::unshifted(self.clock.clone());
        self.build_with(Seed::of_process(), clock)
    }

    /// The same settings again, for another try.
    pub(super) fn again(&self) -> Self {
        let (make, clock) = (Arc::clone(&self.make), self.clock.clone());
        Self { quota: self.quota, make, clock, options: self.options.clone() }
    }

    /// The algorithm of a quota, for states of that age.
    pub(super) fn make_algorithm(&self, quota: Quota, age: Duration) -> A {
        (self.make)(quota, age)
    }

    /// The limiter, on a time of its own.
    pub(super) fn build_with(self, seed: Seed, clock: Shifted<C>) -> KeyedLimiter<K, A, C> {
        let quota = self.quota;
        let Options {
            quota_of,
            max_keys,
            max_bytes,
            pool,
            reuses_plans,
            at_cap,
            timer,
            longest_queue,
            name,
            watch,
        } = self.options;
        let bits = match &pool {
            Some(pool) => shard_bits(pool.most_keys(), pool.most_bytes()),
            None => shard_bits(max_keys, max_bytes),
        };
        let (make, age) = (self.make, clock.age());
        let (algorithm, watch) = (make(quota, age), watch.if_any());
        let common = Common {
            plans: Plans::new(Arc::new(move |quota| make(quota, age)), reuses_plans),
            by_key: quota_of.is_some(),
            is_watched: watch.is_some(),
            room: Room::new(max_keys, max_bytes).within(pool),
            at_cap,
        };
        let store = Store {
            seed,
            shards: (0..1 << bits).map(|_| Padded(Light::new(Shard::new(&common, quota)))).collect(),
            shift: 63 - bits,
            common,
            quota_of,
            watch,
            rest: Mutex::new(Rest { quota, algorithm, overflow: A::State::default() }),
            saving: Mutex::new(()),
            lines: Lines::new(timer.unwrap_or_else(|| clock.timer()), longest_queue, name, u64::MAX >> bits),
            closed: AtomicBool::new(false),
            watchers: Arc::new(Watchers::default()),
            name,
            clock,
            keys: PhantomData,
        };
        KeyedLimiter { store: Arc::new(store) }
    }
}

impl<K: ?Sized> Clone for Options<K> {
    fn clone(&self) -> Self {
        let (quota_of, timer, watch) = (self.quota_of.clone(), self.timer.clone(), Arc::clone(&self.watch));
        Self { quota_of, timer, watch, pool: self.pool.clone(), ..*self }
    }
}

/// Enough shards that threads seldom meet, but with a bound not so many that some would be empty, or have few to choose from when
/// somebody must go.
fn shard_bits(max_keys: u64, max_bytes: u64) -> u32 {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let wanted = (threads * SHARDS_PER_THREAD).clamp(64, 4_096).ilog2();
    let most = max_keys.min(max_bytes / 64) / KEYS_PER_SHARD;
    wanted.min(most.max(1).ilog2())
}

const SHARDS_PER_THREAD: u64 = 32;
/// The fewest keys a shard should have when the store is full.
const KEYS_PER_SHARD: u64 = 128;

impl<K: ?Sized, A, C> fmt::Debug for KeyedBuilder<K, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBuilder").field("quota", &self.quota).finish_non_exhaustive()
    }
}
