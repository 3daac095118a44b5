//! The bar on a terminal, and everything else that wants to be printed on stderr meanwhile.

use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onefold_backup::Progress;
use tracing_subscriber::fmt::MakeWriter;

use super::Doing;
use super::status::State;
use crate::{human, paths};

/// The bar that is drawn now, if one is.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Runs `print` while no bar is on the screen.
pub fn aside<T>(print: impl FnOnce() -> T) -> T {
    let bar = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Standard error beside the bar, for traces.
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

/// A bar with a line of figures, or nothing.
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// Draws on stderr if `visible`.
    pub fn new(visible: bool) -> Self {
        let bar = visible.then(|| {
            ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10))
        });
        DRAWN
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&bar);
        Self(bar)
    }

    /// Shows where the run is.
    pub fn draw(&self, state: &State, progress: &Progress) {
        let Some(bar) = &self.0 else { return };
        let template = if state.totals.is_some() {
            "[{bar:20}] {wide_msg}"
        } else {
            "{spinner} {wide_msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        let total = state.totals.map_or(0, |(_, bytes)| bytes);
        bar.set_length(total.max(1));
        bar.set_position(progress.bytes_done.load(Relaxed).min(total.max(1)));
        bar.set_message(line(state, progress));
        bar.tick();
    }

    /// Takes it off the screen.
    pub fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
        *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn line(state: &State, progress: &Progress) -> String {
    if progress.is_cancelled() {
        return "stopping…".into();
    }
    let (files, bytes) = (
        progress.files_done.load(Relaxed),
        progress.bytes_done.load(Relaxed),
    );
    let mut line = match state.totals {
        Some((all, all_bytes)) => format!(
            "{:.0}%  {}/{} files  {}/{}",
            human::percent(bytes, all_bytes),
            human::count(files),
            human::count(all),
            human::bytes(bytes),
            human::bytes(all_bytes)
        ),
        None => format!("{}  {}", human::many(files, "file"), human::bytes(bytes)),
    };
    line += &match state.doing {
        Doing::Backup => format!(
            "  read {}/s  stored {}/s",
            human::bytes(state.moved_per_s),
            human::bytes(state.stored_per_s)
        ),
        Doing::Restore | Doing::Estimate => format!("  {}/s", human::bytes(state.moved_per_s)),
    };
    if let Some(eta) = state.eta(bytes) {
        line += &format!("  {}:{:02} left", eta.as_secs() / 60, eta.as_secs() % 60);
    }
    let errors = progress.errors.load(Relaxed);
    if errors > 0 {
        line += &format!("  {}", human::many(errors, "error"));
    }
    line + "  " + &paths::shown(&progress.current.lock())
}
