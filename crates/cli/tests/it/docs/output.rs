//! Compares the output that a page shows with the actual output.
//!
//! A line `…` stands for any number of lines, and `…` within a line for any text. A line that begins with `# ` is a comment, unless the output has that line.

const ANY: &str = "…";

/// Whether the lines on the page match the actual ones.
pub(crate) fn matches(shown: &[String], actual: &[String]) -> bool {
    let (shown, actual) = (without_end(shown), without_end(actual));
    // Blank lines between the output and a comment need not be output.
    let tail = shown.len() - shown.iter().rev().take_while(|line| is_comment(line)).count();
    // `can[i]`: the lines of the page so far match the first `i` actual lines.
    let mut can = vec![false; actual.len() + 1];
    can[0] = true;
    for (at, line) in shown.iter().enumerate() {
        let is_optional = is_comment(line) && (at >= tail || !line.trim().is_empty());
        let mut next = vec![false; can.len()];
        for i in 0..can.len() {
            next[i] = match line.trim() {
                ANY => can[i] || (i > 0 && next[i - 1]),
                _ if is_optional && can[i] => true,
                _ => i > 0 && can[i - 1] && line_matches(line, &actual[i - 1]),
            };
        }
        can = next;
    }
    can[actual.len()]
}

/// The output to show: the actual one, with the lines of the page that match it, such as those with `…`.
pub(crate) fn blessed(shown: &[String], actual: &[String]) -> Vec<String> {
    let (kept, tail) = split_tail(shown, actual);
    let actual = without_end(actual);
    let mut lines = Vec::new();
    let (mut from, mut to) = (0, 0);
    for (i, j) in pairs(kept, actual) {
        lines.extend(gap(&kept[from..i], &actual[to..j]));
        lines.push(kept[i].clone());
        (from, to) = (i + 1, j + 1);
    }
    lines.extend(gap(&kept[from..], &actual[to..]));
    lines.extend(tail.iter().cloned());
    lines
}

/// Whether a line on the page matches an actual one.
fn line_matches(shown: &str, actual: &str) -> bool {
    let (shown, actual) = (shown.trim_end(), actual.trim_end());
    let Some((start, rest)) = shown.split_once(ANY) else { return shown == actual };
    let Some(mut left) = actual.strip_prefix(start) else { return false };
    let parts: Vec<&str> = rest.split(ANY).collect();
    let (end, middle) = parts.split_last().expect("split gives at least one part");
    for part in middle {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(end)
}

/// Whether a line may stand there for the reader only: a comment, or a blank line.
pub(crate) fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with("# ")
}

/// Lines without the blank ones at their end.
fn without_end(lines: &[String]) -> &[String] {
    let blank = lines.iter().rev().take_while(|line| line.trim().is_empty()).count();
    &lines[..lines.len() - blank]
}

/// Splits off the comments and blank lines that lead to the next command.
fn split_tail<'a>(shown: &'a [String], actual: &[String]) -> (&'a [String], &'a [String]) {
    let is_tail = |line: &&String| is_comment(line) && (line.trim().is_empty() || !actual.contains(line));
    let tail = shown.iter().rev().take_while(is_tail).count();
    shown.split_at(shown.len() - tail)
}

/// The longest common subsequence: which lines of the page stand for which actual lines.
fn pairs(shown: &[String], actual: &[String]) -> Vec<(usize, usize)> {
    let is_pair = |i: usize, j: usize| shown[i].trim() != ANY && line_matches(&shown[i], &actual[j]);
    let mut longest = vec![vec![0; actual.len() + 1]; shown.len() + 1];
    for i in (0..shown.len()).rev() {
        for j in (0..actual.len()).rev() {
            let skip = longest[i + 1][j].max(longest[i][j + 1]);
            longest[i][j] = if is_pair(i, j) { skip.max(longest[i + 1][j + 1] + 1) } else { skip };
        }
    }
    let (mut found, mut i, mut j) = (Vec::new(), 0, 0);
    while i < shown.len() && j < actual.len() {
        if is_pair(i, j) && longest[i][j] == longest[i + 1][j + 1] + 1 {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    found
}

/// What to show between two lines that match: the actual lines, but a `…` of the page stays.
fn gap(shown: &[String], actual: &[String]) -> Vec<String> {
    let Some(any) = shown.iter().position(|line| line.trim() == ANY) else { return actual.to_vec() };
    let (before, after) = (any.min(actual.len()), shown.len() - any - 1);
    let after = after.min(actual.len() - before);
    let mut lines = actual[..before].to_vec();
    lines.push(shown[any].clone());
    lines.extend_from_slice(&actual[actual.len() - after..]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn is_match(shown: &str, actual: &str) -> bool {
        matches(&lines(shown), &lines(actual))
    }

    fn bless(shown: &str, actual: &str) -> String {
        blessed(&lines(shown), &lines(actual)).join("\n")
    }

    #[test]
    fn equal_lines_match() {
        assert!(is_match("a\nb", "a\nb"));
        assert!(is_match("a\nb\n\n", "a  \nb"), "blanks at an end do not count");
        assert!(!is_match("a\nb", "a"));
        assert!(!is_match("a", "a\nb"));
        assert!(!is_match("", "a"));
    }

    #[test]
    fn an_ellipsis_alone_matches_any_lines() {
        assert!(is_match("…", ""));
        assert!(is_match("a\n…\nd", "a\nb\nc\nd"));
        assert!(is_match("a\n…\nd", "a\nd"));
        assert!(is_match("…\nx\n…", "1\nx\n2\n3"));
        assert!(!is_match("…\nx", "x\ny"));
    }

    #[test]
    fn an_ellipsis_in_a_line_matches_any_text() {
        assert!(is_match("id: …", "id: 7"));
        assert!(is_match("a…b…c", "a1b2c"));
        assert!(is_match("…b…", "abc"));
        assert!(!is_match("a…b", "ab c"));
        assert!(!is_match("ab…ba", "aba"), "its ends do not overlap");
    }

    #[test]
    fn comments_are_ignored_unless_they_are_output() {
        assert!(is_match("# what follows\na", "a"));
        assert!(is_match("# HELP x\na", "# HELP x\na"));
        assert!(!is_match("a", "# HELP x\na"));
        assert!(is_match("a\n\n# what follows\n\n# and more", "a"));
        assert!(!is_match("a\n\nb", "a\nb"), "a blank line within the output counts");
    }

    #[test]
    fn blessing_takes_the_actual_output() {
        assert_eq!(bless("", "a\nb"), "a\nb");
        assert_eq!(bless("old\nsame", "new\nsame"), "new\nsame");
        assert_eq!(bless("a\nb", ""), "");
    }

    #[test]
    fn blessing_keeps_lines_that_match() {
        assert_eq!(bless("id: …\nold", "id: 7\nnew"), "id: …\nnew");
        assert_eq!(bless("a\n…\nx", "b\nc\nd\nx"), "b\n…\nx");
        assert_eq!(bless("…\nremaining: 1", "date\nserver\nremaining: 2"), "…\nremaining: 2");
    }

    #[test]
    fn blessing_keeps_what_leads_to_the_next_command() {
        assert_eq!(bless("old\n\n# next", "new"), "new\n\n# next");
        assert_eq!(bless("old\n# EOF", "new\n# EOF"), "new\n# EOF");
    }

    #[test]
    fn what_was_blessed_matches() {
        for (shown, actual) in
            [("…\nx", "a\nb"), ("a\n…", "b"), ("…\na\n…\nb", "1\na\n2\nc"), ("# c\nx", "y")]
        {
            let blessed = blessed(&lines(shown), &lines(actual));
            assert!(matches(&blessed, &lines(actual)), "{shown:?} {actual:?}: {blessed:?}");
        }
    }
}
