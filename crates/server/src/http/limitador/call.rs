//! What a caller sends.

use std::collections::BTreeMap;

use serde::Deserialize;
use smallvec::smallvec;

use super::super::limits::HttpLimits;
use super::super::refusal::Refusal;
use crate::limitador::Descriptors;

/// A check, a report, or both. Other names are ignored, as limitador does.
#[derive(Debug, Deserialize)]
pub(super) struct Call {
    pub(super) namespace: String,
    values: BTreeMap<String, String>,
    pub(super) delta: u64,
    response_headers: Option<String>,
}

impl Call {
    pub(super) fn read(body: &[u8], most: &HttpLimits) -> Result<Self, Refusal> {
        let call: Self = serde_json::from_slice(body).map_err(|error| {
            Refusal::bad(format!(
                "expected an object with a namespace, values as texts, and a delta from 0: {error}"
            ))
        })?;
        if call.values.len() > most.fields {
            return Err(Refusal::bad(format!("there are more than {} values", most.fields)));
        }
        let is_long = |text: &String| text.chars().count() > most.key_length;
        let is_any_long = call.values.iter().any(|(name, value)| is_long(name) || is_long(value));
        if is_any_long || is_long(&call.namespace) {
            let detail = format!("a text has more than {} characters", most.key_length);
            return Err(Refusal::bad(detail));
        }
        Ok(call)
    }

    /// The values, as one descriptor.
    pub(super) fn descriptors(&self) -> Descriptors<'_> {
        smallvec![self.values.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()]
    }

    /// Whether the answer is to have the header fields of draft 03.
    pub(super) fn wants_fields(&self) -> bool {
        self.response_headers.as_deref() == Some("DraftVersion03")
    }
}
