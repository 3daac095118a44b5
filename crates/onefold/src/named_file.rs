//! Files that options name. They are read as a whole, up to a limit, since a device or a mistaken name may have no end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use onefold_backup::exclude::is_utf16;

use crate::human;

/// Largest number of bytes of a list of paths or patterns: some five million paths.
pub const LIST_BYTES_MAX: u64 = 512 << 20;
/// Largest number of bytes of a file with a password, a repository's place, or rules.
pub const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Reads a file.
///
/// # Errors
/// Errors of reading; [`ErrorKind::InvalidInput`] where there are more than `max` bytes.
pub fn read(file: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(file)?, max)
}

/// Reads an open file, as [`read`] does.
pub fn read_from(file: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let what = format!("it has more than {}", human::bytes(max));
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    Ok(bytes)
}

/// Reads a file as text.
///
/// # Errors
/// Errors of [`read`]; [`ErrorKind::InvalidData`] where the file is not UTF-8.
pub fn read_text(file: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read(file, max)?).map_err(|_| {
        let what = "it is not text in UTF-8";
        io::Error::new(ErrorKind::InvalidData, what)
    })
}

/// Checks that lines of names or patterns are text.
///
/// # Errors
/// [`ErrorKind::InvalidData`]: the bytes are UTF-16, or no text at all.
pub fn confirm_text(bytes: &[u8]) -> io::Result<()> {
    let what = match bytes {
        _ if is_utf16(bytes) => "it is in UTF-16: save it as UTF-8",
        _ if bytes.contains(&0) => "it has zero bytes, which no name has: save it as text in UTF-8",
        _ => return Ok(()),
    };
    Err(io::Error::new(ErrorKind::InvalidData, what))
}
