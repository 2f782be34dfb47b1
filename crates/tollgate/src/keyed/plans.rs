//! The quotas that keys have of their own, each with its algorithm, numbered so that a slot can name one in four bytes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollgate_core::Quota;

/// How many plans the first block holds; each further block holds twice as many.
const FIRST: u32 = 16;
/// Enough blocks for every number.
const BLOCKS: usize = 28;

/// All plans seen so far. Reading one takes no lock.
pub(crate) struct Plans<A> {
    make: Make<A>,
    numbers: Mutex<HashMap<Quota, u32>>,
    blocks: [OnceLock<Block<A>>; BLOCKS],
}

/// Makes the algorithm of a quota.
pub(crate) type Make<A> = Arc<dyn Fn(Quota) -> A + Send + Sync>;

type Block<A> = Box<[OnceLock<Plan<A>>]>;

/// A quota and its algorithm.
pub(crate) struct Plan<A> {
    pub(crate) quota: Quota,
    pub(crate) algorithm: A,
}

impl<A> Plans<A> {
    pub(crate) fn new(make: Make<A>) -> Self {
        Self { make, numbers: Mutex::default(), blocks: [const { OnceLock::new() }; BLOCKS] }
    }

    /// The algorithm of a quota.
    pub(crate) fn make(&self, quota: Quota) -> A {
        (self.make)(quota)
    }

    /// The number of the plan with this quota, from one on.
    pub(crate) fn number(&self, quota: Quota) -> u32 {
        // A plan takes more than a hundred bytes: memory ends before the numbers do.
        self.number_within(quota, u32::MAX).expect("there are not so many")
    }

    /// The number of the plan with this quota; `None` if it would be a new one and there are `most` already.
    pub(crate) fn number_within(&self, quota: Quota, most: u32) -> Option<u32> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(&quota) {
            return Some(*number);
        }
        let number = numbers.len() as u32 + 1;
        if number > most {
            return None;
        }
        let (block, index) = place(number);
        let size = (FIRST as usize) << block;
        let block = self.blocks[block].get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
        block[index].get_or_init(|| Plan { quota, algorithm: self.make(quota) });
        numbers.insert(quota, number);
        Some(number)
    }

    /// The plan with this number, which [`number`](Self::number) gave out.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &Plan<A> {
        let (block, index) = place(number);
        let plan = self.blocks[block].get().and_then(|block| block[index].get());
        plan.expect("only numbers that were given out are asked for")
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).len() as u32
    }
}

/// The block of a number, and its place in it.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let position = u64::from(number) - 1 + u64::from(FIRST);
    let block = position.ilog2() - FIRST.ilog2();
    (block as usize, (position - (u64::from(FIRST) << block)) as usize)
}

impl<A> fmt::Debug for Plans<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::TokenBucket;

    use super::*;

    #[test]
    fn a_quota_keeps_its_number_and_a_number_its_quota() {
        let plans = Plans::new(Arc::new(TokenBucket::new));
        for round in 0..2 {
            for count in 1..200 {
                let number = plans.number(Quota::per_second(count));
                assert_eq!(u64::from(number), count, "round {round}");
            }
        }
        assert_eq!(plans.len(), 199);
        for number in 1..200 {
            let plan = plans.get(number);
            assert_eq!(plan.quota, Quota::per_second(u64::from(number)));
            assert_eq!(plan.algorithm, TokenBucket::new(plan.quota));
        }
    }
}
