//! Where a fault was made.

use std::backtrace::Backtrace;
use std::fmt;
use std::panic::Location;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A short hash of where a fault was made, to group like faults: eight hexadecimal digits.
///
/// It is made of the source line that made the fault (file, line, column), and of the lines that led there: those of
/// the backtrace, innermost first, up to where the thread began or tokio's runtime polled the task. Each of these
/// counts with the name of its file, its line and column, or with the name of the function if the program has no line
/// tables. Lines in the standard library do not count, nor do repetitions, so that the depth of a recursion does not
/// matter. Addresses, times, ids, values and the working directory are no part of it. Where nothing can be looked up (a
/// stripped program, [`untraced`](crate::Fault::untraced)), the source line alone makes it.
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
        Self::new(location, Some(Backtrace::force_capture()))
    }

    /// Without a trace, unless the location says nothing: `map_err(Fault::from)` calls through a function pointer,
    /// which is where the standard library calls it.
    pub(super) fn untraced(location: &'static Location<'static>) -> Self {
        if Path::new(location.file()).ends_with("core/src/ops/function.rs") {
            return Self::traced(location);
        }
        Self::new(location, None)
    }

    fn new(location: &'static Location<'static>, trace: Option<Backtrace>) -> Self {
        Self { location, trace, looked_up: OnceLock::new(), was_reported: AtomicBool::new(false) }
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
            let location = self.location.to_string();
            let print = self.trace.as_ref().map(ToString::to_string).unwrap_or_default();
            let frames = way_to(&location, frames_of(&print));
            (place_of(&location, &frames), frames)
        })
    }
}

/// A function of the backtrace. In a program with line tables only, those that were inlined are named without their
/// module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    name: String,
    /// File, line and column. The file is relative to the working directory if it is below that.
    at: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.at.as_ref().map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

impl Frame {
    fn is_in(&self, module: &str) -> bool {
        // `<core::result::Result<..> as ..>::from_residual` is in core.
        self.name.trim_start_matches('<').starts_with(module)
    }

    /// Whether the file is in a folder of that path.
    fn lies_in(&self, folder: &str) -> bool {
        self.at.as_ref().is_some_and(|at| at.replace('\\', "/").contains(folder))
    }

    fn is_std(&self) -> bool {
        let is_named_so = ["std::", "core::", "alloc::"].iter().any(|module| self.is_in(module));
        is_named_so || self.lies_in("/rustc/") || self.lies_in("/rustlib/src/rust/library/")
    }

    /// Part of how a fault is made. `<E as tollgate_flow::fault::error::IntoFault>::into_fault` is, though it is named
    /// after any E.
    fn is_ours(&self) -> bool {
        self.is_in(THIS_MODULE) || self.name.contains(&format!(" as {THIS_MODULE}"))
    }

    /// Begins a thread, or polls a task; or nothing is known of it, nor then of those beyond.
    fn is_root(&self) -> bool {
        self.name.contains("__rust_begin_short_backtrace")
            || self.is_in("tokio::runtime::")
            || (self.lies_in("/tokio") && self.lies_in("/src/runtime/"))
            || self.name == "<unknown>"
    }

    /// What the frame counts with in the hash.
    fn mark(&self) -> &str {
        self.at.as_deref().map_or(&self.name, spot)
    }
}

const THIS_MODULE: &str = "tollgate_flow::fault::";

/// The line without its folder.
fn spot(at: &str) -> &str {
    at.rsplit(['/', '\\']).next().unwrap_or(at)
}

/// Reads the frames from a printed backtrace, the only form in which the standard library gives them:
///
/// ```text
///    4: shop::orders::save
///              at ./src/orders.rs:12:9
/// ```
///
/// A print that looks different gives no frames, and the place then loses what they would have told, no more.
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
    frames
}

/// The frames from the one at `location` to the root. If none is there, for lack of line tables or because the
/// location is where a panic was caught, what made the fault is told by its name.
fn way_to(location: &str, mut frames: Vec<Frame>) -> Vec<Frame> {
    let is_here = |frame: &Frame| frame.at.as_deref().map(spot) == Some(spot(location));
    let here = frames.iter().position(is_here).unwrap_or(0);
    frames.drain(..here);
    let outside = frames.into_iter().skip_while(|frame| frame.is_std() || frame.is_ours());
    outside.take_while(|frame| !frame.is_root()).collect()
}

fn place_of(location: &str, frames: &[Frame]) -> Place {
    let mut marks: Vec<_> = frames.iter().filter(|frame| !frame.is_std()).map(Frame::mark).collect();
    marks.dedup();
    let hash = marks.into_iter().fold(fnv(FNV_START, location), fnv);
    Place((hash ^ hash >> 32) as u32)
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, with an end mark so that `a` + `bc` differs from `ab` + `c`: the same in every build, unlike the standard
/// hasher. <http://www.isthe.com/chongo/tech/comp/fnv/>
fn fnv(hash: u64, text: &str) -> u64 {
    text.bytes()
        .chain([0xff])
        .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(location: &str, print: &str) -> Vec<String> {
        way_to(location, frames_of(print)).into_iter().map(|frame| frame.name).collect()
    }

    #[test]
    fn with_full_names_the_way_is_between_the_machinery_and_the_root() {
        let print = "   0: <std::backtrace::Backtrace>::create
             at /rustc/5980/library/std/src/backtrace.rs:331:13
   1: <E as tollgate_flow::fault::error::IntoFault>::into_fault
   2: tollgate_flow::fault::Fault::new
   3: shop::orders::save
   4: core::ops::function::FnOnce::call_once
   5: shop::walk
  10: <shop::Page as core::future::future::Future>::poll
  11: tokio::runtime::task::core::Core<T,S>::poll
  12: shop::main
";
        let way = ["shop::orders::save", "core::ops::function::FnOnce::call_once", "shop::walk"];
        let page = "<shop::Page as core::future::future::Future>::poll";
        assert_eq!(names("src/orders.rs:12:9", print), [&way[..], &[page]].concat());
    }

    #[test]
    fn with_line_tables_the_way_is_told_by_its_lines() {
        let print = "   0: traced
             at ./crates/flow/src/fault/place.rs:45:34
   1: new<&str>
             at ./crates/flow/src/fault.rs:113:20
   2: save
             at ./src/orders.rs:12:9
   3: call_once<fn(), ()>
             at /rustc/5980/library/core/src/ops/function.rs:250:5
   4: {async_block#0}
             at ./src/main.rs:5:10
   5: {closure#0}<shop::main::{async_block_env#0}>
             at /home/a/.cargo/registry/src/index.crates.io-1/tokio-1.54.1/src/runtime/park.rs:376:71
   6: main
             at ./src/main.rs:6:59
";
        let way = way_to("shop/src/orders.rs:12:9", frames_of(print));
        let written: Vec<_> = way.iter().map(ToString::to_string).collect();
        assert_eq!(written[0], "save at ./src/orders.rs:12:9");
        assert_eq!(written[2], "{async_block#0} at ./src/main.rs:5:10");
        assert_eq!(written.len(), 3);
        let marks: Vec<_> = way.iter().filter(|frame| !frame.is_std()).map(Frame::mark).collect();
        assert_eq!(marks, ["orders.rs:12:9", "main.rs:5:10"]);
    }

    #[test]
    fn the_working_directory_does_not_matter() {
        let place = |at: &str| place_of("x", &frames_of(&format!("0: shop::save\n    at {at}:12:9")));
        assert_eq!(place("./src/orders.rs"), place("/home/a/shop/src/orders.rs"));
        assert_eq!(place("./src/orders.rs"), place(r"C:\shop\src\orders.rs"));
        assert_ne!(place("./src/orders.rs"), place("./src/buyers.rs"));
    }

    #[test]
    fn in_a_stripped_program_there_is_no_way() {
        let print =
            "   0: <unknown>\n   1: <unknown>\n   2: start_thread\n        at ./nptl/pthread_create.c:442:8";
        assert_eq!(names("src/orders.rs:12:9", print), [""; 0]);
    }

    #[test]
    fn a_print_that_cannot_be_read_gives_no_frames() {
        for print in ["", "disabled backtrace", "at nowhere", "x: y"] {
            assert_eq!(frames_of(print), [], "{print:?}");
        }
    }

    #[test]
    fn the_place_is_made_of_the_line_and_of_the_way_to_it() {
        let frame = |name: &&str| Frame { name: (*name).to_owned(), at: None };
        let here = |names: &[&str]| place_of("a.rs:1:2", &names.iter().map(frame).collect::<Vec<_>>());
        let place = here(&["a::b", "a::c"]);
        assert_eq!(place, here(&["a::b", "std::x", "<core::y", "alloc::z", "a::c"]));
        assert_eq!(place, here(&["a::b", "a::b", "a::b", "a::c"]), "recursion");
        assert_ne!(place, here(&["a::b", "a::f::<std::X>", "a::c"]));
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
