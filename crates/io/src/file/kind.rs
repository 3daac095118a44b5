//! Kinds of directory entries that cannot be used as a file.

use rustix::fs::FileType;

/// The problem with an entry of this kind, for error messages; `None` for a kind that stores bytes.
pub(super) fn no_file(kind: FileType) -> Option<&'static str> {
    Some(match kind {
        FileType::RegularFile | FileType::BlockDevice => return None,
        FileType::Directory => "a folder stands in the place of the file",
        FileType::Symlink => "a symbolic link stands in the place of the file, and is not followed",
        FileType::Fifo => "a pipe stands in the place of the file",
        FileType::Socket => "a socket stands in the place of the file",
        _ => "something that is no file stands in its place",
    })
}
