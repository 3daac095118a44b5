//! The steps of CI, in the order in which failures are cheapest to learn of. Skipped checks are listed at the end, so
//! that a green run does not hide them.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use tempfile::NamedTempFile;
use xtask::program::{cargo, on_path, step};
use xtask::versitygw;

use crate::suites;

/// Debian packages that the tests use, each with a program whose presence shows that it is installed.
const PACKAGES: &[(&str, &str)] = &[
    ("diffutils", "diff"),
    ("tar", "tar"),
    ("util-linux", "setpriv"),
    ("util-linux", "setsid"),
    ("util-linux", "unshare"),
    ("mount", "mount"),
    ("e2fsprogs", "mkfs.ext4"),
    ("xfsprogs", "mkfs.xfs"),
    ("bindfs", "bindfs"),
    ("python3", "python3"),
    ("fuse3", "fusermount3"),
    ("libarchive-tools", "bsdtar"),
    ("libnbd-bin", "nbdinfo"),
    ("libnbd-bin", "nbdcopy"),
    ("libnbd-bin", "nbdfuse"),
    ("nbdkit", "nbdkit"),
    ("qemu-utils", "qemu-io"),
    ("fio", "fio"),
];

/// Installs the missing packages, and runs all steps with the variable `CI` set: a test then fails where a program is
/// missing.
pub fn test() -> Result<(), String> {
    install(PACKAGES)?;
    versitygw::install()?;
    run(true)
}

/// Installs the packages of missing programs, as root or with sudo.
pub fn install(packages: &[(&str, &str)]) -> Result<(), String> {
    let mut missing: Vec<_> = packages
        .iter()
        .filter(|(_, program)| !on_path(program))
        .map(|(package, _)| *package)
        .collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let root = rustix::process::geteuid().is_root();
    let apt = |args: &[&str]| {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            command.arg("apt-get");
        }
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        step(&format!("apt-get {}", args.join(" ")), &mut command)
    };
    apt(&["-qq", "update"])?;
    apt(&[
        &["-qq", "-y", "--no-install-recommends", "install"],
        &missing[..],
    ]
    .concat())
}

/// Format, clippy, tidy, documentation, tests with the model's small casts and a short fuzz, licences. With
/// `all_is_there`, the programs that tests use must be installed.
pub fn run(all_is_there: bool) -> Result<(), String> {
    let mut not_run = Vec::new();
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])?;
    crate::tidy::run()?;
    not_run.extend(bare_chunkers()?);
    let without_comparisons = ["clippy", "-p", "onefold-backup", "--no-default-features"];
    cargo(&[&without_comparisons[..], &["--", "-D", "warnings"]].concat())?;
    step(
        "cargo doc",
        Command::new("cargo")
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    not_run.extend(tests(all_is_there)?);
    if on_path("cargo-deny") {
        cargo(&["deny", "check", "bans", "licenses", "sources"])?;
    } else {
        let deny = "licences, banned crates and sources: cargo-deny is not installed (cargo install --locked cargo-deny)";
        not_run.push(deny.to_string());
    }
    not_run.push("the Debian package in a clean root: cargo xtask package --try".to_string());
    if !not_run.is_empty() {
        println!("\n── NOT RUN, though all that ran is well:");
        not_run.iter().for_each(|what| println!("   {what}"));
    }
    Ok(())
}

/// Runs all tests; returns what they reported as not tested.
fn tests(all_is_there: bool) -> Result<Vec<String>, String> {
    let untested = NamedTempFile::new().map_err(|error| error.to_string())?;
    let mut environment = vec![("ONEFOLD_UNTESTED", untested.path().as_os_str())];
    if all_is_there {
        environment.push(("CI", OsStr::new("true")));
    }
    let server = versitygw::found();
    if let Some(program) = &server {
        environment.push((versitygw::VARIABLE, program.as_os_str()));
    }
    suites::run(&environment)?;
    cargo(&["test", "--quiet", "--workspace", "--doc"])?;
    let told = std::fs::read_to_string(untested.path()).map_err(|error| error.to_string())?;
    Ok(told.lines().map(|line| format!("test {line}")).collect())
}

/// Checks the chunkers without the standard library and, where the target is installed, for a machine without an
/// operating system; returns the check that was skipped.
fn bare_chunkers() -> Result<Option<String>, String> {
    let bare = ["clippy", "-p", "onefold-chunk", "--no-default-features"];
    let lint = |target: &[&str]| cargo(&[&bare, target, &["--", "-D", "warnings"]].concat());
    lint(&[])?;
    if rust_target_is_there(BARE) {
        return lint(&["--target", BARE]).map(|()| None);
    }
    Ok(Some(format!(
        "a dependency's use of the standard library: there is no Rust target {BARE} (rustup target add {BARE})"
    )))
}

/// The target of a machine without an operating system.
const BARE: &str = "x86_64-unknown-none";

pub fn rust_target_is_there(target: &str) -> bool {
    let found = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    found.is_ok_and(|found| {
        let folder = String::from_utf8_lossy(&found.stdout).into_owned();
        std::path::Path::new(folder.trim()).is_dir()
    })
}

/// Runs one fuzz target for each decoder; `args` are those of `onefold-fuzz`.
pub fn fuzz(args: &[String]) -> Result<(), String> {
    let mut all = vec!["run", "--quiet", "--package", "onefold-fuzz", "--"];
    all.extend(args.iter().map(String::as_str));
    cargo(&all)
}

/// Searches for a lost chunk in every state that sessions, sweeps and changes of roots can reach; with `all`, those of
/// large casts, too.
pub fn model(all: bool) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args([
        "test",
        "--quiet",
        "--package",
        "onefold-store",
        "--test",
        "model",
    ]);
    if all {
        command.arg("--release").env("ONEFOLD_LARGE_CASTS", "1");
    }
    step(
        "cargo test --test model",
        command.args(["--", "--nocapture"]),
    )
}

/// Runs a benchmark, in a program that is built for release; `args` are those of `onefold-bench`.
pub fn bench(args: &[OsString]) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "onefold-bench",
        "--",
    ]);
    step(
        "cargo run --release --package onefold-bench",
        command.args(args),
    )
}
