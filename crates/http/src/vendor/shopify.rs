//! Shopify tells how full its leaky bucket is: `X-Shopify-Shop-Api-Call-Limit: 32/40`.

use http::HeaderMap;

use crate::budget::Budget;
use crate::field::{count, field};

/// The budget that the field tells of.
pub(crate) fn call_limit(headers: &HeaderMap) -> Option<Budget> {
    let text = field(headers, "x-shopify-shop-api-call-limit")?;
    let (used, limit) = text.split_once('/')?;
    let (used, limit) = (count(used.trim())?, count(limit.trim())?);
    let remaining = Some(limit.saturating_sub(used));
    Some(Budget { limit: Some(limit), remaining, ..Budget::default() })
}
