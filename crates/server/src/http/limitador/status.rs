//! When limits were loaded, as limitador reports it.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Serialize;
use tollgate::store::Store;

use crate::engine::{Engine, PolicyStatus};

/// When limits were loaded. Times are in UTC, and written without a zone.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    started_at: Option<DateTime>,
    config_applied_at: Option<DateTime>,
    /// How often the limits were loaded again.
    config_version: u64,
    /// How often that failed since.
    config_err_since: u64,
}

impl Status {
    pub(super) fn of<S: Store>(engine: &Engine<S>) -> Self {
        let PolicyStatus { started, since, loads, failures_since, .. } = engine.status();
        Self {
            started_at: utc(started),
            config_applied_at: utc(since),
            config_version: loads.saturating_sub(1),
            config_err_since: failures_since,
        }
    }
}

fn utc(time: SystemTime) -> Option<DateTime> {
    let time = Timestamp::try_from(time).ok()?;
    Some(time.to_zoned(TimeZone::UTC).datetime())
}
