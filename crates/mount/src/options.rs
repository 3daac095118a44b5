//! Options of a mount.

/// Users who may look into the folder.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// All users of the machine, not only the one who mounts.
    pub allow_other: bool,
    /// The kernel lets each user see what modes and ACLs in the snapshots allow.
    pub checks_permissions: bool,
}
