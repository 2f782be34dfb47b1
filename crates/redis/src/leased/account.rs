//! What this node has of one state, and how much more it asks for: arithmetic only.
//!
//! Tokens are *left* to be spent, or *held* for a request that still has to ask Redis about another limit. What was spent
//! is told with the next call. While a call is under way, another is not begun.

use std::time::Duration;

use tollgate::{Decision, Tick, Verdict};

use super::Leases;

/// The largest first lease: from there it at most doubles from call to call.
const FIRST: u64 = 4;
/// Fewer are not worth a lease, which must be given back if they are not used.
const WORTHWHILE: u64 = 2;
/// What will be used within this time is asked for before it is needed.
const AHEAD: Duration = Duration::from_millis(10);
/// How long a refusal is believed at most, so that not everybody who comes too often means a call.
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

    /// Whether there will probably be more in a moment.
    pub(super) fn is_filling(&self) -> bool {
        self.is_calling && self.size > 0
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

    /// Redis refused something that was asked at `sent`.
    pub(super) fn refused(&mut self, cost: u64, sent: Tick, decision: Decision) {
        let retry = decision.retry_after().map(|wait| sent + wait);
        let until = retry.unwrap_or(Tick::MAX).min(sent + REMEMBERED);
        self.refusal = Some(Refusal { cost, until, retry });
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

    /// Begins a call.
    pub(super) fn begin(
        &mut self,
        why: Why,
        number: u64,
        now: Tick,
        leases: &Leases,
        tally: &mut Tally,
    ) -> Report {
        let (size, pace) = if why == Why::Return { (0, 0) } else { self.wish(now, leases) };
        let left = self.out();
        if why != Why::More {
            tally.returned += self.left; // until it turns out otherwise
            self.left = 0;
        }
        let keep = self.out();
        (self.asked, self.called, self.is_calling) = (0, Some(now), true);
        Report { number, left, keep, want: size.saturating_sub(keep), pace }
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

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const LEASES: Leases = Leases::up_to(100); // for 4 s, of which 3.75 s are spent here, and meant to last 1 s

    fn at(millis: u64) -> Tick {
        Tick::ZERO + Duration::from_millis(millis)
    }

    /// An account, and what Redis would do.
    struct Desk {
        account: Account,
        tally: Tally,
        number: u64,
    }

    impl Desk {
        fn new() -> Self {
            Self { account: Account::new(at(0)), tally: Tally::default(), number: 0 }
        }

        fn begin(&mut self, why: Why, now: Tick) -> Report {
            self.number += 1;
            self.account.begin(why, self.number, now, &LEASES, &mut self.tally)
        }

        fn end(&mut self, report: &Report, sent: Tick, lent: Option<(u64, bool)>) {
            let lent = lent.map(|(more, had)| Lent { more, had, seen: Seen::default() });
            self.account.end(report, sent, lent, &LEASES, &mut self.tally);
        }

        /// Asks for `asked` in `millis`, then for more, and gets it; tells how much that was.
        fn use_and_refill(&mut self, asked: u64, now: Tick) -> u64 {
            self.account.note(asked, now);
            let report = self.begin(Why::Short, now);
            self.end(&report, now, Some((report.want, true)));
            report.want
        }
    }

    #[test]
    fn the_first_call_borrows_nothing_and_the_next_ones_what_is_used_in_a_second() {
        let mut desk = Desk::new();
        assert_eq!(desk.use_and_refill(1, at(0)), 0);
        assert_eq!(desk.use_and_refill(1, at(600)), 0, "one in 0.6 s is less than two in a second");
        assert_eq!(desk.use_and_refill(1, at(1_100)), 2, "one in half a second is two");
        assert_eq!(desk.use_and_refill(5, at(1_600)), 4, "ten, but a first lease is four");
        assert_eq!(desk.use_and_refill(50, at(2_100)), 8, "twice as much");
        assert_eq!(desk.use_and_refill(50, at(2_600)), 16);
        assert_eq!(desk.use_and_refill(10, at(3_600)), 10, "less when less is used");
        for _ in 0..4 {
            desk.use_and_refill(u64::MAX, at(3_600));
        }
        assert_eq!(desk.use_and_refill(u64::MAX, at(3_600)), 100, "and never more than is allowed");
    }

    #[test]
    fn more_is_asked_for_when_what_is_left_is_used_up_within_ten_milliseconds() {
        let mut desk = Desk::new();
        desk.account.size = 20;
        desk.use_and_refill(0, at(0));
        desk.account.size = 20;
        assert_eq!(desk.use_and_refill(80, at(100)), 40); // 0.8 a millisecond: 8 in ten
        let mut pay = |cost| desk.account.pay(cost, at(100), &mut desk.tally);
        assert!(pay(31));
        assert!(!desk.account.is_low(), "nine are left");
        assert!(desk.account.pay(1, at(100), &mut desk.tally) && desk.account.is_low());
        let report = desk.begin(Why::More, at(101));
        assert!(!desk.account.is_low(), "it is being asked for");
        assert_eq!((report.left, report.keep), (8, 8));
        desk.end(&report, at(101), None);
        assert!(desk.account.is_low(), "as nobody answered");
    }

    #[test]
    fn what_is_not_spent_in_time_is_lost() {
        let mut desk = Desk::new();
        let report = desk.begin(Why::Short, at(0));
        desk.end(&report, at(10), Some((7, false)));
        desk.account.expire(at(3_759), &mut desk.tally);
        assert_eq!(desk.account.left(), 7);
        desk.account.expire(at(3_760), &mut desk.tally);
        assert_eq!((desk.account.left(), desk.tally.lost), (0, 7));
    }

    #[test]
    fn what_was_held_when_all_was_lost_does_not_come_back() {
        let mut desk = Desk::new();
        let report = desk.begin(Why::Short, at(0));
        desk.end(&report, at(0), Some((7, false)));
        let losses = desk.account.hold(3).unwrap();
        assert_eq!((desk.account.out(), desk.account.left(), desk.account.hold(5)), (7, 4, None));
        desk.account.expire(at(4_000), &mut desk.tally);
        desk.account.let_go(3, losses, false, &mut desk.tally);
        assert_eq!((desk.account.out(), desk.tally.lost), (0, 7));
    }

    #[test]
    fn a_refusal_counts_for_costs_that_are_not_smaller_and_until_it_is_over() {
        let mut account = Account::new(at(0));
        account.refused(5, at(0), Decision::new(Verdict::Deny, 10, 3, 8_000_000, 70_000_000));
        assert_eq!(account.refusal(4, at(0)), None);
        let refused = account.refusal(5, at(6)).unwrap();
        assert_eq!((refused.retry_after(), refused.remaining()), (Some(Duration::from_millis(2)), 3));
        assert_eq!(account.refusal(5, at(8)), None);
        account.refused(11, at(0), Decision::new(Verdict::Deny, 10, 3, u64::MAX, 70_000_000));
        assert!(account.refusal(11, at(19)).unwrap().is_never());
        assert_eq!(account.refusal(11, at(20)), None);
    }

    /// What Redis keeps free for the node: see `lease.lua`.
    #[derive(Default)]
    struct Record {
        number: u64,
        amount: u64,
    }

    impl Record {
        fn hear(&mut self, report: &Report, more: u64) -> (u64, bool) {
            assert!(report.number > self.number && report.keep <= report.left);
            let (had, left) = (self.amount > 0, report.left.min(self.amount));
            *self = Self { number: report.number, amount: report.keep.min(left) + more };
            (more, had)
        }
    }

    /// Whatever is spent, held, asked, answered or lost on either way: Redis keeps free at least what is here.
    #[test]
    fn no_more_is_here_than_redis_knows_of_and_every_token_is_accounted_for() {
        for seed in 0..2_000 {
            let mut rng = Rng::with_seed(seed);
            let (mut desk, mut record, mut now) = (Desk::new(), Record::default(), 0);
            let mut holds: Vec<(u64, u64)> = Vec::new();
            for _ in 0..200 {
                now += rng.u64(..50);
                let cost = rng.u64(1..5);
                desk.account.expire(at(now), &mut desk.tally);
                match rng.u8(..6) {
                    0 | 1 => drop(desk.account.pay(cost, at(now), &mut desk.tally)),
                    2 => holds.extend(desk.account.hold(cost).map(|losses| (cost, losses))),
                    3 if !holds.is_empty() => {
                        let (cost, losses) = holds.swap_remove(rng.usize(..holds.len()));
                        desk.account.let_go(cost, losses, rng.bool(), &mut desk.tally);
                    }
                    4 if rng.u8(..8) == 0 => record.amount = 0, // Redis has lost its data, or the lease has ended
                    _ => {
                        let why = [Why::Short, Why::More, Why::Return][rng.usize(..3)];
                        let report = desk.begin(why, at(now));
                        let arrives = rng.u8(..8) > 0;
                        let answer = arrives.then(|| record.hear(&report, rng.u64(..=report.want)));
                        assert!(desk.account.pay(1, at(now), &mut desk.tally) || desk.account.left() == 0);
                        desk.end(&report, at(now), answer.filter(|_| rng.u8(..8) > 0));
                        if arrives {
                            let here = desk.account.out();
                            assert!(here <= record.amount, "seed {seed}: {here} of {}", record.amount);
                        }
                    }
                }
                let Tally { lent, spent, returned, lost } = desk.tally;
                let held_and_lost: u64 = holds.iter().map(|(cost, _)| cost).sum::<u64>() - desk.account.held;
                let sum = spent + returned + lost + desk.account.out() + held_and_lost;
                assert_eq!(lent, sum, "seed {seed}: {:?}", desk.tally);
            }
        }
    }
}
