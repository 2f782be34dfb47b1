//! Leaving a store alone that does not answer.

use std::time::Duration;

use tollgate::Tick;

/// How many calls in a row must fail before the store is left alone, and for how long they must have. A part of a cluster may
/// be gone: then some fail, but never all for so long.
const ENOUGH: u32 = 5;
const LONG_ENOUGH: Duration = Duration::from_millis(50);
/// How long it is left alone at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// When so many calls at once have succeeded, it is as it was.
const ALL_WELL: u32 = 256;

/// Decides which calls are tried.
///
/// Closed, all are. After [`ENOUGH`] failures in a row it opens: none are, for a pause, which grows with every attempt that
/// fails. Then one is tried; with each that succeeds twice as many may be under way, so that a store that has just come back is
/// not run over by everybody at once, and half as many with each that fails.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Counts changes between closed, open and trying: what was begun before one says nothing about the time after it.
    epoch: u64,
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// How many failed in a row, and since when.
    Closed {
        failures: u32,
        since: Tick,
    },
    Open {
        until: Tick,
    },
    Trying {
        under_way: u32,
        most: u32,
    },
}

const CLOSED: State = State::Closed { failures: 0, since: Tick::ZERO };

/// A call that is tried, and when that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    epoch: u64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The store answered, be it that it cannot do that.
    Answered,
    /// It did not, or not in time.
    Failed,
    /// Nobody waited for it.
    Abandoned,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { state: CLOSED, epoch: 0, pause: FIRST_PAUSE }
    }

    /// Whether a call may be tried now.
    pub(super) fn attempt(&mut self, now: Tick) -> Option<Attempt> {
        match &mut self.state {
            State::Closed { .. } => {}
            State::Open { until } if now < *until => return None,
            State::Open { .. } => self.change(State::Trying { under_way: 1, most: 1 }),
            State::Trying { under_way, most } if *under_way < *most => *under_way += 1,
            State::Trying { .. } => return None,
        }
        Some(Attempt { epoch: self.epoch })
    }

    /// Tells how a call ended. `jitter`, from 0 to 1, keeps many processes from coming back at the same moment.
    pub(super) fn ended(&mut self, attempt: Attempt, end: End, now: Tick, jitter: f64) {
        if attempt.epoch != self.epoch {
            return;
        }
        match (&mut self.state, end) {
            (State::Closed { failures, .. }, End::Answered) => *failures = 0,
            (State::Closed { failures, since }, End::Failed) => {
                if *failures == 0 {
                    *since = now;
                }
                *failures = failures.saturating_add(1);
                if *failures >= ENOUGH && now.since(*since) >= LONG_ENOUGH {
                    self.pause = FIRST_PAUSE;
                    self.open(now, jitter);
                }
            }
            (State::Trying { under_way, most }, End::Failed) if *most > 1 => {
                (*under_way, *most) = (*under_way - 1, *most / 2);
            }
            (State::Trying { .. }, End::Failed) => {
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.open(now, jitter);
            }
            (State::Trying { under_way, most }, End::Answered) => {
                (*under_way, *most) = (*under_way - 1, *most * 2);
                if *most >= ALL_WELL {
                    self.change(CLOSED);
                }
            }
            (State::Trying { under_way, .. }, End::Abandoned) => *under_way -= 1,
            (State::Closed { .. }, End::Abandoned) | (State::Open { .. }, _) => {}
        }
    }

    /// From half of the pause to all of it.
    fn open(&mut self, now: Tick, jitter: f64) {
        let pause = self.pause.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        self.change(State::Open { until: now + pause });
    }

    fn change(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }

    /// Whether all calls are tried.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        BEFORE + Duration::from_millis(50 + millis)
    }

    /// 50 ms before time zero.
    const BEFORE: Tick = Tick::from_nanos(1_000_000_000);

    /// A breaker that has just opened, at time zero, for 50 ms.
    fn opened() -> Breaker {
        let mut breaker = Breaker::new();
        fail_for_50_ms(&mut breaker, 1.0);
        breaker
    }

    /// Five failures, the last of them at time zero.
    fn fail_for_50_ms(breaker: &mut Breaker, jitter: f64) {
        for now in [BEFORE, at(0), at(0), at(0), at(0)] {
            let attempt = breaker.attempt(now).unwrap();
            breaker.ended(attempt, End::Failed, now, jitter);
        }
        assert!(!breaker.is_closed());
    }

    #[test]
    fn it_opens_after_five_failures_in_a_row_and_not_before() {
        let mut breaker = Breaker::new();
        for end in
            [[End::Failed; 4].as_slice(), &[End::Answered], &[End::Failed; 4], &[End::Abandoned]].concat()
        {
            let attempt = breaker.attempt(BEFORE).unwrap();
            breaker.ended(attempt, end, BEFORE, 1.0);
        }
        assert!(breaker.is_closed());
        let attempt = breaker.attempt(at(0)).unwrap();
        breaker.ended(attempt, End::Failed, at(0), 1.0);
        assert!(!breaker.is_closed() && breaker.attempt(at(49)).is_none());
    }

    #[test]
    fn many_failures_within_50_ms_do_not_open_it() {
        let mut breaker = Breaker::new();
        let mut fail = |now: Tick| {
            let attempt = breaker.attempt(now).unwrap();
            breaker.ended(attempt, End::Failed, now, 1.0);
            breaker.is_closed()
        };
        assert!((0..50).all(|millis| fail(BEFORE + Duration::from_millis(millis))));
        assert!(!fail(BEFORE + Duration::from_millis(50)));
    }

    /// A third of a cluster is gone: one call in three fails.
    #[test]
    fn while_most_calls_succeed_it_never_opens_and_if_it_was_open_it_closes() {
        for mut breaker in [Breaker::new(), opened()] {
            let (mut untried, was_closed) = (0, breaker.is_closed());
            for call in 0..3_000 {
                let now = at(50 + call);
                match breaker.attempt(now) {
                    Some(attempt) if call % 3 == 0 => breaker.ended(attempt, End::Failed, now, 1.0),
                    Some(attempt) => breaker.ended(attempt, End::Answered, now, 1.0),
                    None => untried += 1,
                }
            }
            assert!(breaker.is_closed());
            assert!(untried <= if was_closed { 0 } else { 100 }, "{untried}");
        }
    }

    #[test]
    fn with_each_failure_half_as_many_are_tried_and_when_the_only_one_fails_it_opens_again() {
        let mut breaker = opened();
        for end in [End::Answered, End::Answered, End::Failed, End::Failed] {
            let attempt = breaker.attempt(at(50)).unwrap();
            breaker.ended(attempt, end, at(50), 1.0);
        }
        assert_eq!(breaker.state, State::Trying { under_way: 0, most: 1 });
        let attempt = breaker.attempt(at(50)).unwrap();
        breaker.ended(attempt, End::Failed, at(50), 1.0);
        assert!(breaker.attempt(at(149)).is_none() && breaker.attempt(at(150)).is_some());
    }

    #[test]
    fn after_the_pause_one_is_tried_at_a_time() {
        let mut breaker = opened();
        assert!(breaker.attempt(at(50)).is_some());
        assert!(breaker.attempt(at(50)).is_none());
        assert!(breaker.attempt(at(500)).is_none(), "until it has ended");
    }

    #[test]
    fn pauses_grow_up_to_a_bound_so_that_a_second_is_enough_to_notice_its_return() {
        let mut breaker = opened();
        let (mut now, mut pauses) = (50, Vec::new());
        for _ in 0..6 {
            let attempt = breaker.attempt(at(now)).unwrap();
            breaker.ended(attempt, End::Failed, at(now), 1.0);
            let pause = (1..=1_000)
                .find(|pause| matches!(breaker.state, State::Open { until } if at(now + pause) >= until));
            now += pause.unwrap();
            pauses.push(pause.unwrap());
        }
        assert_eq!(pauses, [100, 200, 400, 400, 400, 400]);
    }

    #[test]
    fn processes_do_not_come_back_at_the_same_moment() {
        let mut breaker = Breaker::new();
        fail_for_50_ms(&mut breaker, 0.0);
        assert!(breaker.attempt(at(24)).is_none() && breaker.attempt(at(25)).is_some());
    }

    #[test]
    fn with_each_success_twice_as_many_are_tried_until_all_are() {
        let mut breaker = opened();
        let mut most = Vec::new();
        while !breaker.is_closed() {
            let mut attempts = Vec::new();
            while let Some(attempt) = breaker.attempt(at(50)) {
                attempts.push(attempt);
                if attempts.len() > 300 {
                    break;
                }
            }
            most.push(attempts.len());
            for attempt in attempts {
                breaker.ended(attempt, End::Answered, at(50), 1.0);
            }
        }
        // One success lets two be tried; those two, eight.
        assert_eq!(most, [1, 2, 8]);
        assert!((0..1000).all(|_| breaker.attempt(at(50)).is_some()));
    }

    #[test]
    fn what_was_begun_before_it_opened_neither_closes_nor_opens_it() {
        let mut breaker = Breaker::new();
        let late: Vec<Attempt> = (0..20).map(|_| breaker.attempt(BEFORE).unwrap()).collect();
        breaker.ended(late[0], End::Failed, BEFORE, 1.0);
        for attempt in &late[1..5] {
            breaker.ended(*attempt, End::Failed, at(10), 1.0);
        }
        let before = breaker.state;
        breaker.ended(late[6], End::Answered, at(20), 1.0);
        breaker.ended(late[7], End::Failed, at(20), 1.0);
        assert_eq!(breaker.state, before);
        let probe = breaker.attempt(at(60)).unwrap();
        breaker.ended(late[8], End::Failed, at(61), 1.0);
        breaker.ended(probe, End::Answered, at(61), 1.0);
        assert_eq!(breaker.state, State::Trying { under_way: 0, most: 2 });
    }

    #[test]
    fn a_probe_that_nobody_waits_for_makes_room_for_the_next() {
        let mut breaker = opened();
        let probe = breaker.attempt(at(50)).unwrap();
        breaker.ended(probe, End::Abandoned, at(51), 1.0);
        assert!(breaker.attempt(at(51)).is_some());
    }
}
