//! Outcomes that nobody has read yet, in the order in which they are to be read.

use std::collections::VecDeque;

/// Outcomes in order of completion, or of input.
#[derive(Debug)]
pub(super) enum Unread<T> {
    /// As they come.
    Completion(VecDeque<T>),
    /// By the position of their jobs in the source: `line[0]` is the one at `head`.
    Input { head: u64, line: VecDeque<Option<T>> },
}

impl<T> Unread<T> {
    pub(super) fn new(in_input_order: bool) -> Self {
        if in_input_order {
            Self::Input { head: 0, line: VecDeque::new() }
        } else {
            Self::Completion(VecDeque::new())
        }
    }

    pub(super) fn push(&mut self, position: u64, item: T) {
        match self {
            Self::Completion(line) => line.push_back(item),
            Self::Input { head, line } => {
                let at = (position - *head) as usize; // at most the window
                if line.len() <= at {
                    line.resize_with(at + 1, || None);
                }
                line[at] = Some(item);
            }
        }
    }

    /// Takes over what lies in `done`.
    pub(super) fn take_over(&mut self, done: &mut VecDeque<T>, position: impl Fn(&T) -> u64) {
        match self {
            Self::Completion(line) if line.is_empty() => std::mem::swap(line, done),
            _ => done.drain(..).for_each(|item| self.push(position(&item), item)),
        }
    }

    /// The next one, if it is there.
    pub(super) fn pop(&mut self) -> Option<T> {
        match self {
            Self::Completion(line) => line.pop_front(),
            Self::Input { head, line } => {
                let item = line.front_mut()?.take()?;
                line.pop_front();
                *head += 1;
                Some(item)
            }
        }
    }

    /// The next one there is, when those before it will never come.
    pub(super) fn pop_any(&mut self) -> Option<T> {
        if let Self::Input { head, line } = self {
            while matches!(line.front(), Some(None)) {
                line.pop_front();
                *head += 1;
            }
        }
        self.pop()
    }

    /// Whether outcomes that were put away by others can be taken over.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Completion(line) => line.is_empty(),
            Self::Input { .. } => true, // it never holds more than was pulled
        }
    }

    /// How many more may be pulled after `pulled`, if at most `window` may be ahead of the one to be read next.
    pub(super) fn room(&self, pulled: u64, window: usize) -> usize {
        match self {
            Self::Completion(_) => usize::MAX,
            Self::Input { head, .. } => window.saturating_sub((pulled - head) as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_completion_they_come_as_they_came() {
        let mut unread = Unread::new(false);
        for position in [2, 0, 1] {
            unread.push(position, position);
        }
        assert!(!unread.has_room());
        assert_eq!(
            [unread.pop(), unread.pop(), unread.pop(), unread.pop()],
            [Some(2), Some(0), Some(1), None]
        );
    }

    #[test]
    fn in_order_of_input_a_slow_head_holds_back_the_others_and_the_source() {
        let mut unread = Unread::new(true);
        for position in [2, 1] {
            unread.push(position, position);
        }
        assert_eq!(unread.pop(), None);
        assert_eq!([unread.room(3, 4), unread.room(4, 4), unread.room(9, 4)], [1, 0, 0]);
        unread.push(0, 0);
        assert_eq!([unread.pop(), unread.pop()], [Some(0), Some(1)]);
        assert_eq!(unread.room(4, 4), 2);
    }

    #[test]
    fn gaps_are_skipped_when_nothing_more_comes() {
        let mut unread = Unread::new(true);
        for position in [5, 2] {
            unread.push(position, position);
        }
        assert_eq!([unread.pop_any(), unread.pop_any(), unread.pop_any()], [Some(2), Some(5), None]);
    }
}
