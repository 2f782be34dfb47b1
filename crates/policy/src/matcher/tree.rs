//! Finding the limit that a descriptor's entries lead to; see [`Entry`](crate::Entry).
//!
//! A step is two lookups at most, and texts with stars are found by what they start with; so neither other entries nor other
//! limits cost anything. Only those with stars that start alike are tried one by one.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::longest::{End, Longest};
use crate::descriptor::Field;
use crate::entries::{Entry, write_entry};
use crate::pattern::Pattern;

/// How much of what a text with stars starts with is looked up.
const LONGEST_LITERAL: usize = 128;

/// A place in the tree.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    limit: Option<u32>,
    steps: Vec<Step>,
    by_text: HashMap<Box<[u8]>, usize, RandomState>,
    /// Of the steps with stars, by what they start with: which, in their order.
    by_stars: Option<Longest<Vec<usize>>>,
}

#[derive(Debug)]
struct Step {
    stars: Option<Pattern>,
    text: Box<str>,
    below: Tree,
}

impl Tree {
    /// The tree of some limits, given as their entries and ranks, in the order of the ranks.
    pub(crate) fn new<'e>(limits: impl IntoIterator<Item = (&'e [Entry], u32)>) -> Self {
        let mut tree = Self::default();
        for (entries, rank) in limits {
            let last = entries.iter().fold(&mut tree, |place, entry| place.step_to(entry));
            last.limit = Some(rank);
        }
        tree.index();
        tree
    }

    /// The place below, made if it is not there.
    fn step_to(&mut self, entry: &Entry) -> &mut Self {
        let next = self.steps.len();
        let at = *self.by_text.entry(entry.text.as_bytes().into()).or_insert(next);
        if at == next {
            let stars = entry.has_stars().then(|| Pattern::new(entry.text.as_str()));
            self.steps.push(Step { stars, text: entry.text.as_str().into(), below: Self::default() });
        }
        &mut self.steps[at].below
    }

    fn index(&mut self) {
        let mut starts: HashMap<Box<[u8]>, Vec<usize>> = HashMap::new();
        for (at, step) in self.steps.iter_mut().enumerate() {
            step.below.index();
            if let Some(stars) = &step.stars {
                let start = stars.prefix().as_bytes();
                starts.entry(start[..start.len().min(LONGEST_LITERAL)].into()).or_default().push(at);
            }
        }
        self.by_stars = (!starts.is_empty()).then(|| Longest::new(End::Front, starts));
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The rank of the limit that the entries lead to, and how many texts with stars were tried. `text` is memory to work
    /// with.
    pub(crate) fn find(&self, entries: &[Field<'_>], text: &mut Vec<u8>) -> (Option<u32>, usize) {
        let (mut place, mut tried) = (self, 0);
        for entry in entries {
            text.clear();
            write_entry(entry, text);
            match place.step(entry.0, text, &mut tried) {
                Some(at) => place = &place.steps[at].below,
                None => return (None, tried),
            }
        }
        (place.limit, tried)
    }

    /// The texts that the way of some entries goes by, as far as it goes.
    pub(crate) fn way(&self, entries: &[Field<'_>]) -> Vec<&str> {
        let (mut place, mut way, mut text) = (self, Vec::new(), Vec::new());
        for entry in entries {
            text.clear();
            write_entry(entry, &mut text);
            let Some(at) = place.step(entry.0, &text, &mut 0) else { break };
            way.push(&*place.steps[at].text);
            place = &place.steps[at].below;
        }
        way
    }

    fn step(&self, key: &str, text: &[u8], tried: &mut usize) -> Option<usize> {
        let named = |text: &[u8]| self.by_text.get(text).copied();
        named(text).or_else(|| self.first_match(text, tried)).or_else(|| named(key.as_bytes()))
    }

    /// The first of those with stars that matches.
    fn first_match(&self, text: &[u8], tried: &mut usize) -> Option<usize> {
        let mut first: Option<usize> = None;
        self.by_stars.as_ref()?.each(text, |alike| {
            for &at in alike.iter().take_while(|at| first.is_none_or(|first| **at < first)) {
                *tried += 1;
                if self.steps[at].stars.as_ref().is_some_and(|stars| stars.matches(text)) {
                    first = Some(at);
                    break;
                }
            }
        });
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(limits: &[&[&str]]) -> Tree {
        let limits: Vec<Vec<Entry>> =
            limits.iter().map(|texts| texts.iter().copied().map(Entry::new).collect()).collect();
        Tree::new(limits.iter().map(Vec::as_slice).zip(0..))
    }

    fn found(tree: &Tree, entries: &[(&str, &str)]) -> Option<u32> {
        let entries: Vec<Field<'_>> = entries.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        tree.find(&entries, &mut Vec::new()).0
    }

    #[test]
    fn what_is_named_goes_before_stars_and_stars_before_the_key() {
        let tree = tree(&[&["a"], &["a_*x"], &["a_*"], &["a_x"]]);
        assert_eq!(found(&tree, &[("a", "x")]), Some(3));
        assert_eq!(found(&tree, &[("a", "yx")]), Some(1));
        assert_eq!(found(&tree, &[("a", "y")]), Some(2));
        assert_eq!(found(&tree, &[("b", "y")]), None);
    }

    #[test]
    fn of_stars_the_first_in_the_file_wins_and_not_the_longest() {
        assert_eq!(found(&tree(&[&["a_*"], &["a_xy*"]]), &[("a", "xyz")]), Some(0));
        assert_eq!(found(&tree(&[&["a_xy*"], &["a_*"]]), &[("a", "xyz")]), Some(0));
        assert_eq!(found(&tree(&[&["a_*q"], &["a_xy*"], &["a_*"]]), &[("a", "xyz")]), Some(1));
    }

    #[test]
    fn the_way_must_end_with_the_last_entry_and_never_turns_back() {
        let tree = tree(&[&["a", "b"], &["a", "c"], &["a_x", "b"]]);
        assert_eq!(found(&tree, &[("a", "y"), ("c", "")]), Some(1));
        assert_eq!(found(&tree, &[("a", "x"), ("b", "")]), Some(2));
        assert_eq!(found(&tree, &[("a", "x"), ("c", "")]), None); // though "a", "c" would fit
        assert_eq!(found(&tree, &[("a", "y")]), None);
        assert_eq!(found(&tree, &[("a", "y"), ("c", ""), ("d", "")]), None);
        assert_eq!(found(&tree, &[]), None);
    }

    #[test]
    fn keys_and_values_are_one_text() {
        // As Envoy's service has it: this is what its files mean.
        let tree = tree(&[&["a_b"]]);
        assert_eq!(found(&tree, &[("a", "b")]), Some(0));
        assert_eq!(found(&tree, &[("a_b", "c")]), Some(0));
    }

    #[test]
    fn very_long_beginnings_are_told_apart() {
        let (same, other) = (format!("k_{}a*", "x".repeat(300)), format!("k_{}b*", "x".repeat(300)));
        let tree = tree(&[&[&same], &[&other]]);
        assert_eq!(found(&tree, &[("k", &format!("{}bz", "x".repeat(300)))]), Some(1));
    }
}
