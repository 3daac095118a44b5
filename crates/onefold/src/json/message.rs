//! Messages of a run as lines of JSON, one object a line: errors, warnings, and the end.

use std::borrow::Cow;

use serde::Serialize;

use crate::exit::Exit;
use crate::{lossless, paths};

/// Returns a value as one line of JSON.
pub fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data has a JSON form")
}

/// Last line on standard error of a verb that failed.
#[derive(Serialize)]
pub struct ExitError<'a> {
    message_type: &'static str,
    code: u8,
    message: &'a str,
}

impl<'a> ExitError<'a> {
    /// Makes the line, with the error in words.
    pub fn new(exit: Exit, message: &'a str) -> Self {
        Self {
            message_type: "exit_error",
            code: exit.code(),
            message,
        }
    }
}

/// A path that failed while the rest went on.
#[derive(Serialize)]
pub struct PathError<'a> {
    message_type: &'static str,
    error: JsonMessage<'a>,
    during: &'static str,
    #[serde(flatten)]
    item: LineItem<'a>,
}

/// Subject of a line: a path, an id, or nothing.
#[derive(Serialize)]
struct LineItem<'a> {
    item: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_base64: Option<String>,
}

impl<'a> LineItem<'a> {
    fn text(item: &'a str) -> Self {
        Self {
            item: item.into(),
            item_base64: None,
        }
    }

    fn path(path: &[u8]) -> Self {
        Self {
            item: paths::json(path).into(),
            item_base64: lossless::base64(path),
        }
    }
}

#[derive(Serialize)]
struct JsonMessage<'a> {
    message: &'a str,
}

impl<'a> PathError<'a> {
    /// Makes the line of a path; `during` is restic's word: `archival`, `restore`. An empty path is left out.
    pub fn new(during: &'static str, path: &[u8], message: &'a str) -> Self {
        Self::about(during, LineItem::path(path), message)
    }

    /// Makes the line of an id.
    pub fn of_id(during: &'static str, id: &'a str, message: &'a str) -> Self {
        Self::about(during, LineItem::text(id), message)
    }

    fn about(during: &'static str, item: LineItem<'a>, message: &'a str) -> Self {
        Self {
            message_type: "error",
            error: JsonMessage { message },
            during,
            item,
        }
    }
}

/// A noteworthy fact about a path.
#[derive(Serialize)]
pub struct PathWarning<'a> {
    message_type: &'static str,
    message: &'a str,
    during: &'static str,
    #[serde(flatten)]
    item: LineItem<'a>,
}

impl<'a> PathWarning<'a> {
    /// Makes the line of a path; `during` as in [`PathError`].
    pub fn new(during: &'static str, path: &[u8], message: &'a str) -> Self {
        Self::about(during, LineItem::path(path), message)
    }

    /// Makes a line without a subject.
    pub fn of_nothing(message: &'a str) -> Self {
        Self::about("", LineItem::text(""), message)
    }

    fn about(during: &'static str, item: LineItem<'a>, message: &'a str) -> Self {
        Self {
            message_type: "warning",
            message,
            during,
            item,
        }
    }
}
