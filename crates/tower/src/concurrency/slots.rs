//! What is taken of, and given back.

use tollgate::{ConcurrencyLimit, OwnedSlot, WaitError};
use tollgate_flow::concurrency::AdaptivePermit;
use tollgate_flow::{AdaptiveLimit, Finish};

use http::StatusCode;

/// How many calls at once: as many as are allowed, or as many as the service can take.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Slots {
    /// As many as are allowed.
    Fixed(ConcurrencyLimit),
    /// As many as the service can take, by how long its answers take.
    Adaptive(AdaptiveLimit),
}

impl From<ConcurrencyLimit> for Slots {
    fn from(limit: ConcurrencyLimit) -> Self {
        Self::Fixed(limit)
    }
}

impl From<AdaptiveLimit> for Slots {
    fn from(limit: AdaptiveLimit) -> Self {
        Self::Adaptive(limit)
    }
}

/// A slot in use; dropping gives it back.
pub(super) enum Permit {
    Fixed(OwnedSlot),
    Adaptive(AdaptivePermit),
}

impl Slots {
    pub(super) fn try_acquire(&self) -> Option<Permit> {
        match self {
            Self::Fixed(limit) => limit.try_acquire().map(|slot| Permit::Fixed(slot.into_owned())),
            Self::Adaptive(limit) => limit.try_acquire().map(Permit::Adaptive),
        }
    }

    pub(super) async fn acquire(&self) -> Result<Permit, WaitError> {
        match self {
            Self::Fixed(limit) => Ok(Permit::Fixed(limit.acquire().await?.into_owned())),
            Self::Adaptive(limit) => Ok(Permit::Adaptive(limit.acquire().await?)),
        }
    }
}

impl Permit {
    /// Gives it back, after an answer with this status.
    pub(super) fn answered(self, status: StatusCode) {
        match self {
            Self::Fixed(slot) => drop(slot),
            Self::Adaptive(permit) => permit.finish(lesson_of(status)),
        }
    }
}

/// What an answer says of the service's capacity. Errors are often quicker than answers, or slower for reasons of their own.
fn lesson_of(status: StatusCode) -> Finish {
    match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Finish::Dropped,
        status if status.is_client_error() || status.is_server_error() => Finish::Ignored,
        _ => Finish::Success,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_and_overload_teach_something() {
        for (status, lesson) in [
            (200, Finish::Success),
            (304, Finish::Success),
            (404, Finish::Ignored),
            (429, Finish::Ignored),
            (500, Finish::Ignored),
            (503, Finish::Dropped),
            (504, Finish::Dropped),
        ] {
            assert_eq!(lesson_of(StatusCode::from_u16(status).unwrap()), lesson, "{status}");
        }
    }
}
