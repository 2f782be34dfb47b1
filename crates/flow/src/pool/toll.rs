//! Paying at a gate whose type nobody needs to know.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate::{Gate, Member, Permit, WaitError};

type Waiting<P> = Pin<Box<dyn Future<Output = Result<P, WaitError>> + Send>>;

/// A gate to pay at.
pub(super) trait Toll: Send + Sync {
    /// A place of its own for one who comes again and again. Who stands there and does not look takes nothing, and is in
    /// nobody's way.
    fn turnstile(&self) -> Box<dyn Pass>;

    /// Waits in line with everybody who calls this.
    fn pay(&self, cost: u64) -> Pin<Box<dyn Future<Output = Result<Paid, WaitError>> + Send + '_>>;
}

/// What was paid: used, unless it is taken back. Slots of concurrency limits are held until it is dropped.
pub(super) type Paid = Box<dyn Payment>;

pub(super) trait Payment: Send {
    /// It was not used.
    fn take_back(self: Box<Self>);
}

impl<M: Member> Payment for Permit<M>
where
    Permit<M>: Send,
{
    fn take_back(self: Box<Self>) {
        self.cancel();
    }
}

/// The members of a gate.
pub(super) struct Members<M> {
    members: M,
    gate: Gate<M>,
}

impl<M: Member> Members<M> {
    pub(super) fn new(members: M) -> Self {
        Self { gate: Gate::new(members.clone()), members }
    }
}

impl<M> Toll for Members<M>
where
    M: Member + Send + Sync + 'static,
    Permit<M>: Send,
{
    fn turnstile(&self) -> Box<dyn Pass> {
        Box::new(Turnstile::new(Gate::new(self.members.clone())))
    }

    fn pay(&self, cost: u64) -> Pin<Box<dyn Future<Output = Result<Paid, WaitError>> + Send + '_>> {
        Box::pin(async move { Ok(Box::new(self.gate.wait_n(cost).await?) as Paid) })
    }
}

/// A turnstile whose gate's type nobody needs to know.
pub(super) trait Pass: Send {
    /// Passes, or waits to be woken.
    fn poll_pass(&mut self, cost: u64, context: &mut Context<'_>) -> Poll<Result<Paid, WaitError>>;

    /// Stops waiting.
    fn leave(&mut self);
}

/// One who waits at a gate, as long as it looks.
pub(super) struct Turnstile<M: Member> {
    gate: Gate<M>,
    waiting: Option<(u64, Waiting<Permit<M>>)>,
}

impl<M> Turnstile<M>
where
    M: Member + Send + Sync + 'static,
    Permit<M>: Send,
{
    pub(super) fn new(gate: Gate<M>) -> Self {
        Self { gate, waiting: None }
    }

    /// Passes, or waits to be woken. Somebody who comes back with another cost begins anew.
    pub(super) fn poll_permit(
        &mut self,
        cost: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<Permit<M>, WaitError>> {
        self.waiting.take_if(|(waiting, _)| *waiting != cost);
        if self.waiting.is_none()
            && let Ok(permit) = self.gate.acquire_n(cost)
        {
            return Poll::Ready(Ok(permit));
        }
        let (_, waiting) = self.waiting.get_or_insert_with(|| {
            let gate = self.gate.clone();
            (cost, Box::pin(async move { gate.wait_n(cost).await }))
        });
        let permit = waiting.as_mut().poll(context);
        if permit.is_ready() {
            self.waiting = None;
        }
        permit
    }
}

impl<M: Member> Turnstile<M> {
    /// Stops waiting.
    pub(super) fn leave(&mut self) {
        self.waiting = None;
    }
}

impl<M> Pass for Turnstile<M>
where
    M: Member + Send + Sync + 'static,
    Permit<M>: Send,
{
    fn poll_pass(&mut self, cost: u64, context: &mut Context<'_>) -> Poll<Result<Paid, WaitError>> {
        self.poll_permit(cost, context).map_ok(|permit| Box::new(permit) as Paid)
    }

    fn leave(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for dyn Toll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Toll")
    }
}
