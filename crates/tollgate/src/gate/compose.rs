//! Members made of members: two together, one at a fixed cost, several by number, a whole gate.

use std::iter;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Gate;
use super::member::{AnyClock, Call, Id, Member, Part, Reading, Settling, Share};
use super::tally::Tally;
use crate::timer::Timer;

/// Two members together: see [`Gate`].
#[derive(Clone, Copy, Debug)]
pub struct And<L, R> {
    left: L,
    right: R,
}

impl<L, R> And<L, R> {
    #[inline]
    pub(crate) fn new(left: L, right: R) -> Self {
        Self { left, right }
    }
}

/// Members with their receipts, in order. Whatever panics while one is settled, a waker or what the caller says, the slots of the
/// others come back.
struct Unsettled<'a, M: Part + 'a, I: Iterator<Item = (&'a M, M::Receipt)>>(I);

impl<'a, M: Part, I: Iterator<Item = (&'a M, M::Receipt)>> Unsettled<'a, M, I> {
    fn settle(&mut self, how: &mut Settling<'_>) {
        for (member, receipt) in &mut self.0 {
            member.settle(receipt, how);
        }
    }
}

impl<'a, M: Part, I: Iterator<Item = (&'a M, M::Receipt)>> Drop for Unsettled<'a, M, I> {
    fn drop(&mut self) {
        self.settle(&mut Settling::Used);
    }
}

impl<L: Part, R: Part> Part for And<L, R> {
    type Plan = (L::Plan, R::Plan);
    type Receipt = (L::Receipt, R::Receipt);
    type Quick = (L::Quick, R::Quick);
    type Sketch = (L::Sketch, R::Sketch);

    #[inline]
    fn len(&self) -> usize {
        self.left.len() + self.right.len()
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn reading(&self) -> Option<Reading<'_>> {
        self.left.reading().or_else(|| self.right.reading())
    }

    #[inline]
    fn prepare(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan {
        let left = self.left.prepare(call, position, tally);
        (left, self.right.prepare(call, position + self.left.len(), tally))
    }

    #[inline]
    fn hold(&self, (left, right): &Self::Plan) -> bool {
        if !self.left.hold(left) {
            return false;
        }
        let holds = self.right.hold(right);
        if !holds {
            self.left.let_go(left);
        }
        holds
    }

    #[inline]
    fn let_go(&self, (left, right): &Self::Plan) {
        self.left.let_go(left);
        self.right.let_go(right);
    }

    #[inline]
    fn commit(&self, (left, right): Self::Plan) -> Self::Receipt {
        (self.left.commit(left), self.right.commit(right))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<Self::Quick> {
        let left = self.left.quick(call, position, tally)?;
        Some((left, self.right.quick(call, position + self.left.len(), tally)?))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_hold(&self, (left, right): &Self::Quick) -> bool {
        if !self.left.quick_hold(left) {
            return false;
        }
        let holds = self.right.quick_hold(right);
        if !holds {
            self.left.quick_let_go(left);
        }
        holds
    }

    #[inline]
    fn quick_let_go(&self, (left, right): &Self::Quick) {
        self.left.quick_let_go(left);
        self.right.quick_let_go(right);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_commit(&self, (left, right): &Self::Quick) {
        self.left.quick_commit(left);
        self.right.quick_commit(right);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_take(&self, (left, right): &Self::Quick) -> bool {
        if !self.left.quick_hold(left) {
            return false;
        }
        let taken = self.right.quick_take(right);
        if taken {
            self.left.quick_commit(left);
        } else {
            self.left.quick_let_go(left);
        }
        taken
    }

    fn promised(&self) {
        self.left.promised();
        self.right.promised();
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.left.is_watched() || self.right.is_watched()
    }

    #[inline]
    fn admitted(&self, (left, right): &Self::Receipt) {
        self.left.admitted(left);
        self.right.admitted(right);
    }

    #[inline]
    fn refused(&self, (left, right): &Self::Plan, patience: Duration) {
        self.left.refused(left, patience);
        self.right.refused(right, patience);
    }

    fn settle(&self, (left, right): Self::Receipt, how: &mut Settling<'_>) {
        let mut rest = Unsettled(iter::once((&self.right, right)));
        self.left.settle(left, how);
        rest.settle(how);
    }

    fn sketch(&self) -> Self::Sketch {
        (self.left.sketch(), self.right.sketch())
    }

    fn foresee(
        &self,
        (left, right): &mut Self::Sketch,
        call: &Call<'_>,
        position: usize,
        takes: bool,
        tally: &mut Tally<'_>,
    ) {
        self.left.foresee(left, call, position, takes, tally);
        self.right.foresee(right, call, position + self.left.len(), takes, tally);
    }

    fn visit(&self, share: Share, see: &mut dyn FnMut(Id, Share)) {
        self.left.visit(share, see);
        self.right.visit(share, see);
    }

    fn watch(&self, waker: &Waker) {
        self.left.watch(waker);
        self.right.watch(waker);
    }

    fn unwatch(&self, waker: &Waker) {
        self.left.unwatch(waker);
        self.right.unwatch(waker);
    }

    fn clock(&self) -> Option<Box<dyn AnyClock>> {
        self.left.clock().or_else(|| self.right.clock())
    }

    fn timer(&self) -> Option<Arc<dyn Timer>> {
        self.left.timer().or_else(|| self.right.timer())
    }

    fn is_closed(&self) -> bool {
        self.left.is_closed() || self.right.is_closed()
    }
}

/// A member of which a gate takes the same whatever else it is asked for: see [`Limiter::costing`](crate::Limiter::costing).
#[derive(Clone, Copy, Debug)]
pub struct Costing<M> {
    inner: M,
    cost: u64,
}

impl<M> Costing<M> {
    /// `inner` at a fixed cost: for a gate that owns its members, as one that a task takes along must.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Costing, Gate, Limiter, Quota};
    ///
    /// let [requests, bytes] = [1, 1_000].map(|count| Limiter::new(Quota::per_hour(count)));
    /// let gate = Gate::new(Costing::new(requests.clone(), 1)).and(bytes.clone());
    /// std::thread::spawn(move || assert!(gate.allow_n(700))).join().unwrap();
    /// assert_eq!((requests.remaining(), bytes.remaining()), (0, 300));
    /// ```
    #[inline]
    pub fn new(inner: M, cost: u64) -> Self {
        Self { inner, cost }
    }

    #[inline]
    fn share(&self) -> Share {
        Share { times: 0, fixed: self.cost }
    }
}

impl<M: Part> Costing<M> {
    /// This and another, which admit together or not at all.
    #[inline]
    pub fn and<N: Member>(self, other: N) -> Gate<And<Self, N>> {
        Gate::new(And::new(self, other))
    }
}

/// Passes on what is the same for a member inside another.
macro_rules! pass_on {
    (|$this:ident| $inner:expr; $($name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        $(#[inline(always)]
        #[allow(clippy::inline_always, reason = "passing on should cost nothing")]
        fn $name(&self, $($argument: $type),*) $(-> $answer)? {
            let $this = self;
            $inner.$name($($argument),*)
        })*
    };
}

pub(crate) use pass_on;

macro_rules! pass_on_most {
    (|$this:ident| $inner:expr) => {
        pass_on!(|$this| $inner;
            len() -> usize;
            reading() -> Option<Reading<'_>>;
            hold(plan: &Self::Plan) -> bool;
            let_go(plan: &Self::Plan);
            commit(plan: Self::Plan) -> Self::Receipt;
            quick_hold(quick: &Self::Quick) -> bool;
            quick_let_go(quick: &Self::Quick);
            quick_commit(quick: &Self::Quick);
            quick_take(quick: &Self::Quick) -> bool;
            promised();
            is_watched() -> bool;
            admitted(receipt: &Self::Receipt);
            refused(plan: &Self::Plan, patience: Duration);
            settle(receipt: Self::Receipt, how: &mut Settling<'_>);
            sketch() -> Self::Sketch;
            watch(waker: &Waker);
            unwatch(waker: &Waker);
            clock() -> Option<Box<dyn AnyClock>>;
            timer() -> Option<Arc<dyn Timer>>;
            is_closed() -> bool;
        );
    };
}

macro_rules! pass_on_all {
    (|$this:ident| $inner:expr) => {
        pass_on_most!(|$this| $inner);
        pass_on!(|$this| $inner;
            prepare(call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan;
            quick(call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<Self::Quick>;
            foresee(sketch: &mut Self::Sketch, call: &Call<'_>, position: usize, takes: bool, tally: &mut Tally<'_>);
            visit(share: Share, see: &mut dyn FnMut(Id, Share));
        );
    };
}

impl<M: Part> Part for Costing<M> {
    type Plan = M::Plan;
    type Receipt = M::Receipt;
    type Quick = M::Quick;
    type Sketch = M::Sketch;

    pass_on_most!(|this| this.inner);

    #[inline]
    fn prepare(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan {
        self.inner.prepare(&Call { share: self.share(), ..*call }, position, tally)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<Self::Quick> {
        self.inner.quick(&Call { share: self.share(), ..*call }, position, tally)
    }

    fn foresee(
        &self,
        sketch: &mut Self::Sketch,
        call: &Call<'_>,
        position: usize,
        takes: bool,
        tally: &mut Tally<'_>,
    ) {
        self.inner.foresee(sketch, &Call { share: self.share(), ..*call }, position, takes, tally);
    }

    fn visit(&self, _share: Share, see: &mut dyn FnMut(Id, Share)) {
        self.inner.visit(self.share(), see);
    }
}

impl<M: Part> Part for &M {
    type Plan = M::Plan;
    type Receipt = M::Receipt;
    type Quick = M::Quick;
    type Sketch = M::Sketch;

    pass_on_all!(|this| (**this));
}

impl<M: Part> Part for Gate<M> {
    type Plan = M::Plan;
    type Receipt = M::Receipt;
    type Quick = M::Quick;
    type Sketch = M::Sketch;

    pass_on_all!(|this| this.members);
}

/// Members by number: what arrays and vectors share.
macro_rules! several {
    ($plans:ty, $receipts:ty, $quicks:ty, $collect:expr, $nothing:expr) => {
        type Plan = $plans;
        type Receipt = $receipts;
        type Quick = $quicks;
        type Sketch = Vec<M::Sketch>;

        fn len(&self) -> usize {
            self.iter().map(Part::len).sum()
        }

        #[inline(always)]
        #[allow(
            clippy::inline_always,
            reason = "a gate's decisions should stay in registers as a limiter's do"
        )]
        fn reading(&self) -> Option<Reading<'_>> {
            self.iter().find_map(Part::reading)
        }

        #[inline]
        fn prepare(&self, call: &Call<'_>, mut position: usize, tally: &mut Tally<'_>) -> Self::Plan {
            let one = |member: &M| {
                let plan = member.prepare(call, position, tally);
                position += member.len();
                plan
            };
            $collect(self, one)
        }

        #[inline]
        fn hold(&self, plans: &Self::Plan) -> bool {
            for (index, (member, plan)) in self.iter().zip(plans).enumerate() {
                if !member.hold(plan) {
                    self.iter().zip(plans).take(index).for_each(|(member, plan)| member.let_go(plan));
                    return false;
                }
            }
            true
        }

        fn let_go(&self, plans: &Self::Plan) {
            self.iter().zip(plans).for_each(|(member, plan)| member.let_go(plan));
        }

        #[inline]
        fn commit(&self, plans: Self::Plan) -> Self::Receipt {
            let mut plans = plans.into_iter();
            $collect(self, |member: &M| member.commit(plans.next().expect("one for each member")))
        }

        #[inline(always)]
        #[allow(
            clippy::inline_always,
            reason = "a gate's decisions should stay in registers as a limiter's do"
        )]
        fn quick(&self, call: &Call<'_>, mut position: usize, tally: &mut Tally<'_>) -> Option<Self::Quick> {
            let mut quicks: Self::Quick = $nothing(self);
            for (member, quick) in self.iter().zip(&mut quicks) {
                *quick = Some(member.quick(call, position, tally)?);
                position += member.len();
            }
            Some(quicks)
        }

        #[inline(always)]
        #[allow(
            clippy::inline_always,
            reason = "a gate's decisions should stay in registers as a limiter's do"
        )]
        fn quick_hold(&self, quicks: &Self::Quick) -> bool {
            for (index, (member, quick)) in self.iter().zip(quicks).enumerate() {
                if !quick.as_ref().is_some_and(|quick| member.quick_hold(quick)) {
                    for (member, quick) in self.iter().zip(quicks.iter().flatten()).take(index) {
                        member.quick_let_go(quick);
                    }
                    return false;
                }
            }
            true
        }

        fn quick_let_go(&self, quicks: &Self::Quick) {
            for (member, quick) in self.iter().zip(quicks.iter().flatten()) {
                member.quick_let_go(quick);
            }
        }

        #[inline(always)]
        #[allow(
            clippy::inline_always,
            reason = "a gate's decisions should stay in registers as a limiter's do"
        )]
        fn quick_commit(&self, quicks: &Self::Quick) {
            for (member, quick) in self.iter().zip(quicks.iter().flatten()) {
                member.quick_commit(quick);
            }
        }

        fn promised(&self) {
            self.iter().for_each(Part::promised);
        }

        #[inline]
        fn is_watched(&self) -> bool {
            self.iter().any(Part::is_watched)
        }

        #[inline]
        fn admitted(&self, receipts: &Self::Receipt) {
            self.iter().zip(receipts).for_each(|(member, receipt)| member.admitted(receipt));
        }

        #[inline]
        fn refused(&self, plans: &Self::Plan, patience: Duration) {
            self.iter().zip(plans).for_each(|(member, plan)| member.refused(plan, patience));
        }

        fn settle(&self, receipts: Self::Receipt, how: &mut Settling<'_>) {
            Unsettled(self.iter().zip(receipts)).settle(how);
        }

        fn sketch(&self) -> Self::Sketch {
            self.iter().map(Part::sketch).collect()
        }

        fn foresee(
            &self,
            sketches: &mut Self::Sketch,
            call: &Call<'_>,
            mut position: usize,
            takes: bool,
            tally: &mut Tally<'_>,
        ) {
            for (member, sketch) in self.iter().zip(sketches) {
                member.foresee(sketch, call, position, takes, tally);
                position += member.len();
            }
        }

        fn visit(&self, share: Share, see: &mut dyn FnMut(Id, Share)) {
            for member in self {
                member.visit(share, see);
            }
        }

        fn watch(&self, waker: &Waker) {
            for member in self {
                member.watch(waker);
            }
        }

        fn unwatch(&self, waker: &Waker) {
            for member in self {
                member.unwatch(waker);
            }
        }

        fn clock(&self) -> Option<Box<dyn AnyClock>> {
            self.iter().find_map(Part::clock)
        }

        fn timer(&self) -> Option<Arc<dyn Timer>> {
            self.iter().find_map(Part::timer)
        }

        fn is_closed(&self) -> bool {
            self.iter().any(Part::is_closed)
        }
    };
}

impl<M: Part, const N: usize> Part for [M; N] {
    several!([M::Plan; N], [M::Receipt; N], [Option<M::Quick>; N], in_array, |_| [const { None }; N]);
}

impl<M: Part> Part for Vec<M> {
    several!(Vec<M::Plan>, Vec<M::Receipt>, Vec<Option<M::Quick>>, in_vec, |members| in_vec(members, |_| {
        None
    }));
}

#[inline]
fn in_array<M, T, const N: usize>(members: &[M; N], mut one: impl FnMut(&M) -> T) -> [T; N] {
    std::array::from_fn(|index| one(&members[index]))
}

fn in_vec<M, T>(members: &[M], one: impl FnMut(&M) -> T) -> Vec<T> {
    members.iter().map(one).collect()
}
