//! Progress of a running verb: a bar on a terminal, JSON lines with restic's fields, or nothing; and paths that fail,
//! at once. It also passes signals to the engine: each tick looks for one.

pub mod bar;
pub mod line;
mod status;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use onefold_backup::restore::Metadata;
use onefold_backup::walk::Walk;
use onefold_backup::{Change, Error as BackupError, Events, Kind, Progress};

use crate::json::message::{PathError, PathWarning};
use crate::out::Out;
use crate::{error, human, leaving, paths, signal};

pub use line::{Beside, aside};
use status::RunState;

/// Interval at which signals are looked for, and the line on a terminal is shown.
const TICK: Duration = Duration::from_millis(100);
/// Interval of JSON status lines. ONEFOLD_PROGRESS_FPS replaces both intervals.
const JSON_INTERVAL: Duration = Duration::from_millis(500);

/// Width of a line where there is no terminal, in columns.
const LOGGED_COLUMNS: usize = 120;

/// Longest time that the engine may take to stop after a signal.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest number of paths that are reported one by one as having no space; `-v` reports all.
const FULL_TOLD_MAX: u64 = 10;

/// Kind of work; restic's words depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Reading files into the repository.
    Backup,
    /// Writing files from the repository.
    Restore,
    /// Reading files, storing nothing.
    Estimate,
    /// Copying snapshots from one repository into another.
    Copy,
    /// Copying objects into a replica.
    Sync,
}

impl Doing {
    /// The word for what is counted.
    fn unit(self) -> &'static str {
        match self {
            Self::Backup | Self::Restore | Self::Estimate => "file",
            Self::Copy => "snapshot",
            Self::Sync => "object",
        }
    }
}

/// Totals of a scan beside the run; the engine's own totals replace them when they are final.
#[derive(Default, Debug)]
pub struct Expected {
    /// Number of files that the scan has found.
    pub files: AtomicU64,
    /// Bytes of the files that the scan has found.
    pub bytes: AtomicU64,
    /// Whether the scan has ended.
    pub known: AtomicBool,
}

impl Expected {
    /// Counts files and bytes of the walk, for the percentage and the time left, until the run has `ended`.
    pub fn count(&self, mut walk: Walk, ended: &AtomicBool) {
        let is_over = || ended.load(Relaxed);
        while let Some(piece) = walk.next_unless(&is_over) {
            if is_over() {
                return;
            }
            let found = piece.found.iter();
            for file in found.filter(|found| found.stat.kind == Kind::File) {
                self.files.fetch_add(1, Relaxed);
                self.bytes.fetch_add(file.stat.size, Relaxed);
            }
        }
        self.known.store(!is_over(), Relaxed);
    }
}

/// Shows the progress of one run.
pub struct Meter<'a> {
    doing: Doing,
    out: &'a Out,
    /// Counters of the engine.
    pub progress: Progress,
    /// Totals of the scan.
    pub expected: Expected,
    /// Sources that are the repository or lie in it.
    pub refused: AtomicU64,
    /// Paths for which there was no space.
    full: AtomicU64,
    /// Kinds of missing metadata with the system's error numbers, of which one path was reported each.
    lacking: Mutex<HashSet<(Metadata, Option<i32>)>>,
    started: Instant,
    told: AtomicBool,
    rates: Mutex<Rates>,
}

/// Counters whose growth `indicatif` measures, and the times of the last events.
struct Rates {
    moved: ProgressBar,
    stored: ProgressBar,
    last_shown: Instant,
    asked_to_stop: Option<Instant>,
}

impl<'a> Meter<'a> {
    /// Makes a meter that shows nothing before [`run`](Self::run).
    pub fn new(doing: Doing, out: &'a Out) -> Self {
        let now = Instant::now();
        let rates = Rates {
            moved: ProgressBar::hidden(),
            stored: ProgressBar::hidden(),
            last_shown: now,
            asked_to_stop: None,
        };
        Self {
            doing,
            out,
            progress: Progress::default(),
            expected: Expected::default(),
            refused: AtomicU64::new(0),
            full: AtomicU64::new(0),
            lacking: Mutex::default(),
            started: now,
            told: AtomicBool::new(false),
            rates: Mutex::new(rates),
        }
    }

    /// Whether a bar or status lines are shown, so that a scan beside the run is worth it.
    pub fn is_shown(&self) -> bool {
        self.out.bar || self.out.json || fps().is_some()
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Runs `work`, shows its progress meanwhile, and cancels it when a signal comes.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _listening = signal::listen();
        let done = std::thread::scope(|scope| {
            let (stop, stopped) = channel::<()>();
            scope.spawn(move || {
                while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    self.tick();
                }
            });
            // This is also dropped when `work` panics: the scope could not end otherwise.
            let _stop = stop;
            work()
        });
        // Where the backup was quicker than the scan, its own counts are the totals.
        let (expected, progress) = (&self.expected, &self.progress);
        let is_backup = matches!(self.doing, Doing::Backup);
        if is_backup && !expected.known.load(Relaxed) && progress.totals_known.load(Relaxed) {
            let all = |of: &AtomicU64| of.load(Relaxed);
            expected.files.store(all(&progress.files_total), Relaxed);
            expected.bytes.store(all(&progress.bytes_total), Relaxed);
            expected.known.store(true, Relaxed);
        }
        self.tell_scanned();
        line::clear();
        self.tell_full();
        done
    }

    /// Reports how many more paths had no space than were reported one by one.
    fn tell_full(&self) {
        let more = self.full.load(Relaxed).saturating_sub(FULL_TOLD_MAX);
        if more > 0 && !self.tells_all() {
            let more = human::count(more);
            self.out.note(format_args!(
                "error: and {more} more, with no space left either"
            ));
        }
    }

    /// Whether all paths are reported one by one: for programs, and for users who asked for it.
    fn tells_all(&self) -> bool {
        self.out.json || self.wants_entries()
    }

    fn tick(&self) {
        if signal::raised() {
            self.stop();
        }
        self.tell_scanned();
        let state = self.state(Instant::now());
        if self.out.bar && self.is_due(TICK) {
            line::show(&bar::line(&state, &self.progress, line::width()));
        }
        let asked = signal::asked();
        if asked && self.out.json {
            let _ = self.out.json(&status::json(&state, &self.progress));
        } else if asked && !self.out.bar || self.is_logged() {
            self.out
                .note(bar::line(&state, &self.progress, LOGGED_COLUMNS));
        }
        if self.out.json && !self.out.quiet && self.is_due(JSON_INTERVAL) {
            let _ = self.out.json(&status::json(&state, &self.progress));
        }
    }

    /// Whether a line is due where there is no terminal: only a user who sets the rate gets any.
    fn is_logged(&self) -> bool {
        let is_wanted = !self.out.bar && !self.out.json && !self.out.quiet && fps().is_some();
        is_wanted && self.is_due(TICK)
    }

    /// Prints restic's message that the files have been counted, once.
    fn tell_scanned(&self) {
        let expected = &self.expected;
        let is_known = expected.known.load(Relaxed);
        if !(self.out.json && self.wants_entries() && is_known) || self.told.swap(true, Relaxed) {
            return;
        }
        let (files, bytes) = (expected.files.load(Relaxed), expected.bytes.load(Relaxed));
        let _ = self
            .out
            .json(&status::scanned(self.elapsed(), files, bytes));
    }

    /// Asks the engine to stop; where it cannot (it waits for a silent pipe), ends the program: that is safe at any
    /// byte.
    fn stop(&self) {
        let asked = *self.rates().asked_to_stop.get_or_insert_with(Instant::now);
        self.progress.cancel();
        if asked.elapsed() > PATIENCE {
            leaving::leave();
        }
    }

    fn state(&self, now: Instant) -> RunState {
        let (rates, progress) = (self.rates(), &self.progress);
        RunState {
            doing: self.doing,
            elapsed: now - self.started,
            totals: self.totals(),
            met: self.met(),
            moved_per_s: growth_per_s(&rates.moved, &progress.bytes_moved),
            stored_per_s: growth_per_s(&rates.stored, &progress.bytes_stored),
        }
    }

    /// Returns all files and bytes, once they are known; at least what the engine has found.
    fn totals(&self) -> Option<(u64, u64)> {
        let known = |of: &AtomicBool| of.load(Relaxed);
        let (progress, expected) = (&self.progress, &self.expected);
        let are_known = known(&progress.totals_known)
            || known(&progress.expected_known)
            || known(&expected.known);
        are_known.then(|| self.met())
    }

    /// Returns files and bytes so far: those of the engine where it knows all, else the most that scan or engine have
    /// counted.
    fn met(&self) -> (u64, u64) {
        let (progress, expected) = (&self.progress, &self.expected);
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let engine = (load(&progress.files_total), load(&progress.bytes_total));
        if progress.totals_known.load(Relaxed) {
            return engine;
        }
        let scanned = (load(&expected.files), load(&expected.bytes));
        let counted = (
            load(&progress.files_expected),
            load(&progress.bytes_expected),
        );
        (
            scanned.0.max(counted.0).max(engine.0),
            scanned.1.max(counted.1).max(engine.1),
        )
    }

    /// Whether something is to be shown again.
    fn is_due(&self, default: Duration) -> bool {
        let (now, mut rates) = (Instant::now(), self.rates());
        let due = now - rates.last_shown >= interval(default);
        if due {
            rates.last_shown = now;
        }
        due
    }

    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn during(&self) -> &'static str {
        match self.doing {
            Doing::Backup => "archival",
            Doing::Restore => "restore",
            Doing::Estimate => "estimate",
            Doing::Copy => "copy",
            Doing::Sync => "sync",
        }
    }
}

impl Meter<'_> {
    /// Returns what to write instead, to follow the error.
    fn instead(&self, error: &onefold_backup::Error) -> &'static str {
        match (error, self.doing) {
            (onefold_backup::Error::Special { what, .. }, Doing::Backup) if *what != "a socket" => {
                " (--read-special reads it)"
            }
            _ => "",
        }
    }
}

impl Events for Meter<'_> {
    fn error(&self, path: &[u8], error: &BackupError) {
        if matches!(error, BackupError::IntoItself) {
            self.refused.fetch_add(1, Relaxed);
        }
        if error.is_full() && self.full.fetch_add(1, Relaxed) >= FULL_TOLD_MAX && !self.tells_all()
        {
            return;
        }
        let message = error::chain_of(error) + self.instead(error);
        if self.out.json {
            self.out
                .note_json(&PathError::new(self.during(), path, &message));
        } else {
            // An error of the repository does not name the file that it hurts.
            let shown = paths::shown(path);
            let place = if message.contains(&shown) {
                String::new()
            } else {
                format!("{shown}: ")
            };
            self.out.note(format_args!("error: {place}{message}"));
        }
    }

    /// A target that keeps no owners keeps those of no file: one path of each kind is reported, and the end of the run
    /// reports the number.
    fn lacking(&self, path: &[u8], what: Metadata, error: &BackupError) {
        let why = match error {
            BackupError::Io { source, .. } => source.raw_os_error(),
            _ => None,
        };
        let mut told = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert((what, why)) || self.tells_all() {
            drop(told);
            self.error(path, error);
        }
    }

    fn warning(&self, path: &[u8], what: &str) {
        if self.out.json {
            let warning = PathWarning::new(self.during(), path, what);
            return self.out.note_json(&warning);
        }
        self.out
            .note(format_args!("warning: {}: {what}", paths::shown(path)));
    }

    fn wants_entries(&self) -> bool {
        self.out.verbosity > 0
    }

    fn entry(&self, path: &[u8], change: Change, bytes: u64) {
        if !self.wants_entries() {
            return;
        }
        // A closed standard output must not end a backup.
        let _ = if self.out.json {
            self.out.json_buffered(&status::verbose(
                self.doing,
                path,
                change,
                bytes,
                &self.progress,
            ))
        } else {
            self.out.line(format_args!(
                "{:9}  {}",
                status::word(self.doing, change),
                paths::shown(path)
            ))
        };
    }
}

/// Notes the counter's value, and returns its growth per second over the last seconds.
fn growth_per_s(measured: &ProgressBar, counter: &AtomicU64) -> u64 {
    measured.set_position(counter.load(Relaxed));
    measured.per_sec() as u64
}

fn interval(default: Duration) -> Duration {
    let seldom = |fps: f64| Duration::from_secs_f64((1.0 / fps.min(60.0)).min(86_400.0));
    fps().map_or(default, seldom)
}

/// Variable for the number of times a second that progress is shown.
pub const FPS_ENV: &str = "ONEFOLD_PROGRESS_FPS";

/// Returns how many times a second progress is shown, where the user sets it.
pub fn fps() -> Option<f64> {
    let fps = std::env::var(FPS_ENV).ok()?.parse().ok()?;
    (fps > 0.0 && f64::is_finite(fps)).then_some(fps)
}
