//! Names for limits that have none of their own, or one that others have too.
//!
//! A name is the same whenever the limit is the same, whatever else the file has: it says whose states are whose.

use std::collections::HashSet;

use crate::draft::name_problem;

/// The names that are taken in a domain.
#[derive(Default)]
pub(super) struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// None of these is given away.
    pub(super) fn without(reserved: impl IntoIterator<Item = String>) -> Self {
        Self { taken: reserved.into_iter().collect() }
    }

    /// The label as a name, if nobody has it and it can be one. It may be reserved.
    pub(super) fn label(&mut self, label: &str, is_first: bool) -> Option<String> {
        let fits = is_first && name_problem("limit", label).is_none();
        fits.then(|| {
            self.taken.insert(label.to_owned());
            label.to_owned()
        })
    }

    /// A name made of parts: joined with `>` as they are, if that tells them apart; else what can be kept of them, and a
    /// number made of all of them.
    pub(super) fn parts(&mut self, parts: &[&str]) -> String {
        const LONGEST: usize = 96;
        let is_safe = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '>' | '~');
        let joined = parts.join(">");
        let is_plain = parts.iter().all(|part| part.chars().all(is_safe)) && joined.len() <= LONGEST;
        let mut name = if is_plain {
            joined
        } else {
            let kept = joined.chars().map(|c| if is_safe(c) || c == '>' { c } else { '-' }).take(LONGEST);
            format!("{}~{:08x}", kept.collect::<String>(), number(parts))
        };
        while !self.taken.insert(name.clone()) {
            name.push('~');
        }
        name
    }
}

/// FNV-1a, folded to 32 bits: the same everywhere and for ever, which is all that is asked of it.
fn number(parts: &[&str]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_if_that_tells_them_apart() {
        let mut names = Names::default();
        assert_eq!(names.parts(&["a", "b_*"]), "a>b_*");
        assert!(names.parts(&["a>b_*"]).starts_with("a>b_*~"));
        let (left, right) = (names.parts(&["é"]), names.parts(&["è"]));
        assert!(left != right && left.starts_with("-~") && name_problem("limit", &left).is_none());
        assert!(names.parts(&[&"x".repeat(1000)]).len() < 128);
    }

    #[test]
    fn nobody_gets_what_is_reserved_or_taken() {
        let mut names = Names::without(["a".to_owned()]);
        assert_eq!(names.parts(&["a"]), "a~");
        assert_eq!(names.label("a", true).as_deref(), Some("a"));
        assert_eq!(names.label("a", false), None);
        assert_eq!(names.label("a b", true), None);
        assert_eq!(names.parts(&["a"]), "a~~");
    }
}
