//! The conformance suite of tollgate-sim through a limiter: the cells must decide as the bare algorithms do.

use tollgate::{AnyAlgorithm, Ask, Kind, Limiter, ManualClock, Quota, Reservation, Tick};
use tollgate_sim::Outcome;
use tollgate_sim::conformance::{self, Subject};

type Any = Limiter<AnyAlgorithm, ManualClock>;

/// A limiter and what it admitted.
struct Store {
    kind: Kind,
    quota: Quota,
    limiter: Any,
    admitted: Vec<Option<Reservation<AnyAlgorithm, ManualClock>>>,
}

fn build(kind: Kind, quota: Quota) -> Any {
    Limiter::builder(quota).kind(kind).clock(ManualClock::new()).build()
}

impl Store {
    fn new(kind: Kind, quota: Quota) -> Self {
        Self { kind, quota, limiter: build(kind, quota), admitted: Vec::new() }
    }
}

impl Subject for Store {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        match self.limiter.reserve_within_at(ask.cost(), ask.patience(), now) {
            Ok(reservation) => {
                let outcome = reservation.decision().into();
                self.admitted.push(Some(reservation));
                outcome
            }
            Err(refused) => refused.0.into(),
        }
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.limiter.peek_within_at(ask.cost(), ask.patience(), now).into()
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        if let Some(reservation) = self.admitted.get_mut(admission).and_then(Option::take) {
            reservation.refund_at(amount, now);
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.limiter.charge_at(extra, now);
    }

    fn set_quota(&mut self, now: Tick, quota: Quota) {
        self.limiter.set_quota_at(quota, now);
    }

    fn reset(&mut self) {
        self.limiter = build(self.kind, self.quota);
        self.admitted.clear();
    }
}

#[test]
fn a_limiter_decides_as_its_algorithm_does() {
    for kind in Kind::ALL {
        conformance::run(kind, |quota| Store::new(kind, quota), 0..2_000);
    }
}
