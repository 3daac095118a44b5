//! Remarks of the engine while it works (`tracing`): lines on standard error, `warning` lines in JSON. Each warning is
//! printed once.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::json::message::{self, PathWarning};
use crate::{out, progress};

/// Variable that chooses remarks, beside `-q` and `-v`.
const LOG_ENV: &str = "ONEFOLD_LOG";
/// Largest number of warnings that are remembered; further ones may come twice.
const SAID_MAX: usize = 1024;

/// Prints remarks from now on.
pub fn listen(json: bool, quiet: bool, verbosity: u8) {
    let level = match verbosity {
        _ if quiet => "error",
        0 | 1 => "warn",
        2 => "info",
        3 => "debug",
        _ => "trace",
    };
    let wanted = std::env::var(LOG_ENV).unwrap_or_default();
    // The level comes first: an unknown word would be taken for the name of a module, and only its remarks would be
    // printed.
    let filter = EnvFilter::try_new(format!("{level},{wanted}"));
    let wrong = filter.as_ref().err().map(ToString::to_string);
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new(level)))
        .with_writer(progress::Beside)
        .event_format(Lines {
            json,
            said: Mutex::default(),
        })
        .init();
    if let Some(wrong) = wrong {
        tracing::warn!("{LOG_ENV} is not understood: {wrong}");
    }
}

struct Lines {
    json: bool,
    said: Mutex<HashSet<String>>,
}

impl Lines {
    fn is_new(&self, text: &str) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        !said.contains(text) && (said.len() >= SAID_MAX || said.insert(text.to_owned()))
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = Text::default();
        event.record(&mut text);
        let (level, text) = (*event.metadata().level(), text.0);
        let is_warning = level <= Level::WARN;
        if is_warning && !self.is_new(&text) {
            return Ok(());
        }
        if !self.json {
            return writeln!(writer, "{level:>5} {}", out::safe(&text));
        }
        let line = if is_warning {
            message::line(&PathWarning::of_nothing(&text))
        } else {
            message::line(&json!({"message_type": "log", "level": level.as_str(), "message": text}))
        };
        writeln!(writer, "{line}")
    }
}

/// Text of a remark: the message, then the fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
