//! The progress line at the bottom of the terminal, and all other output meanwhile.
//!
//! Invariant: there is one line, drawn by `indicatif` in one write, and only if it differs: nothing flickers. Its text
//! is narrower than the terminal, so that it can be written over. The cursor is never hidden, so whatever ends the
//! program leaves a sound terminal.

use std::io::{self, IsTerminal, Write};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// Line that is on the screen, if there is one.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Whether standard error is a terminal on which lines can be written over.
pub fn is_possible() -> bool {
    let term = std::env::var_os("TERM").unwrap_or_default();
    io::stderr().is_terminal() && !term.is_empty() && term != "dumb"
}

/// Returns the columns that a line's text may take: all but the last one, which is 79 where the terminal does not tell.
pub fn width() -> usize {
    let (_, columns) = Term::stderr().size();
    usize::from(columns).saturating_sub(1)
}

/// Shows `line` in place of the last one.
pub fn show(line: &str) {
    let mut shown = SHOWN.lock();
    let bar = shown.get_or_insert_with(|| {
        // A target that is made from the terminal itself would hide the line where NO_COLOR is set.
        let target = ProgressDrawTarget::term_like(Box::new(Term::buffered_stderr()));
        let style = ProgressStyle::with_template("{msg}").expect("the template is a constant");
        ProgressBar::with_draw_target(None, target).with_style(style)
    });
    if bar.message() != line {
        bar.set_message(line.to_owned());
    }
}

/// Takes the line off the screen.
pub fn clear() {
    if let Some(bar) = SHOWN.lock().take() {
        bar.finish_and_clear();
    }
}

/// Takes the line off the screen where the program ends, even if another thread is printing, or if this one panics.
pub fn abandon() {
    if let Some(mut shown) = SHOWN.try_lock()
        && shown.take().is_some()
    {
        let _ = Term::stderr().clear_line();
    }
}

/// Runs `print` while no line is on the screen.
pub fn aside<T>(print: impl FnOnce() -> T) -> T {
    let shown = SHOWN.lock();
    match &*shown {
        Some(bar) => bar.suspend(print),
        None => {
            drop(shown);
            print()
        }
    }
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
