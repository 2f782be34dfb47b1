//! How the policy came to be, and what went wrong since.

use std::time::SystemTime;

/// Where a policy comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, or that it is built in.
    pub name: String,
    /// What tells one text from another.
    pub hash: String,
}

/// How the policy came to be, and what went wrong since.
#[derive(Clone, Debug)]
pub struct PolicyStatus {
    /// Where the policy that decides comes from.
    pub origin: Origin,
    /// When the engine was started.
    pub started: SystemTime,
    /// Since when it decides.
    pub since: SystemTime,
    /// How many policies were loaded, the first one included.
    pub loads: u64,
    /// How many could not be.
    pub failures: u64,
    /// How many could not be since the last one was.
    pub failures_since: u64,
    /// What was wrong with the last one, if it could not be loaded. The one before still decides.
    pub problem: Option<LoadProblem>,
}

/// Why a policy could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadProblem {
    /// When that was.
    pub at: SystemTime,
    /// Everything that is wrong with it.
    pub text: String,
}

impl PolicyStatus {
    pub(super) fn new(origin: Origin, now: SystemTime) -> Self {
        Self { origin, started: now, since: now, loads: 1, failures: 0, failures_since: 0, problem: None }
    }

    pub(super) fn loaded(&mut self, origin: Origin, now: SystemTime) {
        (self.origin, self.since, self.problem) = (origin, now, None);
        self.loads += 1;
        self.failures_since = 0;
    }

    pub(super) fn failed(&mut self, text: String, now: SystemTime) {
        self.failures += 1;
        self.failures_since += 1;
        self.problem = Some(LoadProblem { at: now, text });
    }
}
