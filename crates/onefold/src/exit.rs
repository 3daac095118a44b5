//! The exit codes. They are part of the interface: scripts branch on them, and README.md lists them.

/// How the program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All was done.
    Ok = 0,
    /// The verb failed for a reason that has no code of its own.
    Failed = 1,
    /// The command line or an input made no sense; nothing was begun.
    Usage = 2,
    /// The snapshot (or the restore) is there, but some paths could not be read (or written).
    Incomplete = 3,
    /// There is no repository at that place.
    NoRepository = 10,
    /// Another process holds the lock that the verb needs.
    Locked = 11,
    /// The password opens no key.
    WrongPassword = 12,
    /// The repository is damaged.
    Damaged = 13,
    /// No space is left on the device, or a quota or size limit is reached.
    NoSpace = 14,
    /// SIGINT, SIGTERM or SIGHUP ended it.
    Interrupted = 130,
}

impl Exit {
    /// The number for the shell.
    pub fn code(self) -> u8 {
        self as u8
    }
}
