//! Requirements of a test that may be missing.
//!
//! In CI – where the variable `CI` is set – programs that can be installed must be there; a missing requirement that
//! cannot be installed (root's rights, a mount within a container, a feature of the file system) is reported, and the
//! test passes. `cargo xtask ci` reports it again at its end.

#[path = "told.rs"]
mod told;

pub use told::not_tested;

/// Whether a program is installed. In CI it must be.
#[allow(dead_code, reason = "not every crate needs programs")]
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(
        is_there || !is_ci,
        "{program} is not on PATH, and CI is set: `cargo xtask test` installs it"
    );
    if !is_there {
        not_tested(&format!("{program} is not installed"));
    }
    is_there
}

/// Whether the test runs as root.
#[allow(dead_code, reason = "not every crate asks")]
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_tested("only root can");
    }
    is_root
}
