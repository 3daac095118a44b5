//! The end of reading a file.

use rustix::io::Errno;

use super::read::Source;
use crate::entry::xattrs_bytes;
use crate::meta::Stat;
use crate::{Content, Xattrs};

/// Result of reading a file to its end.
pub struct FileEnd {
    /// Result of `stat` while the file was read.
    pub stat: Stat,
    /// Extended attributes of the file, or why they cannot be had.
    pub xattrs: Result<Xattrs, Errno>,
    /// Whether another program wrote each time that the file was read.
    pub changed: bool,
    /// The file's content, if it is known before the file is cut.
    pub content: Option<Content>,
    /// Bytes of data that were read for that, and are no part that was sent.
    pub compared_bytes: u64,
}

impl FileEnd {
    /// Describes the end of a source that was cut.
    pub fn new(source: Source<'_>, changed: bool) -> Self {
        Self {
            stat: source.stat,
            xattrs: source.xattrs,
            changed,
            content: None,
            compared_bytes: 0,
        }
    }

    /// Heap bytes of the attributes.
    pub fn bytes(&self) -> usize {
        self.xattrs.as_ref().map_or(0, xattrs_bytes)
    }
}

/// The reader's results are not wanted any more: the backup has ended.
pub struct Abandoned;
