//! Exit codes. They are part of the interface: scripts branch on them, and docs/scripts.md lists them.

/// The way in which the program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Everything was done.
    Ok,
    /// The verb failed for a reason that has no code of its own.
    Failed,
    /// The command line or an input made no sense; nothing was begun.
    Usage,
    /// The snapshot (or the restore) is there, but some paths could not be read (or written).
    Incomplete,
    /// There is no repository at that place.
    NoRepository,
    /// Another process holds the lock that the verb needs.
    Locked,
    /// The password opens no key.
    WrongPassword,
    /// The repository is damaged.
    Damaged,
    /// No space is left on the device, or a quota or size limit is reached.
    NoSpace,
    /// The storage does not answer: a time-out, a refusal.
    Unavailable,
    /// The host lacks something, or the user may not use it: a kernel's device, a program, the rights of root.
    HostLacks,
    /// SIGINT, SIGTERM or SIGHUP ended the program.
    Interrupted,
    /// The command of `with-lock` ended with this code.
    OfCommand(u8),
}

impl Exit {
    /// Returns the exit of another process of this program from its code; a process that a signal has ended failed.
    pub fn of_code(code: Option<i32>) -> Self {
        const ALL: [Exit; 11] = [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Incomplete,
            Exit::NoRepository,
            Exit::Locked,
            Exit::WrongPassword,
            Exit::Damaged,
            Exit::NoSpace,
            Exit::HostLacks,
            Exit::Interrupted,
        ];
        let same = |exit: &&Exit| code == Some(i32::from(exit.code()));
        ALL.iter().find(same).copied().unwrap_or(Exit::Failed)
    }

    /// Returns the number for the shell.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Incomplete => 3,
            Self::NoRepository => 10,
            Self::Locked => 11,
            Self::WrongPassword => 12,
            Self::Damaged => 13,
            Self::NoSpace => 14,
            Self::Unavailable => 15,
            Self::HostLacks => 16,
            Self::Interrupted => 130,
            Self::OfCommand(code) => code,
        }
    }
}
