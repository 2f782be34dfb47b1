//! Two limiters of which one was restored from the other decide alike, whatever is done to them.

use super::*;

/// Two limiters of which one was restored from the other, side by side.
struct Twins {
    old: Any,
    new: Any,
}

const KEYS: u64 = 12;

impl Twins {
    fn advance(&self, span: Duration) {
        self.old.clock().advance(span);
        self.new.clock().advance(span);
    }

    /// Asks both the same, for long.
    fn compare(&self, rng: &mut Rng, steps: u32, case: &str) {
        for step in 0..steps {
            self.advance(pause(rng));
            let (key, cost) = (rng.u64(..KEYS + 3), rng.u64(..4));
            let at = format!("{case}, step {step}, key {key}, cost {cost}");
            match rng.u8(..8) {
                0 => {
                    let patience = secs(rng.u64(..20));
                    let take = |limiter: &Any| match limiter.reserve_within(&key, cost, patience) {
                        Ok(reservation) => (reservation.decision(), reservation.delay()),
                        Err(refused) => (refused.0, Duration::ZERO),
                    };
                    assert_eq!(take(&self.new), take(&self.old), "{at}");
                }
                1 => {
                    self.old.charge(&key, cost);
                    self.new.charge(&key, cost);
                }
                2 => assert_eq!(self.new.allow_n(&key, cost), self.old.allow_n(&key, cost), "{at}"),
                3 => assert_eq!(self.new.allow(&key), self.old.allow(&key), "{at}"),
                _ => assert_eq!(self.new.check_n(&key, cost), self.old.check_n(&key, cost), "{at}"),
            }
        }
    }
}

fn pause(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(..30) * rng.u64(..30) * rng.u64(..4))
}

/// Does all sorts of things to some keys.
pub(super) fn use_at_random(limiter: &Any, rng: &mut Rng, steps: u32) {
    let mut reserved: Vec<KeyedReservation<u64, AnyAlgorithm, ManualClock>> = Vec::new();
    for _ in 0..steps {
        limiter.clock().advance(pause(rng));
        let (key, cost) = (rng.u64(..KEYS), rng.u64(..4));
        match rng.u8(..12) {
            0 => _ = limiter.charge(&key, cost),
            1 => reserved.extend(limiter.reserve_within(&key, cost, secs(5))),
            2 if !reserved.is_empty() => reserved.swap_remove(rng.usize(..reserved.len())).settle(1),
            3 if rng.u8(..4) == 0 => limiter.sweep(),
            4 if rng.u8(..4) == 0 => drop(limiter.reset(&key)),
            _ => drop(limiter.check_n(&key, cost)),
        }
    }
}

/// Saves, lets time pass, and restores with another quota if one is given.
fn twins(kind: Kind, quota: Quota, new_quota: Option<Quota>, rng: &mut Rng) -> Twins {
    let folder = Folder::new();
    let old = KeyedLimiter::builder(quota).kind(kind).clock(some_clock()).build();
    use_at_random(&old, rng, 150);
    if rng.bool() {
        old.set_quota(quota.burst(quota.burst_size() + 1));
        old.set_quota(quota);
        use_at_random(&old, rng, 5);
    }
    old.save(folder.file()).expect("it can be written");
    old.clock().advance(pause(rng));
    // A clock that has gone for less, or for much more than the old one.
    let bits = rng.u32(1..50);
    let clock = clock_beside(old.clock(), Duration::from_nanos(rng.u64(..1 << bits)));
    let (new, restored) =
        KeyedLimiter::builder(new_quota.unwrap_or(quota)).kind(kind).clock(clock).restore(folder.file());
    assert_eq!(restored.unwrap_or_else(|error| panic!("{error}")), new.len());
    if let Some(quota) = new_quota {
        old.set_quota(quota);
    }
    Twins { old, new }
}

#[test]
fn a_restored_limiter_decides_as_if_it_had_been_there_all_along() {
    for kind in Kind::ALL {
        for seed in 0..40 {
            let mut rng = Rng::with_seed(seed);
            let quota = conformance::small_quota(&mut rng);
            let twins = twins(kind, quota, None, &mut rng);
            twins.compare(&mut rng, 400, &format!("{kind} {quota}, seed {seed}"));
        }
    }
}

#[test]
fn another_quota_gives_no_free_burst_and_forgives_no_debt() {
    // A queue's patience is its builder's, and `set_quota` leaves it alone, so that the two would differ.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue) {
        for seed in 0..40 {
            let mut rng = Rng::with_seed(seed);
            let (quota, other) = (conformance::small_quota(&mut rng), conformance::small_quota(&mut rng));
            let twins = twins(kind, quota, Some(other), &mut rng);
            assert_eq!(twins.new.quota(), other);
            twins.compare(&mut rng, 200, &format!("{kind} {quota} to {other}, seed {seed}"));
        }
    }
    let (folder, clock) = (Folder::new(), some_clock());
    let old = buckets(Quota::per_hour(1).burst(4), clock.clone()).build();
    assert!(old.allow_n(&1, 3));
    old.charge(&2, 6);
    old.save(folder.file()).unwrap();
    let (new, restored) = buckets(Quota::per_hour(1).burst(10), clock).restore(folder.file());
    assert_eq!(restored.unwrap(), 2);
    assert_eq!(new.peek_n(&1, 0).remaining(), 1);
    assert_eq!(new.check(&2).retry_after(), Some(secs(3 * 3_600)), "two owed, one wanted");
}
