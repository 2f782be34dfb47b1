//! The number of connections that the limit of open files allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::Settings;

/// Files other than connections: listeners, logs, certificates, Redis.
const OTHERS: u64 = 128;

/// Returns the maximum number of connections to each listener except the admin listener: `max_connections`, or fewer if the limit of
/// open files is too low. Files for the admin listener are set aside.
pub(super) fn connections(settings: &Settings) -> usize {
    let addresses = [settings.http.address, settings.grpc.address, settings.resp.address];
    let (listeners, wanted) = (addresses.iter().flatten().count() as u64, settings.max_connections.0);
    let others = OTHERS + settings.admin.max_connections.0;
    let files = raise_limit(listeners * wanted + others);
    let connections = shares(files, others, listeners).min(wanted);
    if connections < wanted {
        tracing::info!(
            files,
            connections,
            "the limit of open files is too low for max_connections; accepting fewer connections. Raise `ulimit -Hn`"
        );
    }
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// Returns the share of one listener in the files that `others` do not need; at least one.
fn shares(files: u64, others: u64, listeners: u64) -> u64 {
    (files.saturating_sub(others) / listeners.max(1)).max(1)
}

/// Raises the soft limit of open files as far as that is needed and the hard limit allows. Returns the limit.
fn raise_limit(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = needed.min(maximum.unwrap_or(u64::MAX));
    match current {
        Some(current) if current < wanted => {
            let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
            if raised.is_ok() { wanted } else { current }
        }
        current => current.unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_files_for_everything_else() {
        assert_eq!(shares(1_024, 228, 3), 265);
        assert_eq!(shares(100, 228, 3), 1);
        assert_eq!(shares(u64::MAX, 228, 3) / 1_000_000, u64::MAX / 3 / 1_000_000);
    }
}
