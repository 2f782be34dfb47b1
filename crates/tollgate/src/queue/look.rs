//! What somebody would be told who came now.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Algorithm, Ask, Decision, Tick};

use super::{FORGIVEN, Queue, Shared, Tail};
use crate::cell::{Cell, Held};
use crate::clock::Clock;
use crate::sync::lock;
use crate::wait::Waiter;

/// What is there for whoever comes now.
struct Ahead<A: Algorithm> {
    algorithm: A,
    state: A::State,
    /// Whether nobody in line is left.
    is_all: bool,
}

impl<A: Held, C: Clock> Shared<A, C> {
    /// What [`slow_take`](Self::slow_take) would answer.
    #[cold]
    pub(crate) fn slow_peek(&self, now: Tick, ask: Ask) -> Decision {
        let mut queue = lock(&self.queue);
        let Ahead { algorithm, state, is_all } = self.with_those_due_served(&queue, now);
        if is_all || ask.patience() > Duration::ZERO {
            return algorithm.decide(&state, now, ask).decision;
        }
        self.behind_the_line(&mut queue, now, ask)
    }

    /// What [`check_the_long_way`](Self::check_the_long_way) would answer.
    #[cold]
    pub(crate) fn slow_peek_of_check(&self, now: Tick, cost: u64) -> Decision {
        let mut queue = lock(&self.queue);
        let Ahead { algorithm, state, is_all } = self.with_those_due_served(&queue, now);
        if is_all {
            return algorithm.decide(&state, now, Ask::within(cost, algorithm.patience())).decision;
        }
        self.behind_the_line(&mut queue, now, Ask::now(cost))
    }

    /// How things stand once those in line have been served whose turn it is.
    fn with_those_due_served(&self, queue: &Queue<A, C>, now: Tick) -> Ahead<A> {
        let (algorithm, mut state) = self.cell.snapshot();
        let is_in_time = |waiter: &&Arc<Waiter>| waiter.is_waiting() && now <= waiter.deadline + FORGIVEN;
        let is_due =
            |waiter: &Arc<Waiter>| algorithm.step(&mut state, now, Ask::now(waiter.cost)).is_allowed();
        let is_all = queue.line.iter().filter(is_in_time).all(is_due);
        Ahead { algorithm, state, is_all }
    }

    pub(super) fn behind_the_line(&self, queue: &mut Queue<A, C>, now: Tick, ask: Ask) -> Decision {
        let algorithm = self.project(queue, now);
        let tail = queue.tail.as_ref().expect("just projected");
        let decision = algorithm.decide(&tail.state, now, ask).decision;
        // Who stays though it may never be served leaves the tail as it is; nobody slips past it.
        if decision.is_admitted() && ask.cost() > 0 {
            Decision::refusal(decision.limit(), None)
        } else {
            decision
        }
    }

    /// A copy of the state as it will be when everybody in line has been served.
    pub(crate) fn sketch(&self, now: Tick) -> (A, A::State) {
        let mut queue = lock(&self.queue);
        let algorithm = self.project(&mut queue, now);
        let tail = if queue.waiting == 0 { queue.tail.take() } else { queue.tail.clone() };
        (algorithm, tail.expect("just projected").state)
    }

    /// Makes sure that the tail is known.
    pub(super) fn project(&self, queue: &mut Queue<A, C>, now: Tick) -> A {
        // Before the head is due the moment does not matter; after it, those in line take later than was foreseen.
        if queue.tail.as_ref().is_some_and(|tail| tail.at <= now && now < tail.until) {
            return self.cell.algorithm();
        }
        let (algorithm, mut state) = self.cell.snapshot();
        let mut until = None;
        for waiter in queue.line.iter().filter(|waiter| waiter.is_waiting()) {
            let decision = algorithm.step(&mut state, now, Ask::whenever(waiter.cost));
            until = until.or(Some(if decision.is_admitted() { now + decision.delay() } else { Tick::MAX }));
        }
        queue.tail = Some(Tail { state, at: now, until: until.unwrap_or(Tick::MAX) });
        algorithm
    }
}
