//! How full a depot is, told while its process lives: in the log, in `stats`, and by a command.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onefold_volume::FreeSpace;
use onefold_volume::front::WhenFull;
use onefold_volume::fullness::{Filling, Fullness};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::source::{NamedVolume, VolumeSource};
use crate::human;
use crate::out::Out;
use crate::when;

/// Space is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The depot's log begins anew beyond this many bytes.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Options for a depot that fills.
#[derive(clap::Args, Clone, Debug)]
pub struct WhenFilling {
    /// A write that needs space when none is left fails at once (fail), or waits for some first (wait:60s)
    #[arg(long, value_name = "fail|wait:TIME", value_parser = parse_when_full, default_value = "fail", conflicts_with = "raw")]
    pub when_full: OnFull,

    /// Shell command to run when the depot is 80, 90, 95 or 100 % full, or will be full within a day. It finds
    /// ONEFOLD_DEPOT, ONEFOLD_THRESHOLD (80, 90, 95, 100 or day) and ONEFOLD_FULL_PERCENT in its environment
    #[arg(long, value_name = "CMD", conflicts_with = "raw")]
    pub on_threshold: Option<String>,
}

/// [`WhenFull`], as an argument.
#[derive(Clone, Copy, Debug)]
pub struct OnFull(pub WhenFull);

fn parse_when_full(text: &str) -> Result<OnFull, String> {
    match text.split_once(':') {
        None if text == "fail" => Ok(OnFull(WhenFull::Fail)),
        Some(("wait", time)) => Ok(OnFull(WhenFull::Wait(human::parse_duration(time)?))),
        _ => Err("expected fail, or wait: and a time such as wait:60s".into()),
    }
}

/// Watches a depot's space.
pub struct SpaceWatch {
    depot: PathBuf,
    command: Option<String>,
    started: Instant,
    state: Mutex<WatchState>,
}

struct WatchState {
    fullness: Fullness,
    looked: Option<Instant>,
    log_failed: bool,
}

impl SpaceWatch {
    /// Watches the depot that is named; a raw file is never looked at.
    pub fn new(named: &NamedVolume, what: &WhenFilling) -> Self {
        Self {
            depot: named.folder().map(PathBuf::from).unwrap_or_default(),
            command: what.on_threshold.clone(),
            started: Instant::now(),
            state: Mutex::new(WatchState {
                fullness: Fullness::default(),
                looked: None,
                log_failed: false,
            }),
        }
    }

    /// Looks at the space once a second, and tells what is new. A depot that is busy with something long is looked at
    /// later.
    pub fn look(&self, source: &VolumeSource, out: &Out) {
        let mut state = self.state.lock();
        if state
            .looked
            .is_some_and(|looked| looked.elapsed() < LOOK_AGAIN)
        {
            return;
        }
        let Some(space) = source.space() else {
            return;
        };
        state.looked = Some(Instant::now());
        let seconds = self.started.elapsed().as_secs();
        for filling in state.fullness.look(seconds, &space) {
            let line = told(filling, &space);
            self.tell_with(&mut state, &line, out);
            self.run_command(filling, &space, out);
        }
    }

    /// Tells a line on standard error and in the depot's log, if there is a depot.
    pub fn tell(&self, line: &str, out: &Out) {
        self.tell_with(&mut self.state.lock(), line, out);
    }

    fn tell_with(&self, state: &mut WatchState, line: &str, out: &Out) {
        if self.depot.as_os_str().is_empty() {
            return out.warn(line);
        }
        out.warn(format_args!("{}: {line}", self.depot.display()));
        if let Err(error) = self.log(line)
            && !std::mem::replace(&mut state.log_failed, true)
        {
            out.warn(format_args!("the depot's log cannot be written: {error}"));
        }
    }

    /// Adds to statistics when the depot is full at the last hour's rate, where that can be told.
    pub fn add_to(&self, stats: &mut Value, source: &VolumeSource) {
        let state = self.state.lock();
        if let Some(space) = source.space() {
            stats["space"]["seconds_until_full"] = json!(state.fullness.seconds_until_full(&space));
        }
    }

    /// Adds a line to the file `log` of the depot: the process may have nobody who reads its standard error.
    fn log(&self, line: &str) -> std::io::Result<()> {
        let path = self.depot.join("log");
        if std::fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
            std::fs::rename(&path, self.depot.join("log.old"))?;
        }
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?;
        writeln!(file, "{} {line}", when::rfc3339(when::now()))
    }

    fn run_command(&self, filling: Filling, space: &FreeSpace, out: &Out) {
        let Some(command) = &self.command else {
            return;
        };
        let threshold = match filling {
            Filling::Reached(percent) => percent.to_string(),
            Filling::Soon(_) => "day".into(),
        };
        let started = Command::new("sh")
            .args(["-c", command])
            .env("ONEFOLD_DEPOT", &self.depot)
            .env("ONEFOLD_THRESHOLD", threshold)
            .env("ONEFOLD_FULL_PERCENT", space.full_percent().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match started {
            // Nobody waits for the command, but somebody has to take its end.
            Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
            Err(error) => out.warn(format_args!("\"{command}\" cannot be run: {error}")),
        }
    }
}

fn told(filling: Filling, space: &FreeSpace) -> String {
    match filling {
        Filling::Reached(100) if space.missing > 0 => {
            "the file system that holds the depot is full: writes that need space fail; make room there, or delete files on the volume, then `sync` and `fstrim`, once more where `stats` still shows it full".into()
        }
        Filling::Reached(100) => {
            "the depot is full: writes that need space fail; delete files, then `sync` and `fstrim`, once more where `stats` still shows it full".into()
        }
        Filling::Reached(_) => format!("the depot is {} % full", space.full_percent()),
        Filling::Soon(seconds) => format!(
            "the depot is {} % full, and at the last hour's rate it is full in {:.1} hours",
            space.full_percent(),
            seconds as f64 / 3600.0
        ),
    }
}
