//! What is decided about a call.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::Decision;
use tollgate::store::{Answer, MemoryPermit, Store, StoreError};
use tollgate_flow::Time;

use super::builder::Unavailable;
use super::denial::Reason;
use super::desk::Desk;
use super::rules::{Asked, Rules};
use super::wants::{Want, Wants};
use crate::observe::Outcome;

/// A decision, there or on its way.
pub(super) enum Judged<S: Store> {
    Now(Ruling<S>),
    Later(Judging<S>),
}

pub(super) type Judging<S> = Pin<Box<dyn Future<Output = Ruling<S>> + Send>>;

/// What is done with a call.
pub(super) enum Ruling<S: Store> {
    Pass(Pass<S>),
    Refuse(Box<Refusal>),
}

/// A call that passes, and what it took. It goes with the call, so what is frequent is small.
pub(super) enum Pass<S: Store> {
    /// Nothing that anybody is told of.
    Free,
    /// Of one limit with one quota.
    One {
        limit: u32,
        decision: Decision,
    },
    Several(Box<Taken<S>>),
}

pub(super) struct Taken<S: Store> {
    pub(super) wants: Wants,
    pub(super) answer: Answer,
    pub(super) held: Option<Held<S>>,
    /// What shadow limits gave, if it is to be settled.
    pub(super) shadow: Option<Box<Taken<S>>>,
    /// Whether something was decided without the store.
    pub(super) is_degraded: bool,
}

/// What can be settled.
pub(super) enum Held<S: Store> {
    Store(S::Permit),
    Local(MemoryPermit),
}

pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) wants: Wants,
    pub(super) answer: Option<Answer>,
    /// The limit that refuses whatever is left.
    pub(super) by: Option<usize>,
    /// Whether it was decided without the store.
    pub(super) is_degraded: bool,
}

/// What was said, and what is held of it.
struct Said<S: Store> {
    /// None if there was nobody to ask.
    answer: Option<(Answer, Option<Held<S>>)>,
    /// Whether something was decided without the store.
    is_degraded: bool,
}

impl<S: Store> Said<S> {
    fn by_store(answer: Option<(Answer, Option<Held<S>>)>) -> Self {
        Self { answer, is_degraded: false }
    }

    fn without_store(answer: Option<(Answer, Option<Held<S>>)>) -> Self {
        Self { answer, is_degraded: true }
    }
}

impl<S: Store> Rules<S> {
    /// Decides. Mostly the store answers at once, and nothing is left to be done; then there is no future to be kept.
    #[inline]
    pub(super) fn judge(self: &Arc<Self>, asked: Asked) -> Judged<S> {
        let is_plain = asked.refused.is_none() && asked.shadow.is_none() && !self.is_settled(&asked.enforced);
        if !is_plain {
            return self.judge_rest(asked, None);
        }
        if asked.enforced.is_empty() {
            return Judged::Now(Ruling::Pass(Pass::Free));
        }
        let answer = self.desk.take_now(&asked.enforced);
        self.judge_answered(asked, answer)
    }

    /// Goes on with what the store said at once, if it did, to a call that nothing will be settled of.
    pub(super) fn judge_answered(
        self: &Arc<Self>,
        mut asked: Asked,
        answer: Option<Result<Answer, StoreError>>,
    ) -> Judged<S> {
        match answer {
            Some(Ok(answer)) if answer.delay().is_zero() => {
                self.plan.observer.decided(&asked.watch);
                Judged::Now(match self.pass_one(&asked.enforced, &answer) {
                    Some(pass) => Ruling::Pass(pass),
                    None => self.ruling(&mut asked.enforced, Said::by_store(Some((answer, None))), true),
                })
            }
            answer => self.judge_rest(asked, answer),
        }
    }

    /// Decides what is not as plain; `answer` is what the store said already.
    #[inline(never)]
    fn judge_rest(self: &Arc<Self>, asked: Asked, answer: Option<Result<Answer, StoreError>>) -> Judged<S> {
        if let Some((reason, limit)) = asked.refused {
            if let Some(limit) = limit {
                self.plan.observer.count(self.name(limit), Outcome::Denied);
            }
            let wants = Wants::default();
            let refusal = Refusal { reason, wants, answer: None, by: limit, is_degraded: false };
            return Judged::Now(Ruling::Refuse(Box::new(refusal)));
        }
        at_once(Box::pin(Arc::clone(self).judge_later(asked, answer)))
    }

    /// Decides where it may take a while.
    async fn judge_later(
        self: Arc<Self>,
        asked: Asked,
        answer: Option<Result<Answer, StoreError>>,
    ) -> Ruling<S> {
        let Asked { mut enforced, shadow, watch, .. } = asked;
        let desk = self.desk.for_request();
        let said = self.take(&desk, &mut enforced, answer).await;
        self.plan.observer.decided(&watch);
        let said = match said {
            Ok(said) => said,
            Err(reason) => {
                let refusal = Refusal { reason, wants: enforced, answer: None, by: None, is_degraded: true };
                return Ruling::Refuse(Box::new(refusal));
            }
        };
        let delay = said.answer.as_ref().map_or(Duration::ZERO, |(answer, _)| answer.delay());
        let mut ruling = self.ruling(&mut enforced, said, shadow.is_none());
        if let (Ruling::Pass(pass), Some(shadow)) = (&mut ruling, shadow) {
            pass.add_shadow(self.take_shadow(&desk, *shadow).await);
        }
        if matches!(ruling, Ruling::Pass(_)) && !delay.is_zero() {
            self.plan.options.time.clone().unwrap_or_else(Time::tokio).sleep(delay).await;
        }
        ruling
    }

    /// What follows from what the store said; `is_all` if no shadow limit is to be asked, too.
    #[inline]
    fn ruling(&self, wants: &mut Wants, said: Said<S>, is_all: bool) -> Ruling<S> {
        let Said { answer, is_degraded } = said;
        let Some((answer, held)) = answer else {
            return Ruling::Pass(if is_degraded { Pass::unasked(is_degraded) } else { Pass::Free });
        };
        if is_all
            && held.is_none()
            && !is_degraded
            && let Some(pass) = self.pass_one(wants, &answer)
        {
            return Ruling::Pass(pass);
        }
        self.report(wants, &answer, Outcome::Denied);
        if !answer.is_admitted() {
            let (wants, answer) = (mem::take(wants), Some(answer));
            return Ruling::Refuse(Box::new(Refusal {
                reason: Reason::LimitReached,
                wants,
                answer,
                by: None,
                is_degraded,
            }));
        }
        let taken = Taken { wants: mem::take(wants), answer, held, shadow: None, is_degraded };
        Ruling::Pass(Pass::Several(Box::new(taken)))
    }

    /// The most frequent case: one limit with one quota admits.
    #[inline]
    fn pass_one(&self, wants: &Wants, answer: &Answer) -> Option<Pass<S>> {
        let ([want], [said]) = (wants.each(), answer.each()) else { return None };
        said.decision.is_admitted().then(|| self.pass(want.limit(), &said.decision))
    }

    /// Takes from the store, or does what is to be done if it cannot tell.
    async fn take(
        &self,
        desk: &Desk<S>,
        wants: &mut Wants,
        answer: Option<Result<Answer, StoreError>>,
    ) -> Result<Said<S>, Reason> {
        if wants.is_empty() {
            return Ok(Said::by_store(None));
        }
        let taken = match answer {
            Some(answer) => answer.map(|answer| (answer, None)),
            None => desk.take(wants, self.is_settled(wants)).await,
        };
        match taken {
            Ok((answer, permit)) => Ok(Said::by_store(Some((answer, permit.map(Held::Store))))),
            Err(error) => self.take_without_store(wants, &error).await,
        }
    }

    /// Each limit has its own way; one that closes decides for all. Afterwards `wants` is what was decided here.
    async fn take_without_store(&self, wants: &mut Wants, error: &StoreError) -> Result<Said<S>, Reason> {
        let does = |want: &Want, unavailable: Unavailable| self.entry(want).unavailable == unavailable;
        if wants.each().iter().any(|want| does(want, Unavailable::Closed)) {
            *wants = wants.only(|want| does(want, Unavailable::Closed));
            return Err(self.close_for(wants, error));
        }
        for want in wants.each().iter().filter(|want| does(want, Unavailable::Open)) {
            self.fail(want, error, Outcome::ErrorOpen);
        }
        *wants = wants.only(|want| does(want, Unavailable::Local));
        if wants.is_empty() {
            return Ok(Said::without_store(None));
        }
        let local = self.local();
        match local.take(wants, self.is_settled(wants)).await {
            Ok((answer, permit)) => {
                wants.each().iter().for_each(|want| self.fail(want, error, Outcome::ErrorLocal));
                Ok(Said::without_store(Some((answer, permit.map(Held::Local)))))
            }
            Err(error) => Err(self.close_for(wants, &error)),
        }
    }

    fn close_for(&self, wants: &Wants, error: &StoreError) -> Reason {
        wants.each().iter().for_each(|want| self.fail(want, error, Outcome::ErrorClosed));
        Reason::StoreUnavailable
    }

    /// What shadow limits say is only reported.
    async fn take_shadow(&self, desk: &Desk<S>, wants: Wants) -> Option<Taken<S>> {
        match desk.take(&wants, self.is_settled(&wants)).await {
            Ok((answer, permit)) => {
                self.report(&wants, &answer, Outcome::ShadowDenied);
                let held = Some(Held::Store(permit?));
                Some(Taken { wants, answer, held, shadow: None, is_degraded: false })
            }
            Err(error) => {
                wants.each().iter().for_each(|want| self.fail(want, &error, Outcome::ErrorOpen));
                None
            }
        }
    }

    #[inline]
    fn is_settled(&self, wants: &Wants) -> bool {
        wants.each().iter().any(|want| self.entry(want).cost.settle.is_some())
    }

    /// Tells whoever watches. A limit that would have admitted what others refused has nothing to tell.
    fn report(&self, wants: &Wants, answer: &Answer, refused: Outcome) {
        let is_admitted = answer.is_admitted();
        for (hit, want) in wants.each().iter().enumerate() {
            let refuses = !is_admitted && answer.of_hit(hit).iter().any(|said| !said.decision.is_admitted());
            if is_admitted || refuses {
                let outcome = if refuses { refused } else { Outcome::Allowed };
                self.plan.observer.count(&self.entry(want).name, outcome);
            }
            if is_admitted {
                let said = answer.of_hit(hit).iter().map(|said| &said.decision);
                self.plan.observer.count_near(&self.entry(want).name, said);
            }
        }
    }

    fn fail(&self, want: &Want, error: &StoreError, outcome: Outcome) {
        self.plan.observer.store_failed(error, outcome);
        self.plan.observer.count(&self.entry(want).name, outcome);
    }
}

impl<S: Store> Pass<S> {
    /// Of which nothing was asked.
    fn unasked(is_degraded: bool) -> Self {
        let (wants, answer) = (Wants::default(), Answer::new(Vec::new()));
        Self::Several(Box::new(Taken { wants, answer, held: None, shadow: None, is_degraded }))
    }

    fn add_shadow(&mut self, shadow: Option<Taken<S>>) {
        let Some(shadow) = shadow.map(Box::new) else { return };
        if !matches!(self, Self::Several(_)) {
            *self = Self::unasked(false);
        }
        if let Self::Several(taken) = self {
            taken.shadow = Some(shadow);
        }
    }
}

/// What is to be had without waiting is not waited for. If it is not, the waker comes with the first poll of whoever waits.
fn at_once<S: Store>(mut judging: Judging<S>) -> Judged<S> {
    match judging.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ruling) => Judged::Now(ruling),
        Poll::Pending => Judged::Later(judging),
    }
}
