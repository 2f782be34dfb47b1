//! What Envoy asks, understood.

use std::borrow::Cow;
use std::str;

use smallvec::SmallVec;
use tollgate::Quota;
use tollgate::store::Mode;
use tollgate_policy::{Field, escaped};
use tonic::Status;

use super::proto::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit};

/// How many descriptors a call may have.
pub(super) const MOST_DESCRIPTORS: usize = 1_000;
/// How many entries a descriptor may have.
pub(super) const MOST_ENTRIES: usize = 64;
/// How long a domain or a key may be, in bytes. Whoever configures Envoy chooses it.
pub(super) const LONGEST_KEY: usize = 1024;

/// A descriptor, understood. One without fields has no limit.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub(super) fields: SmallVec<[Field<'a>; 4]>,
    /// What is to be done, and how much of it.
    pub(super) mode: Mode,
    pub(super) cost: u64,
    /// A limit in place of the configured one.
    pub(super) instead: Option<Quota>,
}

/// All descriptors of a call.
pub(super) type Wishes<'a> = SmallVec<[Wish<'a>; 4]>;

/// Reads a call.
///
/// Callers choose values, so no value makes a call that cannot be read: Envoy would let it pass.
///
/// # Errors
/// What makes no sense, and where it is.
pub(super) fn read(request: &RateLimitRequest) -> Result<Wishes<'_>, Status> {
    let RateLimitRequest { domain, descriptors, hits_addend } = request;
    if domain.is_empty() {
        return Err(Status::invalid_argument("domain is empty"));
    }
    at_most(LONGEST_KEY, domain.len(), "bytes", || "domain".to_owned())?;
    if descriptors.is_empty() {
        return Err(Status::invalid_argument("descriptors is empty; expected at least one"));
    }
    at_most(MOST_DESCRIPTORS, descriptors.len(), "descriptors", || "descriptors".to_owned())?;
    let each = descriptors.iter().enumerate();
    each.map(|(place, descriptor)| Wish::read(place, descriptor, *hits_addend)).collect()
}

/// Escapes keys that are not UTF-8, so that they are keys like any other, which no limit asks for: Envoy would let a call pass that cannot
/// be read.
pub(super) fn escape_keys(request: &mut RateLimitRequest) {
    for entry in request.descriptors.iter_mut().flat_map(|descriptor| &mut descriptor.entries) {
        if let Cow::Owned(key) = escaped(&entry.key) {
            entry.key = key.into();
        }
    }
}

impl<'a> Wish<'a> {
    fn read(place: usize, descriptor: &'a RateLimitDescriptor, addend: u32) -> Result<Self, Status> {
        let RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits } = descriptor;
        let at = || format!("descriptors[{place}].entries");
        at_most(MOST_ENTRIES, entries.len(), "entries", at)?;
        let each = entries.iter().enumerate();
        let fields = each.map(|(number, entry)| field(entry, || format!("{}[{number}]", at())));
        let (mode, cost) = hits(*hits_addend, addend, *is_negative_hits);
        let instead = limit.map(|limit| quota(limit, place)).transpose()?;
        Ok(Self { fields: fields.collect::<Result<_, _>>()?, mode, cost, instead })
    }
}

/// What a descriptor costs: what it says itself, else what the call says, and that is one at least. Zero asks whether limits are
/// exceeded.
fn hits(own: Option<u64>, common: u32, is_negative: bool) -> (Mode, u64) {
    match (own.unwrap_or(u64::from(common.max(1))), is_negative) {
        (hits, true) => (Mode::Refund, hits),
        (0, false) => (Mode::Peek, 1),
        (hits, false) => (Mode::Take, hits),
    }
}

fn field(entry: &Entry, at: impl Fn() -> String) -> Result<Field<'_>, Status> {
    let key = str::from_utf8(&entry.key)
        .map_err(|error| Status::invalid_argument(format!("{}.key is not UTF-8: {error}", at())))?;
    at_most(LONGEST_KEY, key.len(), "bytes", || at() + ".key")?;
    Ok((key, &entry.value))
}

fn quota(limit: RateLimitOverride, place: usize) -> Result<Quota, Status> {
    match Unit::try_from(limit.unit) {
        Ok(unit) if unit != Unit::Unknown && unit != Unit::Week => {
            Ok(Quota::per(limit.requests_per_unit.into(), unit.span()))
        }
        _ => Err(Status::invalid_argument(format!(
            "descriptors[{place}].limit.unit is {}; expected SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5) or YEAR (6)",
            limit.unit
        ))),
    }
}

fn at_most(most: usize, found: usize, of: &str, at: impl Fn() -> String) -> Result<(), Status> {
    if found <= most {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("{} has {found} {of}; the maximum is {most}", at())))
}
