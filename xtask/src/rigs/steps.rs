//! Steps of a rig: each is a command that must succeed, and prints one line.

use std::process::Command;

/// A counter of failed steps.
#[derive(Default)]
pub struct Steps {
    /// Number of failed steps.
    pub failed: usize,
}

impl Steps {
    /// Runs a shell command that must succeed within two minutes.
    pub fn shell(&mut self, name: &str, script: &str) {
        let output = Command::new("timeout")
            .args(["120", "bash", "-euo", "pipefail", "-c", script])
            .output();
        self.tell(
            name,
            match output {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => {
                    let said = [output.stdout, output.stderr].concat();
                    let said = String::from_utf8_lossy(&said).trim().to_owned();
                    let last: Vec<_> = said.lines().rev().take(4).collect();
                    Err(format!("{}: {}", output.status, last.join(" | ")))
                }
                Err(error) => Err(error.to_string()),
            },
        );
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
