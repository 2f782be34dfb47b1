//! A key as a member of a gate.
//!
//! A gate takes several states in hand before it changes any of them (see `gate/member.rs`). A key that is in hand is noted
//! in its shard; whoever else wants it waits, and whoever wants another key of the shard goes the long way meanwhile.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tollgate_core::{Ask, Decision, Step, Tick};

use super::KeyedLimiter;
use super::shard::{Drawn, Query, Receipt};
use super::store::OwnLimiter;
use crate::cell::Held;
use crate::clock::Clock;
use crate::gate::{
    And, AnyClock, Call, Costing, Gate, Id, Member, Part, Reading, Settling, Share, Tally, pass_on,
    postponed, would_refuse,
};
use crate::name::Which;
use crate::sync::lock;
use crate::timer::Timer;

/// The limit of one key, as a member of a [`Gate`]: see [`KeyedLimiter::key`].
pub struct KeyOf<'a, K: ?Sized, A: Held, C: Clock> {
    limiter: &'a KeyedLimiter<K, A, C>,
    key: &'a K,
    print: u64,
}

impl<K: ?Sized, A: Held, C: Clock> Clone for KeyOf<'_, K, A, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, A: Held, C: Clock> Copy for KeyOf<'_, K, A, C> {}

impl<K: ?Sized, A: Held, C: Clock> std::fmt::Debug for KeyOf<'_, K, A, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyOf").field("limiter", self.limiter).finish_non_exhaustive()
    }
}

/// What a key is about to give.
#[derive(Debug)]
pub struct KeyPlan<A: Held> {
    drawn: Drawn<A>,
    told: Told,
    stub: Stub,
}

/// What a key gave.
#[derive(Debug)]
pub struct KeyReceipt {
    receipt: Option<Receipt>,
    told: Told,
    stub: Stub,
}

/// An admission that somebody must be told of. In a box, because few want to know, and plans are copied.
type Told = Option<Box<Decision>>;

/// What a receipt remembers of the call.
#[derive(Clone, Copy, Debug)]
struct Stub {
    which: Which,
    share: Share,
    cost: u64,
    /// Whether it was decided as of a later moment.
    is_postponed: bool,
}

/// In the table, or in the limiter that the key has of its own because somebody waits for it.
#[derive(Debug)]
pub enum Either<T, L> {
    /// In the table.
    Here(T),
    /// In a limiter of its own.
    InLine(L),
    /// The key occurs twice in the gate, and this is the second time.
    Met,
}

type LimiterPlan<A, C> = (OwnLimiter<A, C>, <OwnLimiter<A, C> as Part>::Plan, Box<Decision>);
type LimiterReceipt<A, C> = (OwnLimiter<A, C>, <OwnLimiter<A, C> as Part>::Receipt, Box<Decision>);

impl<'a, K: Hash + ?Sized, A: Held, C: Clock> KeyOf<'a, K, A, C> {
    pub(super) fn new(limiter: &'a KeyedLimiter<K, A, C>, key: &'a K) -> Self {
        Self { limiter, key, print: limiter.store.seed.print(key) }
    }

    /// This limit and another, which admit together or not at all: see [`Gate`].
    pub fn and<M: Member>(self, other: M) -> Gate<And<Self, M>> {
        Gate::new(And::new(self, other))
    }

    /// This limit, of which a [`Gate`] takes `cost` whatever else it is asked for.
    pub fn costing(self, cost: u64) -> Costing<Self> {
        Costing::new(self, cost)
    }

    fn id(&self) -> Id {
        (Arc::as_ptr(&self.limiter.store).addr(), self.print)
    }

    fn which(&self, position: usize) -> Which {
        Which::new(self.limiter.store.name, position)
    }

    /// The time of a call, as the states see it.
    fn now(&self, call: &Call<'_>) -> Tick {
        self.limiter.tick(call.now(self.limiter.clock()))
    }

    /// Decides for `call.delay` from now, as a limiter in a gate does. Also whether it was decided as of then.
    fn draw(&self, call: &Call<'_>, cost: u64) -> Result<(Decision, Drawn<A>, bool), OwnLimiter<A, C>> {
        let now = self.now(call);
        let at = |then, ask| {
            let decide = |algorithm: &A, state: &A::State, then| algorithm.decide(state, then, ask);
            self.limiter.draw(self.key, self.print, now, then, cost, decide)
        };
        if call.delay == Duration::ZERO {
            let (decision, drawn) = at(now, Ask::now(cost))?;
            return Ok((decision, drawn, false));
        }
        let (decision, drawn) = at(now, Ask::within(cost, call.delay))?;
        if !decision.is_admitted() || decision.delay() == call.delay {
            return Ok((decision, drawn, false));
        }
        let (decision, drawn) = at(now + call.delay, Ask::now(cost))?;
        Ok((postponed(decision, call.delay), drawn, true))
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> Part for KeyOf<'_, K, A, C> {
    type Plan = Either<KeyPlan<A>, LimiterPlan<A, C>>;
    type Receipt = Either<KeyReceipt, LimiterReceipt<A, C>>;
    /// There is no short way.
    type Quick = std::convert::Infallible;
    type Sketch = (A, A::State);

    fn len(&self) -> usize {
        1
    }

    fn reading(&self) -> Option<Reading<'_>> {
        Some(Reading::of(self.limiter.clock()))
    }

    fn prepare(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan {
        let Some(share) = call.share_of(|| self.id(), position) else {
            return Either::Met;
        };
        let (which, cost) = (self.which(position), share.of(call.n));
        match self.draw(call, cost) {
            Ok((decision, drawn, is_postponed)) => {
                tally.add(which, cost, decision);
                let is_told = decision.is_admitted() && self.is_watched();
                let told = is_told.then(|| Box::new(decision));
                Either::Here(KeyPlan { drawn, told, stub: Stub { which, share, cost, is_postponed } })
            }
            Err(limiter) => {
                let call = Call { share, repeated: None, ..*call };
                let mut own = Tally::default();
                let plan = limiter.prepare(&call, position, &mut own);
                let decision = own.decision().decision();
                tally.add(which, cost, decision);
                Either::InLine((limiter, plan, Box::new(decision)))
            }
        }
    }

    fn hold(&self, plan: &Self::Plan) -> bool {
        match plan {
            Either::Here(KeyPlan { drawn, .. }) => self.limiter.hold(self.print, drawn),
            Either::InLine((limiter, plan, _)) => limiter.hold(plan),
            Either::Met => true,
        }
    }

    fn let_go(&self, plan: &Self::Plan) {
        match plan {
            Either::Here(KeyPlan { drawn, .. }) => self.limiter.let_go(self.print, drawn),
            Either::InLine((limiter, plan, _)) => limiter.let_go(plan),
            Either::Met => {}
        }
    }

    fn commit(&self, plan: Self::Plan) -> Self::Receipt {
        match plan {
            Either::Here(KeyPlan { drawn, told, stub }) => {
                Either::Here(KeyReceipt { receipt: self.limiter.commit(self.print, drawn), told, stub })
            }
            Either::InLine((limiter, plan, decision)) => {
                let receipt = limiter.commit(plan);
                self.limiter.store.shard(self.print).count_elsewhere(true);
                Either::InLine((limiter, receipt, decision))
            }
            Either::Met => Either::Met,
        }
    }

    fn quick(&self, _call: &Call<'_>, _position: usize, _tally: &mut Tally<'_>) -> Option<Self::Quick> {
        None
    }

    fn quick_hold(&self, quick: &Self::Quick) -> bool {
        match *quick {}
    }

    fn quick_let_go(&self, quick: &Self::Quick) {
        match *quick {}
    }

    fn quick_commit(&self, quick: &Self::Quick) {
        match *quick {}
    }

    fn promised(&self) {
        if let Some(limiter) = self.limiter.own_limiter(self.print) {
            limiter.promised();
        }
    }

    fn is_watched(&self) -> bool {
        self.limiter.store.watch.is_some()
    }

    fn admitted(&self, receipt: &Self::Receipt) {
        let told = match receipt {
            Either::Here(KeyReceipt { told, .. }) => told.as_ref(),
            Either::InLine((_, _, decision)) => Some(decision),
            Either::Met => None,
        };
        if let Some(decision) = told {
            self.limiter.tell(self.key, decision);
        }
    }

    #[cold]
    #[inline(never)]
    fn refused(&self, plan: &Self::Plan, patience: Duration) {
        let refusal = match plan {
            Either::Here(KeyPlan { drawn, .. }) => drawn.refusal(),
            Either::InLine((_, _, decision)) => Some((&**decision, false)),
            Either::Met => None,
        };
        let refusal = refusal.filter(|(decision, _)| would_refuse(decision, patience));
        if let Some((decision, lacks_room)) = refusal {
            self.limiter.store.shard(self.print).refused_elsewhere(lacks_room);
            self.limiter.tell(self.key, decision);
        }
    }

    fn settle(&self, receipt: Self::Receipt, how: &mut Settling<'_>) {
        let KeyReceipt { receipt, stub, .. } = match receipt {
            Either::Here(receipt) => receipt,
            Either::InLine((limiter, receipt, _)) => return limiter.settle(receipt, how),
            Either::Met => return,
        };
        let Stub { which, share, cost, is_postponed } = stub;
        let actual = how.cost(which, share, cost);
        if actual == cost {
            return; // most are, and need not know the time
        }
        let now = self.limiter.now();
        match receipt {
            Some(receipt) if actual < cost => {
                let is_early = is_postponed && self.limiter.tick(now) < receipt.claim.act;
                if !is_early || self.limiter.can_return_early() {
                    self.limiter.give_back(self.print, receipt, cost - actual, None);
                }
            }
            // By the key and not by the receipt: if it was dropped meanwhile, it may have another plan by now.
            _ if actual > cost && (receipt.is_some() || cost == 0) => {
                self.limiter.charge_at(self.key, actual - cost, now);
            }
            _ => {} // nothing is counted because nothing is limited
        }
    }

    fn sketch(&self) -> Self::Sketch {
        match self.limiter.own_limiter(self.print) {
            Some(limiter) => limiter.sketch(),
            None => self.limiter.look(self.key, self.print),
        }
    }

    fn foresee(
        &self,
        (algorithm, state): &mut Self::Sketch,
        call: &Call<'_>,
        position: usize,
        takes: bool,
        tally: &mut Tally<'_>,
    ) {
        let Some(share) = call.share_of(|| self.id(), position) else {
            return;
        };
        let (at, cost) = (self.now(call) + call.delay, share.of(call.n));
        let Step { change, decision } = algorithm.decide(state, at, Ask::now(cost));
        tally.add(self.which(position), cost, decision);
        if let Some(change) = change.filter(|_| takes) {
            algorithm.apply(state, change);
        }
    }

    fn visit(&self, share: Share, see: &mut dyn FnMut(Id, Share)) {
        see(self.id(), share);
    }

    fn watch(&self, waker: &Waker) {
        self.limiter.store.watchers.add(waker);
    }

    fn unwatch(&self, waker: &Waker) {
        self.limiter.store.watchers.remove(waker);
    }

    fn clock(&self) -> Option<Box<dyn AnyClock>> {
        Some(Box::new(self.limiter.clock().clone()))
    }

    fn timer(&self) -> Option<Arc<dyn Timer>> {
        Some(self.limiter.store.lines.timer())
    }

    fn is_closed(&self) -> bool {
        self.limiter.is_closed()
    }
}

/// The limit of one key, as a member of a [`Gate`] that borrows nothing: see [`KeyedLimiter::owned_key`].
pub struct OwnedKeyOf<Q, K: ?Sized, A: Held, C: Clock> {
    limiter: KeyedLimiter<K, A, C>,
    key: Q,
    print: u64,
}

impl<Q: Borrow<K>, K: Hash + ?Sized, A: Held, C: Clock> OwnedKeyOf<Q, K, A, C> {
    /// This limit and another, which admit together or not at all: see [`Gate`].
    pub fn and<M: Member>(self, other: M) -> Gate<And<Self, M>>
    where
        Q: Clone,
    {
        Gate::new(And::new(self, other))
    }

    /// This limit, of which a [`Gate`] takes `cost` whatever else it is asked for.
    pub fn costing(self, cost: u64) -> Costing<Self> {
        Costing::new(self, cost)
    }

    fn borrowed(&self) -> KeyOf<'_, K, A, C> {
        KeyOf { limiter: &self.limiter, key: self.key.borrow(), print: self.print }
    }
}

impl<Q: Clone, K: ?Sized, A: Held, C: Clock> Clone for OwnedKeyOf<Q, K, A, C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), key: self.key.clone(), print: self.print }
    }
}

impl<Q, K: ?Sized, A: Held, C: Clock> std::fmt::Debug for OwnedKeyOf<Q, K, A, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedKeyOf").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

impl<Q: Borrow<K> + Clone, K: Hash + ?Sized, A: Held, C: Clock> Part for OwnedKeyOf<Q, K, A, C> {
    type Plan = Either<KeyPlan<A>, LimiterPlan<A, C>>;
    type Receipt = Either<KeyReceipt, LimiterReceipt<A, C>>;
    type Quick = std::convert::Infallible;
    type Sketch = (A, A::State);

    fn reading(&self) -> Option<Reading<'_>> {
        Some(Reading::of(self.limiter.clock()))
    }

    pass_on!(|this| this.borrowed();
        len() -> usize;
        prepare(call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan;
        hold(plan: &Self::Plan) -> bool;
        let_go(plan: &Self::Plan);
        commit(plan: Self::Plan) -> Self::Receipt;
        quick(call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<Self::Quick>;
        quick_hold(quick: &Self::Quick) -> bool;
        quick_let_go(quick: &Self::Quick);
        quick_commit(quick: &Self::Quick);
        promised();
        is_watched() -> bool;
        admitted(receipt: &Self::Receipt);
        refused(plan: &Self::Plan, patience: Duration);
        settle(receipt: Self::Receipt, how: &mut Settling<'_>);
        sketch() -> Self::Sketch;
        foresee(sketch: &mut Self::Sketch, call: &Call<'_>, position: usize, takes: bool, tally: &mut Tally<'_>);
        visit(share: Share, see: &mut dyn FnMut(Id, Share));
        watch(waker: &Waker);
        unwatch(waker: &Waker);
        clock() -> Option<Box<dyn AnyClock>>;
        timer() -> Option<Arc<dyn Timer>>;
        is_closed() -> bool;
    );
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// The limit of one key, as a member of a [`Gate`]. Where there is no room for a new key it is refused there, with
    /// [`AtCap::Share`](crate::AtCap::Share) too.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, Limiter, Quota};
    ///
    /// let everybody = Limiter::new(Quota::per_hour(3));
    /// let each = KeyedLimiter::<str>::new(Quota::per_hour(2));
    /// let allow = |user| each.key(user).and(&everybody).allow();
    /// assert!(allow("alice") && allow("alice"));
    /// assert!(!allow("alice")); // and nothing was taken of what everybody shares:
    /// assert!(allow("bob"));
    /// assert!(!allow("carol"));
    /// ```
    pub fn key<'a>(&'a self, key: &'a K) -> KeyOf<'a, K, A, C> {
        KeyOf::new(self, key)
    }

    /// [`key`](Self::key), for gates and permits that outlive the borrow: in a future, in another thread.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gate, GateRefused, KeyedLimiter, Quota};
    ///
    /// let tokens = KeyedLimiter::<str>::new(Quota::per_hour(3_600).burst(1_000));
    /// let permit = Gate::new(tokens.owned_key("alice".to_owned())).acquire_n(400)?;
    /// let ended = std::thread::spawn(move || permit.settle(150));
    /// ended.join().unwrap();
    /// assert_eq!(tokens.peek_n("alice", 0).remaining(), 850);
    /// # Ok::<(), GateRefused>(())
    /// ```
    pub fn owned_key<Q: Borrow<K>>(&self, key: Q) -> OwnedKeyOf<Q, K, A, C> {
        let print = self.store.seed.print(key.borrow());
        OwnedKeyOf { limiter: self.clone(), key, print }
    }

    /// The limiter that a key has of its own while somebody waits for it.
    fn own_limiter(&self, print: u64) -> Option<OwnLimiter<A, C>> {
        let now = self.store.clock.now();
        self.store.own_limiter(&mut self.store.free_shard(print), print, now)
    }

    /// A copy of a key's algorithm and state.
    fn look(&self, key: &K, print: u64) -> (A, A::State) {
        let mut plan = self.store.common.plan_of_new();
        loop {
            let copy = self.store.free_shard(print).look(&self.store.common, print, plan);
            match copy {
                Some((algorithm, state, _)) => return (algorithm, state),
                None => plan = Some(self.store.plan(key)),
            }
        }
    }

    /// Decides as of `now`, which may be later than the `present`, and takes nothing; answers what taking it would write. If
    /// the key has a limiter of its own, that one must be asked.
    fn draw(
        &self,
        key: &K,
        print: u64,
        present: Tick,
        now: Tick,
        cost: u64,
        decide: impl Fn(&A, &A::State, Tick) -> Step<A::Change>,
    ) -> Result<(Decision, Drawn<A>), OwnLimiter<A, C>> {
        let common = &self.store.common;
        let mut plan = common.plan_of_new();
        loop {
            let drawn = self.store.on_shard(print, |shard| {
                // Who is idle by the time it is for still counts, so whatever is cleared up is as of the present.
                if let Some(limiter) = self.store.own_limiter(shard, print, present) {
                    return Err(limiter);
                }
                let query = Query { print, plan, now: present, ask: Ask::now(cost), is_patient: false };
                Ok(shard.draw(common, query, now, &decide))
            })?;
            match drawn {
                Some(drawn) => return Ok(drawn),
                None => plan = Some(self.store.plan(key)),
            }
        }
    }

    fn can_return_early(&self) -> bool {
        lock(&self.store.rest).algorithm.can_return_early()
    }

    fn hold(&self, print: u64, drawn: &Drawn<A>) -> bool {
        let mut shard = self.store.shard(print);
        // Not `own_limiter`: who holds other things already must not wait, and moving back may.
        !drawn.takes() || (!self.store.lines.has(print) && shard.hold(print, drawn))
    }

    fn let_go(&self, print: u64, drawn: &Drawn<A>) {
        if drawn.takes() {
            self.store.shard(print).let_go(print);
        }
    }

    fn commit(&self, print: u64, drawn: Drawn<A>) -> Option<Receipt> {
        let mut shard = self.store.shard(print);
        if !drawn.takes() {
            shard.count_elsewhere(true);
            return None;
        }
        let receipt = shard.commit(&self.store.common, print, drawn);
        shard.let_go(print);
        receipt
    }
}
