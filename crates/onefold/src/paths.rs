//! Paths in three forms: as the user gives them, as snapshots hold them, and as JSON shows them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::{Error, Result};

/// Returns a path in the form of snapshots, absolute and clean, without following its last link.
pub fn absolute(path: &OsStr) -> Result<Vec<u8>> {
    if path.is_empty() {
        return Err(Error::Usage("a path is empty".into()));
    }
    let path = std::path::absolute(path).map_err(|e| Error::io("find the current folder", e))?;
    Ok(onefold_backup::path::clean(path.as_os_str().as_bytes()))
}

/// Checks that a source called `-` exists: a user who means standard input must say `--stdin`.
///
/// # Errors
/// [`Error::Usage`].
pub fn confirm_no_stdin(source: &OsStr) -> Result<()> {
    if source == "-" && std::fs::symlink_metadata(source).is_err() {
        Err(Error::Usage(
            "- is no file here: --stdin, without paths, reads standard input".into(),
        ))
    } else {
        Ok(())
    }
}

/// Returns a path inside a snapshot from the user's words; relative ones begin at the snapshot's root.
pub fn inside(path: &OsStr) -> Vec<u8> {
    onefold_backup::path::clean(path.as_bytes())
}

/// Returns a hint where a relative path names nothing in a snapshot: the absolute path that may be meant.
pub fn meant(path: &OsStr) -> String {
    match absolute(path) {
        Ok(absolute) if !path.as_bytes().starts_with(b"/") => {
            format!(
                "; paths in snapshots are absolute: is {} meant?",
                shown(&absolute)
            )
        }
        _ => String::new(),
    }
}

/// Returns a hint where a path begins with something that a shell would replace by the home folder: the path to write.
pub fn home_meant(path: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(path);
    let begins = ["~", "$HOME", "${HOME}"].into_iter();
    let (home, rest) = begins
        .filter_map(|home| Some((home, text.strip_prefix(home)?)))
        .find(|(_, rest)| rest.starts_with('/') || rest.is_empty())?;
    let real = std::env::var("HOME").ok().filter(|real| !real.is_empty());
    let real = real.unwrap_or_else(|| "/home/…".into());
    Some(format!(
        "nothing puts your home folder in place of the {home}: write {real}{rest}"
    ))
}

/// Returns the path as text, escaped so that a name cannot move the cursor.
pub fn shown(path: &[u8]) -> String {
    onefold_backup::path::show(path)
}

/// Returns the path for JSON: UTF-8 unchanged, other bytes as U+FFFD, as in restic.
pub fn json(path: &[u8]) -> String {
    match path {
        b"" => "/".into(),
        path => String::from_utf8_lossy(path).into_owned(),
    }
}
