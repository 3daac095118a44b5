//! Disks and folders of the operating system, through its page cache: `pread`, `pwrite`, `fdatasync`. Large
//! writes go past the cache, and so do large reads of what it does not hold.
//!
//! Always holds: names stay within their folder, which is held open (a renamed parent changes nothing); a `sync` that
//! failed once fails for ever, because the kernel forgets which pages it lost; nothing is created that others may read
//! (mode 0600, folders 0700), but the group of a folder that is shared.

mod dir;
mod disk;
mod group;
mod kind;
mod make;
mod rename;
mod turns;

pub use dir::FileDir;
pub use disk::FileDisk;
pub use group::GroupAccess;
