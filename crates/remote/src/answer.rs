//! Why a request failed: what the store answered, or that no answer came.
//!
//! Invariant: that no answer comes, or one that says "not now" or "not you", is neither loss nor damage. Only an
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
    /// Whether the request was a HEAD, whose answer has no body to say more.
    pub is_of_head: bool,
}

/// A cause that a person can do something about: the source of the error's [`std::io::Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Trouble {
    /// Nothing gives credentials.
    #[error("no credentials were found")]
    NoCredentials,
    /// The store refuses the credentials, or what they are used for.
    #[error("the store refuses these credentials for that")]
    Refused,
    /// There is no such bucket.
    #[error("there is no such bucket")]
    NoBucket,
}

impl Trouble {
    /// The cause of `error`, if it is one of these.
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let inner = error.downcast_ref::<std::io::Error>();
            if let Some(inner) = inner.and_then(std::io::Error::get_ref) {
                return inner.downcast_ref().copied();
            }
            cause = error.source();
        }
        None
    }
}

fn said(between: &str, text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("{between}{text}")
    }
}

/// Names that stores have for "not now", in bodies of answers of success.
const NOT_NOW: [&str; 4] = [
    "InternalError",
    "SlowDown",
    "ServiceUnavailable",
    "RequestTimeout",
];

/// Parts of messages of requests for credentials: those to the machine's own service, and what a process says.
const OF_CREDENTIALS: [&str; 3] = [
    "/latest/api/token",
    "/latest/meta-data",
    "credential_process",
];

/// Meaning of a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The object is not there.
    Missing,
    /// The whole bucket is not there: nothing is known of what was in it.
    NoBucket,
    /// Something else is not there, by an answer that may not be the store's: nothing is known of the object.
    NoPlace,
    /// Nothing gives credentials.
    NoCredentials,
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
    /// The program is to end, and did not wait for the answer: it may have been done.
    Ended,
    /// The store does not know how to do that, or something else that no second try helps.
    Refused,
}

/// Returns the meaning of a failed request, and the reason in words.
pub(crate) fn of(error: &object_store::Error) -> (Failure, String) {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let (mut is_of_the_wire, mut is_of_credentials) = (false, false);
    let mut words = String::new();
    while let Some(error) = cause {
        if let Some(answer) = error.downcast_ref::<Answer>() {
            return (answer.failure(), answer.to_string());
        }
        is_of_the_wire |= error.is::<HttpError>() || error.is::<std::io::Error>();
        words = error.to_string();
        is_of_credentials |= OF_CREDENTIALS.iter().any(|part| words.contains(part));
        cause = error.source();
    }
    if is_of_credentials {
        return (Failure::NoCredentials, words);
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
            (404, "NoSuchKey") => Failure::Missing,
            // versitygw says this of a user.
            (404, "XAdminUserNotFound") => Failure::Forbidden,
            (404, "") if self.is_of_head => Failure::Missing,
            (404, _) => Failure::NoPlace,
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
        Failure::NoAnswer(_)
        | Failure::Ended
        | Failure::NoBucket
        | Failure::NoPlace
        | Failure::NoCredentials => ErrorKind::Unavailable,
        Failure::Refused => ErrorKind::Device,
    };
    let trouble = match failure {
        Failure::NoCredentials => Some(Trouble::NoCredentials),
        Failure::Forbidden => Some(Trouble::Refused),
        Failure::NoBucket => Some(Trouble::NoBucket),
        _ => None,
    };
    let error = onefold_io::Error {
        source: trouble.map(std::io::Error::other),
        ..onefold_io::Error::new(op, name, kind, words)
    };
    error.into()
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
            is_of_head: status == 404 && code.is_empty(),
        };
        answer.failure()
    }

    #[test]
    fn only_a_missing_object_is_missing() {
        assert_eq!(failure(404, "NoSuchKey"), Failure::Missing);
        assert_eq!(failure(404, ""), Failure::Missing);
        for (status, code) in [
            (404, "NoSuchBucket"),
            (404, "NoSuchUpload"),
            (404, "404 page of a proxy"),
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

    /// An answer as of a proxy that knows nothing of the store: the store itself sends no body only in answer to HEAD.
    #[test]
    fn a_bare_404_for_anything_but_a_head_says_nothing_of_the_object() {
        let answer = Answer {
            status: 404,
            code: String::new(),
            message: String::new(),
            retry_after_s: None,
            is_of_head: false,
        };
        let error = error("read", "x", answer.failure(), String::new());
        assert!(error.is_unavailable() && !error.is_not_found(), "{error}");
    }

    #[test]
    fn what_a_person_can_mend_is_told_apart() {
        for (status, code, trouble) in [
            (403, "InvalidAccessKeyId", Some(Trouble::Refused)),
            (404, "XAdminUserNotFound", Some(Trouble::Refused)),
            (404, "NoSuchBucket", Some(Trouble::NoBucket)),
            (503, "SlowDown", None),
        ] {
            for op in ["read", "write"] {
                let error = error(op, "x", failure(status, code), "words".into());
                assert_eq!(Trouble::of(&error), trouble, "{error}");
            }
        }
    }

    #[test]
    fn what_may_not_be_written_is_denied() {
        let error = error("write", "x", failure(403, "AccessDenied"), String::new());
        assert!(!error.is_unavailable() && !error.is_loss(), "{error}");
    }
}
