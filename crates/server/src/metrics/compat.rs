//! The same numbers under the names of other services, for the boards that know those.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::envoy::EnvoyMetrics;
use super::family::Family;
use crate::engine::{Outcome, Tallied, Tally};

/// Whose names are told beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compat {
    /// The names of envoyproxy/ratelimit: `ratelimit_service_*`. The engine counts those of limits if it has
    /// [`envoy_statistics`](crate::EngineOptions::envoy_statistics).
    Envoy,
    /// Those of limitador: `authorized_calls`, `authorized_hits` and `limited_calls` by `limitador_namespace` and `limit_name`,
    /// and `limitador_up`.
    Limitador,
}

const AUTHORIZED_CALLS: Family = Family::new("authorized_calls", "Authorized calls");
const AUTHORIZED_HITS: Family = Family::new("authorized_hits", "Authorized hits");
const LIMITED_CALLS: Family = Family::new("limited_calls", "Limited calls");
const UP: Family = Family::new("limitador_up", "Limitador is running");

const PASSED: [Outcome; 4] =
    [Outcome::Allowed, Outcome::ShadowDenied, Outcome::ErrorOpen, Outcome::ErrorLocalAllowed];
const REFUSED: [Outcome; 3] = [Outcome::Denied, Outcome::ErrorClosed, Outcome::ErrorLocalDenied];

impl Compat {
    pub(super) fn encode(
        self,
        limits: &[Tallied],
        envoy: &EnvoyMetrics<'_>,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        match self {
            Self::Envoy => envoy.encode(encoder),
            Self::Limitador => limitador(limits, encoder),
        }
    }
}

fn limitador(limits: &[Tallied], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut tell = |family: &Family, number: fn(&Tally) -> u64| {
        let labels = |limit: &Tallied| {
            [("limitador_namespace", limit.domain.to_string()), ("limit_name", limit.name.to_string())]
        };
        family.gauges(encoder, limits.iter().map(|limit| (labels(limit), number(&limit.tally))))
    };
    tell(&AUTHORIZED_CALLS, |tally| calls(tally, &PASSED))?;
    tell(&AUTHORIZED_HITS, |tally| hits(tally, &PASSED))?;
    tell(&LIMITED_CALLS, |tally| calls(tally, &REFUSED))?;
    UP.gauge(encoder, 1)
}

fn calls(tally: &Tally, outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| tally.calls(*outcome)).fold(0, u64::wrapping_add)
}

fn hits(tally: &Tally, outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| tally.hits(*outcome)).fold(0, u64::wrapping_add)
}
