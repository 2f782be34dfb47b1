//! Texts that are kept for as long as the program runs.
//!
//! A field that says the same in every answer is cloned for each. Where its text is kept, nobody counts the clones; otherwise all
//! threads that answer would write to the same count, twice for each answer.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use http::HeaderValue;

/// So many texts are kept at most, none longer than that: whoever makes ever new limits does not fill the memory.
const MOST: usize = 1_024;
const LONGEST: usize = 128;

static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// A field with this text, which is kept if there is room.
pub(crate) fn kept(text: String) -> HeaderValue {
    match keep(&text) {
        Some(text) => HeaderValue::from_static(text),
        None => HeaderValue::try_from(text).expect("structured fields are printable ASCII"),
    }
}

fn keep(text: &str) -> Option<&'static str> {
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    if let Some(known) = all.get(text) {
        return Some(known);
    }
    if all.len() >= MOST || text.len() > LONGEST {
        return None;
    }
    let text: &'static str = Box::leak(text.into());
    all.insert(text);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_not_all_are() {
        let first = keep("the same").expect("there is room");
        assert!(std::ptr::eq(first, keep("the same").expect("it is known")));
        assert_eq!(keep(&"x".repeat(LONGEST + 1)), None);
        let count = (0..2 * MOST).filter(|number| keep(&format!("text {number}")).is_some()).count();
        assert!((MOST / 2..MOST).contains(&count), "{count}"); // less the one above, and what other tests keep
        assert_eq!(kept(format!("text {}", 2 * MOST)), "text 2048");
        assert!(std::ptr::eq(first, keep("the same").expect("it is still known")));
    }
}
