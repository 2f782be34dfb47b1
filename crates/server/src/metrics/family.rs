//! Writing metrics, one name at a time.

use std::fmt::Result;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// One metric: its name, and what it is.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
}

impl Family {
    pub(super) const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help }
    }

    /// Numbers that only grow, by their labels.
    pub(super) fn counters<L: EncodeLabelSet>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> Result {
        let mut metric = self.begin(encoder, MetricType::Counter)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        Ok(())
    }

    /// A number that only grows.
    pub(super) fn counter(&self, encoder: &mut DescriptorEncoder<'_>, value: u64) -> Result {
        self.begin(encoder, MetricType::Counter)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    /// One number.
    pub(super) fn gauge(&self, encoder: &mut DescriptorEncoder<'_>, value: u64) -> Result {
        self.begin(encoder, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Numbers, by their labels.
    pub(super) fn gauges<L: EncodeLabelSet>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> Result {
        let mut metric = self.begin(encoder, MetricType::Gauge)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    pub(super) fn begin<'s>(
        &'s self,
        encoder: &'s mut DescriptorEncoder<'_>,
        kind: MetricType,
    ) -> std::result::Result<MetricEncoder<'s>, std::fmt::Error> {
        encoder.encode_descriptor(self.name, self.help, None, kind)
    }
}
