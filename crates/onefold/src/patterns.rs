//! Patterns from the command line and from files. The user is warned of a pattern that cannot match what it seems to
//! mean: files that it was to leave out would be backed up silently.

mod doubt;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use doubt::{PatternSource, doubt};
use onefold_backup::exclude::{PatternsBuilder, pattern_lines};

use crate::error::{Error, Result};
use crate::list_file;
use crate::named_file;
use crate::out::{self, Out};

/// Adds the patterns of the command line, then those of files; in each group case-sensitive ones come first. Returns
/// them in the user's words. The last pattern that matches decides, so their order counts.
pub fn add_all(
    builder: &mut PatternsBuilder,
    given: [&[OsString]; 2],
    files: [&[OsString]; 2],
    out: &Out,
) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for (list, ignore_case) in given.into_iter().zip([false, true]) {
        for pattern in list.iter().map(|pattern| pattern.as_bytes()) {
            builder.add(pattern, ignore_case)?;
            tell_doubt(pattern, out);
            words.push(pattern.to_vec());
        }
    }
    for (list, ignore_case) in files.into_iter().zip([false, true]) {
        for file in list {
            let name = match file.as_bytes() {
                b"-" => "standard input".into(),
                _ => out::safe(&file.to_string_lossy()),
            };
            let bytes = list_file::read(file)?;
            named_file::confirm_text(&bytes)
                .map_err(|e| Error::io(format!("read patterns from {name}"), e))?;
            for (number, pattern) in pattern_lines(&bytes) {
                let place = format!("{name}, line {number}");
                let added = builder.add(pattern, ignore_case);
                added.map_err(|e| Error::Usage(format!("{place}: {e}")))?;
                if let Some(what) = doubt(pattern, PatternSource::InFile) {
                    out.warn(format_args!("{place}: {what}"));
                }
                words.push(pattern.to_vec());
            }
        }
    }
    Ok(words)
}

/// Warns of a typed pattern that may be wrong.
pub fn tell_doubt(pattern: &[u8], out: &Out) {
    if let Some(what) = doubt(pattern, PatternSource::Typed) {
        out.warn(what);
    }
}
