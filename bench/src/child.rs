//! One command, started by a small process of its own, and its figures.
//!
//! The system counts as a process's peak RSS also the memory of its parent at the moment of the start (`posix_spawn`
//! shares the parent's memory until the program is loaded). A benchmark that holds the names of 290,000 files would
//! measure itself. The xtask therefore starts itself again as a small helper, which starts the command, waits for it,
//! and writes its figures: the hidden task `measured`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use wait4::Wait4;

use super::disk_io::DiskIo;

/// The figures of a command and of those children that it waited for.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Exit status of the command.
    pub status: ExitStatus,
    /// Seconds from start to exit.
    pub wall_s: f64,
    /// Seconds of user and system time.
    pub cpu_s: f64,
    /// Peak resident set of the largest process.
    pub rss_bytes: u64,
    /// Bytes read from the disk, not from the page cache.
    pub read_bytes: u64,
}

/// A command that has not run yet.
pub struct Child {
    report: NamedTempFile,
}

impl Child {
    /// Returns the command to run in place of `command`. Arguments, environment and folder are those of `command`; the
    /// caller sets the standard streams.
    pub fn new(command: &Command) -> std::io::Result<(Child, Command)> {
        let report = NamedTempFile::new()?;
        let mut helper = Command::new(std::env::current_exe()?);
        helper.arg("measured").arg(report.path());
        helper.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => helper.env(name, value),
                None => helper.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            helper.current_dir(folder);
        }
        Ok((Child { report }, helper))
    }

    /// The figures, after the command that [`Child::new`] returned has ended.
    pub fn taken(&self) -> Result<Taken, String> {
        let text = std::fs::read(self.report.path()).map_err(|error| error.to_string())?;
        let value: Value =
            serde_json::from_slice(&text).map_err(|_| "it could not be started".to_string())?;
        let status = value["status"].as_i64().unwrap_or(1);
        Ok(Taken {
            status: ExitStatus::from_raw(status as i32),
            wall_s: value["wall_s"].as_f64().unwrap_or(0.0),
            cpu_s: value["cpu_s"].as_f64().unwrap_or(0.0),
            rss_bytes: value["rss_bytes"].as_u64().unwrap_or(0),
            read_bytes: value["read_bytes"].as_u64().unwrap_or(0),
        })
    }
}

/// The helper: runs `command` and writes its figures to `report`. Fails only if the command cannot be started; the
/// reader of the report handles its exit status.
pub fn measured(report: &Path, command: &[OsString]) -> Result<(), String> {
    let [program, args @ ..] = command else {
        return Err("there is no command".into());
    };
    let failed = |error: std::io::Error| format!("{}: {error}", program.to_string_lossy());
    let before = DiskIo::now();
    let start = Instant::now();
    let child = Command::new(program).args(args).spawn().map_err(failed)?;
    let ended = child.wait4().map_err(failed)?;
    let wall_s = start.elapsed().as_secs_f64();
    let taken = json!({
        "status": ended.status.into_raw(),
        "wall_s": wall_s,
        "cpu_s": (ended.rusage.utime + ended.rusage.stime).as_secs_f64(),
        "rss_bytes": ended.rusage.maxrss,
        "read_bytes": DiskIo::now().since(before).read_bytes,
    });
    std::fs::write(report, taken.to_string()).map_err(failed)
}
