//! Whether an attempt failed, and what can be done about it. Pure.

use std::error::Error;
use std::io::{self, ErrorKind};

use http::StatusCode;
use tollgate_http::{Advice, Throttled};

use super::errand::Leave;
use crate::{Again, Finish};

/// Whether an answer is a failure; if so, whether to try again. `None`: it is an answer like any other.
pub(super) fn of_answer(leave: Leave, status: StatusCode, advice: &Advice) -> Option<Again> {
    if !is_failure(status, advice) {
        return None;
    }
    let is_worth_it = match advice.should_retry {
        Some(should) => should && leave != Leave::Never,
        None => may_go_again(leave, is_undone(status, advice)),
    };
    Some(match advice.wait {
        _ if !is_worth_it => Again::Never,
        Some(wait) => Again::After(wait),
        None => Again::Later,
    })
}

/// Whether to try again without an answer; `is_undone` if nothing can have come of it.
pub(super) fn of_silence(leave: Leave, told: Again, is_undone: bool) -> Again {
    if told == Again::Never || !may_go_again(leave, is_undone) { Again::Never } else { Again::Later }
}

/// What an answer says of how busy they are.
pub(super) fn finish(status: StatusCode) -> Finish {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Finish::Dropped
        }
        // What fails may fail quickly, which says nothing.
        _ if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => Finish::Ignored,
        _ => Finish::Success,
    }
}

fn is_failure(status: StatusCode, advice: &Advice) -> bool {
    let is_transient = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    is_transient || advice.throttled.is_some() || (advice.should_retry == Some(true) && !status.is_success())
}

/// A limit is checked before anything is done. A 503 is no such promise: gateways say it of what broke in the middle.
fn is_undone(status: StatusCode, advice: &Advice) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
        || matches!(advice.throttled, Some(Throttled::Rate | Throttled::Concurrency))
}

fn may_go_again(leave: Leave, is_undone: bool) -> bool {
    match leave {
        Leave::Never => false,
        Leave::IfUndone => is_undone,
        Leave::Always => true,
    }
}

/// Whether there was no connection to send anything over.
pub(super) fn is_unconnected(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| {
        let refused = cause.downcast_ref::<io::Error>();
        refused.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused) || is_never_sent(cause)
    })
}

/// What an error says about trying again. Of those that nobody knows, it is tried.
pub(super) fn told(error: &(dyn Error + 'static)) -> Again {
    if is_senseless(error) { Again::Never } else { Again::of(error) }
}

#[cfg(feature = "reqwest")]
fn is_never_sent(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(reqwest_middleware::Error::is_connect)
}

/// A request that makes no sense, or is sent in circles.
#[cfg(feature = "reqwest")]
fn is_senseless(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<reqwest_middleware::Error>();
    error.is_some_and(|error| error.is_builder() || error.is_redirect())
}

#[cfg(not(feature = "reqwest"))]
fn is_never_sent(_: &(dyn Error + 'static)) -> bool {
    false
}

#[cfg(not(feature = "reqwest"))]
fn is_senseless(_: &(dyn Error + 'static)) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderName};

    use super::*;

    const BUSY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
    const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

    fn verdict(leave: Leave, status: StatusCode, fields: &[(&'static str, &str)]) -> Option<Again> {
        let field =
            |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        let headers: HeaderMap = fields.iter().map(field).collect();
        let advice = tollgate_http::read(status, &headers, b"", SystemTime::UNIX_EPOCH);
        of_answer(leave, status, &advice)
    }

    #[test]
    fn five_statuses_are_worth_another_try() {
        for code in 100..600 {
            let status = StatusCode::from_u16(code).unwrap();
            let expected = [408, 429, 502, 503, 504].contains(&code).then_some(Again::Later);
            assert_eq!(verdict(Leave::Always, status, &[]), expected, "{code}");
        }
    }

    #[test]
    fn what_is_not_idempotent_goes_again_only_after_a_limit() {
        for code in [408, 502, 503, 504] {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(verdict(Leave::IfUndone, status, &[]), Some(Again::Never), "{code}");
        }
        assert_eq!(verdict(Leave::IfUndone, BUSY, &[("retry-after", "1")]), Some(Again::Never));
        assert_eq!(verdict(Leave::IfUndone, TOO_MANY, &[]), Some(Again::Later));
        assert_eq!(verdict(Leave::Never, TOO_MANY, &[]), Some(Again::Never));
    }

    #[test]
    fn retry_after_is_a_wait() {
        let after = Some(Again::After(Duration::from_secs(7)));
        assert_eq!(verdict(Leave::Always, BUSY, &[("retry-after", "7")]), after);
        assert_eq!(verdict(Leave::IfUndone, TOO_MANY, &[("retry-after", "7")]), after);
    }

    #[test]
    fn a_service_that_says_whether_to_retry_is_obeyed() {
        let yes = [("stripe-should-retry", "true")];
        let no = [("x-should-retry", "false")];
        assert_eq!(verdict(Leave::Always, TOO_MANY, &no), Some(Again::Never));
        assert_eq!(verdict(Leave::IfUndone, StatusCode::CONFLICT, &yes), Some(Again::Later));
        assert_eq!(verdict(Leave::Never, StatusCode::CONFLICT, &yes), Some(Again::Never));
        assert_eq!(verdict(Leave::Always, StatusCode::OK, &yes), None);
    }

    #[test]
    fn a_limit_may_come_with_another_status() {
        let grpc = [("grpc-status", "8")];
        assert_eq!(verdict(Leave::IfUndone, StatusCode::OK, &grpc), Some(Again::Later));
    }

    #[test]
    fn without_an_answer_only_what_was_not_sent_is_undone() {
        assert_eq!(of_silence(Leave::Always, Again::Unknown, false), Again::Later);
        assert_eq!(of_silence(Leave::IfUndone, Again::Later, false), Again::Never);
        assert_eq!(of_silence(Leave::IfUndone, Again::Later, true), Again::Later);
        assert_eq!(of_silence(Leave::Always, Again::Never, true), Again::Never);
        assert_eq!(of_silence(Leave::Never, Again::Later, true), Again::Never);
    }

    #[test]
    fn a_refused_connection_is_found_among_the_causes() {
        let refused = io::Error::from(ErrorKind::ConnectionRefused);
        assert!(is_unconnected(&super::super::NoAnswer::Failed(refused.into())));
        assert!(!is_unconnected(&io::Error::from(ErrorKind::ConnectionReset)));
    }

    #[test]
    fn being_busy_is_told_from_being_broken() {
        let told = |code| finish(StatusCode::from_u16(code).unwrap());
        for code in [429, 503, 504] {
            assert_eq!(told(code), Finish::Dropped, "{code}");
        }
        for code in [408, 500, 502] {
            assert_eq!(told(code), Finish::Ignored, "{code}");
        }
        for code in [200, 304, 404] {
            assert_eq!(told(code), Finish::Success, "{code}");
        }
    }
}
