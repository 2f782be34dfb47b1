//! The token bucket with tokens out on lease.

use alloc::vec::Vec;

use crate::level::Curve;
use crate::{Algorithm, Ask, Claim, GiveBack, Quota, Step, Tick, TokenBucket};

/// The [`TokenBucket`] for a state that many threads hit: whoever keeps it may move small blocks of tokens, *leases*, into
/// lanes of their own, where they are spent without touching the bucket or reading a clock.
///
/// **Guarantee**: in any span of length T at most `burst + rate·T` is admitted, to the token, as without leases. To keep
/// it, the bucket itself is smaller by what the lanes may hold together: `lanes · lease`.
///
/// **Formula**: the lease, the most that one lane may hold, is a 16th of the burst divided by the lanes, and at most 1 024. Where
/// that comes to less than 8, leases are not worth it: there are none, and this is a token bucket and nothing else.
///
/// **Weakness**: up to `lanes · lease` of the burst, at most a 16th, cannot be relied on: a single cost may be no larger than
/// the rest, which is what [`limit`](crate::Decision::limit) says, and a full limiter holds that much and whatever lies in the
/// lanes. What was taken out of lanes cannot be given back.
///
/// # Examples
/// ```
/// use tollgate_core::{Algorithm, Ask, Quota, Sharded, Stock, Tick};
///
/// let sharded = Sharded::new(Quota::per_second(1_000).burst(1_600), 4);
/// assert_eq!((sharded.lanes(), sharded.lease()), (4, 25));
/// // Forty more are out on lease: before anybody is refused they are taken back.
/// let mut stock = Stock { level: 0, leased: 40 };
/// let most = sharded.step(&mut stock, Tick::ZERO, Ask::now(1_500));
/// assert_eq!((most.is_allowed(), most.limit()), (true, 1_500));
/// let last = sharded.step(&mut stock, Tick::ZERO, Ask::now(30));
/// assert!(last.is_allowed());
/// assert_eq!((last.remaining(), stock.leased), (10, 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharded {
    bucket: TokenBucket,
    lanes: u64,
    lease: u64,
}

/// What a [`Sharded`] bucket remembers: its level, and the tokens that lie in lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// The level of the bucket.
    pub level: u64,
    /// Tokens that lie in lanes.
    pub leased: u64,
}

/// What an admission takes of a [`Stock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The level it leaves behind.
    pub level: u64,
    /// What it takes out of lanes.
    pub leased: u64,
}

/// More lanes reserve more of the burst, and whoever is about to refuse looks into all of them.
const MOST_LANES: u64 = 64;
/// All leases together are at most this part of the burst.
const RESERVED_PART: u64 = 16;
/// A larger lease is no faster.
const LARGEST_LEASE: u64 = 1_024;
/// A smaller lease costs more than it saves: filling a lane touches the bucket once and the lane twice.
const SMALLEST_LEASE: u64 = 8;

impl Sharded {
    /// The smallest lease that is worth making.
    pub const SMALLEST_LEASE: u64 = SMALLEST_LEASE;

    /// A bucket for `quota` with at least `lanes` lanes: as many as the next power of two, and at most 64.
    pub const fn new(quota: Quota, lanes: u64) -> Self {
        let lanes = if lanes < MOST_LANES { lanes.next_power_of_two() } else { MOST_LANES };
        let lease = lease_of(quota, lanes);
        Self { bucket: TokenBucket::new(reserved(quota, lanes, lease)), lanes, lease }
    }

    /// Puts together again what a cell keeps in pieces: a bucket that has come so far, and so many lanes of at most `lease` each.
    /// Only [`new`](Self::new) and [`for_quota`](Self::for_quota) know which of those go together.
    #[doc(hidden)]
    pub const fn of(bucket: TokenBucket, lanes: u64, lease: u64) -> Self {
        Self { bucket, lanes, lease }
    }

    /// The bucket that the leases come from.
    pub const fn bucket(&self) -> TokenBucket {
        self.bucket
    }

    /// How many lanes there are.
    pub const fn lanes(&self) -> u64 {
        self.lanes
    }

    /// The most that one lane may hold; zero if there are no leases.
    pub const fn lease(&self) -> u64 {
        self.lease
    }

    /// For another quota: the quota of its bucket, and its lease.
    pub const fn for_quota(&self, quota: Quota) -> (Quota, u64) {
        let lease = lease_of(quota, self.lanes);
        (reserved(quota, self.lanes, lease), lease)
    }

    /// [`decide`](Algorithm::decide) for somebody who may want to give back what it is promised: later than now nothing is
    /// promised out of lanes.
    pub fn promise(&self, stock: &Stock, now: Tick, ask: Ask) -> Step<Draw> {
        let at_once = self.decide(stock, now, Ask::now(ask.cost));
        if at_once.decision.is_allowed() || ask.patience_ns == 0 {
            return at_once;
        }
        let alone = self.alone(stock, now, ask);
        let is_sooner = match (alone.decision.retry_after(), at_once.decision.retry_after()) {
            (Some(alone), Some(at_once)) => alone < at_once,
            (alone, _) => alone.is_some(),
        };
        if is_sooner { alone } else { at_once }
    }

    /// Decides as if the lanes were not there to take from.
    fn alone(&self, stock: &Stock, now: Tick, ask: Ask) -> Step<Draw> {
        let Step { change, decision } = self.bucket.decide_level(stock.level, now, ask);
        Step {
            change: change.map(|level| Draw { level, leased: 0 }),
            decision: decision.with_more(stock.leased),
        }
    }
}

/// The most that a lane may hold.
const fn lease_of(quota: Quota, lanes: u64) -> u64 {
    let lease = quota.burst_size() / (lanes * RESERVED_PART);
    if quota.is_unlimited() || lease < SMALLEST_LEASE {
        0
    } else if lease > LARGEST_LEASE {
        LARGEST_LEASE
    } else {
        lease
    }
}

/// What is left for the bucket when every lane is full.
const fn reserved(quota: Quota, lanes: u64, lease: u64) -> Quota {
    quota.burst(quota.burst_size() - lanes * lease)
}

impl Algorithm for Sharded {
    type State = Stock;
    type Change = Draw;

    fn decide(&self, stock: &Stock, now: Tick, ask: Ask) -> Step<Draw> {
        let alone = self.alone(stock, now, ask);
        if alone.decision.is_allowed() || stock.leased == 0 || ask.cost > self.bucket.limit() {
            return alone;
        }
        let leased = ask.cost.min(stock.leased);
        let rest = Ask { cost: ask.cost - leased, ..ask };
        let Step { change, decision } = self.bucket.decide_level(stock.level, now, rest);
        if !decision.is_admitted() {
            return Step { change: None, decision: decision.with_more(stock.leased) };
        }
        Step {
            change: Some(Draw { level: change.unwrap_or(stock.level), leased }),
            decision: decision.with_more(stock.leased - leased),
        }
    }

    fn apply(&self, stock: &mut Stock, draw: Draw) {
        *stock = Stock { level: draw.level, leased: stock.leased.saturating_sub(draw.leased) };
    }

    /// A level of its own only if all of it came from the bucket. The lanes cannot take anything back: time may have
    /// restored it to the bucket since it was leased, and others may have been admitted by that.
    fn claim(&self, draw: &Draw, cost: u64, act: Tick) -> Claim {
        Claim { cost, act, mark: if draw.leased == 0 { draw.level } else { NO_MARK } }
    }

    fn give_back(&self, stock: &Stock, back: GiveBack, now: Tick) -> Option<Draw> {
        let level = self.bucket.returned(stock.level, back, now)?;
        Some(Draw { level, leased: 0 })
    }

    fn fall(&self, stock: &Stock, draw: &Draw) -> u64 {
        stock.level.saturating_sub(draw.level)
    }

    fn lowered(&self, claim: Claim, fallen: u64) -> Option<Claim> {
        if claim.mark == NO_MARK { None } else { self.bucket.lowered(claim, fallen) }
    }

    fn charge(&self, stock: &Stock, extra: u64, now: Tick) -> Option<Draw> {
        let level = self.bucket.charge(&stock.level, extra, now)?;
        Some(Draw { level, leased: 0 })
    }

    fn retune(&self, stock: &Stock, now: Tick, quota: Quota) -> (Self, Stock) {
        let (quota, lease) = self.for_quota(quota);
        let (bucket, level) = self.bucket.retuned(stock.level, now, quota);
        let leased = stock.leased.min(self.lanes * lease);
        (Self { bucket, lanes: self.lanes, lease }, Stock { level, leased })
    }

    fn moved(&self, stock: &Stock, now: Tick, quota: Quota, new: &Self) -> Stock {
        let (quota, _) = new.for_quota(quota);
        let level = self.bucket.moved(&stock.level, now, quota, &new.bucket);
        Stock { level, leased: stock.leased.min(new.lanes * new.lease) }
    }

    fn carried(
        &self,
        claim: Claim,
        stock: &Stock,
        now: Tick,
        new: &Self,
        new_stock: &Stock,
    ) -> Option<Claim> {
        self.bucket.carried(claim, &stock.level, now, &new.bucket, &new_stock.level)
    }

    /// The level alone: leases are not kept.
    fn write_state(&self, stock: &Stock, words: &mut Vec<u64>) {
        self.bucket.write_state(&stock.level, words);
    }

    fn read_state(&self, words: &[u64]) -> Option<Stock> {
        self.bucket.read_state(words).map(|level| Stock { level, leased: 0 })
    }

    fn can_return_early(&self) -> bool {
        true
    }

    fn is_idle(&self, stock: &Stock, now: Tick) -> bool {
        stock.leased == 0 && self.bucket.is_idle(&stock.level, now)
    }
}

/// The mark of a claim that cannot be given back: above every level.
const NO_MARK: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::Decision;

    fn sharded() -> Sharded {
        Sharded::new(Quota::per_second(1_000).burst(1_600), 4) // leases of 25, and 1 500 in the bucket
    }

    fn dry(leased: u64) -> Stock {
        let mut stock = Stock::default();
        assert!(sharded().step(&mut stock, Tick::ZERO, Ask::now(1_500)).is_allowed());
        Stock { leased, ..stock }
    }

    fn ms(decision: &Decision) -> Option<u128> {
        decision.retry_after().map(|wait| wait.as_millis())
    }

    #[test]
    fn a_burst_too_small_for_leases_stays_whole() {
        for (burst, lanes, lease) in [(511, 4, 0), (512, 4, 8), (1 << 20, 4, 1_024), (512, 3, 8), (0, 1, 0)] {
            let sharded = Sharded::new(Quota::per_second(1).burst(burst), lanes);
            assert_eq!((sharded.lanes(), sharded.lease()), (lanes.next_power_of_two(), lease), "{burst}");
            assert_eq!(sharded.bucket().limit(), burst - sharded.lanes() * lease, "{burst}");
        }
        assert_eq!(Sharded::new(Quota::UNLIMITED, 4).lease(), 0);
        assert_eq!(Sharded::new(Quota::per_second(u64::MAX), u64::MAX).lanes(), 64);
    }

    #[test]
    fn a_refusal_counts_on_what_is_leased() {
        let refused = sharded().decide(&dry(40), Tick::ZERO, Ask::now(50));
        assert_eq!(refused.change, None);
        assert_eq!((ms(&refused.decision), refused.decision.remaining()), (Some(10), 40));
        let never = sharded().decide(&Stock { level: 0, leased: 100 }, Tick::ZERO, Ask::now(1_501));
        assert!(never.decision.is_never(), "the lanes may be empty when they are needed");
    }

    #[test]
    fn who_waits_in_line_is_due_as_soon_as_both_together_suffice() {
        let later = sharded().decide(&dry(40), Tick::ZERO, Ask::whenever(50));
        assert_eq!(later.decision.delay(), Duration::from_millis(10));
        assert_eq!(later.change.map(|draw| draw.leased), Some(40));
    }

    #[test]
    fn a_promise_is_made_by_the_bucket_alone() {
        let (sharded, stock) = (sharded(), dry(40));
        let promise = |wait_ms| {
            let ask = Ask::within(50, Duration::from_millis(wait_ms));
            sharded.promise(&stock, Tick::ZERO, ask)
        };
        let kept = promise(50);
        assert_eq!((kept.decision.delay(), kept.change.unwrap().leased), (Duration::from_millis(50), 0));
        // In ten milliseconds the lanes will make up for what is missing; nine from now a promise can be made.
        assert_eq!(ms(&promise(5).decision), Some(10));
        assert_eq!(ms(&promise(41).decision), Some(9));
        let at_once = sharded.promise(&stock, Tick::ZERO, Ask::whenever(40));
        assert_eq!((at_once.decision.is_allowed(), at_once.change.unwrap().leased), (true, 40));
    }

    #[test]
    fn what_came_out_of_lanes_is_not_given_back() {
        let (sharded, mut stock) = (sharded(), dry(40));
        let draw = sharded.decide(&stock, Tick::ZERO, Ask::now(10)).change.unwrap();
        let claim = sharded.claim(&draw, 10, Tick::ZERO);
        sharded.apply(&mut stock, draw);
        assert_eq!(sharded.lowered(claim, 0), None);
        assert_eq!(
            sharded.give_back(&stock, GiveBack { claim, amount: 10, ahead: Tick::ZERO }, Tick::ZERO),
            None
        );
    }

    #[test]
    fn another_quota_keeps_no_more_than_its_lanes_hold() {
        let (smaller, stock) = sharded().retune(&dry(100), Tick::ZERO, Quota::per_second(1_000).burst(800));
        assert_eq!((smaller.lease(), stock.leased), (12, 48));
        let (none, stock) = sharded().retune(&dry(100), Tick::ZERO, Quota::per_second(1_000).burst(100));
        assert_eq!((none.lease(), stock.leased), (0, 0));
    }
}
