//! Where a fault was made.

use std::backtrace::Backtrace;
use std::fmt;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A short hash of where a fault was made, to group like faults: eight hexadecimal digits.
///
/// It is made of the source line that made the fault (file, line, column) and of the names of the functions above it in the
/// backtrace, innermost first, up to the one that began the thread or was polled by tokio's runtime. Left out are functions
/// of the standard library and of this module, and repetitions, so that the depth of a recursion does not matter. Addresses,
/// times, ids and values are no part of it. Where names cannot be looked up (a stripped program,
/// [`untraced`](crate::Fault::untraced)), the source line alone makes it.
///
/// So: in one build of a program, the same way to the same line always gives the same place; another build may give
/// another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(u32);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

/// How a fault began; shared by all it is wrapped in.
pub(super) struct Origin {
    pub(super) location: &'static Location<'static>,
    trace: Option<Backtrace>,
    looked_up: OnceLock<(Place, Vec<Frame>)>,
    was_reported: AtomicBool,
}

impl Origin {
    pub(super) fn traced(location: &'static Location<'static>) -> Self {
        Self { trace: Some(Backtrace::force_capture()), ..Self::untraced(location) }
    }

    pub(super) fn untraced(location: &'static Location<'static>) -> Self {
        Self { location, trace: None, looked_up: OnceLock::new(), was_reported: AtomicBool::new(false) }
    }

    pub(super) fn place(&self) -> Place {
        self.looked_up().0
    }

    /// The functions that led here, innermost first; none if they are not known.
    pub(super) fn frames(&self) -> &[Frame] {
        &self.looked_up().1
    }

    /// Whether this is the first call. Relaxed: the flag guards nothing but itself.
    pub(super) fn is_first_report(&self) -> bool {
        !self.was_reported.swap(true, Ordering::Relaxed)
    }

    fn looked_up(&self) -> &(Place, Vec<Frame>) {
        self.looked_up.get_or_init(|| {
            let frames = self.trace.as_ref().map(|trace| frames_of(&trace.to_string())).unwrap_or_default();
            (place_of(&self.location.to_string(), &frames), frames)
        })
    }
}

const THIS_MODULE: &str = "tollgate_flow::fault::";

/// A function of the backtrace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    name: String,
    /// File, line and column.
    at: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.at.as_ref().map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

impl Frame {
    fn is_in(&self, modules: &[&str]) -> bool {
        // `<core::result::Result<..> as ..>::from_residual` is in core.
        let path = self.name.trim_start_matches('<');
        modules.iter().any(|module| path.starts_with(module))
    }

    /// Says how a fault is made and not where.
    fn is_machinery(&self) -> bool {
        // `<E as tollgate_flow::fault::error::IntoFault>::into_fault` is ours, though it is named after any E.
        self.is_in(&["std::", "core::", "alloc::", THIS_MODULE])
            || self.name.contains(&format!(" as {THIS_MODULE}"))
    }

    /// Begins a thread, or polls a task.
    fn is_root(&self) -> bool {
        self.name.contains("__rust_begin_short_backtrace") || self.is_in(&["tokio::runtime::"])
    }
}

/// Reads the frames from a printed backtrace, the only form in which the standard library gives them:
///
/// ```text
///    4: shop::orders::save
///              at ./src/orders.rs:12:9
/// ```
///
/// The machinery at the top and whatever is below the root are left out. A print that looks different gives no frames,
/// and with them the place loses what they would have told, no more.
fn frames_of(print: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in print.lines().map(str::trim_start) {
        if let Some(at) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                frame.at = Some(at.to_owned());
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|digit| digit.is_ascii_digit())
        {
            frames.push(Frame { name: name.to_owned(), at: None });
        }
    }
    let ours = frames.into_iter().skip_while(Frame::is_machinery).take_while(|frame| !frame.is_root());
    ours.filter(|frame| frame.name != "<unknown>").collect()
}

fn place_of(location: &str, frames: &[Frame]) -> Place {
    let mut names: Vec<_> =
        frames.iter().filter(|frame| !frame.is_machinery()).map(|frame| frame.name.as_str()).collect();
    names.dedup();
    let hash = names.into_iter().fold(fnv(FNV_START, location), fnv);
    Place((hash ^ hash >> 32) as u32)
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, with an end mark so that `a` + `bc` differs from `ab` + `c`: the same in every build, unlike the standard hasher.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn fnv(hash: u64, text: &str) -> u64 {
    text.bytes()
        .chain([0xff])
        .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: &str = "   0: <std::backtrace::Backtrace>::create
             at /rustc/5980/library/std/src/backtrace.rs:331:13
   1: tollgate_flow::fault::Fault::new
   2: shop::orders::save
             at ./src/orders.rs:12:9
   3: core::ops::function::FnOnce::call_once
   4: shop::walk
   5: shop::walk
  10: <shop::Page as core::future::future::Future>::poll
  11: tokio::runtime::task::core::Core<T,S>::poll
  12: shop::main
";

    fn frame(name: &str) -> Frame {
        Frame { name: name.to_owned(), at: None }
    }

    #[test]
    fn frames_are_those_between_the_machinery_and_the_root() {
        let frames = frames_of(PRINT);
        let names: Vec<_> = frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "shop::orders::save",
                "core::ops::function::FnOnce::call_once",
                "shop::walk",
                "shop::walk",
                "<shop::Page as core::future::future::Future>::poll"
            ]
        );
        assert_eq!(frames[0].to_string(), "shop::orders::save at ./src/orders.rs:12:9");
        assert_eq!(frames[2].to_string(), "shop::walk");
    }

    #[test]
    fn a_print_that_cannot_be_read_gives_no_frames() {
        for print in ["", "disabled backtrace", "at nowhere", "x: y", "0: <unknown>\n1: <unknown>"] {
            assert_eq!(frames_of(print), [], "{print:?}");
        }
    }

    #[test]
    fn the_place_is_made_of_the_line_and_of_our_functions() {
        let here =
            |names: &[&str]| place_of("a.rs:1:2", &names.iter().map(|name| frame(name)).collect::<Vec<_>>());
        let place = here(&["a::b", "a::c"]);
        assert_eq!(
            place,
            here(&[
                "a::b",
                "std::x",
                "<core::y",
                "tollgate_flow::fault::z",
                "<E as tollgate_flow::fault::I>::i",
                "a::c"
            ])
        );
        assert_eq!(place, here(&["a::b", "a::b", "a::b", "a::c"]), "recursion");
        assert_ne!(place, here(&["a::b", "a::f::<tollgate_flow::fault::Fault>", "a::c"]));
        assert_ne!(place, here(&["a::b"]));
        assert_ne!(place, here(&["a::c", "a::b"]));
        assert_ne!(place, here(&["a::ba::c"]));
        assert_ne!(here(&[]), place_of("a.rs:1:3", &[]));
    }

    /// The published test vectors of FNV-1a, 64 bits, are for texts without an end mark.
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv(FNV_START, ""), (FNV_START ^ 0xff).wrapping_mul(0x0100_0000_01b3));
        let a = 0xaf63_dc4c_8601_ec8c_u64;
        assert_eq!(fnv(FNV_START, "a"), (a ^ 0xff).wrapping_mul(0x0100_0000_01b3));
    }

    #[test]
    fn it_is_reported_once() {
        let origin = Origin::untraced(Location::caller());
        assert!(origin.is_first_report());
        assert!(!origin.is_first_report());
    }
}
