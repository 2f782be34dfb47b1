//! The keys, and the order in which they come.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

/// A type of key: any number of different ones, the same in every run.
pub(crate) trait Key: Clone + Eq + Hash + Send + Sync + 'static {
    /// As in the names of the cases.
    const NAME: &'static str;

    /// The key of a number; different numbers have different keys.
    fn nth(number: u64) -> Self;
}

impl Key for u64 {
    const NAME: &'static str = "u64";

    fn nth(number: u64) -> Self {
        scrambled(number)
    }
}

impl Key for String {
    const NAME: &'static str = "str36";

    /// 36 bytes in the form of a UUID, as API keys and tenants often have it.
    fn nth(number: u64) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let halves = [scrambled(number), scrambled(!number)];
        let digit = |place: usize| DIGITS[(halves[place / 16] >> (4 * (place % 16)) & 15) as usize];
        let mut text = Self::with_capacity(36);
        for place in 0..32 {
            if matches!(place, 8 | 12 | 16 | 20) {
                text.push('-');
            }
            text.push(char::from(digit(place)));
        }
        text
    }
}

/// The finisher of splitmix64: a permutation, so no two numbers share a key, and neighbours are far apart.
fn scrambled(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// How often which key comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spread {
    /// All alike.
    Uniform,
    /// The key of rank r with a weight of 1/r (an exponent of 1.0): of a million keys the first has 7 % of the calls.
    Zipf,
}

impl Spread {
    pub(crate) const ALL: [Self; 2] = [Self::Uniform, Self::Zipf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        }
    }

    /// The keys of so many calls, drawn from the first `keys` ones. They lie in memory in the order in which they are
    /// asked for, so that reading them costs next to nothing: a real key has just arrived with its request.
    pub(crate) fn calls<K: Key>(self, keys: u64, calls: usize, seed: u64) -> Vec<K> {
        let mut chance = fastrand::Rng::with_seed(seed);
        match self {
            Self::Uniform => (0..calls).map(|_| K::nth(chance.u64(0..keys))).collect(),
            Self::Zipf => {
                let sums = harmonic_sums(keys);
                let total = sums.last().copied().unwrap_or_default();
                let mut rank = || {
                    let drawn = chance.f64() * total;
                    sums.partition_point(|sum| *sum <= drawn) as u64
                };
                (0..calls).map(|_| K::nth(rank().min(keys - 1))).collect()
            }
        }
    }
}

fn harmonic_sums(terms: u64) -> Vec<f64> {
    let mut sum = 0.0;
    let term = |rank| {
        sum += 1.0 / rank as f64;
        sum
    };
    (1..=terms).map(term).collect()
}

/// Keys that an attacker would send who takes a hasher to be unseeded: they agree in 16 bits of its hash, at one end or the
/// other, which is more than a table of that many keys looks at.
pub(crate) fn colliding(guess: Guess, count: usize) -> Vec<u64> {
    let wanted = guess.place(0);
    (0..).filter(|key| guess.place(*key) == wanted).take(count).collect()
}

/// What the attacker takes for granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess {
    /// As a contender.
    pub(crate) name: &'static str,
    hasher: Unseeded,
    end: End,
}

impl Guess {
    pub(crate) const ALL: [Self; 9] = [
        Self { name: "foldhash-low", hasher: Unseeded::Foldhash, end: End::Low },
        Self { name: "foldhash-high", hasher: Unseeded::Foldhash, end: End::High },
        Self { name: "ahash-low", hasher: Unseeded::Ahash, end: End::Low },
        Self { name: "ahash-high", hasher: Unseeded::Ahash, end: End::High },
        Self { name: "siphash-low", hasher: Unseeded::Siphash, end: End::Low },
        Self { name: "siphash-high", hasher: Unseeded::Siphash, end: End::High },
        Self { name: "fnv-low", hasher: Unseeded::Fnv, end: End::Low },
        Self { name: "fnv-high", hasher: Unseeded::Fnv, end: End::High },
        // Keys 65 536 apart: the attack on a table that does not hash numbers at all.
        Self { name: "stride", hasher: Unseeded::None, end: End::Low },
    ];

    /// Where a key would lie.
    fn place(self, key: u64) -> u64 {
        match self.end {
            End::Low => self.hasher.hash(key) & 0xffff,
            End::High => self.hasher.hash(key) >> 48,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Low,
    High,
}

#[derive(Clone, Copy, Debug)]
enum Unseeded {
    Foldhash,
    Ahash,
    Siphash,
    Fnv,
    None,
}

impl Unseeded {
    fn hash(self, key: u64) -> u64 {
        match self {
            Self::Foldhash => foldhash::fast::FixedState::default().hash_one(key),
            Self::Ahash => ahash::RandomState::with_seeds(0, 0, 0, 0).hash_one(key),
            Self::Siphash => {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                hasher.finish()
            }
            Self::Fnv => key.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            }),
            Self::None => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn strings_are_36_bytes_and_all_different() {
        let keys: HashSet<String> = (0..10_000).map(String::nth).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key.len() == 36));
    }

    #[test]
    fn zipf_gives_the_first_of_a_thousand_keys_an_eighth_and_the_second_half_of_that() {
        // The thousandth harmonic number is 7.4855.
        let calls: Vec<u64> = Spread::Zipf.calls(1_000, 100_000, 1);
        let share = |rank| calls.iter().filter(|key| **key == u64::nth(rank)).count() as f64 / 100_000.0;
        assert!((share(0) - 1.0 / 7.4855).abs() < 0.005, "{}", share(0));
        assert!((share(1) - 0.5 / 7.4855).abs() < 0.005, "{}", share(1));
    }

    #[test]
    fn uniform_gives_no_key_much_more_than_another() {
        let calls: Vec<u64> = Spread::Uniform.calls(10, 100_000, 1);
        for rank in 0..10 {
            let count = calls.iter().filter(|key| **key == u64::nth(rank)).count();
            assert!((9_500..10_500).contains(&count), "{count} calls of key {rank}");
        }
    }

    #[test]
    fn chosen_keys_collide_where_they_are_meant_to_and_are_all_different() {
        for guess in Guess::ALL {
            let keys = colliding(guess, 4);
            let places: HashSet<u64> = keys.iter().map(|key| guess.place(*key)).collect();
            assert_eq!((places.len(), keys.iter().collect::<HashSet<_>>().len()), (1, 4), "{}", guess.name);
        }
    }
}
