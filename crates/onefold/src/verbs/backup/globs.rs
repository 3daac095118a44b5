//! `--files-from`: lines of globs, and the paths that match them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use onefold_backup::exclude::{Patterns, without_blanks};

use crate::error::Result;
use crate::out::{self, Out};
use crate::paths;

/// Calls `take` with the paths that match the lines of `text`, in order. A line without a match is reported and left
/// out, as in restic.
///
/// # Errors
/// A line is no pattern, or `take` fails.
pub fn expand_lines(
    text: &[u8],
    out: &Out,
    take: &mut dyn FnMut(&OsStr) -> Result<()>,
) -> Result<()> {
    for line in text.split(|b| *b == b'\n').map(without_blanks) {
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let found = expand(line)?;
        if found.is_empty() {
            let shown = out::safe(&String::from_utf8_lossy(line));
            let meant = paths::home_meant(line).map(|meant| format!(" ({meant})"));
            let meant = out::safe(&meant.unwrap_or_default());
            out.warn(format_args!("{shown} matches nothing: left out{meant}"));
        }
        found.iter().try_for_each(|path| take(path.as_os_str()))?;
    }
    Ok(())
}

/// Expands a glob component by component: one without `*`, `?`, `[`, `\` is taken literally, others are looked up in
/// the folders found so far.
fn expand(glob: &[u8]) -> Result<Vec<PathBuf>> {
    let start = if glob[0] == b'/' { "/" } else { "" };
    let mut found = vec![PathBuf::from(start)];
    for component in glob.split(|b| *b == b'/').filter(|c| !c.is_empty()) {
        if !component.iter().any(|b| b"*?[\\".contains(b)) {
            let name = OsStr::from_bytes(component);
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        }
        let patterns = Patterns::new([[b"/", component].concat()])?;
        found = found
            .iter()
            .flat_map(|folder| matching(folder, &patterns))
            .collect();
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    Ok(found)
}

fn matching(folder: &Path, patterns: &Patterns) -> Vec<PathBuf> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let Ok(entries) = here.read_dir() else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name().into_vec());
    let matches = |name: &Vec<u8>| patterns.decide(&[b"/", &name[..]].concat(), true) == Some(true);
    let mut names: Vec<_> = names.filter(matches).collect();
    names.sort();
    let path = |name| folder.join(OsString::from_vec(name));
    names.into_iter().map(path).collect()
}
