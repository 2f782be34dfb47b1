//! An account, call by call.

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

    fn begin(&mut self, why: Why, now: Tick) -> Option<Report> {
        self.number += 1;
        self.account.begin(why, self.number, now, &LEASES, &mut self.tally)
    }

    /// One that has borrowed so much.
    fn with(much: u64, sent: Tick) -> Self {
        let mut desk = Self::new();
        assert_eq!(desk.begin(Why::Short, at(0)), None, "nothing is known yet");
        desk.account.note(2, at(0));
        let report = desk.begin(Why::Short, at(0)).unwrap();
        desk.end(&report, sent, Some((much, false)));
        desk
    }

    fn end(&mut self, report: &Report, sent: Tick, lent: Option<(u64, bool)>) {
        let lent = lent.map(|(more, had)| Lent { more, had, seen: Seen::default() });
        self.account.end(report, sent, lent, &LEASES, &mut self.tally);
    }

    /// Asks for `asked` in `millis`, then for more, and gets it; tells how much that was.
    fn use_and_refill(&mut self, asked: u64, now: Tick) -> u64 {
        self.account.note(asked, now);
        let Some(report) = self.begin(Why::Short, now) else { return 0 };
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
    let report = desk.begin(Why::More, at(101)).unwrap();
    assert!(!desk.account.is_low(), "it is being asked for");
    assert_eq!((report.left, report.keep), (8, 8));
    desk.end(&report, at(101), None);
    assert!(desk.account.is_low(), "as nobody answered");
}

#[test]
fn what_is_not_spent_in_time_is_lost() {
    let mut desk = Desk::with(7, at(10));
    desk.account.expire(at(3_759), &mut desk.tally);
    assert_eq!(desk.account.left(), 7);
    desk.account.expire(at(3_760), &mut desk.tally);
    assert_eq!((desk.account.left(), desk.tally.lost), (0, 7));
}

#[test]
fn what_was_held_when_all_was_lost_does_not_come_back() {
    let mut desk = Desk::with(7, at(0));
    let losses = desk.account.hold(3).unwrap();
    assert_eq!((desk.account.out(), desk.account.left(), desk.account.hold(5)), (7, 4, None));
    desk.account.expire(at(4_000), &mut desk.tally);
    desk.account.let_go(3, losses, false, &mut desk.tally);
    assert_eq!((desk.account.out(), desk.tally.lost), (0, 7));
}

#[test]
fn a_refusal_counts_for_costs_that_are_not_smaller_and_until_it_is_over() {
    let mut account = Account::new(at(0));
    let deny = |wait_ns| Decision::new(Verdict::Deny, 10, 3, wait_ns, 70_000_000);
    account.refused(5, at(0), deny(8_000_000), Duration::from_millis(5));
    assert_eq!(account.refusal(4, at(0)), None);
    let refused = account.refusal(5, at(6)).unwrap();
    assert_eq!((refused.retry_after(), refused.remaining()), (Some(Duration::from_millis(2)), 3));
    assert_eq!(account.refusal(5, at(8)), None);
    account.refused(11, at(0), deny(u64::MAX), Duration::ZERO);
    assert!(account.refusal(11, at(19)).unwrap().is_never());
    assert_eq!(account.refusal(11, at(20)), None);
    account.refused(1, at(0), deny(2_000_000), Duration::from_millis(7));
    assert_eq!(account.refusal(1, at(3)).unwrap().retry_after(), Some(Duration::from_millis(4)));
    account.refused(1, at(0), deny(50_000_000), Duration::from_millis(90));
    assert_eq!(account.refusal(1, at(19)).unwrap().retry_after(), Some(Duration::from_millis(31)));
    assert_eq!(account.refusal(1, at(20)), None);
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
        let had = self.amount > 0 && report.left <= self.amount;
        *self = Self { number: report.number, amount: if had { report.keep } else { 0 } + more };
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
        // Redis has lost its data, and the node has not heard of it yet.
        let mut is_lost = false;
        for _ in 0..200 {
            now += rng.u64(..50);
            let cost = rng.u64(1..5);
            desk.account.expire(at(now), &mut desk.tally);
            match rng.u8(..6) {
                0 | 1 => {
                    if !desk.account.pay(cost, at(now), &mut desk.tally) {
                        desk.account.note(cost, at(now));
                    }
                }
                2 => holds.extend(desk.account.hold(cost).map(|losses| (cost, losses))),
                3 if !holds.is_empty() => {
                    let (cost, losses) = holds.swap_remove(rng.usize(..holds.len()));
                    desk.account.let_go(cost, losses, rng.bool(), &mut desk.tally);
                }
                4 if rng.u8(..8) == 0 => (record.amount, is_lost) = (0, true),
                _ => {
                    let why = [Why::Short, Why::More, Why::Return][rng.usize(..3)];
                    let Some(report) = desk.begin(why, at(now)) else { continue };
                    let arrives = rng.u8(..8) > 0;
                    let answer = arrives.then(|| record.hear(&report, rng.u64(..=report.want)));
                    let answer = answer.filter(|_| rng.u8(..8) > 0);
                    desk.account.pay(1, at(now), &mut desk.tally);
                    desk.end(&report, at(now), answer);
                    is_lost &= answer.is_none();
                }
            }
            let here = desk.account.out();
            assert!(is_lost || here <= record.amount, "seed {seed}: {here} of {}", record.amount);
            let Tally { lent, spent, returned, lost } = desk.tally;
            let held_and_lost: u64 = holds.iter().map(|(cost, _)| cost).sum::<u64>() - desk.account.held;
            let sum = spent + returned + lost + desk.account.out() + held_and_lost;
            assert_eq!(lent, sum, "seed {seed}: {:?}", desk.tally);
        }
    }
}
