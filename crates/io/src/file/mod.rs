//! Disks and folders of the operating system, through its page cache: `pread`, `pwrite`, `fdatasync`. Large writes go
//! past the cache, and so do large reads of data that it does not hold.
//!
//! Invariant: names stay within their folder, which is held open (a renamed parent changes nothing); a `sync` that
//! failed once fails for ever, because the kernel forgets which pages it lost; new files cannot be read by other users
//! (mode 0600, folders 0700), except by the group of a shared folder.

mod claim;
mod dir;
mod disk;
mod flock;
mod group;
mod kind;
mod make;
mod rename;
mod turns;

pub use dir::FileDir;
pub use disk::FileDisk;
pub use group::GroupAccess;
