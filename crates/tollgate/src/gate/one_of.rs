//! Members of two types in one vector.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::member::{AnyClock, Call, Id, Part, Reading, Settling, Share};
use super::tally::Tally;
use crate::timer::Timer;

/// One member or another, so that a vector can hold both.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OneOf<L, R> {
    /// The one.
    Left(L),
    /// The other.
    Right(R),
}

/// Runs `$body` with the member there is.
macro_rules! either {
    ($self:expr, $member:ident => $body:expr) => {
        match $self {
            OneOf::Left($member) => $body,
            OneOf::Right($member) => $body,
        }
    };
}

/// Runs `$body` with the member and what it made before.
macro_rules! with_own {
    ($self:expr, $made:expr, |$member:ident, $own:ident| $body:expr) => {
        match ($self, $made) {
            (OneOf::Left($member), OneOf::Left($own)) => $body,
            (OneOf::Right($member), OneOf::Right($own)) => $body,
            _ => unreachable!("what a member made comes back to the same member"),
        }
    };
}

/// Runs `$body` with the member there is, and keeps what it makes apart from what the other would have made.
macro_rules! make {
    ($self:expr, $member:ident => $body:expr) => {
        match $self {
            OneOf::Left($member) => OneOf::Left($body),
            OneOf::Right($member) => OneOf::Right($body),
        }
    };
}

impl<L: Part, R: Part> Part for OneOf<L, R> {
    type Plan = OneOf<L::Plan, R::Plan>;
    type Receipt = OneOf<L::Receipt, R::Receipt>;
    type Quick = OneOf<L::Quick, R::Quick>;
    type Sketch = OneOf<L::Sketch, R::Sketch>;

    fn len(&self) -> usize {
        either!(self, member => member.len())
    }

    fn reading(&self) -> Option<Reading<'_>> {
        either!(self, member => member.reading())
    }

    fn prepare(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan {
        make!(self, member => member.prepare(call, position, tally))
    }

    fn hold(&self, plan: &Self::Plan) -> bool {
        with_own!(self, plan, |member, plan| member.hold(plan))
    }

    fn let_go(&self, plan: &Self::Plan) {
        with_own!(self, plan, |member, plan| member.let_go(plan));
    }

    fn commit(&self, plan: Self::Plan) -> Self::Receipt {
        match (self, plan) {
            (Self::Left(member), OneOf::Left(plan)) => OneOf::Left(member.commit(plan)),
            (Self::Right(member), OneOf::Right(plan)) => OneOf::Right(member.commit(plan)),
            _ => unreachable!("what a member made comes back to the same member"),
        }
    }

    fn quick(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<Self::Quick> {
        Some(make!(self, member => member.quick(call, position, tally)?))
    }

    fn quick_hold(&self, quick: &Self::Quick) -> bool {
        with_own!(self, quick, |member, quick| member.quick_hold(quick))
    }

    fn quick_let_go(&self, quick: &Self::Quick) {
        with_own!(self, quick, |member, quick| member.quick_let_go(quick));
    }

    fn quick_commit(&self, quick: &Self::Quick) {
        with_own!(self, quick, |member, quick| member.quick_commit(quick));
    }

    fn promised(&self) {
        either!(self, member => member.promised());
    }

    fn is_watched(&self) -> bool {
        either!(self, member => member.is_watched())
    }

    fn admitted(&self, receipt: &Self::Receipt) {
        with_own!(self, receipt, |member, receipt| member.admitted(receipt));
    }

    fn refused(&self, plan: &Self::Plan, patience: Duration) {
        with_own!(self, plan, |member, plan| member.refused(plan, patience));
    }

    fn settle(&self, receipt: Self::Receipt, how: &mut Settling<'_>) {
        with_own!(self, receipt, |member, receipt| member.settle(receipt, how));
    }

    fn sketch(&self) -> Self::Sketch {
        make!(self, member => member.sketch())
    }

    fn foresee(
        &self,
        sketch: &mut Self::Sketch,
        call: &Call<'_>,
        position: usize,
        takes: bool,
        tally: &mut Tally<'_>,
    ) {
        with_own!(self, sketch, |member, sketch| member.foresee(sketch, call, position, takes, tally));
    }

    fn visit(&self, share: Share, see: &mut dyn FnMut(Id, Share)) {
        either!(self, member => member.visit(share, see));
    }

    fn watch(&self, waker: &Waker) {
        either!(self, member => member.watch(waker));
    }

    fn unwatch(&self, waker: &Waker) {
        either!(self, member => member.unwatch(waker));
    }

    fn clock(&self) -> Option<Box<dyn AnyClock>> {
        either!(self, member => member.clock())
    }

    fn timer(&self) -> Option<Arc<dyn Timer>> {
        either!(self, member => member.timer())
    }

    fn is_closed(&self) -> bool {
        either!(self, member => member.is_closed())
    }
}
