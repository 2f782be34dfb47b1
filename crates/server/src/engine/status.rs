//! The state of the active policy.

use std::time::SystemTime;

/// Where a policy comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, or `built-in policy`.
    pub name: String,
    /// The hash of the content.
    pub hash: String,
}

/// The state of the active policy.
#[derive(Clone, Debug)]
pub struct PolicyStatus {
    /// The origin of the active policy.
    pub origin: Origin,
    /// When the engine was started.
    pub started: SystemTime,
    /// When it became active.
    pub since: SystemTime,
    /// How many policies were loaded, the first one included.
    pub loads: u64,
    /// How many were rejected.
    pub failures: u64,
    /// How many were rejected since the last one was loaded.
    pub failures_since: u64,
    /// The error of the last reload, if it failed. The previous policy is still active.
    pub problem: Option<LoadProblem>,
}

/// Why a policy could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadProblem {
    /// When the reload failed.
    pub at: SystemTime,
    /// All errors of the policy.
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
