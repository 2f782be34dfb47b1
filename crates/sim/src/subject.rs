//! Anything that decides, seen the way the suite sees it.

use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Claim, GiveBack, Quota, Tick};

use crate::Outcome;
use crate::draw;
use crate::outcome::nanos;

/// A thing that decides: an algorithm with its state, a limiter, a store.
///
/// Time is an argument. Admissions are numbered from zero in the order in which they were made, so that one can be given
/// back; a subject keeps whatever receipts it needs for that. After a [`reset`](Self::reset) numbering starts again, and
/// earlier admissions can no longer be given back; after [`set_quota`](Self::set_quota) a subject may keep what is given
/// back of earlier ones.
///
/// # Examples
/// ```
/// use tollgate_core::{Ask, FixedWindow, Quota, Tick};
/// use tollgate_sim::Outcome;
/// use tollgate_sim::subject::{Held, Subject};
///
/// let mut window = Held::new(FixedWindow::new(Quota::per_second(1)));
/// assert!(window.decide(Tick::ZERO, Ask::now(1)).is_admitted());
/// window.give_back(Tick::ZERO, 0, 1);
/// assert_eq!(window.decide(Tick::ZERO, Ask::now(1)), Outcome::Admit { delay_ns: 0 });
/// ```
pub trait Subject {
    /// Decides, and takes if it admits.
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome;

    /// What [`decide`](Self::decide) would say, without taking anything.
    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome;

    /// Gives back `amount` of the admission with this number.
    fn give_back(&mut self, now: Tick, admission: usize, amount: u64);

    /// Charges what turned out dearer than asked for.
    fn charge(&mut self, now: Tick, extra: u64);

    /// Goes on with another quota; nobody gets a free burst and no debt is forgiven.
    fn set_quota(&mut self, now: Tick, quota: Quota);

    /// Forgets everything that was admitted.
    fn reset(&mut self);

    /// Whether it can promise a later moment. One that cannot is asked only for what can be had at once.
    fn can_promise(&self) -> bool {
        true
    }

    /// The latest moment it can be asked about.
    fn latest(&self) -> Tick {
        Tick::from_nanos(draw::LATEST_NS)
    }

    /// How far behind the latest moment it can be asked about.
    fn most_behind(&self) -> Duration {
        Duration::MAX
    }

    /// Whether it can go on with another quota. One that cannot is not asked to.
    fn can_change(&self) -> bool {
        true
    }
}

/// An algorithm with its state and the receipts of what it admitted.
#[derive(Clone, Debug)]
pub struct Held<A: Algorithm> {
    algorithm: A,
    state: A::State,
    /// One for each admission; `None` where nothing was written, or all of it has gone back.
    receipts: Vec<Option<Receipt>>,
    /// How far returns have taken the state down, all together.
    fallen: u64,
}

#[derive(Clone, Copy, Debug)]
struct Receipt {
    claim: Claim,
    /// What [`Held::fallen`] was when the claim was made.
    fallen: u64,
}

impl<A: Algorithm> Held<A> {
    /// The algorithm in its fresh state.
    pub fn new(algorithm: A) -> Self {
        Self { algorithm, state: A::State::default(), receipts: Vec::new(), fallen: 0 }
    }

    /// Where it stands.
    pub fn state(&self) -> &A::State {
        &self.state
    }

    /// Starts afresh if the state is idle: then nothing may change.
    pub fn forget_if_idle(&mut self, now: Tick) {
        if self.algorithm.is_idle(&self.state, now) {
            self.state = A::State::default();
        }
    }

    /// What it decides with.
    pub fn algorithm(&self) -> &A {
        &self.algorithm
    }
}

impl<A: Algorithm> Subject for Held<A> {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        let step = self.algorithm.decide(&self.state, now, ask);
        if step.decision.is_admitted() {
            let act = now.plus_nanos(nanos(step.decision.delay()));
            let claim = step.change.as_ref().map(|change| self.algorithm.claim(change, ask.cost(), act));
            self.receipts.push(claim.map(|claim| Receipt { claim, fallen: self.fallen }));
        }
        if let Some(change) = step.change {
            self.algorithm.apply(&mut self.state, change);
        }
        step.decision.into()
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.algorithm.decide(&self.state, now, ask).decision.into()
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        let Some(Receipt { claim, fallen }) = self.receipts.get_mut(admission).and_then(Option::take) else {
            return;
        };
        let Some(claim) = self.algorithm.lowered(claim, self.fallen - fallen) else {
            return;
        };
        let is_undone =
            self.fallen == fallen && amount >= claim.cost && self.algorithm.is_last(&self.state, &claim);
        if let Some(change) =
            self.algorithm.give_back(&self.state, GiveBack { claim, amount, ahead: now }, now)
        {
            let fall = self.algorithm.fall(&self.state, &change);
            self.fallen += if is_undone { 0 } else { fall };
            self.algorithm.apply(&mut self.state, change);
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        if let Some(change) = self.algorithm.charge(&self.state, extra, now) {
            self.algorithm.apply(&mut self.state, change);
        }
    }

    fn set_quota(&mut self, now: Tick, quota: Quota) {
        let (algorithm, state) = self.algorithm.retune(&self.state, now, quota);
        for receipt in &mut self.receipts {
            *receipt = receipt.take().and_then(|Receipt { claim, fallen }| {
                let claim = self.algorithm.lowered(claim, self.fallen - fallen)?;
                let claim = self.algorithm.carried(claim, &self.state, now, &algorithm, &state)?;
                Some(Receipt { claim, fallen: self.fallen })
            });
        }
        (self.algorithm, self.state) = (algorithm, state);
    }

    fn reset(&mut self) {
        self.state = A::State::default();
        self.receipts.clear();
    }
}
