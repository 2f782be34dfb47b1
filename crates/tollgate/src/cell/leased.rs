//! A token bucket for many threads: most of them spend from lanes of their own.
//!
//! The bucket is one atomic word as everywhere. A thread that finds its lane empty, and plenty in the bucket, takes a block
//! of tokens at once, a *lease* of at most `lease` tokens, and lays what it does not need into its lane. Whoever spends from
//! a lane touches nothing but that lane, and needs no clock. Nearer to the limit leases shrink, down to none at all: then
//! this is the plain word. Before anybody is refused, whatever lies in any lane is taken: one lane at a time without a lock
//! where that is enough, all of them together by the holder of the limiter's lock where it is not.
//!
//! Why the bound holds. The bucket is `burst - lanes · lease` deep. A token that leaves it was taken by a caller with a
//! reading of the clock; call that the token's reading. Take the calls that begin and end between s and e. The tokens with a
//! reading from s to e are at most `burst - lanes · lease + rate · (e - s)`: that is the word's own bound (`level.rs` in
//! tollgate-core). A token with an earlier reading was not taken out of the bucket by one of these calls, so it came through
//! a lane; whoever laid it there held the lane *before* it read the clock, so that at s the token lay in a lane or was in the
//! hand of its holder: there is room for `lanes · lease` of those (`lanes.rs`). Together `burst + rate · (e - s)`, whoever
//! shares a lane, steals or is delayed. A clock that may step back by d makes readings that much too early: then spans of T
//! hold at most `burst + rate · (T + d)`.
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

use super::atomic::{AtomicCell, LevelPlan};
use super::lanes::{Filled, Lanes};
use super::{Cell, Fall, One, Prepared, Retuned, Standing, Taken};
use crate::sync::{AtomicU64, Ordering};

/// A cell for a token bucket with tokens out on lease.
#[derive(Debug)]
pub struct LeasedCell {
    bucket: AtomicCell<TokenBucket>,
    lanes: Lanes,
    /// The most that a lane may hold. Changes with the quota, while the lanes are shut.
    lease: AtomicU64,
    /// How much must be left in the bucket, in its units, for leases to be made.
    plenty: AtomicU64,
}

impl LeasedCell {
    /// With the bucket as it is by now.
    fn sharded(&self, bucket: TokenBucket) -> Sharded {
        Sharded::of(bucket, self.lanes.count(), self.lease.load(Ordering::Relaxed))
    }

    /// What the lane and the short way could not answer: there is plenty, or the cell is shut, or more than one is wanted.
    #[inline(never)]
    fn the_long_way(&self, n: u64, now: Tick, clock: impl Fn() -> Tick) -> Option<bool> {
        // Before anything is written: a refusal writes nothing.
        let filled = if self.is_plenty(now) { self.fill_own_lane(n, clock) } else { None };
        match filled {
            Some(Filled::Kept | Filled::Void) => Some(true),
            Some(Filled::Shut) => None,
            None if n == 1 => self.quick_allow(now),
            None => self.quick_take(now, Ask::now(n)).map(|taken| taken.decision.is_allowed()),
        }
    }

    fn is_plenty(&self, now: Tick) -> bool {
        let plenty = self.plenty.load(Ordering::Relaxed);
        let left = self.bucket.quick(|bucket, level| {
            let band = bucket.band(now, 1);
            (None, band.brink.saturating_sub(level.max(band.floor)))
        });
        left.is_some_and(|left| left >= plenty)
    }

    /// Makes a lease and keeps `n` of it. `None` if none was made.
    fn fill_own_lane(&self, n: u64, clock: impl Fn() -> Tick) -> Option<Filled> {
        let hold = self.lanes.hold_own()?;
        let now = clock(); // only now: see above
        let (most, share) = (self.lease.load(Ordering::Relaxed), share(self.lanes.count()));
        let tokens = self.bucket.quick(|bucket, level| {
            let tokens = most.min(bucket.remaining(level, now) / share);
            let is_worth_it = tokens >= Sharded::SMALLEST_LEASE && tokens / 2 >= n;
            let step = is_worth_it.then(|| bucket.decide_level(level, now, Ask::now(tokens)));
            let next = step.and_then(|step| step.change);
            (next, next.map(|_| tokens))
        })??;
        Some(hold.fill(tokens, n))
    }
}

/// A lease takes no more than this part of the bucket: when every lane has been filled, half of it is still there.
fn share(lanes: u64) -> u64 {
    2 * lanes
}

/// What must be left for leases to be made: enough for one that is worth it.
fn plenty(sharded: &Sharded) -> u64 {
    let tokens = share(sharded.lanes()) * Sharded::SMALLEST_LEASE;
    if sharded.lease() == 0 { u64::MAX } else { sharded.bucket().unit().saturating_mul(tokens) }
}

/// Decides, and makes out the receipt.
fn step(sharded: Sharded, stock: Stock, now: Tick, ask: Ask) -> (Option<Draw>, Taken) {
    let step = sharded.promise(&stock, now, ask);
    let act = now + step.decision.delay();
    let claim = step.change.map(|draw| sharded.claim(&draw, ask.cost(), act));
    (step.change, Taken { decision: step.decision, claim })
}

/// In a gate only the bucket counts: what lies in lanes is for those who come by themselves.
impl Cell<Sharded> for LeasedCell {
    type Plan = LevelPlan;

    fn new(sharded: Sharded) -> Self {
        Self {
            bucket: AtomicCell::new(sharded.bucket()),
            lanes: Lanes::new(sharded.lanes()),
            lease: AtomicU64::new(sharded.lease()),
            plenty: AtomicU64::new(plenty(&sharded)),
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "most of what this cell does, and a handful of instructions")]
    fn quick_lease(&self, n: u64, clock: impl Fn() -> Tick) -> Option<bool> {
        if self.lanes.may_hold_some() && self.lanes.spend_own(n) {
            return Some(true);
        }
        let now = clock();
        if n == 1 {
            let allowed = self.bucket.quick_allow_unless(now, self.plenty.load(Ordering::Relaxed));
            if let Some(allowed) = allowed {
                return Some(allowed || self.lanes.spend_any(1));
            }
        }
        self.the_long_way(n, now, clock)
    }

    fn quick_allow(&self, now: Tick) -> Option<bool> {
        Some(self.bucket.quick_allow(now)? || self.lanes.spend_any(1))
    }

    fn quick_check_one(&self, now: Tick) -> Option<Decision> {
        self.quick_check(now, 1)
    }

    fn quick_check(&self, now: Tick, cost: u64) -> Option<Decision> {
        Some(self.quick_take(now, Ask::now(cost))?.decision)
    }

    fn quick_peek(&self, now: Tick, ask: Ask) -> Option<Decision> {
        let leased = self.lanes.tokens();
        self.bucket.quick(|bucket, level| {
            let (_, taken) = step(self.sharded(bucket), Stock { level, leased }, now, ask);
            (None, taken.decision)
        })
    }

    /// `None` also if something must be taken out of lanes: that needs the limiter's lock.
    fn quick_take(&self, now: Tick, ask: Ask) -> Option<Taken> {
        let leased = self.lanes.tokens();
        self.bucket.quick(|bucket, level| {
            match step(self.sharded(bucket), Stock { level, leased }, now, ask) {
                (Some(Draw { leased: 1.., .. }), _) => (None, None),
                (draw, taken) => (draw.map(|draw| draw.level), Some(taken)),
            }
        })?
    }

    fn quick_prepare(&self, now: Tick, ask: Ask) -> Option<Prepared<LevelPlan>> {
        self.bucket.quick_prepare(now, ask)
    }

    fn quick_one(&self, now: Tick) -> Option<One> {
        self.bucket.quick_one(now)
    }

    fn hold_one(&self, plan: &LevelPlan) -> bool {
        self.bucket.hold_one(plan)
    }

    fn commit_one(&self, plan: &LevelPlan) {
        self.bucket.commit_one(plan);
    }

    fn take_one(&self, plan: &LevelPlan) -> bool {
        self.bucket.take_one(plan)
    }

    fn let_go_one(&self, plan: &LevelPlan) {
        self.bucket.let_go_one(plan);
    }

    fn prepare(&self, now: Tick, ask: Ask) -> Prepared<LevelPlan> {
        self.bucket.prepare(now, ask)
    }

    fn hold(&self, plan: &LevelPlan) -> bool {
        self.bucket.hold(plan)
    }

    fn commit(&self, plan: LevelPlan) {
        self.bucket.commit(plan);
    }

    fn let_go(&self, plan: &LevelPlan) {
        self.bucket.let_go(plan);
    }

    fn take(&self, now: Tick, ask: Ask) -> Taken {
        self.lanes.take(|leased| {
            self.bucket.exclusively(|bucket, level| {
                let (draw, taken) = step(self.sharded(bucket), Stock { level, leased }, now, ask);
                (draw.map(|draw| draw.level), (draw.map_or(0, |draw| draw.leased), taken))
            })
        })
    }

    fn shut(&self) {
        self.bucket.shut();
        self.lanes.shut();
    }

    fn open(&self) {
        self.bucket.open();
        self.lanes.open();
    }

    fn algorithm(&self) -> Sharded {
        self.sharded(self.bucket.algorithm())
    }

    /// The level; what lies in lanes stays there.
    fn put(&self, stock: Stock) {
        self.bucket.put(stock.level);
    }

    fn snapshot(&self) -> (Sharded, Stock) {
        let (_, level) = self.bucket.snapshot();
        (self.algorithm(), Stock { level, leased: self.lanes.tokens() })
    }

    fn give_back(&self, back: GiveBack, now: impl Fn() -> Tick) -> Option<Fall> {
        self.bucket.give_back(back, now)
    }

    fn undo(&self, claim: Claim, rise: u64) -> bool {
        self.bucket.undo(claim, rise)
    }

    fn give_back_carried(&self, back: GiveBack, now: impl Fn() -> Tick) -> bool {
        self.bucket.give_back_carried(back, now)
    }

    fn holds_all(&self, claim: Claim, now: Tick) -> bool {
        self.bucket.holds_all(claim, now)
    }

    fn standing(&self, now: Tick) -> Option<Standing> {
        self.bucket.standing(now)
    }

    fn charge(&self, extra: u64, now: Tick) {
        self.bucket.charge(extra, now);
    }

    fn retune(&self, now: Tick, quota: Quota) -> Retuned<Sharded> {
        self.shut();
        let (old, leased) = (self.algorithm(), self.lanes.tokens());
        let (quota, lease) = old.for_quota(quota);
        // Before the lanes are trimmed: whoever holds one from then on reads the new lease, and what was held before is void.
        self.lease.store(lease, Ordering::Relaxed);
        self.lanes.trim(lease);
        let retuned = self.bucket.retune(now, quota);
        let (_, old_level) = retuned.old;
        let (bucket, level) = retuned.new;
        let old = (old, Stock { level: old_level, leased });
        let new = (self.sharded(bucket), Stock { level, leased: self.lanes.tokens() });
        self.plenty.store(plenty(&new.0), Ordering::Relaxed);
        Retuned { now, old, new }
    }
}
