//! Memory for tables, from the system and back to it.
//!
//! An allocator for everybody gives pages back when a long stretch of them is free, and then all at once: of a million
//! idle keys half the memory stayed, and while the other half went somebody waited a millisecond. Tables are of a few sizes, so
//! one that nobody has can lie where it is until another of its size is needed; only its pages go.

#[cfg(any(not(target_os = "linux"), loom, miri))]
pub(crate) use allocator_api2::alloc::Global as Pages;
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
pub(crate) use mapped::Pages;

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
#[allow(
    unsafe_code,
    reason = "94 % of idle keys' memory goes back instead of 51 %, without the pause: cargo xtask bench keyed, sweep"
)]
mod mapped {
    use std::alloc::Layout;
    use std::collections::BTreeMap;
    use std::ptr::{self, NonNull};
    use std::sync::Mutex;

    use allocator_api2::alloc::{AllocError, Allocator, Global};

    use crate::sync::lock;

    /// How much is asked of the system at a time. Only what is written to takes memory.
    const REGION: usize = 4 << 20;
    /// So much of what nobody has keeps its pages: a table that grows can have that of one which just did.
    const MOST_WARM: usize = 1 << 18;

    /// Allocates what is whole pages; everything else is [`Global`]'s.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Pages;

    // SAFETY: a layout is either always `Global`'s or always the pool's. Blocks of the pool lie in mappings that last for as
    // long as the process, and begin at a page; a block is in the pool or with one caller, never both.
    unsafe impl Allocator for Pages {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if !is_pages(layout) {
                return Global.allocate(layout);
            }
            let block = lock(&POOL).take(layout.size()).ok_or(AllocError)?;
            Ok(NonNull::slice_from_raw_parts(block.0, layout.size()))
        }

        unsafe fn deallocate(&self, place: NonNull<u8>, layout: Layout) {
            if !is_pages(layout) {
                // SAFETY: `Global` allocated it, since the layout is the same.
                return unsafe { Global.deallocate(place, layout) };
            }
            let size = layout.size();
            let Err(block) = lock(&POOL).keep_warm(Block(place), size) else { return };
            // SAFETY: the caller has given the block up and nobody else has it yet. It is whole pages of a private mapping.
            // Where the system refuses, the pages stay.
            let _ = unsafe { libc::madvise(block.0.as_ptr().cast(), size, libc::MADV_DONTNEED) };
            lock(&POOL).keep(block, size);
        }
    }

    /// Whether it is whole pages, and so the pool's.
    fn is_pages(layout: Layout) -> bool {
        let page = page_size();
        layout.size() > 0 && layout.size().is_multiple_of(page) && layout.align() <= page
    }

    static POOL: Mutex<Pool> = Mutex::new(Pool { free: BTreeMap::new(), warm: 0, rest: None });

    /// Blocks that nobody has.
    struct Pool {
        /// By size.
        free: BTreeMap<usize, Free>,
        /// Bytes of those that have their pages.
        warm: usize,
        /// What is left of the last region, and how much that is.
        rest: Option<(Block, usize)>,
    }

    #[derive(Default)]
    struct Free {
        warm: Vec<Block>,
        cold: Vec<Block>,
    }

    /// The beginning of a block.
    struct Block(NonNull<u8>);

    // SAFETY: it is the only way to a block that nobody has, so whoever has it may use it from any thread.
    unsafe impl Send for Block {}

    impl Pool {
        /// A block of so many whole pages; `None` if the system has no more.
        fn take(&mut self, size: usize) -> Option<Block> {
            if let Some(free) = self.free.get_mut(&size) {
                if let Some(block) = free.warm.pop() {
                    self.warm -= size;
                    return Some(block);
                }
                if let Some(block) = free.cold.pop() {
                    return Some(block);
                }
            }
            self.cut(size)
        }

        /// A block that nobody ever had.
        fn cut(&mut self, size: usize) -> Option<Block> {
            let (block, left) = match self.rest.take() {
                Some((block, left)) if left >= size => (block, left),
                _ => region(size.max(REGION))?,
            };
            // SAFETY: within the region, or at its end.
            let rest = unsafe { block.0.add(size) };
            self.rest = Some((Block(rest), left - size));
            Some(block)
        }

        /// Keeps a block with its pages, if there are not too many of those.
        fn keep_warm(&mut self, block: Block, size: usize) -> Result<(), Block> {
            if self.warm + size > MOST_WARM {
                return Err(block);
            }
            self.warm += size;
            self.free.entry(size).or_default().warm.push(block);
            Ok(())
        }

        /// Keeps a block that has given its pages back.
        fn keep(&mut self, block: Block, size: usize) {
            self.free.entry(size).or_default().cold.push(block);
        }
    }

    /// Memory from the system, and how much.
    fn region(size: usize) -> Option<(Block, usize)> {
        let (usable, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        // SAFETY: a new mapping of no file, where the system likes.
        let place = unsafe { libc::mmap(ptr::null_mut(), size, usable, own | libc::MAP_ANONYMOUS, -1, 0) };
        let place = if place == libc::MAP_FAILED { None } else { NonNull::new(place) };
        place.map(|place| (Block(place.cast()), size))
    }

    fn page_size() -> usize {
        // SAFETY: it only reads a number.
        unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn layout(pages: usize) -> Layout {
            Layout::from_size_align(pages * page_size(), 64).unwrap()
        }

        fn have(layout: Layout) -> NonNull<u8> {
            Pages.allocate(layout).unwrap().cast()
        }

        fn fill(place: NonNull<u8>, layout: Layout, with: u8) {
            // SAFETY: it was allocated with this layout.
            unsafe { place.write_bytes(with, layout.size()) };
        }

        fn holds(place: NonNull<u8>, layout: Layout, what: u8) -> bool {
            // SAFETY: it was allocated with this layout, and has been filled.
            unsafe { NonNull::slice_from_raw_parts(place, layout.size()).as_ref() }
                .iter()
                .all(|byte| *byte == what)
        }

        /// Blocks of many sizes come and go, more of them than stay warm; nobody's is touched by the others.
        #[test]
        fn a_block_is_one_callers_alone() {
            let mut rng = fastrand::Rng::with_seed(7);
            let mut blocks = Vec::new();
            for turn in 0..4_000 {
                if blocks.len() < 200 || rng.bool() {
                    let layout = layout(rng.usize(1..9));
                    let (block, mark) = (have(layout), turn as u8);
                    fill(block, layout, mark);
                    blocks.push((block, layout, mark));
                } else {
                    let (block, layout, mark) = blocks.swap_remove(rng.usize(..blocks.len()));
                    assert!(holds(block, layout, mark), "turn {turn}");
                    // SAFETY: it was allocated with this layout, and is not used again.
                    unsafe { Pages.deallocate(block, layout) };
                }
            }
            assert!(blocks.iter().all(|(block, layout, mark)| holds(*block, *layout, *mark)));
        }

        /// In a pool of its own, so that no other test takes part.
        #[test]
        fn a_block_that_went_back_is_had_again() {
            let mut pool = Pool { free: BTreeMap::new(), warm: 0, rest: None };
            let size = 4 * page_size();
            let [first, second] = [(); 2].map(|()| pool.take(size).unwrap());
            let [first_at, second_at] = [first.0, second.0];
            assert_ne!(first_at, second_at);
            assert!(pool.keep_warm(first, size).is_ok());
            pool.keep(second, size);
            assert_eq!(pool.take(size).map(|block| block.0), Some(first_at), "the one with its pages first");
            assert_eq!(pool.take(size).map(|block| block.0), Some(second_at));
            assert_eq!(pool.warm, 0);
        }

        #[test]
        fn only_so_much_stays_warm() {
            let mut pool = Pool { free: BTreeMap::new(), warm: 0, rest: None };
            let size = page_size();
            let blocks: Vec<Block> = (0..2 * MOST_WARM / size).map(|_| pool.take(size).unwrap()).collect();
            let refused = blocks.into_iter().filter_map(|block| pool.keep_warm(block, size).err()).count();
            assert_eq!(refused, MOST_WARM / size);
        }

        #[test]
        fn a_block_larger_than_a_region_has_one_of_its_own() {
            let layout = layout(REGION / page_size() + 1);
            let block = have(layout);
            fill(block, layout, 1);
            assert!(holds(block, layout, 1));
            // SAFETY: it was allocated with this layout, and is not used again.
            unsafe { Pages.deallocate(block, layout) };
        }
    }
}
