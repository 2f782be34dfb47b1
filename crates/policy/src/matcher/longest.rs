//! The longest of many texts that a value starts, or ends, with.
//!
//! By binary search over the lengths that the texts have (after Waldvogel, Varghese, Turner and Plattner, "Scalable High
//! Speed IP Routing Lookups", 1997): is the beginning of the value of that length known? Then look for a longer one, else for
//! a shorter one. For the search to be right, the beginnings of a text at the lengths where the search passes by are known
//! too, each with the longest text that it starts with itself. So a value costs as many lookups as the logarithm of the
//! number of different lengths, however many texts there are.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Which end of a value is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Front,
    Back,
}

impl End {
    fn cut(self, value: &[u8], length: usize) -> &[u8] {
        match self {
            Self::Front => &value[..length],
            Self::Back => &value[value.len() - length..],
        }
    }
}

/// Texts, each with something that belongs to it.
#[derive(Debug)]
pub(crate) struct Longest<T> {
    end: End,
    lengths: Vec<usize>,
    known: HashMap<Box<[u8]>, Option<usize>, RandomState>,
    /// What belongs to each text, and the next shorter text that it starts with.
    texts: Vec<(T, Option<usize>)>,
}

impl<T> Longest<T> {
    /// The texts must differ.
    pub(crate) fn new(end: End, texts: impl IntoIterator<Item = (Box<[u8]>, T)>) -> Self {
        let (keys, values): (Vec<Box<[u8]>>, Vec<T>) = texts.into_iter().unzip();
        let mut lengths: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut known: HashMap<&[u8], Option<usize>> = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            for length in passed(&lengths, key.len()) {
                known.entry(end.cut(key, length)).or_default();
            }
            known.insert(key, Some(index));
        }
        let (bests, parents) = nested(end, &known, keys.len());
        let known = bests.into_iter().map(|(key, best)| (key.into(), best)).collect();
        Self { end, lengths, known, texts: values.into_iter().zip(parents).collect() }
    }

    /// Calls for every text that the value starts, or ends, with, the longest first.
    pub(crate) fn each(&self, value: &[u8], mut call: impl FnMut(&T)) {
        let mut at = self.longest(value);
        while let Some((text, shorter)) = at.map(|at| &self.texts[at]) {
            call(text);
            at = *shorter;
        }
    }

    fn longest(&self, value: &[u8]) -> Option<usize> {
        let (mut low, mut high, mut best) = (0, self.lengths.len(), None);
        while low < high {
            let middle = usize::midpoint(low, high);
            let length = self.lengths[middle];
            let known =
                if length <= value.len() { self.known.get(self.end.cut(value, length)) } else { None };
            match known {
                Some(text) => (low, best) = (middle + 1, *text),
                None => high = middle,
            }
        }
        best
    }
}

/// The lengths at which the search for a text passes by before it comes to the text's own.
fn passed(lengths: &[usize], length: usize) -> Vec<usize> {
    let (mut low, mut high, mut passed) = (0, lengths.len(), Vec::new());
    while low < high {
        let middle = usize::midpoint(low, high);
        match lengths[middle].cmp(&length) {
            std::cmp::Ordering::Less => {
                passed.push(lengths[middle]);
                low = middle + 1;
            }
            std::cmp::Ordering::Equal => break,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    passed
}

/// For each beginning that is known, the longest text that it starts with; for each text, the next shorter one.
#[expect(clippy::type_complexity, reason = "two lists, used once")]
fn nested<'k>(
    end: End,
    known: &HashMap<&'k [u8], Option<usize>>,
    texts: usize,
) -> (Vec<(&'k [u8], Option<usize>)>, Vec<Option<usize>>) {
    let mut sorted: Vec<(&[u8], Option<usize>)> = known.iter().map(|(key, text)| (*key, *text)).collect();
    match end {
        End::Front => sorted.sort_unstable(),
        End::Back => sorted.sort_unstable_by(|left, right| left.0.iter().rev().cmp(right.0.iter().rev())),
    }
    let extends =
        |long: &[u8], short: &[u8]| short.len() <= long.len() && end.cut(long, short.len()) == short;
    let mut parents = vec![None; texts];
    let mut around: Vec<(&[u8], usize)> = Vec::new();
    for (key, best) in &mut sorted {
        while around.last().is_some_and(|(text, _)| !extends(key, text)) {
            around.pop();
        }
        let outer = around.last().map(|(_, text)| *text);
        match *best {
            Some(text) => {
                parents[text] = outer;
                around.push((key, text));
            }
            None => *best = outer,
        }
    }
    (sorted, parents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(end: End, texts: &[String], value: &str) -> Vec<String> {
        let longest = Longest::new(end, texts.iter().map(|text| (text.as_bytes().into(), text.clone())));
        let mut found = Vec::new();
        longest.each(value.as_bytes(), |text| found.push(text.clone()));
        found
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_over_all_finds(
            texts in prop::collection::btree_set("[ab]{0,7}", 0..40), value in "[ab]{0,9}"
        ) {
            let texts: Vec<String> = texts.into_iter().collect();
            for end in [End::Front, End::Back] {
                let fits = |text: &&String| match end {
                    End::Front => value.starts_with(text.as_str()),
                    End::Back => value.ends_with(text.as_str()),
                };
                let mut expected: Vec<String> = texts.iter().filter(fits).cloned().collect();
                expected.sort_by_key(|text| std::cmp::Reverse(text.len()));
                prop_assert_eq!(all(end, &texts, &value), expected);
            }
        }
    }

    #[test]
    fn a_chain_of_beginnings_is_walked_only_as_far_as_it_fits() {
        let chain: Vec<String> = (1..=1000).map(|length| "a".repeat(length)).collect();
        assert_eq!(all(End::Front, &chain, "aab"), ["aa", "a"]);
        assert_eq!(all(End::Back, &chain, "baa"), ["aa", "a"]);
    }
}
