//! A short run of every fuzz target, with the day's seed.

use std::process::Command;

/// Seconds for each target: some thousand inputs and more.
const SECONDS: &str = "0.25";

#[test]
fn every_decoder_takes_mutated_input() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_onefold-fuzz"));
    let done = program.args(["--seconds", SECONDS]).output();
    let done = done.expect("the program runs");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}");
}
