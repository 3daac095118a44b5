//! Output of the program: results on stdout, everything about the run on stderr. A closed stdout ends the program
//! quietly.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onefold_backup::path::is_escaped;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::json::message::{self, PathWarning};
use crate::progress::{aside, line};

/// Output channels and their options.
pub struct Out {
    /// Print JSON lines instead of text.
    pub json: bool,
    /// Print only errors, and results that were asked for.
    pub quiet: bool,
    /// Number of times that `-v` was given.
    pub verbosity: u8,
    /// Whether a line of progress may be shown.
    pub bar: bool,
    /// Whether standard output and standard error are one file: then reports are written at once, so that they stand
    /// among the messages in the right order.
    is_one_log: bool,
    stdout: Mutex<BufWriter<io::Stdout>>,
}

impl Out {
    /// Prints on the process's stdout and stderr.
    pub fn new(json: bool, quiet: bool, verbosity: u8, no_progress: bool) -> Self {
        let bar = !json && !quiet && !no_progress && line::is_possible();
        Self {
            json,
            quiet,
            verbosity,
            bar,
            is_one_log: is_one_log(),
            stdout: Mutex::new(BufWriter::with_capacity(64 << 10, io::stdout())),
        }
    }

    /// Prints a line of results. Lines are buffered; see [`flush`](Self::flush).
    pub fn line(&self, line: impl Display) -> Result<()> {
        self.with(|stdout| writeln!(stdout, "{line}"))
    }

    /// Prints an explaining line, except with `-q` and in JSON. A closed stdout is no error: see
    /// [`report`](Self::report).
    pub fn say(&self, line: impl Display) -> Result<()> {
        if self.quiet || self.json {
            return Ok(());
        }
        self.report(line)
    }

    /// Prints a line on what a verb did or found. A closed stdout (`onefold restore … | head -1`) neither ends the work
    /// nor hides how it ended.
    pub fn report(&self, line: impl Display) -> Result<()> {
        unless_closed(self.line(line))?;
        if self.is_one_log {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Prints a JSON value on a line of its own, and flushes it, so that a listening program has it at once. A closed
    /// stdout is no error.
    pub fn json(&self, value: &impl Serialize) -> Result<()> {
        unless_closed(self.with(|stdout| {
            serde_json::to_writer(&mut *stdout, value)?;
            stdout.write_all(b"\n")?;
            stdout.flush()
        }))
    }

    /// Prints a JSON value on a line of its own, buffered: for long listings.
    pub fn json_buffered(&self, value: &impl Serialize) -> Result<()> {
        self.with(|stdout| {
            serde_json::to_writer(&mut *stdout, value)?;
            stdout.write_all(b"\n")
        })
    }

    /// Prints bytes of results, unchanged.
    pub fn bytes(&self, bytes: &[u8]) -> Result<()> {
        self.with(|stdout| stdout.write_all(bytes))
    }

    /// Prints the bytes that `fill` writes, to their end; [`Error::Closed`] where stdout is closed.
    pub fn write_all_of(&self, fill: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()> {
        let mut stdout = Raw(self.lock());
        fill(&mut stdout)?;
        stdout.flush().map_err(failed)
    }

    fn lock(&self) -> MutexGuard<'_, BufWriter<io::Stdout>> {
        self.stdout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a noteworthy line about the run on stderr; a `warning` in JSON.
    pub fn note(&self, line: impl Display) {
        if self.json {
            self.note_json(&PathWarning::of_nothing(&line.to_string()))
        } else {
            self.tell(line)
        }
    }

    /// Prints a warning on stderr: something may not be as the user meant it.
    pub fn warn(&self, line: impl Display) {
        if self.json {
            self.note(line)
        } else {
            self.tell(format_args!("warning: {line}"))
        }
    }

    /// Prints a JSON value as a line on stderr.
    pub fn note_json(&self, value: &impl Serialize) {
        self.tell(message::line(value));
    }

    /// Prints a line on stderr, after the results so far.
    fn tell(&self, line: impl Display) {
        // A thread that holds the lock is writing a file's bytes, which have no order among messages.
        if self.is_one_log
            && let Ok(mut stdout) = self.stdout.try_lock()
        {
            // An error shows again when the next line is written.
            let _ = stdout.flush();
        }
        tell(line);
    }

    /// Writes out everything that is buffered; a closed stdout is no error.
    pub fn flush(&self) -> Result<()> {
        unless_closed(self.with(|stdout| stdout.flush()))
    }

    fn with(&self, write: impl FnOnce(&mut BufWriter<io::Stdout>) -> io::Result<()>) -> Result<()> {
        let mut stdout = self.lock();
        let write = || {
            write(&mut stdout)?;
            // Beside a bar every line is shown at once, or the two would mix on the screen.
            if self.bar { stdout.flush() } else { Ok(()) }
        };
        let written = if self.bar { aside(write) } else { write() };
        written.map_err(failed)
    }
}

/// Whether stdout and stderr lead to the same file, pipe or terminal.
fn is_one_log() -> bool {
    let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let stdout = rustix::fs::fstat(io::stdout()).map(place);
    stdout.is_ok() && stdout == rustix::fs::fstat(io::stderr()).map(place)
}

fn failed(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::BrokenPipe => Error::Closed,
        _ => Error::io("write to standard output", e),
    }
}

fn tell(line: impl Display) {
    aside(|| {
        let _ = writeln!(io::stderr(), "{line}");
    });
}

fn unless_closed(written: Result<()>) -> Result<()> {
    match written {
        Err(Error::Closed) => Ok(()),
        other => other,
    }
}

struct Raw<'a>(MutexGuard<'a, BufWriter<io::Stdout>>);

impl Write for Raw<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Makes text from outside safe for a terminal: escapes the characters of [`is_escaped`], as in paths.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn what_moves_the_cursor_or_turns_the_text_is_escaped() {
        let label = "of ann\u{1b}[2K\u{202e}nimda\u{2066}\u{200f}";
        let shown = "of ann\\u{1b}[2K\\u{202e}nimda\\u{2066}\\u{200f}";
        assert_eq!(safe(label), shown);
        assert_eq!(safe("Zoë's “key”"), "Zoë's “key”");
    }
}
