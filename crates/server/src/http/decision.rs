//! What was decided, in JSON and in header fields.

use http::HeaderMap;
use smallvec::SmallVec;
use tollgate_http::{Standing, Writer};

use super::json::{push_amount, push_bool, push_number, push_seconds, push_string};
use crate::engine::{Finding, PermitId, Ruling};

/// Writes what was decided, and the name of what is held.
pub(super) fn write_ruling(json: &mut Vec<u8>, ruling: &Ruling<'_>, id: Option<PermitId>) {
    json.extend_from_slice(br#"{"allowed":"#);
    push_bool(json, ruling.is_allowed());
    json.extend_from_slice(br#","decided_by":"#);
    if let Some(finding) = ruling.decided_by() {
        push_string(json, finding.limit.rule.name());
        write_numbers(json, finding);
    } else {
        json.extend_from_slice(br#"null,"limit":null,"remaining":null,"retry_after":"#);
        json.extend_from_slice(if ruling.is_allowed() { b"0" } else { b"null" });
        json.extend_from_slice(br#","reset_after":0"#);
    }
    json.extend_from_slice(br#","delay":"#);
    push_seconds(json, Some(ruling.delay()));
    json.extend_from_slice(br#","degraded":"#);
    push_bool(json, ruling.is_degraded());
    if let Some(id) = id {
        json.extend_from_slice(br#","id":"#);
        push_string(json, &id.to_string());
    }
    json.extend_from_slice(br#","limits":["#);
    for (place, finding) in ruling.findings().iter().enumerate() {
        if place > 0 {
            json.push(b',');
        }
        write_finding(json, finding);
    }
    json.extend_from_slice(b"]}");
}

fn write_finding(json: &mut Vec<u8>, finding: &Finding<'_>) {
    json.extend_from_slice(br#"{"domain":"#);
    push_string(json, finding.limit.rule.domain());
    json.extend_from_slice(br#","name":"#);
    push_string(json, finding.limit.rule.name());
    json.extend_from_slice(br#","quota":"#);
    push_number(json, finding.quota as u64);
    json.extend_from_slice(br#","allowed":"#);
    push_bool(json, !finding.is_refusal());
    json.extend_from_slice(br#","cost":"#);
    push_number(json, finding.cost);
    write_numbers(json, finding);
    json.extend_from_slice(br#","shadow":"#);
    push_bool(json, finding.is_shadow);
    json.extend_from_slice(br#","basis":""#);
    json.extend_from_slice(finding.basis.name().as_bytes());
    json.extend_from_slice(b"\"}");
}

fn write_numbers(json: &mut Vec<u8>, finding: &Finding<'_>) {
    let decision = &finding.decision;
    json.extend_from_slice(br#","limit":"#);
    push_amount(json, decision.limit());
    json.extend_from_slice(br#","remaining":"#);
    push_amount(json, decision.remaining());
    json.extend_from_slice(br#","retry_after":"#);
    push_seconds(json, decision.retry_after());
    json.extend_from_slice(br#","reset_after":"#);
    push_seconds(json, decision.reset_after());
}

/// Writes the fields that tell how the limits stand: those that are enforced.
pub(super) fn write_fields(ruling: &Ruling<'_>, headers: &mut HeaderMap) {
    let enforced = ruling.findings().iter().filter(|finding| !finding.is_shadow);
    let standings: SmallVec<[Standing<'_>; 4]> = enforced.filter_map(standing).collect();
    Writer::new().write(&standings, headers);
}

/// How a limit stands, if its name can be told.
fn standing<'a>(finding: &Finding<'a>) -> Option<Standing<'a>> {
    finding.limit.fields.get(finding.quota).map(|field| field.after(finding.decision))
}
