//! How many files, and so connections, the system lets this process have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::Settings;

/// Files for everything but connections: listeners, logs, certificates, Redis.
const OTHERS: u64 = 128;

/// How many connections each listener but the admin listener may have: `max_connections`, or fewer if the system has no files for them,
/// so that some are left for the admin listener.
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
            "the system lets this process have too few open files for max_connections on each listener: fewer are accepted"
        );
    }
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// What each listener gets of the files that the others leave; one at least.
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
