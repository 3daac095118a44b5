//! Why a request failed: what the store answered, or that no answer came.
//!
//! Always holds: that no answer comes, or one that says "not now" or "not you", is neither loss nor damage. Only an
//! object that the store itself says is not there counts as missing.

use std::error::Error as StdError;

use object_store::client::HttpError;
use onefold_io::ErrorKind;
use onefold_store::Error;

/// A store's answer other than success.
#[derive(Debug, thiserror::Error)]
#[error("{status}{}{}", said(": ", .code), said(": ", .message))]
pub(crate) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The store's own name for it, such as `SlowDown`; may be empty.
    pub code: String,
    /// In the store's words; may be empty.
    pub message: String,
    /// How long it asks to be left alone, in seconds.
    pub retry_after_s: Option<u64>,
}

fn said(between: &str, text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => format!("{between}{text}"),
    }
}

/// Names that stores have for "not now", in bodies of answers of success.
const NOT_NOW: [&str; 4] = [
    "InternalError",
    "SlowDown",
    "ServiceUnavailable",
    "RequestTimeout",
];

/// Meaning of a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The object is not there.
    Missing,
    /// The whole bucket is not there: nothing is known of what was in it.
    NoBucket,
    /// The condition of a conditional request does not hold.
    Taken,
    /// Another conditional request for the same name was under way.
    Conflict,
    /// The range begins behind the object's end.
    OutOfRange,
    /// No room is left.
    Full,
    /// The store does not let this user do that.
    Forbidden,
    /// No answer, or "not now": it may have been done. With it how long the store asks to be left alone, in seconds.
    NoAnswer(u64),
    /// The store does not know how to do that, or something else that no second try helps.
    Refused,
}

/// Returns the meaning of a failed request, and the reason in words.
pub(crate) fn of(error: &object_store::Error) -> (Failure, String) {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut is_of_the_wire = false;
    let mut words = String::new();
    while let Some(error) = cause {
        if let Some(answer) = error.downcast_ref::<Answer>() {
            return (answer.failure(), answer.to_string());
        }
        is_of_the_wire |= error.is::<HttpError>() || error.is::<std::io::Error>();
        words = error.to_string();
        cause = error.source();
    }
    // An answer of success may tell of failures in its body, as when many objects are removed by one request.
    let is_not_now = NOT_NOW.iter().any(|code| words.contains(code));
    match (is_of_the_wire || is_not_now, error) {
        (_, object_store::Error::NotFound { .. }) => (Failure::Missing, words),
        (true, _) => (Failure::NoAnswer(0), words),
        (false, _) => (Failure::Refused, words),
    }
}

impl Answer {
    fn failure(&self) -> Failure {
        let later = Failure::NoAnswer(self.retry_after_s.unwrap_or(0));
        match (self.status, &*self.code) {
            // All that would be in it would seem to be lost.
            (404, "NoSuchBucket") => Failure::NoBucket,
            (404, _) => Failure::Missing,
            (409, "BucketAlreadyExists" | "OperationAborted" | "ConditionalRequestConflict") => {
                Failure::Conflict
            }
            (409, _) => Failure::Conflict,
            (412, _) => Failure::Taken,
            (416, _) => Failure::OutOfRange,
            (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage") => {
                Failure::Full
            }
            (401 | 403, _) | (400, "ExpiredToken" | "InvalidToken") => Failure::Forbidden,
            (501, _) => Failure::Refused,
            (408 | 429 | 500.., _) | (400, "RequestTimeout") => later,
            // Errors that come with a status of success.
            (200, _) => later,
            _ => Failure::Refused,
        }
    }
}

/// The error of a request for `name` that is given up.
pub(crate) fn error(op: &'static str, name: &str, failure: Failure, words: String) -> Error {
    let is_of_reading = matches!(op, "read" | "list" | "stat");
    let kind = match failure {
        Failure::Missing => ErrorKind::NotFound,
        Failure::Taken | Failure::Conflict => ErrorKind::Exists,
        Failure::OutOfRange => ErrorKind::Short,
        Failure::Full => ErrorKind::NoSpace,
        // Whether what may not be read is there nobody knows.
        Failure::Forbidden if is_of_reading => ErrorKind::Unavailable,
        Failure::Forbidden => ErrorKind::Denied,
        Failure::NoAnswer(_) | Failure::NoBucket => ErrorKind::Unavailable,
        Failure::Refused => ErrorKind::Device,
    };
    onefold_io::Error::new(op, name, kind, words).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, code: &str) -> Failure {
        let answer = Answer {
            status,
            code: code.into(),
            message: String::new(),
            retry_after_s: None,
        };
        answer.failure()
    }

    #[test]
    fn only_a_missing_object_is_missing() {
        assert_eq!(failure(404, "NoSuchKey"), Failure::Missing);
        assert_eq!(failure(404, ""), Failure::Missing);
        for (status, code) in [
            (404, "NoSuchBucket"),
            (403, "AccessDenied"),
            (503, "SlowDown"),
            (500, ""),
            (429, ""),
            (408, ""),
            (400, "RequestTimeout"),
            (400, "ExpiredToken"),
        ] {
            let failure = failure(status, code);
            let error = error("read", "x", failure, String::new());
            assert!(
                error.is_unavailable() && !error.is_loss(),
                "{status} {code}: {error}"
            );
        }
    }

    #[test]
    fn what_may_not_be_written_is_denied() {
        let error = error("write", "x", failure(403, "AccessDenied"), String::new());
        assert!(!error.is_unavailable() && !error.is_loss(), "{error}");
    }
}
