//! The progress line at the bottom of the terminal, and all other output meanwhile.
//!
//! Invariant: there is one line, never wider than the terminal, so that it can be written over. It is written in one
//! go, over the old line, and only if it differs: nothing flickers. The cursor is never hidden, so whatever ends the
//! program leaves a sound terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::tcgetwinsize;
use tracing_subscriber::fmt::MakeWriter;

/// Clears from the cursor to the end of the line.
const CLEAR: &str = "\x1b[K";
/// Columns of a terminal that does not tell them.
const COLUMNS: usize = 80;

/// Line that is on the screen, if there is one.
static SHOWN: Mutex<Option<String>> = Mutex::new(None);

/// Whether standard error is a terminal on which lines can be written over.
pub fn is_possible() -> bool {
    let term = std::env::var_os("TERM").unwrap_or_default();
    io::stderr().is_terminal() && !term.is_empty() && term != "dumb"
}

/// Returns the columns that a line may take; the last one stays free, since writing there makes some terminals begin
/// another line.
pub fn width() -> usize {
    let size = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col.into());
    let columns = match size {
        0 => std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok()),
        size => Some(size),
    };
    columns.unwrap_or(COLUMNS).saturating_sub(1)
}

/// Shows `line` in place of the last one.
pub fn show(line: &str) {
    let mut shown = shown();
    if shown.as_deref() != Some(line) {
        write(&format!("\r{line}{CLEAR}"));
        *shown = Some(line.to_owned());
    }
}

/// Takes the line off the screen.
pub fn clear() {
    if shown().take().is_some() {
        write(&format!("\r{CLEAR}"));
    }
}

/// Takes the line off the screen where the program ends, even if another thread is printing.
pub fn abandon() {
    if let Ok(mut shown) = SHOWN.try_lock()
        && shown.take().is_some()
    {
        write(&format!("\r{CLEAR}"));
    }
}

/// Runs `print` while no line is on the screen.
pub fn aside<T>(print: impl FnOnce() -> T) -> T {
    let shown = shown();
    let Some(line) = &*shown else {
        drop(shown);
        return print();
    };
    write(&format!("\r{CLEAR}"));
    let printed = print();
    write(line);
    printed
}

fn shown() -> MutexGuard<'static, Option<String>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}

/// Standard error beside the line, for traces.
pub struct Beside;

impl Write for Beside {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        aside(|| io::stderr().write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Beside {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}
