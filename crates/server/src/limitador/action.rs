//! Deciding about a call of limitador.

use smallvec::SmallVec;
use tollgate::store::{Mode, Store};
use tollgate_policy::Field;

use super::fields;
use crate::engine::{Ask, AskError, Basis, Clerk, Ruling, Subject};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Says whether so many hits are within the limits, and takes nothing.
    Check,
    /// Counts hits that have happened, whether they are within the limits or not.
    Report,
    /// Takes the hits if they are within the limits.
    CheckAndReport,
}

/// The descriptors of a call, as lists of fields.
pub(crate) type Descriptors<'a> = SmallVec<[SmallVec<[Field<'a>; 4]>; 1]>;

/// The decision about a call.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) is_allowed: bool,
    /// The name of the limit that denied the call; empty if the limit has none.
    pub(crate) limit: String,
    /// The header fields of draft 03.
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// Decides about a call. Returns `None` if the store is unavailable, and the limits do not admit or count the call without it.
///
/// # Errors
/// If a limit cannot use a value and denies such calls.
///
/// # Cancel safety
/// Hits that were taken before the future is dropped stay taken.
pub(crate) async fn decide<S: Store>(
    clerk: &mut Clerk<S>,
    action: Action,
    namespace: &str,
    descriptors: &Descriptors<'_>,
    hits: u64,
) -> Result<Option<Verdict>, AskError> {
    let mode = match action {
        Action::Check => Mode::Peek,
        Action::Report => Mode::Count,
        Action::CheckAndReport => Mode::Take,
    };
    // In shadow mode, a limit counts what it would deny, and the call passes: it has happened.
    let ask = |fields| {
        let ask = Ask::new(Subject::Policy(namespace, fields));
        ask.costing(hits).in_shadow_mode(action == Action::Report)
    };
    let asks: SmallVec<[Ask<'_, S>; 1]> = descriptors.iter().map(|fields| ask(&fields[..])).collect();
    let ruling = clerk.decide(mode, &asks).await?;
    Ok((!is_unavailable(action, &ruling)).then(|| Verdict::new(&ruling)))
}

impl Verdict {
    fn new(ruling: &Ruling<'_>) -> Self {
        let denied_by = ruling.decided_by().filter(|_| !ruling.is_allowed());
        let limit = denied_by.and_then(|finding| finding.limit.label.as_deref()).unwrap_or_default();
        Self { is_allowed: ruling.is_allowed(), limit: limit.to_owned(), fields: fields(ruling) }
    }
}

fn is_unavailable(action: Action, ruling: &Ruling<'_>) -> bool {
    match action {
        Action::Report => ruling.findings().iter().any(|finding| {
            matches!(finding.basis, Basis::Open | Basis::Closed) // nothing has counted it
        }),
        Action::Check | Action::CheckAndReport => ruling.is_denied_without_store(),
    }
}
