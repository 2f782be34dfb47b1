//! What a call cost in the end.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use http::Response;
use smallvec::SmallVec;
use tollgate::store::Store;

use super::judge::{Held, Pass, Taken};
use super::rules::Rules;
use crate::body::Counter;
use crate::cost::Settle;
use crate::head::Reply;

/// What remains to be done when the answer is there.
pub(super) enum Closing<S: Store> {
    /// Nothing.
    Done,
    /// To wait until it is settled.
    Settle(Settling<S>),
    /// To count the body. How things stand is what was taken at first.
    Count(Counter),
}

pub(super) type Settling<S> = Pin<Box<dyn Future<Output = Box<Taken<S>>> + Send>>;

/// What each hit really cost.
struct Bill {
    costs: SmallVec<[u64; 2]>,
    /// Those that are counted by the body.
    by_body: SmallVec<[usize; 1]>,
    is_changed: bool,
}

impl<S: Store> Rules<S> {
    /// What remains to be done about what a call took: mostly nothing. Writes the fields if nothing can change them any more.
    #[inline]
    pub(super) fn close<R>(self: &Arc<Self>, pass: &mut Pass<S>, response: &mut Response<R>) -> Closing<S> {
        if let Pass::One { limit, decision } = pass {
            self.write_one(*limit as usize, *decision, response.headers_mut());
            return Closing::Done;
        }
        match mem::replace(pass, Pass::Free) {
            Pass::Several(taken) => self.close_several(taken, response),
            Pass::One { .. } | Pass::Free => Closing::Done,
        }
    }

    fn close_several<R>(self: &Arc<Self>, taken: Box<Taken<S>>, response: &mut Response<R>) -> Closing<S> {
        let (enforced, shadow) = {
            let reply = Reply::of(response);
            let shadow = taken.shadow.as_ref().map(|taken| self.bill(taken, &reply));
            (self.bill(&taken, &reply), shadow.unwrap_or_default())
        };
        let rules = Arc::clone(self);
        if !enforced.by_body.is_empty() || !shadow.by_body.is_empty() {
            self.write(&taken, response.headers_mut());
            return Closing::Count(Counter::new(move |bytes| {
                let (enforced, shadow) = (enforced.with_body(bytes), shadow.with_body(bytes));
                soon(async move { _ = rules.settle(taken, enforced, shadow).await });
            }));
        }
        if enforced.is_changed || shadow.is_changed {
            return Closing::Settle(Box::pin(async move { rules.settle(taken, enforced, shadow).await }));
        }
        self.write(&taken, response.headers_mut());
        Closing::Done
    }

    fn bill(&self, taken: &Taken<S>, reply: &Reply<'_>) -> Bill {
        let mut bill = Bill::default();
        if taken.held.is_none() {
            return bill;
        }
        for (index, want) in taken.wants.each().iter().enumerate() {
            let cost = match &self.entry(want).cost.settle {
                None => want.cost,
                Some(Settle::Reply(actual)) => actual(reply).unwrap_or(want.cost),
                Some(Settle::Body) => {
                    bill.by_body.push(index);
                    want.cost
                }
            };
            bill.is_changed |= cost != want.cost;
            bill.costs.push(cost);
        }
        bill
    }

    async fn settle(&self, mut taken: Box<Taken<S>>, enforced: Bill, shadow: Bill) -> Box<Taken<S>> {
        self.pay(&mut taken, &enforced).await;
        if let Some(taken) = &mut taken.shadow {
            self.pay(taken, &shadow).await;
        }
        taken
    }

    /// Settles, and notes how things stand then. What cannot be settled stays as it was taken.
    async fn pay(&self, taken: &mut Taken<S>, bill: &Bill) {
        if !bill.is_changed {
            return;
        }
        let answer = match taken.held.take() {
            None => return,
            Some(Held::Store(permit)) => self.desk.settle(permit, &taken.wants, &bill.costs).await,
            Some(Held::Local(permit)) => self.local().settle(permit, &taken.wants, &bill.costs).await,
        };
        match answer {
            Ok(answer) => taken.answer = answer,
            Err(error) => self.plan.observer.could_not_settle(&error),
        }
    }
}

impl Default for Bill {
    fn default() -> Self {
        Self { costs: SmallVec::new(), by_body: SmallVec::new(), is_changed: false }
    }
}

impl Bill {
    fn with_body(mut self, bytes: u64) -> Self {
        for &index in &self.by_body {
            self.is_changed |= self.costs[index] != bytes;
            self.costs[index] = bytes;
        }
        self
    }
}

/// Does it now if it can be done now, else in a task of its own: nobody waits for it.
fn soon(future: impl Future<Output = ()> + Send + 'static) {
    let mut future = Box::pin(future);
    if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        runtime.spawn(future);
    }
}
