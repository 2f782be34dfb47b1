//! The script, put together from the algorithms that a call needs.
//!
//! A script's functions are made anew at each call, so one that knows everything would be slower for everybody. There is one for
//! each set of algorithms that occur together, of which most callers only ever use one or two; and deciding, which is what
//! nearly all calls do, has a script of its own, without what only changes need.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tollgate::Kind;

const SHEBANG: &str = "#!lua\n"; // so that the server refuses up front where a write would fail: no memory, a replica
const SERVER_CLOCK: &str = include_str!("../lua/clock_server.lua");
const GIVEN_CLOCK: &str = include_str!("../lua/clock_given.lua");
const LEAP: &str = include_str!("../lua/leap.lua");
const LEVEL: &str = include_str!("../lua/level.lua");
const DECIDE: &str = include_str!("../lua/decide.lua");
const CHANGE: &str = include_str!("../lua/change.lua");
const LEASE: &str = include_str!("../lua/lease.lua");
/// The line in each algorithm's file after which comes what deciding does not need.
const ONLY_FOR_CHANGES: &str = "-- Only for changes.\n";

/// An algorithm's part of the script.
struct Part {
    code: u8,
    /// What the script calls it.
    name: &'static str,
    /// The files it needs, in order.
    files: &'static [&'static str],
}

const BUCKET: &str = include_str!("../lua/token_bucket.lua");
const LEAKY: &str = include_str!("../lua/leaky_bucket.lua");
const FIXED: &str = include_str!("../lua/fixed_window.lua");
const PACED: &str = include_str!("../lua/paced_window.lua");
const LOG: &str = include_str!("../lua/sliding_log.lua");
const COUNTER: &str = include_str!("../lua/sliding_counter.lua");
const PARTS: &str = include_str!("../lua/sub_windows.lua");

static PARTS_OF: [Part; 8] = [
    Part { code: 1, name: "token_bucket", files: &[LEVEL, BUCKET] },
    Part { code: 2, name: "leaky_bucket", files: &[LEVEL, LEAKY] },
    Part { code: 3, name: "leaky_queue", files: &[LEVEL, LEAKY] },
    Part { code: 4, name: "fixed_window", files: &[LEVEL, FIXED] },
    Part { code: 5, name: "paced_window", files: &[LEVEL, FIXED, PACED] },
    Part { code: 6, name: "sliding_log", files: &[LOG] },
    Part { code: 7, name: "sliding_counter", files: &[COUNTER] },
    Part { code: 8, name: "sub_windows", files: &[PARTS] },
];

/// The number by which the script knows an algorithm.
pub(crate) fn code_of(kind: Kind) -> Option<u8> {
    Some(match kind {
        Kind::TokenBucket => 1,
        Kind::LeakyBucket => 2,
        Kind::LeakyQueue => 3,
        Kind::FixedWindow => 4,
        Kind::PacedWindow => 5,
        Kind::SlidingLog => 6,
        Kind::SlidingCounter => 7,
        Kind::SubWindows => 8,
        _ => return None,
    })
}

/// What a script does with the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    Decide,
    Change,
    Lease,
}

/// What a script must know: a set of algorithms, and what it does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Needs {
    codes: u16,
    frame: Frame,
}

impl Needs {
    pub(crate) fn of(frame: Frame, codes: impl IntoIterator<Item = u8>) -> Self {
        Self { codes: codes.into_iter().fold(0, |codes, code| codes | 1 << code), frame }
    }

    fn has(self, code: u8) -> bool {
        self.codes >> code & 1 == 1
    }
}

/// A script, and the name by which a server that has seen it knows it.
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl Script {
    fn new(text: String) -> Self {
        Self { hash: redis::Script::new(&text).get_hash().to_owned(), text }
    }
}

/// All scripts that were needed so far.
pub(crate) struct Scripts {
    clock: &'static str,
    made: RwLock<HashMap<Needs, Arc<Script>>>,
}

impl Scripts {
    /// Scripts that go by the server's clock, or by one that is given to them.
    pub(crate) fn new(clock_is_given: bool) -> Self {
        let clock = if clock_is_given { GIVEN_CLOCK } else { SERVER_CLOCK };
        Self { clock, made: RwLock::default() }
    }

    /// The script for these needs.
    pub(crate) fn of(&self, needs: Needs) -> Arc<Script> {
        // Whoever panics here leaves nothing half done.
        if let Some(script) = self.made.read().unwrap_or_else(PoisonError::into_inner).get(&needs) {
            return Arc::clone(script);
        }
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(made.entry(needs).or_insert_with(|| Arc::new(Script::new(text(self.clock, needs)))))
    }
}

fn text(clock: &str, needs: Needs) -> String {
    let parts: Vec<&Part> = PARTS_OF.iter().filter(|part| needs.has(part.code)).collect();
    let mut files: Vec<&str> = Vec::new();
    for file in parts.iter().flat_map(|part| part.files) {
        if !files.contains(file) {
            files.push(file);
        }
    }
    let cut = |file: &&'static str| match file.split_once(ONLY_FOR_CHANGES) {
        Some((first, _)) if needs.frame != Frame::Change => first,
        _ => file,
    };
    let files: String = files.iter().map(cut).collect();
    let kinds: Vec<String> = parts.iter().map(|part| format!("[{}] = {}", part.code, part.name)).collect();
    let frame = match needs.frame {
        Frame::Decide => DECIDE,
        Frame::Change => CHANGE,
        Frame::Lease => LEASE,
    };
    format!("{SHEBANG}{clock}{LEAP}{files}local kinds = {{ {} }}\n{frame}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_algorithms_it_needs_once_and_no_others() {
        for frame in [Frame::Decide, Frame::Change, Frame::Lease] {
            let text = text(SERVER_CLOCK, Needs::of(frame, [5, 4]));
            assert_eq!(text.matches("local function level_read").count(), 1);
            assert_eq!(text.matches("local fixed_window =").count(), 1);
            assert!(text.contains("local kinds = { [4] = fixed_window, [5] = paced_window }"));
            assert!(!text.contains("local token_bucket") && !text.contains("local sliding_log"));
            assert!(text.starts_with("#!lua\n"));
            assert_eq!(text.contains("level_undo"), frame == Frame::Change, "deciding undoes nothing");
        }
    }

    #[test]
    fn every_algorithm_has_a_code_of_its_own_and_a_part_that_only_changes_need() {
        let mut codes: Vec<u8> = Kind::ALL.iter().filter_map(|kind| code_of(*kind)).collect();
        codes.sort_unstable();
        assert_eq!(codes, PARTS_OF.each_ref().map(|part| part.code));
        for file in PARTS_OF.iter().flat_map(|part| part.files) {
            assert_eq!(file.matches(ONLY_FOR_CHANGES).count(), 1);
        }
    }

    /// Answers, item 19: a log in Redis is as deep as one in process may be.
    #[test]
    fn the_depth_of_a_log_is_that_of_core() {
        let depth = format!("\nlocal MOST_ENTRIES = {}\n", tollgate::SlidingLog::MAX_ENTRIES);
        assert!(LOG.contains(&depth));
    }

    #[test]
    fn scripts_are_made_once() {
        let scripts = Scripts::new(false);
        let one = scripts.of(Needs::of(Frame::Decide, [1]));
        assert!(Arc::ptr_eq(&one, &scripts.of(Needs::of(Frame::Decide, [1, 1]))));
        let others = [(Frame::Decide, 2), (Frame::Change, 1), (Frame::Lease, 1)]
            .map(|(frame, code)| scripts.of(Needs::of(frame, [code])));
        assert!(others.iter().all(|other| other.hash != one.hash));
        assert_ne!(one.hash, Scripts::new(true).of(Needs::of(Frame::Decide, [1])).hash);
    }
}
