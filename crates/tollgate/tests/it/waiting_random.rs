//! Random traffic through the queue, under a manual clock: nothing too much, nothing lost, nobody out of order.
//!
//! A failure names its seed; `TOLLGATE_SEED=n cargo test -p tollgate --test it waiting_random` runs that one alone.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{Clock, Limiter, ManualClock, Quota, TokenBucket, Wait};
use tollgate_sim::history::{Operation, largest_excess};

type Pending<'a> = Pin<Box<Wait<'a, TokenBucket, ManualClock>>>;

struct World<'a> {
    limiter: &'a Limiter<TokenBucket, ManualClock>,
    clock: &'a ManualClock,
    random: fastrand::Rng,
    line: VecDeque<(u64, Pending<'a>)>,
    tickets: u64,
    /// Who was served, and when.
    served: Vec<(u64, Operation)>,
}

impl<'a> World<'a> {
    fn new(limiter: &'a Limiter<TokenBucket, ManualClock>, seed: u64) -> Self {
        let (line, served) = (VecDeque::new(), Vec::new());
        let random = fastrand::Rng::with_seed(seed);
        Self { limiter, clock: limiter.clock(), random, line, tickets: 0, served }
    }

    fn arrive(&mut self, cost: u64) {
        self.tickets += 1;
        let mut wait = Box::pin(self.limiter.wait_n(cost));
        match poll(&mut wait) {
            Some(act_ns) => self.serve(self.tickets, act_ns, cost),
            None => self.line.push_back((self.tickets, wait)),
        }
    }

    fn serve(&mut self, ticket: u64, act_ns: u64, cost: u64) {
        self.served.push((ticket, Operation::at(act_ns, cost)));
    }

    /// Picks up whatever was granted, in order of arrival.
    fn collect(&mut self, cost: u64) {
        let mut waiting = VecDeque::new();
        while let Some((ticket, mut wait)) = self.line.pop_front() {
            match poll(&mut wait) {
                Some(act_ns) => self.serve(ticket, act_ns, cost),
                None => waiting.push_back((ticket, wait)),
            }
        }
        self.line = waiting;
    }

    fn drop_one(&mut self) {
        if !self.line.is_empty() {
            let index = self.random.usize(..self.line.len());
            self.line.remove(index);
        }
    }
}

fn poll(wait: &mut Pending<'_>) -> Option<u64> {
    match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome.expect("nothing here is refused").act_time().as_nanos()),
        Poll::Pending => None,
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("TOLLGATE_SEED") {
        Ok(seed) => vec![seed.parse().expect("TOLLGATE_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Within the bound, and in the order of arrival.
fn assert_fair(quota: Quota, mut served: Vec<(u64, Operation)>, seed: u64) {
    served.sort_unstable_by_key(|(ticket, _)| *ticket);
    for pair in served.windows(2) {
        assert!(pair[0].1.invoke_ns <= pair[1].1.invoke_ns, "seed {seed}: {pair:?} are out of order");
    }
    let kept: Vec<_> = served.into_iter().map(|(_, operation)| operation).collect();
    let worst = largest_excess(quota, &kept).expect("somebody was served");
    assert!(!worst.is_violation(), "seed {seed}: {quota}: {worst:?}");
}

/// Three in ten give up, at any moment: while waiting, or after the grant and before they saw it.
#[test]
fn nothing_is_lost_when_three_in_ten_give_up() {
    for seed in seeds(300) {
        let (rate, burst) = [(100, 1), (100, 10), (1_000, 7)][seed as usize % 3];
        let quota = Quota::per_second(rate).burst(burst);
        let limiter = Limiter::builder(quota).clock(ManualClock::new()).build();
        let mut world = World::new(&limiter, seed);
        let interval = Duration::from_nanos(1_000_000_000 / rate);
        for _ in 0..400 {
            while world.line.len() < 20 {
                world.arrive(1);
            }
            // Up to the next grant and not beyond: a grant that is dropped later has been lost to time.
            let target = world.clock.now() + interval.mul_f64(world.random.f64());
            world.clock.advance_to(world.clock.next_due().map_or(target, |due| due.min(target)));
            for _ in 0..world.random.usize(..3) {
                if world.random.f64() < 0.3 {
                    world.drop_one(); // it may have been granted just now
                }
            }
            world.collect(1);
        }
        let (admitted, span) = (world.served.len() as u64, world.clock.now().as_nanos());
        // The line is never empty, so every token is used the moment it is there.
        let possible = burst + span * rate / 1_000_000_000;
        assert_eq!(admitted, possible, "seed {seed}: {quota} over {span} ns");
        assert_fair(quota, world.served, seed);
    }
}

/// Grants that come several at a time, because the alarm was late, and are dropped before they are seen.
#[test]
fn late_alarms_and_dropped_grants_break_no_bound() {
    for seed in seeds(300) {
        let quota = Quota::per_second(100).burst(10);
        let limiter = Limiter::builder(quota).clock(ManualClock::new()).build();
        let mut world = World::new(&limiter, seed);
        for _ in 0..300 {
            for _ in 0..world.random.usize(..8) {
                world.arrive(1);
            }
            let late = Duration::from_micros(world.random.u64(..60_000));
            world.clock.set(world.clock.now() + late); // rings nothing
            world.clock.advance(Duration::ZERO);
            for _ in 0..world.random.usize(..6) {
                world.drop_one();
            }
            if world.random.bool() {
                world.collect(1);
            }
        }
        world.collect(1);
        // Some were picked up later than granted; what counts is the moment of the grant.
        assert_fair(quota, world.served, seed);
    }
}

/// A line that never ends, and turns that lie unseen for up to many times as long as the bucket takes to fill, and are then dropped.
#[test]
fn turns_dropped_long_after_they_were_granted_break_no_bound() {
    let mut handed_on_late = 0;
    for seed in seeds(300) {
        let (rate, burst) = [(100, 4), (100, 10), (1_000, 50)][seed as usize % 3];
        let quota = Quota::per_second(rate).burst(burst);
        let limiter = Limiter::builder(quota).clock(ManualClock::new()).build();
        let mut world = World::new(&limiter, seed);
        for _ in 0..400 {
            while limiter.waiting() < 20 {
                world.arrive(1);
            }
            let span = Duration::from_nanos(1_000_000_000 / rate).mul_f64(3.0 * world.random.f64());
            if world.random.f64() < 0.05 {
                world.clock.set(world.clock.now() + span); // a late alarm
            }
            world.clock.advance(span);
            let waiting = limiter.waiting();
            for _ in 0..world.random.usize(..3) {
                let granted = world.line.len() - limiter.waiting();
                if granted > 0 {
                    let index = world.random.usize(..granted);
                    world.line.remove(index);
                }
            }
            handed_on_late += waiting - limiter.waiting();
            if world.random.f64() < 0.02 {
                world.collect(1);
            }
        }
        world.collect(1);
        assert_fair(quota, world.served, seed);
    }
    assert!(handed_on_late > 100, "{handed_on_late} turns were handed on");
}
