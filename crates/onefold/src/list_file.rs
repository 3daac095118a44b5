//! Files with lists of paths or patterns, which options name.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::named_file::{self, LIST_BYTES_MAX};

/// Reads a file that an option names; `-` is standard input.
pub fn read(file: &OsStr) -> Result<Vec<u8>> {
    let done = match file.as_bytes() {
        b"-" => named_file::read_from(io::stdin().lock(), LIST_BYTES_MAX),
        _ => named_file::read(Path::new(file), LIST_BYTES_MAX),
    };
    done.map_err(|e| Error::io(format!("read {}", file.to_string_lossy()), e))
}
