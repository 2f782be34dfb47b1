//! The text of a field on its way.

use http::HeaderValue;

/// What most fields fit into.
const SHORT: usize = 96;

/// The text of a field on its way. It is copied once, to where it is sent from, which then has just the size it needs;
/// before that, most need no room on the heap.
pub(crate) struct Text {
    short: [u8; SHORT],
    length: usize,
    /// All of it, once it is too long.
    long: Vec<u8>,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { short: [0; SHORT], length: 0, long: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    #[inline]
    pub(crate) fn push(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        match self.short.get_mut(self.length..end) {
            Some(room) if self.long.is_empty() => {
                room.copy_from_slice(text);
                self.length = end;
            }
            _ => self.push_long(text),
        }
    }

    #[cold]
    fn push_long(&mut self, text: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.length]);
        }
        self.long.extend_from_slice(text);
    }

    /// A number as structured fields can say it: at most fifteen digits.
    pub(crate) fn push_number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number.min(MOST)).as_bytes());
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.length] } else { &self.long }
    }

    pub(crate) fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.bytes()).expect("structured fields are printable ASCII")
    }
}

/// What structured fields can count to.
const MOST: u64 = 999_999_999_999_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_for_the_stack_is_whole_all_the_same() {
        for piece in [1, 7, SHORT - 1, SHORT, SHORT + 1] {
            let (mut text, mut expected) = (Text::new(), Vec::new());
            assert!(text.is_empty());
            for letter in b'a'..=b'z' {
                let piece = vec![letter; piece];
                text.push(&piece);
                expected.extend_from_slice(&piece);
                assert_eq!(text.value().as_bytes(), expected);
            }
            text.push(b"");
            text.push(b"!"); // would fit into what was left on the stack
            expected.push(b'!');
            assert_eq!(text.value().as_bytes(), expected);
        }
    }

    #[test]
    fn numbers_have_fifteen_digits_at_most() {
        let said = |number| {
            let mut text = Text::new();
            text.push_number(number);
            text.value()
        };
        assert_eq!(said(0), "0");
        assert_eq!(said(MOST - 1), "999999999999998");
        assert_eq!(said(u64::MAX), "999999999999999");
    }
}
