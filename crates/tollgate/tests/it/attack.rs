//! A flood of keys that are never seen again, against a bounded store.
//!
//! Ten million of them in the test command. `cargo xtask attack` sends a hundred million.

use std::time::Duration;

use tollgate::{Clock, KeyedLimiter, ManualClock, Quota, TokenBucket};
use tollgate_sim::history::{Operation, largest_excess};

const CAP: usize = 1_000_000;
const ABUSER: u64 = u64::MAX;
/// Well-behaved callers, each at half its limit.
const REGULARS: u64 = 1_000;

fn flood() -> u64 {
    match std::env::var("TOLLGATE_ATTACK_KEYS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("TOLLGATE_ATTACK_KEYS is {text:?}, not a number")),
        Err(_) => 10_000_000,
    }
}

/// What came of it.
struct Outcome {
    limiter: KeyedLimiter<u64, TokenBucket, ManualClock>,
    abuser: Vec<Operation>,
    abuser_asked: u64,
    regulars_asked: u64,
    regulars_passed: u64,
    most_keys: usize,
    most_bytes: usize,
}

fn quota() -> Quota {
    Quota::per_second(10).burst(20)
}

/// Sends `keys` keys once each, `per_ms` of them in a millisecond. Meanwhile the abuser asks once in a hundred keys, and each
/// of the regulars five times a second.
fn attack(keys: u64, per_ms: u64) -> Outcome {
    let limiter = KeyedLimiter::builder(quota()).max_keys(CAP).clock(ManualClock::new()).build();
    let mut outcome = Outcome {
        limiter: limiter.clone(),
        abuser: Vec::new(),
        abuser_asked: 0,
        regulars_asked: 0,
        regulars_passed: 0,
        most_keys: 0,
        most_bytes: 0,
    };
    for key in 0..keys {
        let _ = limiter.allow(&key);
        if key % 100 == 0 {
            outcome.abuse();
        }
        if key % per_ms == 0 {
            limiter.clock().advance(Duration::from_millis(1));
            outcome.regulars(key / per_ms);
        }
    }
    outcome
}

impl Outcome {
    fn abuse(&mut self) {
        self.abuser_asked += 1;
        if self.limiter.allow(&ABUSER) {
            self.abuser.push(Operation::at(self.limiter.clock().now().as_nanos(), 1));
        }
        self.most_keys = self.most_keys.max(self.limiter.len());
        self.most_bytes = self.most_bytes.max(self.limiter.bytes());
    }

    /// Those whose turn it is in this millisecond of each fifth of a second.
    fn regulars(&mut self, ms: u64) {
        let per_ms = REGULARS / 200;
        for regular in 0..per_ms {
            let key = ABUSER - 1 - (ms % 200 * per_ms + regular);
            self.regulars_asked += 1;
            self.regulars_passed += u64::from(self.limiter.allow(&key));
        }
    }

    fn assert_bounded(&self) {
        assert!(self.most_keys <= CAP + CAP / 20, "{} keys", self.most_keys);
        assert!(self.most_bytes <= 32 * (CAP + CAP / 20), "{} bytes", self.most_bytes);
        let stats = self.limiter.stats();
        let came = stats.swept + stats.evicted + self.limiter.len() as u64;
        assert!(came >= flood(), "{came} keys came, but {} were sent", flood());
    }

    fn assert_abuser_kept_to_its_bound(&self) {
        let worst = largest_excess(quota(), &self.abuser).expect("something was admitted");
        assert!(!worst.is_violation(), "{worst:?}");
        assert!(self.abuser_asked > 10 * self.abuser.len() as u64, "it asked for far more than its limit");
    }
}

#[test]
fn a_flood_that_the_table_is_large_enough_for_hurts_nobody() {
    // Two million keys a second, each idle again after a tenth of one: a fifth of the table counts at any time.
    let outcome = attack(flood(), 2_000);
    outcome.assert_bounded();
    outcome.assert_abuser_kept_to_its_bound();
    assert_eq!(outcome.limiter.stats().evicted, 0, "nothing that counted was forgotten");
    let (passed, asked) = (outcome.regulars_passed, outcome.regulars_asked);
    assert!(passed * 1_000 >= asked * 999, "{passed} of {asked} passed");
}

#[test]
fn a_flood_that_the_table_is_too_small_for_does_not_help_an_abuser() {
    // All in one moment, so that nothing is ever idle.
    let outcome = attack(flood(), u64::MAX);
    outcome.assert_bounded();
    outcome.assert_abuser_kept_to_its_bound();
    // All but the first million were forgotten while they counted, and that is what the counter says. The abuser and the
    // regulars came once each.
    let stats = outcome.limiter.stats();
    let others = 1 + REGULARS / 200;
    assert_eq!(stats.evicted, flood() + others - outcome.limiter.len() as u64);
    assert_eq!(stats.swept, 0);
}
