//! Names of limits.
//!
//! A name is looked at rarely and copied often, into every answer of a gate. So each is kept once, for good: a process has
//! as many as its policies have limits, however often those are built.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

static NAMES: Mutex<BTreeSet<Name>> = Mutex::new(BTreeSet::new());

/// A name that stays. A thin pointer, because every answer of a gate carries two.
pub(crate) type Name = &'static String;

/// The one copy of a name.
pub(crate) fn intern(name: &str) -> Name {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let name = name.to_owned();
    if let Some(known) = names.get(&name) {
        return known;
    }
    let name: Name = Box::leak(Box::new(name));
    names.insert(name);
    name
}

/// One of the limits of a [`Gate`](crate::Gate).
///
/// # Examples
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let disk = Limiter::builder(Quota::per_second(0).burst(1)).name("disk").build();
/// let network = Limiter::new(Quota::per_second(100));
/// let gate = disk.and(&network);
/// assert!(gate.allow());
/// assert_eq!(gate.check().decided_by().name(), "disk");
/// assert_eq!(network.and(&disk).check().decided_by().position(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    name: Option<Name>,
    position: u32,
}

impl Which {
    #[inline]
    pub(crate) const fn new(name: Option<Name>, position: usize) -> Self {
        Self { name, position: position as u32 } // nobody has four billion limits in one gate
    }

    /// Stands for a limit where there is none.
    pub(crate) const NOBODY: Self = Self { name: None, position: u32::MAX };

    #[inline]
    pub(crate) fn is_nobody(&self) -> bool {
        self.position == u32::MAX
    }

    /// The name it was built with, or its place in the gate: `limit 1` is the first.
    pub fn name(&self) -> &'static str {
        self.name.unwrap_or_else(|| intern(&self.to_string()))
    }

    /// Its place in the gate, counted from zero.
    pub fn position(&self) -> usize {
        self.position as usize
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None if self.is_nobody() => f.write_str("no limit"),
            None => write!(f, "limit {}", self.position + 1),
        }
    }
}
