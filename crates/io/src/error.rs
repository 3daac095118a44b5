//! The crate's error: what was done, where, and why it failed.

use std::io;

use rustix::io::Errno;

/// What went wrong, as far as a caller may want to tell cases apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No such disk or folder.
    NotFound,
    /// The name is taken.
    Exists,
    /// What stands under the name is no file: a folder, a pipe, a socket, a symbolic link.
    NotAFile,
    /// The disk ends before the bytes that were asked for.
    Short,
    /// No space left on the device, or over quota.
    NoSpace,
    /// This process has as many files open as it may.
    TooManyOpen,
    /// Not permitted, or the file system is read-only.
    Denied,
    /// The bytes read are not what was written: wrong magic, length or checksum.
    Damaged,
    /// The bytes are what was written, by a version of this program that knows another format: no damage, and nothing
    /// to repair.
    OtherVersion,
    /// The medium does not give its bytes, or take them: a bad sector, a checksum below the file system, a failing
    /// controller. Others may be had.
    Medium,
    /// Whoever keeps the bytes does not answer: too late, refused, out of reach. Nothing is known of what is stored, so
    /// nothing may be told as lost or damaged for it; what was to be written may have been written.
    Unavailable,
    /// Anything else the device said.
    Device,
}

/// A failed access to a device.
#[derive(Debug, thiserror::Error)]
#[error("{op} {path}{}: {what}", .offset.map(|o| format!(" at offset {o}")).unwrap_or_default())]
pub struct Error {
    /// The operation, for people: "read", "write", "sync" … Who branches asks [`is_of_reading`](Error::is_of_reading).
    pub op: &'static str,
    /// The path or name, as the user would know it.
    pub path: String,
    /// The byte offset, where there is one.
    pub offset: Option<u64>,
    /// What to branch on.
    pub kind: ErrorKind,
    /// In words: expected and found.
    pub what: String,
    /// What the system said.
    #[source]
    pub source: Option<io::Error>,
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without an offset and without a cause in the system.
    pub fn new(
        op: &'static str,
        path: impl Into<String>,
        kind: ErrorKind,
        what: impl Into<String>,
    ) -> Self {
        Self {
            op,
            path: path.into(),
            offset: None,
            kind,
            what: what.into(),
            source: None,
        }
    }

    /// An error of the system; its errno chooses the kind.
    pub fn from_io(
        op: &'static str,
        path: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        let source = source.into();
        let kind = ErrorKind::of(&source);
        Self {
            op,
            path: path.into(),
            offset: None,
            kind,
            what: kind.words().into(),
            source: Some(source),
        }
    }

    /// Whether something was only to be looked at: bytes, names, lengths.
    pub fn is_of_reading(&self) -> bool {
        let reading = [
            "read",
            "open",
            "open folder",
            "list",
            "stat",
            "look at",
            "seek",
        ];
        reading.contains(&self.op)
    }

    /// This error, at so many bytes of what it names.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Bytes that are not what was written: `what` says expected and found.
    pub(crate) fn damaged(
        op: &'static str,
        path: &str,
        offset: u64,
        what: impl Into<String>,
    ) -> Self {
        Self::new(op, path, ErrorKind::Damaged, what).at(offset)
    }

    /// A read of `wanted` bytes at `offset` on a disk of `len` bytes.
    pub(crate) fn short(path: &str, offset: u64, wanted: usize, len: u64) -> Self {
        Self::new(
            "read",
            path,
            ErrorKind::Short,
            format!("expected {wanted} bytes, but the disk ends at {len}"),
        )
        .at(offset)
    }
}

impl ErrorKind {
    /// The kind of a system error, by its errno.
    pub fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Self::NotFound,
            Some(Errno::EXIST) => Self::Exists,
            Some(Errno::ISDIR) => Self::NotAFile,
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::NoSpace,
            Some(Errno::MFILE) => Self::TooManyOpen,
            // BADF: a write through a handle that was opened for reading.
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BADF) => Self::Denied,
            Some(
                Errno::TIMEDOUT
                | Errno::CONNREFUSED
                | Errno::CONNRESET
                | Errno::CONNABORTED
                | Errno::NETRESET
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTUNREACH,
            ) => Self::Unavailable,
            // What block layer, file systems and dm-integrity say of a sector that is lost; the last two of a command
            // that took too long, and of memory that went bad under the page cache. Of a device, server or path that
            // is gone altogether (NODEV, NXIO, NOLINK, NOTCONN, SHUTDOWN, STALE, HOSTDOWN …) nothing can be had, so who
            // looks at all that there is should end: those are none of these.
            Some(
                Errno::IO
                | Errno::REMOTEIO
                | Errno::UCLEAN
                | Errno::BADMSG
                | Errno::NODATA
                | Errno::ILSEQ
                | Errno::TIME
                | Errno::HWPOISON,
            ) => Self::Medium,
            Some(_) => Self::Device,
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::Short,
            None => Self::Device,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "no such disk or folder",
            Self::Exists => "the name is taken",
            Self::NotAFile => "a folder stands in the place of the file",
            Self::Short => "the disk ends too early",
            Self::NoSpace => "no space left",
            Self::TooManyOpen => "too many files are open",
            Self::Denied => "not permitted",
            Self::Damaged => "damaged",
            Self::OtherVersion => "made by another version",
            Self::Unavailable => "no answer",
            Self::Medium | Self::Device => "the device failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_chooses_the_kind() {
        for (errno, kind) in [
            (Errno::NOENT, ErrorKind::NotFound),
            (Errno::EXIST, ErrorKind::Exists),
            (Errno::ISDIR, ErrorKind::NotAFile),
            (Errno::MFILE, ErrorKind::TooManyOpen),
            (Errno::NOSPC, ErrorKind::NoSpace),
            (Errno::DQUOT, ErrorKind::NoSpace),
            (Errno::FBIG, ErrorKind::NoSpace),
            (Errno::ACCESS, ErrorKind::Denied),
            (Errno::PERM, ErrorKind::Denied),
            (Errno::ROFS, ErrorKind::Denied),
            (Errno::IO, ErrorKind::Medium),
            (Errno::REMOTEIO, ErrorKind::Medium),
            (Errno::NODATA, ErrorKind::Medium),
            // Of a server that is slow nothing is lost.
            (Errno::TIMEDOUT, ErrorKind::Unavailable),
            (Errno::CONNREFUSED, ErrorKind::Unavailable),
            (Errno::HOSTUNREACH, ErrorKind::Unavailable),
            (Errno::TIME, ErrorKind::Medium),
            (Errno::HWPOISON, ErrorKind::Medium),
            (Errno::NODEV, ErrorKind::Device),
            (Errno::NOLINK, ErrorKind::Device),
            (Errno::NOTCONN, ErrorKind::Device),
            (Errno::SHUTDOWN, ErrorKind::Device),
            (Errno::STALE, ErrorKind::Device),
            (Errno::HOSTDOWN, ErrorKind::Device),
            (Errno::NFILE, ErrorKind::Device),
        ] {
            assert_eq!(Error::from_io("write", "x", errno).kind, kind, "{errno:?}");
        }
    }

    #[test]
    fn a_message_says_what_and_where_and_leaves_the_cause_to_source() {
        let error = Error::from_io("write", "containers/1f", Errno::NOSPC).at(4096);
        assert_eq!(
            error.to_string(),
            "write containers/1f at offset 4096: no space left"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
}
