//! The quotas that keys have of their own, each with its algorithm, numbered so that a slot can name one in four bytes.
//!
//! Where a program writes the quotas, a number is given out for good. Where callers supply them, there is no end of different
//! ones: a number is then used again once no key has it and no limit is open with it, and each supplier can have so many.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use tollgate_core::Quota;

/// How many plans the first block holds; each further block holds twice as many.
const FIRST: u32 = 16;
/// Enough blocks for every number.
const BLOCKS: usize = 28;

/// All plans seen so far. Reading one takes no lock, unless numbers are used again.
pub(crate) struct Plans<A> {
    make: Make<A>,
    are_reused: bool,
    numbers: Mutex<Numbers>,
    /// Numbers that no key has any more, as far as is known.
    unused: Mutex<Vec<u32>>,
    blocks: [OnceLock<Block<A>>; BLOCKS],
}

/// Makes the algorithm of a quota.
pub(crate) type Make<A> = Arc<dyn Fn(Quota) -> A + Send + Sync>;

type Block<A> = Box<[Place<A>]>;

/// A quota and its algorithm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan<A> {
    pub(crate) quota: Quota,
    pub(crate) algorithm: A,
}

/// Where the plan of a number is.
enum Place<A> {
    Fixed(OnceLock<Plan<A>>),
    Reused(Reused<A>),
}

struct Reused<A> {
    plan: RwLock<Option<Plan<A>>>,
    keys: AtomicU32,
    /// Whether the number is among those that may be unused.
    is_noted: AtomicBool,
}

#[derive(Default)]
struct Numbers {
    /// How many were given out, and are in use or free.
    given: u32,
    by_quota: HashMap<Quota, Entry>,
    free: Vec<u32>,
    /// How many each supplier has.
    of_supplier: HashMap<u128, u32>,
}

struct Entry {
    number: u32,
    /// How many limits are open with it.
    limits: u32,
    supplier: Option<u128>,
}

/// Who supplies a quota, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supply {
    pub(crate) supplier: Option<u128>,
    /// Of one supplier.
    pub(crate) most_of_one: u32,
    /// Of all together.
    pub(crate) most: u32,
}

/// Why there can be no further plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlan {
    /// This supplier has all that one may have.
    OfOne(u32),
    /// There are as many as there may be.
    OfAll(u32),
}

impl<A: Clone> Plans<A> {
    /// `are_reused` says whether numbers are used again.
    pub(crate) fn new(make: Make<A>, are_reused: bool) -> Self {
        let blocks = [const { OnceLock::new() }; BLOCKS];
        Self { make, are_reused, numbers: Mutex::default(), unused: Mutex::default(), blocks }
    }

    /// The algorithm of a quota.
    pub(crate) fn make(&self, quota: Quota) -> A {
        (self.make)(quota)
    }

    fn unused(&self) -> MutexGuard<'_, Vec<u32>> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the plan with this quota, from one on.
    pub(crate) fn number(&self, quota: Quota) -> u32 {
        // A plan takes more than a hundred bytes: memory ends before the numbers do.
        self.number_within(quota, u32::MAX).expect("there are not so many")
    }

    /// The number of the plan with this quota; `None` if it would be a new one and there are `most` already.
    pub(crate) fn number_within(&self, quota: Quota, most: u32) -> Option<u32> {
        let mut numbers = self.numbers();
        if let Some(entry) = numbers.by_quota.get(&quota) {
            return Some(entry.number);
        }
        if numbers.by_quota.len() as u32 >= most {
            return None;
        }
        let number = self.add(&mut numbers, quota, None);
        self.note_unused(number); // unless a key gets it
        Some(number)
    }

    /// Opens a limit with a quota that was supplied: its number stays until [`close`](Self::close) is called, and on while a key
    /// has it.
    pub(crate) fn open(&self, quota: Quota, supply: Supply) -> Result<u32, NoPlan> {
        let Supply { supplier, most_of_one, most } = supply;
        let mut numbers = self.numbers();
        self.free_unused(&mut numbers);
        if let Some(entry) = numbers.by_quota.get_mut(&quota) {
            entry.limits += 1;
            return Ok(entry.number);
        }
        let has = supplier.and_then(|supplier| numbers.of_supplier.get(&supplier)).copied().unwrap_or(0);
        if supplier.is_some() && has >= most_of_one {
            return Err(NoPlan::OfOne(most_of_one));
        }
        if numbers.by_quota.len() as u32 >= most {
            return Err(NoPlan::OfAll(most));
        }
        let number = self.add(&mut numbers, quota, supplier);
        numbers.by_quota.entry(quota).and_modify(|entry| entry.limits += 1);
        Ok(number)
    }

    /// Closes a limit that was opened with a quota.
    pub(crate) fn close(&self, quota: Quota) {
        let mut numbers = self.numbers();
        if let Some(entry) = numbers.by_quota.get_mut(&quota) {
            entry.limits -= 1;
            if entry.limits == 0 {
                self.note_unused(entry.number);
            }
        }
    }

    fn add(&self, numbers: &mut Numbers, quota: Quota, supplier: Option<u128>) -> u32 {
        let number = numbers.free.pop().unwrap_or(numbers.given + 1);
        numbers.given = numbers.given.max(number);
        let (block, index) = place(number);
        let size = (FIRST as usize) << block;
        let block =
            self.blocks[block].get_or_init(|| (0..size).map(|_| Place::new(self.are_reused)).collect());
        let plan = Plan { quota, algorithm: self.make(quota) };
        match &block[index] {
            Place::Fixed(known) => _ = known.get_or_init(|| plan),
            Place::Reused(known) => *known.plan.write().unwrap_or_else(PoisonError::into_inner) = Some(plan),
        }
        if let Some(supplier) = supplier {
            *numbers.of_supplier.entry(supplier).or_default() += 1;
        }
        numbers.by_quota.insert(quota, Entry { number, limits: 0, supplier });
        number
    }

    /// Frees the numbers that no key has and with which no limit is open.
    fn free_unused(&self, numbers: &mut Numbers) {
        let unused = std::mem::take(&mut *self.unused());
        for number in unused {
            let Some(reused) = self.reused(number) else { continue };
            reused.is_noted.store(false, Ordering::SeqCst); // before the keys are counted: whoever takes the last one notes it again
            let mut plan = reused.plan.write().unwrap_or_else(PoisonError::into_inner);
            let Some(quota) = plan.as_ref().map(|plan| plan.quota) else { continue };
            let is_open = numbers.by_quota.get(&quota).is_some_and(|entry| entry.limits > 0);
            if is_open || reused.keys.load(Ordering::SeqCst) > 0 {
                continue;
            }
            *plan = None;
            numbers.free.push(number);
            let entry = numbers.by_quota.remove(&quota);
            if let Some(supplier) = entry.and_then(|entry| entry.supplier) {
                let has = numbers.of_supplier.entry(supplier).or_default();
                *has -= 1;
                if *has == 0 {
                    numbers.of_supplier.remove(&supplier);
                }
            }
        }
    }

    /// A key has this plan from now on.
    #[inline]
    pub(crate) fn key_added(&self, number: u32) {
        if let Some(reused) = self.reused(number) {
            reused.keys.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A key with this plan is gone.
    #[inline]
    pub(crate) fn key_removed(&self, number: u32) {
        if let Some(reused) = self.reused(number)
            && reused.keys.fetch_sub(1, Ordering::SeqCst) == 1
        {
            self.note_unused(number);
        }
    }

    fn note_unused(&self, number: u32) {
        if let Some(reused) = self.reused(number)
            && !reused.is_noted.swap(true, Ordering::SeqCst)
        {
            self.unused().push(number);
        }
    }

    #[inline]
    fn reused(&self, number: u32) -> Option<&Reused<A>> {
        if !self.are_reused || number == 0 {
            return None;
        }
        match self.place(number) {
            Place::Reused(reused) => Some(reused),
            Place::Fixed(_) => None,
        }
    }

    #[inline]
    fn place(&self, number: u32) -> &Place<A> {
        let (block, index) = place(number);
        let place = self.blocks[block].get().and_then(|block| block.get(index));
        place.expect("only numbers that were given out are asked for")
    }

    /// The plan with this number, which [`number`](Self::number) gave out.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Cow<'_, Plan<A>> {
        let plan = match self.place(number) {
            Place::Fixed(plan) => plan.get().map(Cow::Borrowed),
            Place::Reused(reused) => {
                reused.plan.read().unwrap_or_else(PoisonError::into_inner).clone().map(Cow::Owned)
            }
        };
        plan.expect("only numbers that were given out are asked for")
    }

    /// The algorithm of the plan with this number.
    #[inline]
    pub(crate) fn algorithm(&self, number: u32) -> Cow<'_, A> {
        match self.get(number) {
            Cow::Borrowed(plan) => Cow::Borrowed(&plan.algorithm),
            Cow::Owned(plan) => Cow::Owned(plan.algorithm),
        }
    }
}

impl<A> Plans<A> {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.numbers().by_quota.len() as u32
    }
}

impl<A> Place<A> {
    fn new(is_reused: bool) -> Self {
        if !is_reused {
            return Self::Fixed(OnceLock::new());
        }
        let (plan, keys, is_noted) = (RwLock::new(None), AtomicU32::new(0), AtomicBool::new(false));
        Self::Reused(Reused { plan, keys, is_noted })
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
        for are_reused in [false, true] {
            let plans = Plans::new(Arc::new(TokenBucket::new), are_reused);
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

    const fn supply(supplier: u128) -> Supply {
        Supply { supplier: Some(supplier), most_of_one: 3, most: 5 }
    }

    // Guards, item 7: one supplier cannot take all numbers, and those that nobody uses come back.
    #[test]
    fn open_bounds_each_supplier_and_close_frees_what_no_key_has() {
        let plans = Plans::new(Arc::new(TokenBucket::new), true);
        let open = |count, supplier| plans.open(Quota::per_second(count), supply(supplier));
        assert_eq!([1, 2, 3, 4].map(|count| open(count, 7)), [Ok(1), Ok(2), Ok(3), Err(NoPlan::OfOne(3))]);
        assert_eq!(open(1, 7), Ok(1), "it is open already");
        assert_eq!([5, 6, 8].map(|count| open(count, 8)), [Ok(4), Ok(5), Err(NoPlan::OfAll(5))]);
        plans.key_added(2);
        for count in [1, 2, 3] {
            plans.close(Quota::per_second(count));
        }
        // The first is open once more, a key has the second, and nobody needs the third.
        assert_eq!((open(9, 7), open(10, 7)), (Ok(3), Err(NoPlan::OfOne(3))));
        assert_eq!([1, 2, 3].map(|number| plans.get(number).quota.count()), [1, 2, 9]);
        plans.key_removed(2);
        assert_eq!((open(10, 7), plans.len()), (Ok(2), 5));
    }

    #[test]
    fn a_quota_without_a_limit_stays_while_a_key_has_it() {
        let plans = Plans::new(Arc::new(TokenBucket::new), true);
        for count in [1, 2] {
            plans.number(Quota::per_second(count)); // as a snapshot is read
        }
        plans.key_added(2);
        assert_eq!(plans.open(Quota::per_second(3), supply(7)), Ok(1));
        assert_eq!(plans.get(2).quota, Quota::per_second(2));
    }
}
