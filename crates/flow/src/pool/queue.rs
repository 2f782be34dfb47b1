//! Jobs that wait for their turn, by priority.

use std::collections::VecDeque;

/// Every so many starts the oldest job goes first, whatever its priority: so a job that is always overtaken is started
/// after at most this many times as many starts as there were jobs in the queue when it came.
pub(super) const OLDEST_EVERY: u64 = 8;

/// A queue with priorities: the highest first, in order of arrival among equals; and one start in [`OLDEST_EVERY`] goes to
/// the oldest of all.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The highest first. A level that was ever used stays; there are at most 256.
    levels: Vec<Level<T>>,
    len: usize,
    arrived: u64,
    started: u64,
}

#[derive(Debug)]
struct Level<T> {
    priority: u8,
    line: VecDeque<(u64, T)>,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { levels: Vec::new(), len: 0, arrived: 0, started: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, priority: u8, item: T) {
        let found = self.levels.binary_search_by(|level| priority.cmp(&level.priority));
        let at = found.unwrap_or_else(|at| {
            self.levels.insert(at, Level { priority, line: VecDeque::new() });
            at
        });
        self.levels[at].line.push_back((self.arrived, item));
        self.arrived += 1;
        self.len += 1;
    }

    /// What [`pop`](Self::pop) would take.
    pub(super) fn peek(&self) -> Option<&T> {
        self.levels.get(self.next_level()?)?.line.front().map(|(_, item)| item)
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let level = self.next_level()?;
        let (_, item) = self.levels[level].line.pop_front()?;
        self.len -= 1;
        self.started += 1;
        Some(item)
    }

    /// Everything, in order of arrival.
    pub(super) fn drain(&mut self) -> Vec<T> {
        let mut all: Vec<_> = self.levels.iter_mut().flat_map(|level| level.line.drain(..)).collect();
        all.sort_unstable_by_key(|(arrival, _)| *arrival);
        self.len = 0;
        all.into_iter().map(|(_, item)| item).collect()
    }

    fn next_level(&self) -> Option<usize> {
        let mut waiting = self.levels.iter().enumerate().filter(|(_, level)| !level.line.is_empty());
        let next = if (self.started + 1).is_multiple_of(OLDEST_EVERY) {
            waiting.min_by_key(|(_, level)| level.line.front().map(|(arrival, _)| *arrival))
        } else {
            waiting.next()
        };
        next.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(queue: &mut Queue<u32>, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| queue.pop()).collect()
    }

    #[test]
    fn the_highest_goes_first_and_equals_in_order_of_arrival() {
        let mut queue = Queue::new();
        for (priority, item) in [(1, 10), (3, 30), (2, 20), (3, 31), (1, 11)] {
            queue.push(priority, item);
        }
        assert_eq!(queue.peek(), Some(&30));
        assert_eq!(popped(&mut queue, 9), [30, 31, 20, 10, 11]);
        assert_eq!((queue.len(), queue.peek()), (0, None));
    }

    #[test]
    fn every_eighth_start_goes_to_the_oldest() {
        let mut queue = Queue::new();
        for item in 0..3 {
            queue.push(0, item);
        }
        for item in 100..120 {
            queue.push(9, item);
        }
        let order = popped(&mut queue, 24);
        assert_eq!(order[..8], [100, 101, 102, 103, 104, 105, 106, 0]);
        assert_eq!(order[8..16], [107, 108, 109, 110, 111, 112, 113, 1]);
        assert_eq!(order[16..], [114, 115, 116, 117, 118, 119, 2]);
    }

    #[test]
    fn what_is_left_comes_out_in_order_of_arrival() {
        let mut queue = Queue::new();
        for (priority, item) in [(1, 10), (3, 30), (2, 20), (3, 31), (1, 11)] {
            queue.push(priority, item);
        }
        queue.pop();
        assert_eq!(queue.drain(), [10, 20, 31, 11]);
        assert_eq!((queue.len(), queue.pop()), (0, None));
    }
}
