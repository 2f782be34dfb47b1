//! What stands for a key: a fingerprint of 64 bits under a seed that nobody outside knows.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// A seed for fingerprints. Two processes do not share one, so keys that collide in one do not collide in the next, and
/// nobody can choose keys that do.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    bits: [u64; 2],
    shared: SharedSeed,
}

impl Seed {
    /// The seed of this process.
    pub(crate) fn of_process() -> Self {
        static BITS: OnceLock<[u64; 2]> = OnceLock::new();
        Self::from_bits(*BITS.get_or_init(|| [random(), random()]))
    }

    /// The seed with these [`bits`](Self::bits).
    pub(crate) fn from_bits(bits: [u64; 2]) -> Self {
        Self { bits, shared: SharedSeed::from_u64(bits[1]) }
    }

    pub(crate) fn bits(&self) -> [u64; 2] {
        self.bits
    }

    /// The fingerprint of a key; never zero. Two keys have the same one with a chance of 2^-64, and then share a state.
    #[inline]
    pub(crate) fn print<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.bits[0], &self.shared);
        key.hash(&mut hasher);
        hasher.finish().max(1)
    }
}

/// Sixty-four bits of what the system gives the standard library for its hash maps.
fn random() -> u64 {
    std::hash::RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bits_give_the_same_prints_and_others_give_others() {
        let (one, other) = (Seed::from_bits([1, 2]), Seed::from_bits([1, 3]));
        assert_eq!(one.print("key"), Seed::from_bits(one.bits()).print("key"));
        assert_ne!(one.print("key"), other.print("key"));
        assert_ne!(one.print("key"), one.print("kez"));
    }

    /// Small numbers in a row, as keys often are, with many seeds: all bits of the fingerprints must vary. (foldhash's fast
    /// hasher fails this.)
    #[test]
    fn numbers_in_a_row_are_spread_over_every_part_of_a_fingerprint() {
        for seed in 0..2_000_u64 {
            let seed = Seed::from_bits([seed, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)]);
            for shift in [58, 32, 26] {
                let mut keys = [0; 64];
                (0..6_400_u64).for_each(|key| keys[(seed.print(&key) >> shift) as usize % 64] += 1);
                let (least, most) = (*keys.iter().min().unwrap(), *keys.iter().max().unwrap());
                assert!(least > 40 && most < 180, "{least} to {most} of 100 with {seed:?}, from bit {shift}");
            }
        }
    }

    #[test]
    fn a_process_has_one_seed() {
        assert_eq!(Seed::of_process().bits(), Seed::of_process().bits());
    }
}
