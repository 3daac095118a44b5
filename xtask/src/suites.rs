//! Runs the suites of all packages, a few at a time: each waits for processes, timers and the disk much of its time.
//! Cargo would run one after the other.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;
use xtask::program::path;

/// Number of tests that run at once in a suite; the test harness reads it.
const THREADS: &str = "RUST_TEST_THREADS";

/// The package whose suite takes longest, so it starts first.
const LONGEST: &str = "onefold";

/// A program of tests that cargo has built.
struct Suite {
    program: PathBuf,
    /// The package's folder, where cargo starts its tests.
    folder: PathBuf,
    /// Package and target, to tell a person.
    name: String,
}

/// Builds all suites and runs them with the variables of `environment`.
///
/// # Errors
/// The build fails, a suite cannot be started, or a test fails: each suite is run to its end before.
pub fn run(environment: &[(&str, &OsStr)]) -> Result<(), String> {
    let mut suites = build()?;
    // The queue is taken from its end.
    suites.sort_by_key(|suite| suite.name.starts_with(LONGEST));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (queue, failed) = (Mutex::new(suites), Mutex::new(Vec::new()));
    let take = || queue.lock().ok()?.pop();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(suite) = take() {
                    let done = suite.run(environment, cores + 1);
                    if let (Err(error), Ok(mut failed)) = (done, failed.lock()) {
                        failed.push(format!("{}: {error}", suite.name));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().map_err(|error| error.to_string())?;
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("\n"))
    }
}

/// Builds the suites of the workspace.
fn build() -> Result<Vec<Suite>, String> {
    let args = ["test", "--workspace", "--no-run", "--message-format"];
    println!("── cargo {}", args[..3].join(" "));
    let mut cargo = Command::new("cargo")
        .args(args)
        .arg("json-render-diagnostics")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo: {error}"))?;
    let mut suites = Vec::new();
    let told = cargo.stdout.take().into_iter();
    for line in told.flat_map(|told| BufReader::new(told).lines()) {
        let line = line.map_err(|error| format!("cargo: {error}"))?;
        let message = serde_json::from_str(&line).map_err(|error| format!("cargo: {error}"))?;
        suites.extend(Suite::of(&message));
    }
    let status = cargo.wait().map_err(|error| format!("cargo: {error}"))?;
    if status.success() {
        Ok(suites)
    } else {
        Err(format!("cargo test --no-run: {status}"))
    }
}

impl Suite {
    /// The suite that a message of cargo tells of, if it tells of one.
    fn of(message: &Value) -> Option<Self> {
        let program = PathBuf::from(message["executable"].as_str()?);
        message["profile"]["test"].as_bool().filter(|is| *is)?;
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        let folder = manifest.parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy();
        let target = message["target"]["name"].as_str()?;
        let kind = message["target"]["kind"][0].as_str()?;
        Some(Self {
            program,
            name: format!("{package}: {kind} {target}"),
            folder,
        })
    }

    /// Runs its tests, `threads` at once, and prints what they said once they are done.
    fn run(&self, environment: &[(&str, &OsStr)], threads: usize) -> Result<(), String> {
        let start = Instant::now();
        let mut told = tempfile::tempfile().map_err(|error| error.to_string())?;
        let share = || File::try_clone(&told).map_err(|error| error.to_string());
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("PATH", path())
            .stdin(Stdio::null())
            .stdout(share()?)
            .stderr(share()?)
            .envs(environment.iter().copied());
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, threads.to_string());
        }
        let status = command.status().map_err(|error| error.to_string())?;
        let mut text = Vec::new();
        told.rewind().map_err(|error| error.to_string())?;
        told.read_to_end(&mut text)
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text);
        let seconds = start.elapsed().as_secs();
        println!("── {}, {seconds} s\n{}", self.name, text.trim());
        if status.success() {
            Ok(())
        } else {
            Err(status.to_string())
        }
    }
}
