//! What a restore has made and has not completed, known by its mode.
//!
//! A restore that is interrupted removes the files that it was writing. One that is killed cannot, and nobody would
//! know any more whose the half of a file is, or a folder that does not look like the snapshot's yet: with `--overwrite
//! never` they would stay for ever. So both are made with a mode that nothing else has, which lets in nobody but who
//! restores, and lose it when they are complete. That costs nothing: a mode is given and set anyhow.
//!
//! Where a file system keeps no modes, what a killed restore leaves is taken for the user's.

use rustix::fs::Mode;

use crate::Kind;
use crate::meta::Stat;

/// The mode of a file that is being written.
pub const FILE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::SVTX);
/// The mode of a folder that is to get the snapshot's.
pub const FOLDER: Mode = Mode::RWXU.union(Mode::SVTX);

/// Whether a restore by this user has made it, and came to no end; something of `mode` is wanted there, and of `size`
/// bytes, if that is a file.
///
/// What root restores has its owner before it loses its mark; then all of its content is there. Where the mode of the
/// mark is the one that is wanted, it says nothing: what is there may be whole, and the user have changed it since.
pub fn is_unfinished(there: &Stat, mode: u16, size: Option<u64>) -> bool {
    let wanted = Mode::from_raw_mode(mode.into());
    let mode = Mode::from_raw_mode(there.mode.into());
    let is_marked = match there.kind {
        Kind::File => mode == FILE && wanted != FILE,
        // It may have its group's bit from the folder it lies in.
        Kind::Dir => mode - Mode::SGID == FOLDER && wanted - Mode::SGID != FOLDER,
        _ => false,
    };
    let user = rustix::process::geteuid();
    let may_be_given = || there.kind == Kind::Dir || size == Some(there.size);
    is_marked && (there.uid == user.as_raw() || user.is_root() && may_be_given())
}
