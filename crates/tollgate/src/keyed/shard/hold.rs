//! Keys that a gate has in hand: see `keyed/member.rs`.

use std::time::Duration;

use tollgate_core::{Algorithm, Claim, Decision, Step, Tick};

use super::{Common, Query, Receipt, Shard, Way, account, algorithm_of};

/// What taking something of a key would write.
#[derive(Debug)]
pub(crate) struct Drawn<A: Algorithm> {
    plan: u32,
    generation: u64,
    /// The state that was found; `None` if the key is new.
    before: Option<A::State>,
    after: After<A::State>,
    /// When it was asked, which may be before the moment it is for.
    now: Tick,
}

/// What comes of it. In one, so that a plan is no larger than it must be: it is copied more than once.
#[derive(Debug)]
enum After<S> {
    /// The state to write, the claim, and when the key will be idle then.
    Taken(S, Claim, Tick),
    /// Nothing is taken.
    Nothing,
    /// It is refused; whether because the store is full.
    Refused(Decision, bool),
}

impl<A: Algorithm> Drawn<A> {
    pub(crate) fn takes(&self) -> bool {
        matches!(self.after, After::Taken(..))
    }

    /// The refusal, if it is one, and whether that is because the store is full.
    pub(crate) fn refusal(&self) -> Option<(&Decision, bool)> {
        if let After::Refused(decision, lacks_room) = &self.after {
            Some((decision, *lacks_room))
        } else {
            None
        }
    }
}

impl<A: Algorithm> Shard<A> {
    /// The latest moment as of which a gate took something.
    pub(crate) fn ahead(&self) -> Tick {
        self.aside.ahead
    }

    /// Remembers that a gate took something as of that moment.
    pub(crate) fn take_ahead(&mut self, moment: Tick) {
        self.aside.ahead = self.aside.ahead.max(moment);
    }

    /// Whether a gate has a key in hand. Then nobody else may do anything to it.
    pub(crate) fn is_held(&self, print: u64) -> bool {
        self.aside.held.contains(&print)
    }

    pub(crate) fn holds_any(&self) -> bool {
        !self.aside.held.is_empty()
    }

    /// A copy of a key's algorithm and state, and whether it is known. `None` if it is new and its plan must be known.
    pub(crate) fn look(
        &mut self,
        common: &Common<A>,
        print: u64,
        plan: Option<u32>,
    ) -> Option<(A, A::State, Option<u32>)> {
        let number = self.up_to_date(print);
        let segment = &self.segments[number];
        if let Some(place) = segment.find(print) {
            let plan = segment.plan(place);
            let algorithm = algorithm_of(&self.algorithm, common, plan).into_owned();
            return Some((algorithm, segment.slot(place).state.clone(), Some(plan)));
        }
        let (algorithm, state) = self.unseen(common, plan?);
        Some((algorithm, state, None))
    }

    /// Decides by `decide` as of `then`, which may be later than the question, and says what taking it would write. `None` if the key
    /// is new and its plan must be known.
    pub(crate) fn draw(
        &mut self,
        common: &Common<A>,
        query: Query,
        then: Tick,
        decide: impl Fn(&A, &A::State, Tick) -> Step<A::Change>,
    ) -> Option<(Decision, Drawn<A>)> {
        let Query { print, plan, now, .. } = query;
        let cost = query.ask.cost();
        let (algorithm, mut state, known) = self.look(common, print, plan)?;
        // A key that was dropped as idle must not be admitted by a reading from before that.
        let then = if known.is_some() { then } else { then.max(self.swept_at) };
        let step = decide(&algorithm, &state, then);
        let idle_at = then + step.decision.reset_after().unwrap_or(Duration::MAX);
        let asks_for_room =
            known.is_none() && Self::asks_for_room(common, (&algorithm, &state), &step, cost, then);
        let full = if asks_for_room { self.is_full_for(common, print, now) } else { None };
        let Step { change, decision } = step;
        let lacks_room = full.is_some() && decision.is_admitted();
        let said = full
            .map_or(decision, |full| full.said(now, cost, |then| decide(&algorithm, &state, then).decision));
        let before = known.map(|_| state.clone());
        let after = match change {
            _ if !said.is_admitted() => After::Refused(said, lacks_room),
            None => After::Nothing,
            Some(change) => {
                let claim = algorithm.claim(&change, cost, then + decision.delay());
                algorithm.apply(&mut state, change);
                After::Taken(state, claim, idle_at)
            }
        };
        let (plan, generation) = (known.or(plan).unwrap_or(0), self.generation);
        Some((said, Drawn { plan, generation, before, after, now }))
    }

    /// Takes a key in hand, if its state is still the one that was found.
    pub(crate) fn hold(&mut self, print: u64, drawn: &Drawn<A>) -> bool {
        if self.is_held(print) || self.generation != drawn.generation {
            return false;
        }
        let segment = &self.segments[self.segments.number_of(print)];
        let state = segment.find(print).map(|place| &segment.slot(place).state);
        let is_as_found = state == drawn.before.as_ref();
        if is_as_found {
            self.aside.held.push(print);
            self.way = Way::Closed;
        }
        is_as_found
    }

    pub(crate) fn let_go(&mut self, print: u64) {
        self.aside.held.retain(|held| *held != print);
        self.open_if_it_can_be();
    }

    /// Writes what was drawn, of a key that is held.
    pub(crate) fn commit(&mut self, common: &Common<A>, print: u64, drawn: Drawn<A>) -> Option<Receipt> {
        let Drawn { plan, before, after, now, .. } = drawn;
        let After::Taken(state, claim, idle_at) = after else {
            return None;
        };
        self.take_ahead(claim.act);
        let number = self.segments.number_of(print);
        if before.is_some() {
            let place = self.segments[number].find(print).expect("nobody moves a key that is held");
            *self.segments[number].state_mut(place) = state;
        } else {
            // Whether there is room was asked before: by now it cannot be refused any more.
            let _ = self.make_room(common, number, now);
            self.put_back(common, print, state, plan, idle_at);
        }
        self.count(common, now, true);
        let account = account(self.accounts.as_deref(), print);
        Some(Receipt { claim, plan, account, generation: self.generation })
    }
}
