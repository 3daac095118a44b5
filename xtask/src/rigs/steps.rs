//! Steps of a rig: each is a command that must succeed, and prints one line with its verdict and the seconds it took.

use std::process::Command;
use std::time::Instant;

/// Seconds that a step may take.
const SECONDS_MAX: u32 = 120;

/// A counter of failed steps.
#[derive(Default)]
pub struct Steps {
    /// Number of failed steps.
    pub failed: usize,
}

impl Steps {
    /// Runs a shell command that must succeed within two minutes.
    pub fn shell(&mut self, name: &str, script: &str) {
        self.shell_within(SECONDS_MAX, name, script);
    }

    /// Runs a shell command that must succeed within the time given.
    pub fn shell_within(&mut self, seconds: u32, name: &str, script: &str) {
        let started = Instant::now();
        let done = within(seconds, script).map(drop);
        let name = format!("{:6.1} s  {name}", started.elapsed().as_secs_f64());
        self.tell(&name, done);
    }

    /// Reports a step whose result is known.
    pub fn tell(&mut self, name: &str, done: Result<(), String>) {
        match done {
            Ok(()) => println!("ok    {name}"),
            Err(why) => {
                println!("FAIL  {name}: {why}");
                self.failed += 1;
            }
        }
    }
}

/// Runs a shell command that must succeed within so many seconds, and returns what it prints.
///
/// # Errors
/// The command failed or took too long: its last lines.
pub fn within(seconds: u32, script: &str) -> Result<String, String> {
    let output = Command::new("timeout")
        .arg(seconds.to_string())
        .args(["bash", "-euo", "pipefail", "-c", script])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    let last: Vec<_> = said.lines().rev().take(4).collect();
    let why = match output.status.code() {
        // The exit code of `timeout`.
        Some(124) => format!("not done within {seconds} s"),
        _ => output.status.to_string(),
    };
    Err(format!("{why}: {}", last.join(" | ")))
}
