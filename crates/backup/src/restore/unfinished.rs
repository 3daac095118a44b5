//! Files and folders that a restore has made and not completed are known by their mode.
//!
//! A restore that is interrupted removes the files that it was writing. A restore that is killed cannot, and later
//! nobody could tell half a file, or a folder without the snapshot's metadata yet, from the user's own: with
//! `--overwrite never` they would stay for ever. So both are made with a mode that nothing else has, which lets in only
//! the user who restores, and lose it when they are complete. That costs nothing: a mode is set anyhow.
//!
//! Where a file system keeps no modes, leftovers of a killed restore count as the user's.

use rustix::fs::Mode;

use crate::Kind;
use crate::meta::Stat;

/// Mode of a file that is being written.
pub const FILE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::SVTX);
/// Mode of a folder that is to get the snapshot's.
pub const FOLDER: Mode = Mode::RWXU.union(Mode::SVTX);

/// Whether a restore by this user has made `there` and not completed it. A thing of `mode` is wanted there, and of
/// `size` bytes, if it is a file.
///
/// A file that root restores gets its owner before it loses the mark; then all of its content is there. Where the
/// mark's mode is the wanted mode, it says nothing: the file may be complete, and the user have changed it since.
pub fn is_unfinished(there: &Stat, mode: u16, size: Option<u64>) -> bool {
    let wanted = Mode::from_raw_mode(mode.into());
    let mode = Mode::from_raw_mode(there.mode.into());
    let is_marked = match there.kind {
        Kind::File => mode == FILE && wanted != FILE,
        // The folder may have inherited the set-group-ID bit.
        Kind::Dir => mode - Mode::SGID == FOLDER && wanted - Mode::SGID != FOLDER,
        _ => false,
    };
    let user = rustix::process::geteuid();
    let may_be_given = || there.kind == Kind::Dir || size == Some(there.size);
    is_marked && (there.uid == user.as_raw() || user.is_root() && may_be_given())
}
