//! Files that options name: read whole, but never more than makes sense, since a device or a mistaken name may have no
//! end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use onefold_backup::exclude::is_utf16;

use crate::human;

/// Of a list of paths or patterns: some five million paths.
pub const LIST_BYTES_MAX: u64 = 512 << 20;
/// Of a password, a place or rules.
pub const TEXT_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a file.
///
/// # Errors
/// Errors of reading; [`ErrorKind::InvalidInput`] behind `max` bytes.
pub fn read(file: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(file)?, max)
}

/// The same of what is open already.
pub fn read_from(file: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let what = format!("it has more than {}", human::bytes(max));
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    Ok(bytes)
}

/// The text of a file.
///
/// # Errors
/// As [`read`]; [`ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_text(file: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read(file, max)?).map_err(|_| {
        let what = "it is not text in UTF-8";
        io::Error::new(ErrorKind::InvalidData, what)
    })
}

/// Looks whether lines of names or patterns can be what was written.
///
/// # Errors
/// [`ErrorKind::InvalidData`]: it is in UTF-16, or no text at all.
pub fn confirm_text(bytes: &[u8]) -> io::Result<()> {
    let what = match bytes {
        _ if is_utf16(bytes) => "it is in UTF-16: save it as UTF-8",
        _ if bytes.contains(&0) => "it has zero bytes, which no name has: save it as text in UTF-8",
        _ => return Ok(()),
    };
    Err(io::Error::new(ErrorKind::InvalidData, what))
}
