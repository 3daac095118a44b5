//! Programs that tasks run, one step after the other.

use std::ffi::OsString;
use std::process::Command;

/// Prints a cargo command and runs it.
///
/// # Errors
/// As of [`step`].
pub fn cargo(args: &[&str]) -> Result<(), String> {
    step(
        &format!("cargo {}", args.join(" ")),
        Command::new("cargo").args(args),
    )
}

/// Prints the name of a step and runs its command.
///
/// # Errors
/// The command cannot be started, or does not end well.
pub fn step(what: &str, command: &mut Command) -> Result<(), String> {
    println!("── {what}");
    match command.env("PATH", path()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what}: {status}")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

/// Whether a program of this name is installed.
pub fn on_path(program: &str) -> bool {
    std::env::split_paths(&path()).any(|dir| dir.join(program).is_file())
}

/// PATH with the folders of `mkfs.ext4` at its end, which not every user's PATH has.
pub fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
