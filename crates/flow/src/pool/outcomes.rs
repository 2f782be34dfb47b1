//! The outcomes of a run, as they come.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::control::{Control, Course};
use super::crew::Crew;
use super::hub::{Run, State};
use super::outcome::{Outcome, Rest, Unfinished};
use super::source::Intake;
use super::unread::Unread;

/// The outcomes of a run: a [`Stream`], made by [`Pool::run`](super::Pool::run) and
/// [`Pool::run_stream`](super::Pool::run_stream). Reading them is what drives the run.
///
/// Jobs run on tasks of their own. But it is the reader who takes jobs from the source and starts them, when it polls: a
/// reader that stops reading soon stops the run, and memory stays bounded. When the outcomes end, every job that was taken from
/// the source has had its outcome, unless the run was [stopped](Control::stop).
///
/// Dropping it cancels everything.
#[must_use = "a run does nothing unless its outcomes are read"]
#[derive(Debug)]
pub struct Outcomes<J, V, S> {
    run: Arc<Run<J, V>>,
    intake: Intake<J, S>,
    crew: Crew<J, V>,
    unread: Unread<Outcome<J, V>>,
    /// How many outcomes were read since everything was looked after.
    reads: u32,
}

/// Nothing in it but the source could be pinned.
impl<J, V, S: Unpin> Unpin for Outcomes<J, V, S> {}

/// How many outcomes may be read before everything is looked after.
const READS: u32 = 16;

impl<J, V, S> Outcomes<J, V, S>
where
    J: Send + Sync + 'static,
    V: Send + 'static,
    S: Stream<Item = J> + Unpin,
{
    pub(super) fn new(
        run: Arc<Run<J, V>>,
        intake: Intake<J, S>,
        crew: Crew<J, V>,
        in_input_order: bool,
    ) -> Self {
        Self { run, intake, crew, unread: Unread::new(in_input_order), reads: 0 }
    }

    /// Steers the run from elsewhere.
    pub fn control(&self) -> Control {
        self.run.control()
    }

    /// The next outcome.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Outcome<J, V>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Stops the run at once and hands back everything that has not been read, did not finish or did not start, and the
    /// source. After the outcomes have ended it hands back what is left, which is nothing but the source if the run was not
    /// stopped.
    ///
    /// # Cancel safety
    /// Dropping the future drops everything that it would have handed back.
    pub async fn stop(mut self) -> Rest<J, V, S> {
        self.control().stop();
        let mut outcomes = Vec::new();
        while let Some(outcome) = self.next().await {
            outcomes.push(outcome);
        }
        let mut unfinished = std::mem::take(&mut self.run.state().unfinished);
        unfinished.sort_unstable_by_key(|left| left.position);
        Rest { outcomes, unfinished, source: self.intake.source }
    }

    /// Takes over what others have put away since the last time.
    fn take_over(&mut self) {
        let run = Arc::clone(&self.run);
        let mut state = run.state();
        if state.course == Course::Stop {
            self.crew.stop();
            self.intake.hand_over(&mut state);
            hand_back_queue(&mut state);
        }
        if self.unread.has_room() {
            self.unread.take_over(&mut state.done, |outcome| outcome.position);
        }
        drop(state);
        run.rules.metering.tell_limits(&run.rules.limit);
        self.crew.tidy();
    }

    /// Takes jobs from the source and starts them, as many as may be.
    fn work(&mut self, context: &mut Context<'_>) {
        loop {
            let may_have_more = self.pull(context);
            let has_started = self.crew.start(context);
            if !(may_have_more && has_started) {
                return;
            }
        }
    }

    /// Takes as many jobs from the source as there is room for; whether it may have more of them.
    fn pull(&mut self, context: &mut Context<'_>) -> bool {
        let room = self.room();
        let may_have_more = self.intake.pull(room, &self.run.time, context);
        self.intake.hand_over(&mut self.run.state());
        may_have_more
    }

    /// How many jobs may be taken.
    fn room(&self) -> usize {
        let rules = &self.run.rules;
        let state = self.run.state();
        if state.course > Course::Run || state.is_paused {
            return 0;
        }
        let queue = rules.queued.saturating_sub(state.queue.len());
        queue.min(self.unread.room(self.intake.taken(), rules.window()))
    }

    /// Whether there will be no more outcomes than there are.
    fn is_over(&self) -> bool {
        let state = self.run.state();
        let ends = self.intake.is_exhausted() || state.course > Course::Run;
        ends && state.running == 0 && state.queue.len() == 0 && state.done.is_empty()
    }

    /// Leaves a waker if there is nothing to do; whether that is so.
    fn rests(&self, context: &mut Context<'_>) -> bool {
        let mut state = self.run.state();
        state.tell();
        let rests = state.done.is_empty() && !self.run.is_stirred();
        if rests {
            state.wait(context.waker());
        }
        rests
    }
}

/// What was not started goes back.
fn hand_back_queue<J, V>(state: &mut State<J, V>) {
    let queue = state.queue.drain().into_iter();
    let queue = queue.map(|entry| Unfinished { job: entry.job, position: entry.position, attempts: 0 });
    state.unfinished.extend(queue);
}

impl<J, V, S> Stream for Outcomes<J, V, S>
where
    J: Send + Sync + 'static,
    V: Send + 'static,
    S: Stream<Item = J> + Unpin,
{
    type Item = Outcome<J, V>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Outcome<J, V>>> {
        let this = self.get_mut();
        if this.reads < READS
            && !this.run.is_stirred()
            && let Some(outcome) = this.unread.pop()
        {
            this.reads += 1;
            return Poll::Ready(Some(outcome));
        }
        this.reads = 0;
        // Jobs that are refused without being tried make no pause; others on this thread want to get on, too.
        let turn = ready!(tokio::task::coop::poll_proceed(context));
        loop {
            this.run.take_stir();
            this.take_over();
            this.work(context);
            if let Some(outcome) = this.unread.pop() {
                turn.made_progress();
                return Poll::Ready(Some(outcome));
            }
            if this.is_over() {
                return Poll::Ready(this.unread.pop_any());
            }
            if this.rests(context) {
                return Poll::Pending;
            }
        }
    }
}
