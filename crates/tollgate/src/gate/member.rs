//! What a gate is made of.
//!
//! A call goes through all members three times. *Prepare* reads and decides, and changes nothing; a call that is refused ends
//! here, so that refusals, however many, write nothing. *Hold* takes each member in hand, as long as it is still as it was
//! prepared; if one is not, the others are let go as they were and the call begins again. *Commit* writes them all. (By the
//! short way the last one is held and committed in one step: it is the one that all others were waiting for.) While
//! a member is in hand everybody who needs it waits, some tens of nanoseconds; so no caller ever sees a part of a call, and
//! there is nothing to undo.
//!
//! Nobody waits while it holds something: two gates with the same members in another order cannot stand in each other's
//! way for good.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tollgate_core::Tick;

use super::tally::Tally;
use crate::clock::Clock;
use crate::name::Which;
use crate::timer::Timer;

/// What can be part of a [`Gate`](super::Gate): limiters, concurrency limits, other gates, references to those, arrays and
/// vectors of them.
///
/// Only this crate implements it.
pub trait Member: Part {}

impl<P: Part> Member for P {}

/// Which limit: where its state is, and for a keyed one whose.
pub(crate) type Id = (usize, u64);

/// One reading of a clock.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    clock: &'a dyn Any,
    now: Tick,
}

impl<'a> Reading<'a> {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn of<C: Clock>(clock: &'a C) -> Self {
        Self { clock, now: clock.now() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Tick {
        self.now
    }
}

/// A clock of whatever type.
pub trait AnyClock: fmt::Debug + Send + Sync {
    /// The time now.
    fn time(&self) -> Tick;
}

impl<C: Clock> AnyClock for C {
    fn time(&self) -> Tick {
        self.now()
    }
}

/// How much a call takes of a limit: so many times what was asked for, and so much besides.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub(crate) times: u64,
    pub(crate) fixed: u64,
}

impl Share {
    pub(crate) const WHOLE: Self = Self { times: 1, fixed: 0 };

    #[inline]
    pub(crate) fn of(self, n: u64) -> u64 {
        self.times.saturating_mul(n).saturating_add(self.fixed)
    }
}

/// What a gate is asked.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub(crate) reading: Option<Reading<'a>>,
    pub(crate) n: u64,
    pub(crate) share: Share,
    /// For when, from now. Not zero only for promises.
    pub(crate) delay: Duration,
    /// Whether it is made ahead of those who wait.
    pub(crate) is_promise: bool,
    /// Whether whoever asks goes on waiting, so that a refusal denies it nothing.
    pub(crate) waits: bool,
    /// Set if the same limit occurs more than once.
    pub(crate) repeated: Option<&'a Repeated>,
}

impl Call<'_> {
    /// The time by this clock.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    pub(crate) fn now<C: Clock>(&self, clock: &C) -> Tick {
        match self.reading {
            Some(Reading { clock: other, now })
                if other.downcast_ref::<C>().is_some_and(|other| clock.is_same(other)) =>
            {
                now
            }
            _ => clock.now(),
        }
    }

    /// What to take of the limit at `position`; `None` if it was met before, and all of it is taken there.
    #[inline]
    pub(crate) fn share_of(&self, id: impl FnOnce() -> Id, position: usize) -> Option<Share> {
        match self.repeated {
            None => Some(self.share),
            Some(repeated) => repeated.share_of(id(), position),
        }
    }
}

/// The limits of a gate in which one occurs several times: each with all that is taken of it, where it is met first.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    limits: Vec<(Id, usize, Share)>,
}

impl Repeated {
    /// Whether one occurs several times. Asked at every refusal, so it is answered without a list as long as there are few.
    #[inline]
    pub(crate) fn is_any<P: Part>(members: &P) -> bool {
        const FEW: usize = 8;
        if members.len() > FEW {
            return Self::of(members).is_some();
        }
        let (mut known, mut count, mut is_any) = ([(0, 0); FEW], 0, false);
        members.visit(Share::WHOLE, &mut |id, _| {
            is_any |= known[..count].contains(&id);
            known[count] = id;
            count += 1;
        });
        is_any
    }

    /// `None` if all limits are different.
    pub(crate) fn of<P: Part>(members: &P) -> Option<Self> {
        let mut repeated = Self::default();
        let mut position = 0;
        members.visit(Share::WHOLE, &mut |id, share| {
            match repeated.limits.iter_mut().find(|(known, ..)| *known == id) {
                Some((_, _, sum)) => {
                    sum.times = sum.times.saturating_add(share.times);
                    sum.fixed = sum.fixed.saturating_add(share.fixed);
                }
                None => repeated.limits.push((id, position, share)),
            }
            position += 1;
        });
        (repeated.limits.len() < position).then_some(repeated)
    }

    fn share_of(&self, id: Id, position: usize) -> Option<Share> {
        self.limits.iter().find(|limit| limit.0 == id && limit.1 == position).map(|limit| limit.2)
    }
}

/// How a permit ends.
pub enum Settling<'a> {
    /// It was used, and cost what was asked for.
    Used,
    /// It was not used.
    Unused,
    /// It was used, and this is what the `n` really was.
    Actual(u64),
    /// It was used; what it cost each limit, of which it took the second argument.
    Each(&'a mut dyn FnMut(Which, u64) -> u64),
}

impl fmt::Debug for Settling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Used => f.write_str("Used"),
            Self::Unused => f.write_str("Unused"),
            Self::Actual(actual) => write!(f, "Actual({actual})"),
            Self::Each(_) => f.write_str("Each"),
        }
    }
}

impl Settling<'_> {
    pub(crate) fn is_unused(&self) -> bool {
        matches!(self, Self::Unused)
    }

    /// What it cost in the end.
    pub(crate) fn cost(&mut self, which: Which, share: Share, estimate: u64) -> u64 {
        match self {
            Self::Used => estimate,
            Self::Unused => 0,
            Self::Actual(actual) => share.of(*actual),
            Self::Each(actual) => actual(which, estimate),
        }
    }
}

/// A member as the gate sees it. Cloning one gives another handle on the same state.
pub trait Part: Clone {
    /// A decision that was not carried out.
    type Plan;
    /// What was taken.
    type Receipt;
    /// A decision by the short way.
    type Quick;
    /// A copy of the state, to look ahead with.
    type Sketch;

    /// How many limits it has.
    fn len(&self) -> usize;

    /// The time, by the first clock there is.
    fn reading(&self) -> Option<Reading<'_>>;

    /// Decides, tells the tally, and takes nothing.
    fn prepare(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Self::Plan;

    /// Takes the state in hand, if it is still the one that was prepared.
    fn hold(&self, plan: &Self::Plan) -> bool;

    /// Lets go of what was held; nothing has changed.
    fn let_go(&self, plan: &Self::Plan);

    /// Takes what was held.
    fn commit(&self, plan: Self::Plan) -> Self::Receipt;

    /// Decides by the short way, now and where the cost is one; tells the tally, and takes nothing. `None` if the long way
    /// must decide.
    fn quick(&self, call: &Call<'_>, position: usize, tally: &mut Tally<'_>) -> Option<Self::Quick>;

    /// [`hold`](Self::hold) for the short way.
    fn quick_hold(&self, quick: &Self::Quick) -> bool;

    /// [`let_go`](Self::let_go) for the short way.
    fn quick_let_go(&self, quick: &Self::Quick);

    /// [`commit`](Self::commit) for the short way.
    fn quick_commit(&self, quick: &Self::Quick);

    /// Holds and commits in one, for the last of the members: nobody else's state depends on whether it can be had.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a gate's decisions should stay in registers as a limiter's do")]
    fn quick_take(&self, quick: &Self::Quick) -> bool {
        let holds = self.quick_hold(quick);
        if holds {
            self.quick_commit(quick);
        }
        holds
    }

    /// After a promise was committed, with nothing held any more.
    fn promised(&self);

    /// Whether somebody must be told what is decided.
    fn is_watched(&self) -> bool;

    /// Reports what was committed, with nothing held any more.
    fn admitted(&self, receipt: &Self::Receipt);

    /// Counts and reports a call that the gate refused, if this one would not have admitted it by itself within `patience` either.
    fn refused(&self, plan: &Self::Plan, patience: Duration);

    /// Ends a permit.
    fn settle(&self, receipt: Self::Receipt, how: &mut Settling<'_>);

    /// The state as it will be when those who wait at the limits themselves have been served.
    fn sketch(&self) -> Self::Sketch;

    /// Decides on a sketch, and takes there if told to and admitted.
    fn foresee(
        &self,
        sketch: &mut Self::Sketch,
        call: &Call<'_>,
        position: usize,
        takes: bool,
        tally: &mut Tally<'_>,
    );

    /// Names every limit, in order, and what is taken of it.
    fn visit(&self, share: Share, see: &mut dyn FnMut(Id, Share));

    /// Tells `waker`, once, when something comes back other than by time.
    fn watch(&self, waker: &Waker);

    /// Forgets about `waker`.
    fn unwatch(&self, waker: &Waker);

    /// The first clock there is.
    fn clock(&self) -> Option<Box<dyn AnyClock>>;

    /// What wakes those who wait.
    fn timer(&self) -> Option<Arc<dyn Timer>>;

    /// Whether nobody may wait any more.
    fn is_closed(&self) -> bool;
}
