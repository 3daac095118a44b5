//! The crate's error: the operation, the place, and the cause of the failure.

use std::io;

use rustix::io::Errno;

/// The kind of an error, by the cases that a caller may want to tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No disk or folder has the name.
    NotFound,
    /// The name is taken.
    Exists,
    /// The name belongs to something that is no file: a folder, a pipe, a socket, a symbolic link.
    NotAFile,
    /// The disk ends before the requested bytes.
    Short,
    /// No space left on the device, or over quota.
    NoSpace,
    /// The process has as many files open as it may.
    TooManyOpen,
    /// Another has the file or device for himself.
    InUse,
    /// The operation is not permitted, or the file system is read-only.
    Denied,
    /// The bytes read are not what was written: wrong magic, length or checksum.
    Damaged,
    /// The bytes are what was written, by a version of this program that knows another format: no damage, and nothing
    /// to repair.
    OtherVersion,
    /// The medium does not return or take these bytes: a bad sector, a checksum below the file system, a failing
    /// controller. Other bytes may be readable.
    Medium,
    /// The server that keeps the bytes does not answer: too late, refused, out of reach. Nothing is known about the
    /// stored data, so nothing may be called lost or damaged; an unanswered write may have happened.
    Unavailable,
    /// Any other error of the device.
    Device,
}

/// A failed access to a device.
#[derive(Debug, thiserror::Error)]
#[error("{op} {path}{}: {what}", .offset.map(|o| format!(" at offset {o}")).unwrap_or_default())]
pub struct Error {
    /// The operation, for people: "read", "write", "sync" … Code should ask [`is_of_reading`](Error::is_of_reading).
    pub op: &'static str,
    /// Path or name, as the user would know it.
    pub path: String,
    /// Offset in bytes, where there is one.
    pub offset: Option<u64>,
    /// The kind of the error, for code that tells cases apart.
    pub kind: ErrorKind,
    /// Description in words: expected and found.
    pub what: String,
    /// The system's error, if that is the cause.
    #[source]
    pub source: Option<io::Error>,
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without an offset and without a system error as its cause.
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

    /// An error from the system; the errno chooses the kind.
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

    /// Whether the failed operation only reads: bytes, names, lengths.
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

    /// This error, at byte `offset` of the path that it names.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The error for bytes that are not what was written; `what` says expected and found.
    pub(crate) fn damaged(
        op: &'static str,
        path: &str,
        offset: u64,
        what: impl Into<String>,
    ) -> Self {
        Self::new(op, path, ErrorKind::Damaged, what).at(offset)
    }

    /// The error for a read of `wanted` bytes at `offset` of a disk of `len` bytes.
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
            Some(Errno::MFILE | Errno::NFILE) => Self::TooManyOpen,
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
            // Errnos of block layer, file systems and dm-integrity for a lost sector; the last two are for a command
            // that took too long, and for memory that failed under the page cache. Errnos of a device, server or path
            // that is gone altogether (NODEV, NXIO, NOLINK, NOTCONN, SHUTDOWN, STALE, HOSTDOWN …) are not among these:
            // nothing there can be read, so a command that reads everything should end.
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
            Self::InUse => "in use",
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
            // A slow server has lost nothing.
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
            (Errno::NFILE, ErrorKind::TooManyOpen),
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
