//! How many at once: a semaphore whose size can change.
//!
//! Everything that is decided without waiting is in one word: how many are in use, how many there are, and three marks.
//! *Waiting* says that somebody is in line, so that nobody may slip past; *watched* that a gate wants to hear of every slot
//! that comes back; *held* that a gate is just deciding, for which everybody waits a moment. Slots come back by subtracting
//! from the word, whatever the marks; whoever finds somebody waiting or watching then looks after them, under the lock.
//!
//! Those who line up set the mark first and look again then: either they see what came back, or who gave it back sees
//! the mark.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Decision, Tick, Verdict};

use crate::gate::{And, Costing, Gate, Member};
use crate::name::{Name, intern};
use crate::queue::{LONGEST_QUEUE, wake_all};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, give_way, lock};
use crate::wait::{Phase, WaitError, Waiter, block_on};

/// Limits how many happen at once.
///
/// At most [`limit`](Self::limit) slots are in use, except right after it was made smaller: then nobody gets one until
/// enough have come back. First come, first served, also for those who want many at a time. A limit of zero is a pause:
/// everybody waits until it grows. Clones share one state; nothing here needs a runtime.
///
/// Alone, or in a [`Gate`](crate::Gate) with limits of rate.
///
/// # Examples
/// ```
/// use tollgate::ConcurrencyLimit;
///
/// let limit = ConcurrencyLimit::new(2);
/// let (first, second) = (limit.try_acquire().unwrap(), limit.try_acquire().unwrap());
/// assert!(limit.try_acquire().is_none());
/// drop(first);
/// assert_eq!(limit.available(), 1);
/// # drop(second);
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let slot = limit.acquire().await?;
/// # drop(slot);
/// # Ok::<(), tollgate::WaitError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ConcurrencyLimit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    word: AtomicU64,
    name: Option<Name>,
    /// Not zero once it is closed.
    closed: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// In order of arrival. Those who gave up stay until they reach the head or are too many.
    line: VecDeque<Arc<Waiter<()>>>,
    /// How many of them still wait.
    waiting: usize,
    /// Whom to tell when slots come back and nobody is in line.
    watchers: Vec<Waker>,
}

/// What the word says.
#[derive(Clone, Copy)]
struct Word(u64);

const COUNT_BITS: u32 = 30;
const HELD: u64 = 1 << 60;
const WAITING: u64 = 1 << 61;
const WATCHED: u64 = 1 << 62;

impl Word {
    fn new(limit: u64) -> Self {
        Self(limit << COUNT_BITS)
    }

    fn in_use(self) -> u64 {
        self.0 & ConcurrencyLimit::MOST
    }

    fn limit(self) -> u64 {
        (self.0 >> COUNT_BITS) & ConcurrencyLimit::MOST
    }

    fn with_limit(self, limit: u64) -> Self {
        Self((self.0 & !(ConcurrencyLimit::MOST << COUNT_BITS)) | (limit << COUNT_BITS))
    }

    fn has(self, mark: u64) -> bool {
        self.0 & mark != 0
    }

    fn available(self) -> u64 {
        self.limit().saturating_sub(self.in_use())
    }

    /// Whether no release can ever make room for `n`.
    fn never_holds(self, n: u64) -> bool {
        self.limit() > 0 && n > self.limit()
    }
}

impl ConcurrencyLimit {
    /// The largest limit there can be; a larger one counts as this.
    pub const MOST: u64 = (1 << COUNT_BITS) - 1;

    /// A limit of `limit` at once.
    pub fn new(limit: u64) -> Self {
        Self::build(limit, None)
    }

    /// A limit with a name, by which a [`Gate`](crate::Gate) tells it from others.
    pub fn named(name: &str, limit: u64) -> Self {
        Self::build(limit, Some(intern(name)))
    }

    fn build(limit: u64, name: Option<Name>) -> Self {
        let word = AtomicU64::new(Word::new(limit.min(Self::MOST)).0);
        let (closed, queue) = (AtomicU64::new(0), Mutex::new(Queue::default()));
        Self { shared: Arc::new(Shared { word, name, closed, queue }) }
    }

    /// A slot, if one is free and nobody waits for it.
    #[inline]
    pub fn try_acquire(&self) -> Option<Slot<'_>> {
        self.try_acquire_n(1)
    }

    /// `n` slots, all of them or none.
    #[inline]
    pub fn try_acquire_n(&self, n: u64) -> Option<Slot<'_>> {
        self.shared.take(n, WAITING).then(|| Slot { limit: self, n })
    }

    /// Waits for a slot. A future; from a thread, [`block`](Acquire::block) on it.
    pub fn acquire(&self) -> Acquire<'_> {
        self.acquire_n(1)
    }

    /// Waits for `n` slots together. Those behind do not get past, so a large `n` does get its turn.
    pub fn acquire_n(&self, n: u64) -> Acquire<'_> {
        Acquire { limit: self, n, waiter: None }
    }

    /// How many there may be at once.
    pub fn limit(&self) -> u64 {
        self.shared.word().limit()
    }

    /// Changes the limit. Slots in use stay in use. Those who wait for more than there are now are refused, unless the
    /// limit is zero: that is a pause.
    pub fn set_limit(&self, limit: u64) {
        self.shared.set_limit(limit.min(Self::MOST));
    }

    /// How many are in use.
    pub fn in_use(&self) -> u64 {
        self.shared.word().in_use()
    }

    /// How many are free.
    pub fn available(&self) -> u64 {
        self.shared.word().available()
    }

    /// How many callers are waiting.
    pub fn waiting(&self) -> usize {
        lock(&self.shared.queue).waiting
    }

    /// Ends all waiting: everybody in line, and whoever comes to [`acquire`](Self::acquire) later, gets
    /// [`WaitError::Closed`]. Trying goes on as before.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire) != 0
    }

    /// This limit and another, which admit together or not at all: see [`Gate`].
    #[inline]
    pub fn and<M: Member>(&self, other: M) -> Gate<And<&Self, M>> {
        Gate::new(And::new(self, other))
    }

    /// This limit, of which a [`Gate`] takes `slots` whatever else it is asked for: mostly one.
    #[inline]
    pub fn costing(&self, slots: u64) -> Costing<&Self> {
        Costing::new(self, slots)
    }

    pub(crate) fn name(&self) -> Option<Name> {
        self.shared.name
    }

    /// Where its state is: what makes two handles the same limit.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// What asking for `n` would be answered. When a slot comes back nobody knows, so a refusal that time may mend says
    /// to come back at once.
    pub(crate) fn peek(&self, n: u64) -> Decision {
        let word = self.shared.settled_word();
        let (limit, available) = (word.limit(), word.available());
        if n == 0 || (n <= available && !word.has(WAITING)) {
            return Decision::new(Verdict::Allow, limit, available - n, 0, 0);
        }
        let wait_ns = if word.never_holds(n) { u64::MAX } else { 0 };
        Decision::new(Verdict::Deny, limit, available, wait_ns, 0)
    }

    /// Keeps everybody else from taking while a gate decides, if `n` are free.
    pub(crate) fn hold(&self, n: u64) -> bool {
        self.shared.update(|word| {
            let fits = n <= word.available() && !word.has(HELD | WAITING);
            fits.then_some(Word(word.0 | HELD))
        })
    }

    /// Takes what was held.
    pub(crate) fn commit(&self, n: u64) {
        self.shared.word.fetch_add(n.wrapping_sub(HELD), Ordering::AcqRel);
    }

    /// Lets others go on, as if nothing had been.
    pub(crate) fn let_go(&self) {
        self.shared.word.fetch_sub(HELD, Ordering::AcqRel);
    }

    /// Gives slots back.
    #[inline]
    pub(crate) fn give_back(&self, n: u64) {
        let before = Word(self.shared.word.fetch_sub(n, Ordering::AcqRel));
        if before.has(WAITING | WATCHED) {
            self.shared.stir();
        }
    }

    /// Forgets about `waker`.
    pub(crate) fn unwatch(&self, waker: &Waker) {
        lock(&self.shared.queue).watchers.retain(|known| !known.will_wake(waker));
    }

    /// Tells `waker`, once, when slots come back.
    pub(crate) fn watch(&self, waker: &Waker) {
        let mut queue = lock(&self.shared.queue);
        if !queue.watchers.iter().any(|known| known.will_wake(waker)) {
            queue.watchers.push(waker.clone());
        }
        self.shared.word.fetch_or(WATCHED, Ordering::AcqRel);
    }
}

impl Shared {
    #[inline]
    fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// The word when no gate is deciding.
    fn settled_word(&self) -> Word {
        for times in 0.. {
            let word = self.word();
            if !word.has(HELD) {
                return word;
            }
            give_way(times);
        }
        unreachable!("a gate lets go")
    }

    /// Changes the word to what `next` says; whether it said anything.
    #[inline]
    fn update(&self, next: impl Fn(Word) -> Option<Word>) -> bool {
        let mut word = self.word();
        while let Some(Word(next)) = next(word) {
            match self.word.compare_exchange_weak(word.0, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => word = Word(other),
            }
        }
        false
    }

    /// Takes `n` if they are free and none of the marks `unless` is set; whether it did.
    #[inline]
    fn take(&self, n: u64, unless: u64) -> bool {
        let mut word = self.word();
        loop {
            if word.has(HELD) {
                word = self.settled_word();
            }
            // One and the same word says whether it is held and whether there is room.
            if n > word.available() || word.has(unless) {
                return false;
            }
            let next = word.0 + n;
            match self.word.compare_exchange_weak(word.0, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => word = Word(other),
            }
        }
    }

    fn set_limit(&self, limit: u64) {
        let mut queue = lock(&self.queue);
        loop {
            self.settled_word();
            if self.update(|word| (!word.has(HELD)).then(|| word.with_limit(limit))) {
                break;
            }
        }
        let (mut wakers, word) = (Vec::new(), Word::new(limit));
        queue.line.retain(|waiter| {
            let stays = !word.never_holds(waiter.cost);
            if !stays && waiter.is_waiting() {
                wakers.extend(waiter.resolve(Phase::Refused(WaitError::Never { cost: waiter.cost, limit })));
            }
            stays
        });
        queue.waiting = queue.line.iter().filter(|waiter| waiter.is_waiting()).count();
        self.serve(queue, wakers);
    }

    fn line_up(&self, waiter: &Arc<Waiter<()>>) -> Result<(), WaitError> {
        let mut queue = lock(&self.queue);
        if self.closed.load(Ordering::Acquire) != 0 {
            return Err(WaitError::Closed);
        }
        if queue.waiting >= LONGEST_QUEUE {
            return Err(WaitError::Full { waiting: queue.waiting });
        }
        let word = self.word();
        if word.never_holds(waiter.cost) {
            return Err(WaitError::Never { cost: waiter.cost, limit: word.limit() });
        }
        queue.line.push_back(Arc::clone(waiter));
        queue.waiting += 1;
        self.word.fetch_or(WAITING, Ordering::AcqRel);
        self.serve(queue, Vec::new());
        Ok(())
    }

    /// Leaves the line, or hands on slots that nobody will use.
    fn leave(&self, waiter: &Waiter<()>) {
        let mut queue = lock(&self.queue);
        match waiter.take_phase() {
            Phase::Waiting(_) => {
                queue.waiting -= 1;
                if queue.line.len() > 2 * queue.waiting + 64 {
                    queue.line.retain(|other| other.is_waiting());
                }
            }
            Phase::Granted(()) => {
                self.word.fetch_sub(waiter.cost, Ordering::AcqRel);
            }
            Phase::Refused(_) | Phase::Gone => return,
        }
        self.serve(queue, Vec::new());
    }

    /// Looks after those who wait or watch.
    #[cold]
    fn stir(&self) {
        self.serve(lock(&self.queue), Vec::new());
    }

    /// Gives out what is free, in order; then those who watch are told. Everybody is woken without the lock.
    fn serve(&self, mut queue: MutexGuard<'_, Queue>, mut wakers: Vec<Waker>) {
        while let Some(head) = queue.line.front() {
            if head.is_waiting() {
                if !self.take(head.cost, 0) {
                    break;
                }
                wakers.extend(head.resolve(Phase::Granted(())));
                queue.waiting -= 1;
            }
            queue.line.pop_front();
        }
        if queue.line.is_empty() {
            self.word.fetch_and(!(WAITING | WATCHED), Ordering::AcqRel);
            wakers.append(&mut queue.watchers);
        }
        drop(queue);
        wake_all(wakers);
    }

    fn close(&self) {
        let mut queue = lock(&self.queue);
        self.closed.store(1, Ordering::Release);
        queue.waiting = 0;
        let line = std::mem::take(&mut queue.line);
        let waiting = line.iter().filter(|waiter| waiter.is_waiting());
        let wakers = waiting.filter_map(|waiter| waiter.resolve(Phase::Refused(WaitError::Closed))).collect();
        self.serve(queue, wakers);
    }
}

impl fmt::Debug for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("limit", &self.limit())
            .field("in_use", &self.in_use())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// Slots in use; dropping gives them back.
#[must_use = "a slot that is dropped is free again"]
#[derive(Debug)]
pub struct Slot<'a> {
    limit: &'a ConcurrencyLimit,
    n: u64,
}

impl Slot<'_> {
    /// How many.
    pub fn count(&self) -> u64 {
        self.n
    }

    /// The same slots, to be kept and passed around as one likes.
    ///
    /// # Examples
    /// ```
    /// use tollgate::ConcurrencyLimit;
    ///
    /// let limit = ConcurrencyLimit::new(1);
    /// let slot = limit.try_acquire().unwrap().into_owned();
    /// let worker = std::thread::spawn(move || drop(slot));
    /// worker.join().unwrap();
    /// assert_eq!(limit.in_use(), 0);
    /// ```
    pub fn into_owned(self) -> OwnedSlot {
        let (limit, n) = (self.limit.clone(), self.n);
        std::mem::forget(self); // the other one gives them back
        OwnedSlot { limit, n }
    }
}

impl Drop for Slot<'_> {
    #[inline]
    fn drop(&mut self) {
        self.limit.give_back(self.n);
    }
}

/// Slots in use, owned; dropping gives them back.
#[must_use = "a slot that is dropped is free again"]
#[derive(Debug)]
pub struct OwnedSlot {
    limit: ConcurrencyLimit,
    n: u64,
}

impl OwnedSlot {
    /// How many.
    pub fn count(&self) -> u64 {
        self.n
    }
}

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        self.limit.give_back(self.n);
    }
}

/// Slots to wait for: a future, or [`block`](Self::block) on it from a thread.
///
/// First come, first served. Nothing happens before the first poll.
///
/// # Cancel safety
/// Dropping it at any moment loses nothing: its place goes to those behind, and so do slots that were granted but not
/// yet seen.
#[must_use = "waiting does nothing unless it is awaited or blocked on"]
#[derive(Debug)]
pub struct Acquire<'a> {
    limit: &'a ConcurrencyLimit,
    n: u64,
    waiter: Option<Arc<Waiter<()>>>,
}

impl<'a> Acquire<'a> {
    /// Waits on this thread.
    ///
    /// # Errors
    /// As for the future: see [`WaitError`].
    pub fn block(self) -> Result<Slot<'a>, WaitError> {
        block_on(self)
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<Slot<'a>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (limit, n) = (self.limit, self.n);
        if self.waiter.is_none() {
            if limit.is_closed() {
                return Poll::Ready(Err(WaitError::Closed));
            }
            if let Some(slot) = limit.try_acquire_n(n) {
                return Poll::Ready(Ok(slot));
            }
            let waiter = Arc::new(Waiter::new(n, Tick::MAX, Tick::ZERO));
            limit.shared.line_up(&waiter)?;
            self.waiter = Some(waiter);
        }
        let waiter = self.waiter.as_ref().expect("in line since the first poll");
        match waiter.poll(context.waker()) {
            None => Poll::Pending,
            Some(outcome) => {
                self.waiter = None;
                Poll::Ready(outcome.map(|()| Slot { limit, n }))
            }
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.limit.shared.leave(&waiter);
        }
    }
}
