//! Paths as the user gives them, as snapshots hold them, and as JSON shows them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::{Error, Result};

/// A path made absolute and clean, without following its last link: what a snapshot calls it.
pub fn absolute(path: &OsStr) -> Result<Vec<u8>> {
    if path.is_empty() {
        return Err(Error::Usage("a path is empty".into()));
    }
    let path = std::path::absolute(path).map_err(|e| Error::io("find the current folder", e))?;
    Ok(onefold_backup::path::clean(path.as_os_str().as_bytes()))
}

/// That a source which is called `-` is there: who means standard input says so in other words.
///
/// # Errors
/// [`Error::Usage`].
pub fn confirm_no_stdin(source: &OsStr) -> Result<()> {
    match source == "-" && std::fs::symlink_metadata(source).is_err() {
        true => Err(Error::Usage(
            "- is no file here: --stdin, without paths, reads standard input".into(),
        )),
        false => Ok(()),
    }
}

/// A path inside a snapshot as the user gives it; relative ones begin at its root.
pub fn inside(path: &OsStr) -> Vec<u8> {
    onefold_backup::path::clean(path.as_bytes())
}

/// Of a relative path that names nothing in a snapshot: which one may have been meant.
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

/// Of a path that begins with what a shell would have replaced by the home folder: what to write instead.
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

/// For text: escaped so that a name cannot move the cursor.
pub fn shown(path: &[u8]) -> String {
    onefold_backup::path::show(path)
}

/// For JSON: UTF-8 as it is, other bytes as U+FFFD, as restic does.
pub fn json(path: &[u8]) -> String {
    match path {
        b"" => "/".into(),
        path => String::from_utf8_lossy(path).into_owned(),
    }
}
