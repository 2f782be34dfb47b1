//! Metrics under the names of other services, for dashboards that exist already.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::envoy::EnvoyMetrics;
use super::limitador::Namespaces;

/// The service whose metric names are exported besides ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compat {
    /// The names of envoyproxy/ratelimit: `ratelimit_service_*`. The engine counts those of limits if it has
    /// [`envoy_statistics`](crate::EngineOptions::envoy_statistics).
    Envoy,
    /// The names of limitador: `authorized_calls`, `authorized_hits` and `limited_calls` by `limitador_namespace`,
    /// `limitador_up`, and `datastore_partitioned`.
    Limitador {
        /// Whether `limited_calls` also has the label `limit_name`.
        has_limit_names: bool,
    },
}

impl Compat {
    pub(super) fn encode(
        self,
        envoy: &EnvoyMetrics<'_>,
        namespaces: &Namespaces,
        is_partitioned: bool,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        match self {
            Self::Envoy => envoy.encode(encoder),
            Self::Limitador { has_limit_names } => {
                namespaces.encode(has_limit_names, is_partitioned, encoder)
            }
        }
    }
}
