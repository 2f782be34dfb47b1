//! A semaphore whose size changes: never too many, nobody out of order, nothing lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};

use tollgate::{Acquire, ConcurrencyLimit, Slot, WaitError};

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// An acquire with a waker that counts.
struct Waiting<'a> {
    future: Pin<Box<Acquire<'a>>>,
    woken: Arc<Counter>,
}

impl<'a> Waiting<'a> {
    fn new(acquire: Acquire<'a>) -> Self {
        let mut waiting = Self { future: Box::pin(acquire), woken: Arc::default() };
        assert!(waiting.poll().is_none(), "nothing is free yet");
        waiting
    }

    fn poll(&mut self) -> Option<Result<Slot<'a>, WaitError>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn was_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst) > 0
    }

    fn slot(&mut self) -> Slot<'a> {
        assert!(self.was_woken());
        self.poll().expect("its turn has come").expect("it is not refused")
    }
}

fn refused(acquire: Acquire<'_>) -> WaitError {
    let mut acquire = std::pin::pin!(acquire);
    match acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn slots_come_back_when_dropped() {
    let limit = ConcurrencyLimit::new(3);
    let two = limit.try_acquire_n(2).unwrap();
    assert_eq!((limit.in_use(), limit.available(), two.count()), (2, 1, 2));
    assert!(limit.try_acquire_n(2).is_none(), "all or none");
    let one = limit.try_acquire().unwrap().into_owned();
    assert_eq!((limit.available(), one.count()), (0, 1));
    drop(two);
    drop(one);
    assert_eq!(limit.in_use(), 0);
    assert!(limit.clone().try_acquire_n(3).is_some(), "clones share one state");
}

#[test]
fn turns_come_in_order_and_a_large_one_is_not_passed_by() {
    let limit = ConcurrencyLimit::new(3);
    let mut held: Vec<_> = (0..3).map(|_| limit.try_acquire().unwrap()).collect();
    let mut large = Waiting::new(limit.acquire_n(3));
    let mut small = Waiting::new(limit.acquire());
    held.pop();
    held.pop();
    assert!(!large.was_woken() && !small.was_woken());
    assert!(limit.try_acquire().is_none(), "nobody slips past those who wait");
    held.pop();
    let three = large.slot();
    assert!(!small.was_woken());
    drop(three);
    drop(small.slot());
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

#[test]
fn whoever_gives_up_leaves_its_place_to_those_behind() {
    let limit = ConcurrencyLimit::new(2);
    let held = limit.try_acquire().unwrap();
    let large = Waiting::new(limit.acquire_n(2));
    let mut small = Waiting::new(limit.acquire());
    drop(large);
    drop(small.slot());
    drop(held);
    assert_eq!(limit.in_use(), 0);
}

#[test]
fn a_slot_that_was_granted_and_never_seen_is_handed_on() {
    let limit = ConcurrencyLimit::new(1);
    let held = limit.try_acquire().unwrap();
    let first = Waiting::new(limit.acquire());
    let mut second = Waiting::new(limit.acquire());
    drop(held);
    assert!(first.was_woken() && !second.was_woken());
    drop(first); // granted, but never polled again
    drop(second.slot());
    assert_eq!(limit.in_use(), 0);
}

#[test]
fn a_larger_limit_wakes_those_who_wait() {
    let limit = ConcurrencyLimit::new(1);
    let _held = limit.try_acquire().unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Waiting::new(limit.acquire())).collect();
    limit.set_limit(3);
    let _slots: Vec<_> = waiting.iter_mut().take(2).map(Waiting::slot).collect();
    assert!(!waiting[2].was_woken());
    assert_eq!((limit.in_use(), limit.waiting()), (3, 1));
}

#[test]
fn a_smaller_limit_admits_nobody_until_enough_came_back() {
    let limit = ConcurrencyLimit::new(4);
    let mut held: Vec<_> = (0..4).map(|_| limit.try_acquire().unwrap()).collect();
    limit.set_limit(2);
    assert_eq!((limit.in_use(), limit.available(), limit.limit()), (4, 0, 2));
    for _ in 0..2 {
        held.pop();
        assert!(limit.try_acquire().is_none(), "{} in use", limit.in_use());
    }
    held.pop();
    assert!(limit.try_acquire().is_some());
}

#[test]
fn what_can_never_be_had_is_refused_and_a_pause_is_not_never() {
    let limit = ConcurrencyLimit::new(2);
    let held = limit.try_acquire_n(2).unwrap();
    assert_eq!(refused(limit.acquire_n(3)), WaitError::Never { cost: 3, limit: 2 });
    let mut two = Waiting::new(limit.acquire_n(2));
    let mut one = Waiting::new(limit.acquire());
    limit.set_limit(0);
    drop(held);
    assert!(!two.was_woken() && !one.was_woken(), "paused");
    limit.set_limit(1);
    assert_eq!(two.poll().unwrap().unwrap_err(), WaitError::Never { cost: 2, limit: 1 });
    drop(one.slot());
    limit.set_limit(u64::MAX);
    assert_eq!(limit.limit(), ConcurrencyLimit::MOST);
}

#[test]
fn any_number_is_answered() {
    for n in [1 << 31, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for size in [1, 3, ConcurrencyLimit::MOST] {
            let limit = ConcurrencyLimit::new(size);
            let held = limit.try_acquire();
            assert!(held.is_some() && limit.try_acquire_n(n).is_none());
            if n > size {
                assert_eq!(refused(limit.acquire_n(n)), WaitError::Never { cost: n, limit: size });
            }
        }
        let paused = ConcurrencyLimit::new(0);
        drop(Waiting::new(paused.acquire_n(n)));
        assert!(paused.try_acquire_n(n).is_none());
    }
}

#[test]
fn closing_ends_all_waiting() {
    let limit = ConcurrencyLimit::new(1);
    let held = limit.try_acquire().unwrap();
    let mut waiting = Waiting::new(limit.acquire());
    limit.close();
    assert!(waiting.was_woken() && limit.is_closed());
    assert_eq!(waiting.poll().unwrap().unwrap_err(), WaitError::Closed);
    assert_eq!(refused(limit.acquire()), WaitError::Closed);
    drop(held);
    assert!(limit.try_acquire().is_some(), "trying goes on");
}

#[test]
fn threads_block_for_their_turn() {
    let limit = ConcurrencyLimit::new(2);
    let inside = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let slot = limit.acquire().block().unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(slot);
                }
            });
        }
    });
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

/// The limit goes up and down between 1 and 6 under the callers. What they hold they count themselves: never more than the
/// greatest limit there was.
#[test]
fn never_more_than_the_limit_whatever_it_is() {
    const GREATEST: u64 = 6;
    for threads in [2, 8, 64] {
        let limit = ConcurrencyLimit::new(GREATEST);
        let (inside, over, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let barrier = Barrier::new(threads + 1);
        std::thread::scope(|scope| {
            let work = |seed: u64| {
                let (limit, inside, over, barrier) = (&limit, &inside, &over, &barrier);
                move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    barrier.wait();
                    for _ in 0..4_000 / threads {
                        let n = random.u64(1..=2);
                        let slot = match random.u8(0..3) {
                            0 => limit.try_acquire_n(n),
                            1 => limit.acquire_n(n).block().ok(), // refused when n is above the limit just then
                            _ => give_up(limit.acquire_n(n)),
                        };
                        if slot.is_some() {
                            let now = inside.fetch_add(n, Ordering::SeqCst) + n;
                            over.fetch_add(u64::from(now > GREATEST), Ordering::SeqCst);
                            std::hint::spin_loop();
                            inside.fetch_sub(n, Ordering::SeqCst);
                        }
                    }
                }
            };
            let workers: Vec<_> = (0..threads as u64).map(|seed| scope.spawn(work(seed))).collect();
            let resizer = scope.spawn(|| {
                let mut random = fastrand::Rng::with_seed(99);
                barrier.wait();
                while !done.load(Ordering::SeqCst) {
                    limit.set_limit(random.u64(1..=GREATEST));
                    std::thread::yield_now();
                }
            });
            for worker in workers {
                worker.join().unwrap();
            }
            done.store(true, Ordering::SeqCst);
            resizer.join().unwrap();
        });
        assert_eq!(over.load(Ordering::SeqCst), 0, "{threads} threads");
        assert_eq!((limit.in_use(), limit.waiting()), (0, 0), "{threads} threads: nothing is lost");
        limit.set_limit(GREATEST);
        assert!(limit.try_acquire_n(GREATEST).is_some(), "{threads} threads: all of it is there");
    }
}

/// Polls once and gives up, whatever came of it.
fn give_up(acquire: Acquire<'_>) -> Option<Slot<'_>> {
    let mut acquire = std::pin::pin!(acquire);
    match acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome.ok(),
        Poll::Pending => None,
    }
}

/// Random arrivals, departures and resizing, against a plain queue.
#[test]
fn a_plain_queue_says_the_same() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = ConcurrencyLimit::new(4);
        let (mut size, mut tickets) = (4, 0);
        let mut held: Vec<(u64, u64, Slot<'_>)> = Vec::new();
        let mut line: Vec<(u64, u64, Waiting<'_>)> = Vec::new();
        for _ in 0..300 {
            match random.u8(0..10) {
                0..4 => {
                    tickets += 1;
                    let n = random.u64(1..=3);
                    let used: u64 = held.iter().map(|(_, n, _)| n).sum();
                    if n > size {
                        assert_eq!(refused(limit.acquire_n(n)), WaitError::Never { cost: n, limit: size });
                    } else if line.is_empty() && used + n <= size {
                        held.push((tickets, n, limit.try_acquire_n(n).expect("it fits")));
                    } else {
                        line.push((tickets, n, Waiting::new(limit.acquire_n(n))));
                    }
                }
                4..7 if !held.is_empty() => drop(held.swap_remove(random.usize(..held.len()))),
                7..9 if !line.is_empty() => drop(line.remove(random.usize(..line.len()))),
                _ => {
                    size = random.u64(1..=6);
                    limit.set_limit(size);
                    line.retain_mut(|(_, n, waiting)| {
                        let stays = *n <= size;
                        assert!(stays || waiting.poll().is_some_and(|outcome| outcome.is_err()));
                        stays
                    });
                }
            }
            // Whoever is at the head and fits has been woken; nobody else has.
            let mut used: u64 = held.iter().map(|(_, n, _)| n).sum();
            while !line.is_empty() && used + line[0].1 <= size {
                let (ticket, n, mut waiting) = line.remove(0);
                used += n;
                held.push((ticket, n, waiting.slot()));
            }
            assert!(line.iter().all(|(_, _, waiting)| !waiting.was_woken()), "seed {seed}");
            assert_eq!((limit.in_use(), limit.waiting()), (used, line.len()), "seed {seed}");
        }
    }
}
