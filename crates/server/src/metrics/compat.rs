//! The same numbers under the names of other services, for the boards that know those.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::Family;
use super::limitador::Namespaces;
use crate::engine::{Outcome, PolicyStatus, Tallied, Tally};

/// Whose names are told beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compat {
    /// Those of envoyproxy/ratelimit: `ratelimit_service_rate_limit_*` by `domain` and `key1`, which is the limit's name here,
    /// and `ratelimit_service_config_load_*`.
    Envoy,
    /// The names of limitador: `authorized_calls`, `authorized_hits` and `limited_calls` by `limitador_namespace`,
    /// `limitador_up`, and `datastore_partitioned`.
    Limitador {
        /// Whether `limited_calls` also has the label `limit_name`.
        has_limit_names: bool,
    },
}

const TOTAL: Family = Family::new("ratelimit_service_rate_limit_total_hits", "All hits");
const WITHIN: Family = Family::new("ratelimit_service_rate_limit_within_limit", "Hits within the limit");
const NEAR: Family = Family::new("ratelimit_service_rate_limit_near_limit", "Hits near the limit");
const OVER: Family = Family::new("ratelimit_service_rate_limit_over_limit", "Hits over the limit");
const SHADOW: Family = Family::new("ratelimit_service_rate_limit_shadow_mode", "Hits over a limit in shadow");
const LOADED: Family = Family::new("ratelimit_service_config_load_success", "Policies loaded");
const NOT_LOADED: Family = Family::new("ratelimit_service_config_load_error", "Policies not loaded");

/// Those that kept within the limit, or were not looked at.
const KEPT: [Outcome; 3] = [Outcome::Allowed, Outcome::ErrorOpen, Outcome::ErrorLocalAllowed];
const REFUSED: [Outcome; 3] = [Outcome::Denied, Outcome::ErrorClosed, Outcome::ErrorLocalDenied];

impl Compat {
    pub(super) fn encode(
        self,
        limits: &[Tallied],
        status: &PolicyStatus,
        namespaces: &Namespaces,
        is_partitioned: bool,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        match self {
            Self::Envoy => envoy(limits, status, encoder),
            Self::Limitador { has_limit_names } => {
                namespaces.encode(has_limit_names, is_partitioned, encoder)
            }
        }
    }
}

/// None of these ends in `_total`, so they are told as gauges: what reads them does not mind.
fn envoy(limits: &[Tallied], status: &PolicyStatus, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut tell = |family: &Family, number: fn(&Tally) -> u64| {
        let labels =
            |limit: &Tallied| [("domain", limit.domain.to_string()), ("key1", limit.name.to_string())];
        family.gauges(encoder, limits.iter().map(|limit| (labels(limit), number(&limit.tally))))
    };
    tell(&TOTAL, |tally| hits(tally, &Outcome::ALL))?;
    tell(&WITHIN, |tally| hits(tally, &KEPT))?;
    tell(&NEAR, Tally::near_hits)?;
    tell(&OVER, Tally::over_hits)?;
    tell(&SHADOW, Tally::shadow_hits)?;
    LOADED.gauge(encoder, status.loads)?;
    NOT_LOADED.gauge(encoder, status.failures)
}

fn hits(tally: &Tally, outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| tally.hits(*outcome)).fold(0, u64::wrapping_add)
}
