//! "Did you mean …?"

/// The candidate that somebody who wrote `word` most likely meant, if any comes close.
pub(crate) fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let length = word.chars().count();
    // A word of which nothing is left would be another word.
    let most = (length / 3).max(1).min(length.saturating_sub(1));
    let near = candidates.into_iter().filter(|candidate| candidate.len().abs_diff(word.len()) <= 4 * most);
    let scored = near.map(|candidate| (distance(word, candidate), candidate));
    let close = scored.filter(|(distance, _)| *distance <= most);
    close.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// The candidate that is nearest to a word, however far that is.
///
/// # Examples
/// ```
/// assert_eq!(tollgate_policy::nearest("colour", ["key", "cost"]), Some("cost"));
/// ```
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    candidates.into_iter().min_by_key(|candidate| distance(word, candidate))
}

/// `did you mean "x"?`, if anything comes close to a word that is none of the candidates.
///
/// # Examples
/// ```
/// use tollgate_policy::did_you_mean;
///
/// assert_eq!(did_you_mean("raet", ["key", "rate"]).as_deref(), Some("did you mean \"rate\"?"));
/// assert_eq!(did_you_mean("colour", ["key", "rate"]), None);
/// ```
pub fn did_you_mean<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    closest(word, candidates).map(|candidate| format!("did you mean {candidate:?}?"))
}

/// How many letters must be put in, left out, replaced, or swapped with their neighbour. Case and the kind of dash do not
/// count.
fn distance(left: &str, right: &str) -> usize {
    let letters = |text: &str| -> Vec<char> {
        text.chars().take(64).map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    let (left, right) = (letters(left), letters(right));
    let mut rows = vec![(0..=right.len()).collect::<Vec<_>>()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let differ = usize::from(left[i - 1] != right[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differ);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        for (left, right, expected) in [
            ("", "", 0),
            ("rate", "rate", 0),
            ("rat", "rate", 1),
            ("raet", "rate", 1),
            ("if_store_fails", "if-store-fails", 0),
            ("Rate", "rate", 0),
            ("kitten", "sitting", 3),
            ("", "abc", 3),
        ] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn suggests_the_nearest_and_nothing_far() {
        let fields = ["rate", "replaces", "mode", "match"];
        assert_eq!(closest("rates", fields), Some("rate"));
        assert_eq!(closest("replace", fields), Some("replaces"));
        assert_eq!(closest("mach", fields), Some("match"));
        assert_eq!(closest("colour", fields), None);
        assert_eq!(closest("a", ["b"]), None);
        assert_eq!(did_you_mean("mdoe", fields).as_deref(), Some("did you mean \"mode\"?"));
    }
}
