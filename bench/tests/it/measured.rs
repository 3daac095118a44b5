//! The figures of a command are its own, whatever memory the benchmark around it holds.

use std::process::Command;

use serde_json::Value;

/// Runs `command` as benchmarks do; returns the report.
fn measured(command: &[&str]) -> Value {
    let report = tempfile::NamedTempFile::new().expect("a file");
    let mut helper = Command::new(env!("CARGO_BIN_EXE_onefold-bench"));
    helper.arg("measured").arg(report.path()).args(command);
    assert!(helper.status().expect("starts").success());
    let text = std::fs::read(report.path()).expect("a report");
    serde_json::from_slice(&text).expect("JSON")
}

/// The peak RSS of this process, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.expect("a peak").trim().trim_end_matches(" kB");
    number.parse().expect("a number")
}

#[test]
fn the_peak_of_a_small_command_is_small_whatever_its_parent_holds() {
    let held = std::hint::black_box(vec![1u8; 200 << 20]);
    assert!(peak_kib() >= 200 << 10, "the parent holds it");
    let taken = measured(&["true"]);
    let rss_bytes = taken["rss_bytes"].as_u64().expect("bytes");
    assert!((1..20 << 20).contains(&rss_bytes), "{rss_bytes} bytes");
    drop(held);
}

#[test]
fn the_peak_of_a_large_command_is_large_in_its_children_too() {
    // `dd` holds its block in memory; the shell waits for it.
    let dd = "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null; exit 3";
    let taken = measured(&["sh", "-c", dd]);
    assert!(taken["rss_bytes"].as_u64() > Some(64 << 20), "{taken}");
    assert_eq!(taken["status"], 3 << 8);
}
