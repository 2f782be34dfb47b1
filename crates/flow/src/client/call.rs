//! One call, from the first wait to the last answer.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Tick, WaitError};

use super::effort::Effort;
use super::errand::{Errand, Leave};
use super::error::NoAnswer;
use super::host::Host;
use super::manners::Manners;
use super::pass::Pass;
use super::verdict;
use super::wire::{BoxError, Wire};
use crate::retry::{Schedule, Transient, Why};
use crate::{Again, Elapsed, Ended, Finish, Hedge, Retry, Scope, Time};

/// One call.
pub(super) struct Call<W: Wire> {
    wire: W,
    route: Arc<Route>,
    scope: Scope,
    retry: Retry,
    schedule: Schedule,
    /// The request, as long as it may be needed again.
    template: Option<W::Request>,
    effort: Effort,
}

/// What all attempts of a call, and their copies, have in common.
struct Route {
    host: Arc<Host>,
    errand: Errand,
    time: Time,
    attempt_timeout: Option<Duration>,
}

/// What came of an attempt.
struct Landed<A> {
    outcome: Result<A, NoAnswer>,
    /// If it is a failure: whether trying again can help.
    again: Option<Again>,
}

/// A copy that did not win; nothing if it was not even sent.
struct Missed<A>(Option<Landed<A>>);

impl<W: Wire> Call<W> {
    pub(super) fn new(manners: &Manners, host: Arc<Host>, errand: Errand, wire: W) -> Self {
        let scope = errand.scope.clone().unwrap_or_else(|| Scope::new(manners.time.clone()));
        let scope = manners.deadline.map_or_else(|| scope.clone(), |span| scope.within(span));
        let (time, attempt_timeout) = (manners.time.clone(), manners.attempt_timeout);
        Self {
            wire,
            retry: host.retry.within(&scope),
            schedule: host.retry.schedule(),
            route: Arc::new(Route { host, errand, time, attempt_timeout }),
            scope,
            template: None,
            effort: Effort::default(),
        }
    }

    /// Makes the call.
    pub(super) async fn make(mut self, request: W::Request) -> Result<W::Answer, NoAnswer> {
        self.retry.deposit();
        self.template = Some(&request).filter(|_| self.route.errand.leave != Leave::Never).and_then(W::copy);
        let scope = self.scope.clone();
        let mut pass = scope.run(self.enter()).await.map_err(NoAnswer::Ended)??;
        let began = self.route.time.now();
        let mut landed = scope.run(self.attempt(&mut pass, request)).await.map_err(NoAnswer::Ended)?;
        while let Some((request, wait)) = self.next(&landed, began) {
            // What has landed is kept until there is something newer.
            let why = match scope.run(self.again(&mut pass, request, wait)).await {
                Ok(Ok(newer)) => {
                    landed = newer;
                    continue;
                }
                Ok(Err(why)) => why,
                Err(Ended::Cancelled) => return Err(NoAnswer::Ended(Ended::Cancelled)),
                Err(ended) => Why::Ended(ended),
            };
            self.effort.gave_up = Some(why);
            break;
        }
        landed.outcome.map(|mut answer| {
            W::extensions_mut(&mut answer).insert(self.effort);
            answer
        })
    }

    async fn enter(&mut self) -> Result<Pass, NoAnswer> {
        let start = self.route.time.now();
        let pass = Pass::enter(Arc::clone(&self.route.host), self.scope.left()).await;
        self.waited_since(start);
        pass.map_err(|error| self.no_turn(error))
    }

    /// Backs off, waits for a turn and tries again.
    async fn again(
        &mut self,
        pass: &mut Pass,
        request: W::Request,
        wait: Duration,
    ) -> Result<Landed<W::Answer>, Why> {
        let start = self.route.time.now();
        self.route.time.sleep(wait).await;
        let turn = pass.next(self.scope.left()).await;
        self.waited_since(start);
        turn.map_err(|error| match self.no_turn(error) {
            NoAnswer::Ended(ended) => Why::Ended(ended),
            _ => Why::Budget, // so many wait for another try that there is no place in line
        })?;
        Ok(self.attempt(pass, request).await)
    }

    async fn attempt(&mut self, pass: &mut Pass, request: W::Request) -> Landed<W::Answer> {
        self.effort.attempts = self.effort.attempts.saturating_add(1);
        let ready = self.wire.clone().ready().await;
        pass.use_turn();
        let host = Arc::clone(&self.route.host);
        match (ready, host.hedge.as_ref().filter(|_| self.route.errand.may_hedge())) {
            (Err(error), _) => self.route.failed(error, true),
            (Ok(ready), None) => self.route.exchange::<W>(ready, request).await,
            (Ok(ready), Some(hedge)) => self.hedged(hedge, ready, request).await,
        }
    }

    /// Sends a request, and copies of it as long as there is no answer.
    async fn hedged(&mut self, hedge: &Hedge, ready: W::Ready, request: W::Request) -> Landed<W::Answer> {
        let (route, wire) = (Arc::clone(&self.route), self.wire.clone());
        let (template, copies) = (&mut self.template, &mut self.effort.copies);
        let mut first = Some((ready, request));
        let call = move |()| {
            let (route, wire) = (Arc::clone(&route), wire.clone());
            let first = first.take();
            let extra = if first.is_none() { route.extra::<W>(template.as_ref()) } else { None };
            *copies += u32::from(extra.is_some());
            async move {
                let landed = match (first, extra) {
                    (Some((ready, request)), _) => route.exchange::<W>(ready, request).await,
                    (None, Some((pass, request))) => route.exchange_copy(wire, pass, request).await,
                    (None, None) => return Err(Missed(None)),
                };
                if landed.again.is_none() { Ok(landed) } else { Err(Missed(Some(landed))) }
            }
        };
        hedge.run(iter::repeat(()), call).await.unwrap_or_else(|failed| {
            let last = failed.errors.into_iter().filter_map(|Missed(landed)| landed).next_back();
            last.expect("the first copy has landed")
        })
    }

    /// The request for another attempt, and how long to wait before it. If there should have been one and is not, the effort
    /// tells why.
    fn next(&mut self, landed: &Landed<W::Answer>, began: Tick) -> Option<(W::Request, Duration)> {
        let again = landed.again?;
        let request = self.template.as_ref().and_then(W::copy);
        let again = if request.is_some() { again } else { Again::Never };
        let elapsed = self.route.time.now().since(began);
        let next = self.retry.failed(self.effort.attempts, elapsed, &Told(again), &mut self.schedule);
        match next {
            Ok(wait) => {
                self.log(landed, wait);
                request.map(|request| (request, wait))
            }
            Err(why) => {
                self.effort.gave_up = Some(why);
                None
            }
        }
    }

    fn log(&self, landed: &Landed<W::Answer>, wait: Duration) {
        let Errand { upstream, method, .. } = &self.route.errand;
        let attempt = self.effort.attempts;
        let status = landed.outcome.as_ref().ok().map(|answer| W::head(answer).0.as_u16());
        let error = landed.outcome.as_ref().err().map(tracing::field::display); // not its causes
        tracing::info!(target: "tollgate::client", upstream, %method, attempt, status, error, ?wait, "retrying");
    }

    fn waited_since(&mut self, start: Tick) {
        self.effort.waited = self.effort.waited.saturating_add(self.route.time.now().since(start));
    }

    fn no_turn(&self, error: WaitError) -> NoAnswer {
        match error {
            WaitError::TooLate { would_take: needed } => {
                NoAnswer::Ended(Ended::TooShort { needed, left: self.scope.left() })
            }
            error => NoAnswer::NoTurn(error),
        }
    }
}

impl Route {
    /// Another copy, if there is a turn and a slot for it.
    fn extra<W: Wire>(&self, template: Option<&W::Request>) -> Option<(Pass, W::Request)> {
        let request = template.and_then(W::copy)?;
        Some((Pass::try_enter(Arc::clone(&self.host))?, request))
    }

    async fn exchange_copy<W: Wire>(
        &self,
        wire: W,
        mut pass: Pass,
        request: W::Request,
    ) -> Landed<W::Answer> {
        let ready = wire.ready().await;
        pass.use_turn();
        match ready {
            Ok(ready) => self.exchange::<W>(ready, request).await,
            Err(error) => self.failed(error, true),
        }
    }

    /// Sends a request, and learns from what comes of it.
    async fn exchange<W: Wire>(&self, ready: W::Ready, request: W::Request) -> Landed<W::Answer> {
        let (sent, started) = (self.host.feedback.sending(), self.time.now());
        let sending = W::send(ready, request);
        let result = match self.attempt_timeout {
            Some(span) => self.time.timeout(span, sending).await,
            None => Ok(sending.await),
        };
        let took = self.time.now().since(started);
        match result {
            Ok(Ok(answer)) => {
                let (status, headers) = W::head(&answer);
                let advice = self.host.read(&self.errand.upstream, sent, status, headers);
                self.host.slots.report(took, verdict::finish(status));
                let again = verdict::of_answer(self.errand.leave, status, &advice);
                Landed { outcome: Ok(answer), again }
            }
            Ok(Err(error)) => self.failed(error, false),
            Err(Elapsed) => {
                self.host.slots.report(took, Finish::Dropped);
                let again = verdict::of_silence(self.errand.leave, Again::Later, false);
                Landed { outcome: Err(NoAnswer::TimedOut), again: Some(again) }
            }
        }
    }

    fn failed<A>(&self, error: BoxError, is_unsent: bool) -> Landed<A> {
        let is_undone = is_unsent || verdict::is_unconnected(&*error);
        let again = verdict::of_silence(self.errand.leave, verdict::told(&*error), is_undone);
        Landed { outcome: Err(NoAnswer::Failed(error)), again: Some(again) }
    }
}

impl<A> Transient for Missed<A> {
    /// More copies are for what is slow, and not for what failed.
    fn again(&self) -> Again {
        Again::Never
    }
}

/// What is known about trying again.
struct Told(Again);

impl Transient for Told {
    fn again(&self) -> Again {
        self.0
    }
}
