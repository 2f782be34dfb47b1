//! What this node has of one state, and how much more it asks for: arithmetic only.
//!
//! Tokens are *left* to be spent, or *held* for a request that still has to ask Redis about another limit. What was spent
//! is told with the next call. While a call is under way, another is not begun.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tollgate::{Decision, Tick, Verdict};

use super::Leases;

/// The largest first lease: from there it at most doubles from call to call.
const FIRST: u64 = 4;
/// Fewer are not worth a lease, which must be given back if they are not used.
const WORTHWHILE: u64 = 2;
/// What will be used within this time is asked for before it is needed.
const AHEAD: Duration = Duration::from_millis(10);
/// How long a refusal is believed at most, so that not everybody who comes too often makes a call.
const REMEMBERED: Duration = Duration::from_millis(20);

/// What this node has of one state.
#[derive(Debug)]
pub(super) struct Account {
    left: u64,
    held: u64,
    /// From then on none of it may be spent.
    until: Tick,
    /// How often something was lost: what was held before a loss does not come back after it.
    losses: u64,
    /// What there was after the last call, and how little of it is a reason to ask for more.
    size: u64,
    low: u64,
    /// How much was asked for since the last call.
    asked: u64,
    /// When that was; `None` before the first one.
    called: Option<Tick>,
    /// When it was last asked for anything.
    used: Tick,
    is_calling: bool,
    /// Whether Redis refused what it was asked last.
    is_tight: bool,
    refusal: Option<Refusal>,
    seen: Seen,
}

/// How the state in Redis stood after the last call: what was left there and is not here, and when it would be fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset_ns: u64,
}

/// What Redis refused.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    cost: u64,
    until: Tick,
    /// `None` if no wait can help.
    retry: Option<Tick>,
}

/// Why Redis is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Something is asked for that is not here. What is left goes back, so that it counts for whoever asks.
    Short,
    /// To have more in time, or to have it for longer.
    More,
    /// It is not needed any more.
    Return,
}

/// What Redis is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) number: u64,
    pub(super) left: u64,
    pub(super) keep: u64,
    pub(super) want: u64,
    /// How much is used in [`AHEAD`].
    pub(super) pace: u64,
}

/// What Redis answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lent {
    pub(super) more: u64,
    /// Whether it still knew of what there was before.
    pub(super) had: bool,
    pub(super) seen: Seen,
}

/// What became of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) lent: u64,
    pub(super) spent: u64,
    pub(super) returned: u64,
    pub(super) lost: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.lent += other.lent;
        self.spent += other.spent;
        self.returned += other.returned;
        self.lost += other.lost;
    }
}

impl Account {
    pub(super) fn new(now: Tick) -> Self {
        Self {
            left: 0,
            held: 0,
            until: now,
            losses: 0,
            size: 0,
            low: 0,
            asked: 0,
            called: None,
            used: now,
            is_calling: false,
            is_tight: false,
            refusal: None,
            seen: Seen::default(),
        }
    }

    /// What is out on lease here.
    pub(super) fn out(&self) -> u64 {
        self.left + self.held
    }

    /// What can be spent or given back.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn is_calling(&self) -> bool {
        self.is_calling
    }

    /// Whether the call under way will probably answer others, too: there will be more, or none for anybody.
    pub(super) fn is_telling(&self) -> bool {
        self.is_calling && (self.size > 0 || self.is_tight)
    }

    /// Forgets what may not be spent any more.
    pub(super) fn expire(&mut self, now: Tick, tally: &mut Tally) {
        if now >= self.until && self.out() > 0 {
            self.lose(tally);
        }
    }

    fn lose(&mut self, tally: &mut Tally) {
        tally.lost += self.left;
        (self.left, self.held) = (0, 0);
        self.losses += 1;
    }

    /// Spends some if there is enough.
    pub(super) fn pay(&mut self, cost: u64, now: Tick, tally: &mut Tally) -> bool {
        let pays = self.left >= cost;
        if pays {
            self.left -= cost;
            tally.spent += cost;
            self.note(cost, now);
        }
        pays
    }

    /// Undoes [`pay`](Self::pay), before anything else is done.
    pub(super) fn unpay(&mut self, cost: u64, tally: &mut Tally) {
        self.left += cost;
        tally.spent -= cost;
        self.asked = self.asked.saturating_sub(cost);
    }

    /// Remembers that so much was asked for.
    pub(super) fn note(&mut self, cost: u64, now: Tick) {
        self.asked = self.asked.saturating_add(cost);
        self.used = now;
    }

    /// Keeps some for a request that is not decided yet, if there is enough. It is [let go](Self::let_go) with what this tells.
    pub(super) fn hold(&mut self, cost: u64) -> Option<u64> {
        self.left = self.left.checked_sub(cost)?;
        self.held += cost;
        Some(self.losses)
    }

    /// What was held is spent, or not.
    pub(super) fn let_go(&mut self, cost: u64, losses: u64, is_spent: bool, tally: &mut Tally) {
        let is_here = losses == self.losses;
        if is_here {
            self.held -= cost;
        }
        match (is_spent, is_here) {
            (true, _) => tally.spent += cost,
            (false, true) => self.left += cost,
            (false, false) => tally.lost += cost,
        }
    }

    /// The decision about something that was admitted here, as far as it is known.
    pub(super) fn decision(&self) -> Decision {
        let Seen { limit, remaining, reset_ns } = self.seen;
        Decision::new(Verdict::Allow, limit, remaining.saturating_add(self.left), 0, reset_ns)
    }

    /// The refusal that Redis would repeat.
    pub(super) fn refusal(&self, cost: u64, now: Tick) -> Option<Decision> {
        let refusal = self.refusal.filter(|refusal| cost >= refusal.cost && now < refusal.until)?;
        let wait = refusal.retry.map_or(u64::MAX, |retry| nanos(retry.since(now)).max(1));
        let Seen { limit, remaining, reset_ns } = self.seen;
        Some(Decision::new(Verdict::Deny, limit, remaining.saturating_add(self.left), wait, reset_ns))
    }

    /// Redis has refused something. It is not asked again before it said that it would admit it, nor before time has restored as
    /// much as takes it `spare`: that may lie there unused. But others may give back some: so not for long.
    pub(super) fn refused(&mut self, cost: u64, now: Tick, decision: Decision, spare: Duration) {
        let wait = decision.retry_after();
        let until = now + wait.unwrap_or(Duration::MAX).max(spare).min(REMEMBERED);
        self.refusal = Some(Refusal { cost, until, retry: wait.map(|wait| (now + wait).max(until)) });
        self.is_tight = true;
        let reset_ns = decision.reset_after().map_or(u64::MAX, nanos);
        self.seen = Seen { limit: decision.limit(), remaining: decision.remaining(), reset_ns };
    }

    /// Whether it is time to ask for more.
    pub(super) fn is_low(&self) -> bool {
        self.left <= self.low && self.low > 0 && !self.is_calling
    }

    /// Whether nobody has asked for anything for a while.
    pub(super) fn is_idle(&self, now: Tick, leases: &Leases) -> bool {
        now.since(self.used) >= leases.idle()
    }

    /// Whether what is left must be had for longer soon.
    pub(super) fn is_ending(&self, now: Tick, leases: &Leases) -> bool {
        self.left > 0 && self.until.since(now) < leases.time() / 2
    }

    /// Begins a call. `None` if there is nothing to report or to borrow: then a plain one will do.
    pub(super) fn begin(
        &mut self,
        why: Why,
        number: u64,
        now: Tick,
        leases: &Leases,
        tally: &mut Tally,
    ) -> Option<Report> {
        let (size, pace) = if why == Why::Return { (0, 0) } else { self.wish(now, leases) };
        let left = self.out();
        (self.asked, self.called) = (0, Some(now));
        if size == 0 && self.size == 0 {
            return None;
        }
        if why != Why::More {
            tally.returned += self.left; // until it turns out otherwise
            self.left = 0;
        }
        let keep = self.out();
        self.is_calling = true;
        Some(Report { number, left, keep, want: size.saturating_sub(keep), pace })
    }

    /// How much to have, and how much of it is used while a call is under way.
    fn wish(&self, now: Tick, leases: &Leases) -> (u64, u64) {
        let Some(called) = self.called else { return (0, 0) };
        let passed = now.since(called).as_nanos().max(1);
        let within = |span: Duration| {
            u64::try_from(u128::from(self.asked) * span.as_nanos() / passed).unwrap_or(u64::MAX)
        };
        let most = self.size.saturating_mul(2).max(FIRST).min(leases.most());
        let size = within(leases.horizon()).min(most);
        (if size < WORTHWHILE { 0 } else { size }, within(AHEAD))
    }

    /// A call has ended that was begun at `sent`. `None` if nobody knows what became of it.
    pub(super) fn end(
        &mut self,
        report: &Report,
        sent: Tick,
        lent: Option<Lent>,
        leases: &Leases,
        tally: &mut Tally,
    ) {
        self.is_calling = false;
        let given_back = report.left - report.keep;
        let is_kept = lent.is_some_and(|lent| lent.had) || report.left == 0;
        if !is_kept {
            tally.returned -= given_back;
            tally.lost += given_back;
        }
        let Some(lent) = lent else { return };
        if !is_kept {
            self.lose(tally);
        }
        self.is_tight = false;
        if lent.more > 0 {
            self.refusal = None;
        }
        tally.lent += lent.more;
        self.left += lent.more;
        self.size = report.keep + lent.more;
        self.low = report.pace.min(self.size / 2);
        self.until = sent + leases.spendable();
        self.seen = lent.seen;
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
