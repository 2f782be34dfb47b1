//! Requests that were not served, by reason.

use http::StatusCode;
use tonic::Code;

/// Why a request was not served. A call that a limit denies was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorReason {
    BadRequest,
    Unauthenticated,
    Forbidden,
    NotFound,
    Method,
    Timeout,
    TooLarge,
    MediaType,
    Misdirected,
    Unavailable,
    Internal,
}

impl ErrorReason {
    /// All there are.
    pub(crate) const ALL: [Self; 11] = [
        Self::BadRequest,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::Method,
        Self::Timeout,
        Self::TooLarge,
        Self::MediaType,
        Self::Misdirected,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The label in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Method => "method_not_allowed",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::MediaType => "unsupported_media_type",
            Self::Misdirected => "misdirected",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The reason for an answer of HTTP; `None` if its request was served.
    pub(crate) fn of_status(status: StatusCode) -> Option<Self> {
        Some(match status {
            StatusCode::TOO_MANY_REQUESTS => return None,
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::Forbidden,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => Self::Method,
            StatusCode::REQUEST_TIMEOUT => Self::Timeout,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Self::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::MediaType,
            StatusCode::MISDIRECTED_REQUEST => Self::Misdirected,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            other if other.is_client_error() => Self::BadRequest,
            other if other.is_server_error() => Self::Internal,
            _ => return None,
        })
    }

    /// The reason for a status of gRPC; `None` if its call was served.
    pub(crate) fn of_code(code: Code) -> Option<Self> {
        Some(match code {
            Code::Ok => return None,
            Code::Unauthenticated => Self::Unauthenticated,
            Code::PermissionDenied => Self::Forbidden,
            Code::NotFound => Self::NotFound,
            Code::Unimplemented => Self::Method,
            Code::DeadlineExceeded | Code::Cancelled => Self::Timeout,
            Code::OutOfRange => Self::TooLarge,
            Code::Unavailable | Code::ResourceExhausted => Self::Unavailable,
            Code::Internal | Code::Unknown | Code::DataLoss => Self::Internal,
            _ => Self::BadRequest,
        })
    }

    /// The reason for an error of the Redis protocol, by its first word.
    pub(crate) fn of_error(words: &[u8]) -> Self {
        match words.split(|byte| *byte == b' ').next() {
            Some(b"NOAUTH" | b"WRONGPASS") => Self::Unauthenticated,
            Some(b"NOPERM") => Self::Forbidden,
            _ => Self::BadRequest,
        }
    }
}

/// Requests of a batch that were not served, counted before they are added to a meter.
#[derive(Debug, Default)]
pub(crate) struct ErrorCounts([u64; ErrorReason::ALL.len()]);

impl ErrorCounts {
    #[cold]
    pub(crate) fn note(&mut self, reason: ErrorReason) {
        self.0[reason as usize] += 1;
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0 != [0; ErrorReason::ALL.len()]
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = (ErrorReason, u64)> {
        ErrorReason::ALL.into_iter().zip(std::mem::take(&mut self.0)).filter(|(_, count)| *count > 0)
    }
}
