//! A token bucket for many threads: most of them spend from lanes of their own.
//!
//! The bucket is one atomic word as everywhere. A thread that finds its lane empty, and plenty in the bucket, takes a block of tokens
//! at once, a *lease* of at most `lease` tokens, and lays what it does not need into its lane. Whoever spends from a lane touches
//! nothing but that lane, and needs no clock. Nearer to the limit leases shrink, down to none at all: then this is
//! the plain word. Before anybody is refused, whatever lies in any lane is taken.
//!
//! Why the bound holds. The bucket is `burst - lanes · lease` deep. A token that leaves it was taken by a caller with a reading
//! of the clock; call that the token's reading. Take the calls that begin and end between s and e. The tokens with a reading
//! from s to e are at most `burst - lanes · lease + rate · (e - s)`: that is the word's own bound (`level.rs` in tollgate-core).
//! A token with an earlier reading was not taken by one of these calls, so it came through a lane; whoever laid it there held
//! the lane *before* it read the clock, so that at s the token lay in a lane or was in the hand of its holder: there is room for
//! `lanes · lease` of those. Together `burst + rate · (e - s)`, whoever shares a lane, steals or is delayed. A clock that may
//! step back by d makes readings that much too early: then spans of T hold at most `burst + rate · (T + d)`.
//!
//! This is why a lane is never filled at a time that the caller names: it might have been read before the lane was held. The
//! verbs that are given the time use the bucket, and the lanes only before they refuse.
//!
//! What is in somebody's hand counts as taken: a call that comes at that very moment may be refused though it would fit.
//! If somebody lines up at that moment, the one with the lease in hand finds the lane shut, lays down all of it, and
//! goes through the queue, which then looks again.

use tollgate_core::{
    Algorithm, Ask, Claim, Curve, Decision, Draw, GiveBack, Quota, Sharded, Stock, Tick, TokenBucket,
};

use super::atomic::AtomicCell;
use super::lane::{self, Filled, Lane};
use super::{Cell, Retuned, Taken};
use crate::sync::{AtomicU64, Ordering};

/// A cell for a token bucket with tokens out on lease.
#[derive(Debug)]
pub struct LeasedCell {
    bucket: AtomicCell<TokenBucket>,
    /// Their number is a power of two.
    lanes: Box<[Lane]>,
    /// The most that a lane may hold. Changes with the quota, while the lanes are shut.
    lease: AtomicU64,
}

impl LeasedCell {
    /// With the bucket as it is by now.
    fn sharded(&self, bucket: TokenBucket) -> Sharded {
        Sharded::of(bucket, self.lanes.len() as u64, self.lease.load(Ordering::Relaxed))
    }

    /// What lies in lanes and is not in anybody's hand.
    fn leased(&self) -> u64 {
        self.lanes.iter().map(Lane::tokens).sum()
    }

    /// The share of the bucket that one lease may take: so many can be made before half of it is gone.
    fn share(&self) -> u64 {
        2 * self.lanes.len() as u64
    }

    /// From how many tokens in the bucket on leases are made.
    fn plenty(&self) -> u64 {
        match self.lease.load(Ordering::Relaxed) {
            0 => u64::MAX,
            _ => self.share() * Sharded::SMALLEST_LEASE,
        }
    }

    fn is_plenty(&self, now: Tick) -> bool {
        let plenty = self.plenty();
        let is_plenty = self.bucket.quick(|bucket, level| (None, bucket.remaining(level, now) >= plenty));
        is_plenty == Some(true)
    }

    /// What the lane could not answer. Writes to the lane only if there is plenty in the bucket: a refusal writes nothing.
    #[inline(never)]
    fn miss(&self, n: u64, clock: impl Fn() -> Tick) -> Option<bool> {
        let now = clock();
        if n == 1
            && let Some(allowed) = self.bucket.quick_allow_unless(now, self.plenty())
        {
            return Some(allowed || self.spend_anywhere(n));
        }
        let filled = if self.is_plenty(now) { self.fill_own_lane(n, clock) } else { None };
        match filled {
            Some(Filled::Kept | Filled::Void) => Some(true),
            Some(Filled::Shut) => None,
            None => self.quick_allow_n(now, n),
        }
    }

    /// Makes a lease and keeps `n` of it. `None` if none was made.
    fn fill_own_lane(&self, n: u64, clock: impl Fn() -> Tick) -> Option<Filled> {
        let hold = lane::own(&self.lanes).hold_to_fill()?;
        let now = clock(); // only now: see above
        let (most, share) = (self.lease.load(Ordering::Relaxed), self.share());
        let tokens = self.bucket.quick(|bucket, level| {
            let tokens = most.min(bucket.remaining(level, now) / share);
            let is_worth_it = tokens >= Sharded::SMALLEST_LEASE && tokens / 2 >= n;
            let step = is_worth_it.then(|| bucket.decide_level(level, now, Ask::now(tokens)));
            let next = step.and_then(|step| step.change);
            (next, next.map(|_| tokens))
        })??;
        Some(hold.fill(tokens, n))
    }

    fn quick_allow_n(&self, now: Tick, n: u64) -> Option<bool> {
        let taken = self.quick_take(now, Ask::now(n))?;
        Some(taken.decision.is_allowed())
    }

    /// Takes `n` out of any lane that has them.
    fn spend_anywhere(&self, n: u64) -> bool {
        self.lanes.iter().any(|lane| lane.spend(n))
    }
}

/// Decides, and makes out the receipt.
fn step(sharded: Sharded, stock: Stock, now: Tick, ask: Ask) -> (Option<Draw>, Taken) {
    let step = sharded.promise(&stock, now, ask);
    let act = now + step.decision.delay();
    let claim = step.change.map(|draw| sharded.claim(&draw, ask.cost(), act));
    (step.change, Taken { decision: step.decision, claim })
}

impl Cell<Sharded> for LeasedCell {
    fn new(sharded: Sharded) -> Self {
        Self {
            bucket: AtomicCell::new(sharded.bucket()),
            lanes: (0..sharded.lanes()).map(|_| Lane::new()).collect(),
            lease: AtomicU64::new(sharded.lease()),
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "most of what this cell does, and a handful of instructions")]
    fn quick_lease(&self, n: u64, clock: impl Fn() -> Tick) -> Option<bool> {
        if lane::own(&self.lanes).spend(n) { Some(true) } else { self.miss(n, clock) }
    }

    fn quick_allow(&self, now: Tick) -> Option<bool> {
        Some(self.bucket.quick_allow(now)? || self.spend_anywhere(1))
    }

    fn quick_check_one(&self, now: Tick) -> Option<Decision> {
        self.quick_check(now, 1)
    }

    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision> {
        Some(self.quick_take(now, Ask::now(cost))?.decision)
    }

    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision> {
        let leased = self.leased();
        self.bucket.quick(|bucket, level| {
            let (_, taken) = step(self.sharded(bucket), Stock { level, leased }, now, ask);
            (None, taken.decision)
        })
    }

    /// `None` also if something must be taken out of lanes: that needs the limiter's lock.
    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken> {
        let leased = self.leased();
        self.bucket.quick(|bucket, level| {
            match step(self.sharded(bucket), Stock { level, leased }, now, ask) {
                (Some(Draw { leased: 1.., .. }), _) => (None, None),
                (draw, taken) => (draw.map(|draw| draw.level), Some(taken)),
            }
        })?
    }

    fn take(&self, now: Tick, ask: Ask) -> Taken {
        let (mut held, mut leased) = (0_u64, 0); // one bit for each of at most 64 lanes
        for (index, lane) in self.lanes.iter().enumerate() {
            if let Some(tokens) = lane.hold_to_take() {
                held |= 1 << index;
                leased += tokens;
            }
        }
        let (mut from_lanes, taken) = self.bucket.exclusively(|bucket, level| {
            let (draw, taken) = step(self.sharded(bucket), Stock { level, leased }, now, ask);
            (draw.map(|draw| draw.level), (draw.map_or(0, |draw| draw.leased), taken))
        });
        let lanes = self.lanes.iter().enumerate();
        for (_, lane) in lanes.filter(|(index, _)| held >> index & 1 == 1) {
            from_lanes -= lane.let_go(from_lanes);
        }
        taken
    }

    fn shut(&self) {
        self.bucket.shut();
        self.lanes.iter().for_each(Lane::shut);
    }

    fn open(&self) {
        self.bucket.open();
        self.lanes.iter().for_each(Lane::open);
    }

    fn algorithm(&self) -> Sharded {
        self.sharded(self.bucket.algorithm())
    }

    fn snapshot(&self) -> (Sharded, Stock) {
        let (_, level) = self.bucket.snapshot();
        (self.algorithm(), Stock { level, leased: self.leased() })
    }

    fn give_back(&self, back: GiveBack, now: Tick) -> Option<u64> {
        self.bucket.give_back(back, now)
    }

    fn give_back_carried(&self, back: GiveBack, now: Tick) -> bool {
        self.bucket.give_back_carried(back, now)
    }

    fn holds_all(&self, claim: Claim, now: Tick) -> bool {
        self.bucket.holds_all(claim, now)
    }

    fn charge(&self, extra: u64, now: Tick) {
        self.bucket.charge(extra, now);
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<Sharded> {
        self.shut();
        let (old, leased) = (self.algorithm(), self.leased());
        let (quota, lease) = old.for_quota(quota);
        // Before the lanes are trimmed: whoever holds one from then on reads the new lease, and what was held before is void.
        self.lease.store(lease, Ordering::Relaxed);
        self.lanes.iter().for_each(|lane| lane.trim(lease));
        let retuned = self.bucket.retune(now, quota);
        let (_, old_level) = retuned.old;
        let (bucket, level) = retuned.new;
        let old = (old, Stock { level: old_level, leased });
        let new = (Sharded::of(bucket, old.0.lanes(), lease), Stock { level, leased: self.leased() });
        Retuned { now, old, new }
    }
}
