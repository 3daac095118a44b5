//! The server of S3 that tests run against: versitygw, from its Go module, built once and kept.

use std::path::PathBuf;
use std::process::Command;

use crate::cache;
use crate::program::{on_path, step};

/// Before this version two writers of one object could both win.
const VERSION: &str = "v1.8.0";
/// The program's module.
const MODULE: &str = "github.com/versity/versitygw/cmd/versitygw";
/// By this variable tests find it.
pub const VARIABLE: &str = "ONEFOLD_VERSITYGW";

/// The program, if it is there already.
pub fn found() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let program = named.or_else(|| Some(cache::folder(VERSION)?.join("versitygw")))?;
    program.is_file().then_some(program)
}

/// Builds it where it is missing: two minutes on two cores. `None` where there is no Go.
///
/// # Errors
/// The program cannot be built.
pub fn install() -> Result<Option<PathBuf>, String> {
    if let Some(program) = found() {
        return Ok(Some(program));
    }
    let Some(folder) = cache::folder(VERSION).filter(|_| on_path("go")) else {
        return Ok(None);
    };
    let module = format!("{MODULE}@{VERSION}");
    let mut command = Command::new("go");
    command.args(["install", &module]).env("GOBIN", &folder);
    step(&format!("go install {module}"), &mut command)?;
    Ok(found())
}
