//! A name for a fault that can be read aloud.

use std::fmt;
use std::str::FromStr;

/// The name of one fault: twelve letters and digits, such as `7KQ2-M4XW-9BTD`, 60 random bits.
///
/// In Crockford's alphabet, which has no I, L, O or U, so that nothing is mistaken when it is read aloud or copied by
/// hand; [`from_str`](FromStr::from_str) takes small letters, reads I and L as one and O as zero, and does not mind the
/// dashes. Among a million faults, two have the same name with a probability of one in two million.
///
/// # Examples
/// ```
/// use tollgate_flow::{Fault, FaultId};
///
/// let id = Fault::new("the disk is full").id();
/// assert_eq!(id.to_string().parse(), Ok(id));
/// let spoken: FaultId = "ooo0 llll 9btd".parse().unwrap();
/// assert_eq!(spoken.to_string(), "0000-1111-9BTD");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultId(u64);

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LETTERS: u32 = 12;

impl FaultId {
    /// One that nobody else has, as far as `rng` is random.
    pub fn random(rng: &mut fastrand::Rng) -> Self {
        Self(rng.u64(..1 << (5 * LETTERS)))
    }
}

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'-'; 14];
        for (place, letter) in (0..LETTERS).zip([0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13]) {
            text[letter] = ALPHABET[(self.0 >> (5 * (LETTERS - 1 - place)) & 31) as usize];
        }
        f.pad(str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultId({self})")
    }
}

impl FromStr for FaultId {
    type Err = NoFaultId;

    fn from_str(text: &str) -> Result<Self, NoFaultId> {
        let mut bits = 0;
        let mut letters = 0;
        for letter in text.chars().filter(|letter| !matches!(letter, '-' | ' ')) {
            letters += 1;
            if letters > LETTERS {
                return Err(NoFaultId);
            }
            bits = bits << 5 | value_of(letter)?;
        }
        if letters == LETTERS { Ok(Self(bits)) } else { Err(NoFaultId) }
    }
}

fn value_of(letter: char) -> Result<u64, NoFaultId> {
    let letter = match letter.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        letter => letter,
    };
    ALPHABET.iter().position(|known| char::from(*known) == letter).map(|at| at as u64).ok_or(NoFaultId)
}

/// The text is not the id of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFaultId;

impl fmt::Display for NoFaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of a fault is twelve letters and digits, such as 7KQ2-M4XW-9BTD")
    }
}

impl std::error::Error for NoFaultId {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits_are_written_from_the_highest() {
        assert_eq!(FaultId(0).to_string(), "0000-0000-0000");
        assert_eq!(FaultId(31).to_string(), "0000-0000-000Z");
        assert_eq!(FaultId(1 << 55).to_string(), "1000-0000-0000");
        assert_eq!(FaultId((1 << 60) - 1).to_string(), "ZZZZ-ZZZZ-ZZZZ");
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in
            ["", "7KQ2-M4XW-9BT", "7KQ2-M4XW-9BTDD", "7KQ2-M4XW-9BTU", "7KQ2-M4XW-9BT!", "７KQ2-M4XW-9BTD"]
        {
            assert_eq!(text.parse::<FaultId>(), Err(NoFaultId), "{text:?}");
        }
        assert_eq!("Z".repeat(1_000_000).parse::<FaultId>(), Err(NoFaultId));
    }

    #[test]
    fn a_seed_gives_the_same_ids_and_no_two_alike() {
        let ids = |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            (0..10_000).map(|_| FaultId::random(&mut rng)).collect::<HashSet<_>>()
        };
        assert_eq!(ids(7), ids(7));
        assert_eq!(ids(7).len(), 10_000);
        assert_eq!(ids(7).intersection(&ids(8)).count(), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bits in 0_u64..1 << 60) {
            let id = FaultId(bits);
            prop_assert_eq!(id.to_string().parse::<FaultId>(), Ok(id));
            prop_assert_eq!(id.to_string().replace('-', "").to_lowercase().parse::<FaultId>(), Ok(id));
        }
    }
}
