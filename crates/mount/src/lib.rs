//! Snapshots as a folder: [`vfs`](onefold_backup::vfs) over FUSE, without libfuse.
//!
//! Invariants: nothing can be written; what is in a snapshot never changes, so the kernel may keep all of it; damage is
//! an error (EIO) of the file that it is in, and of no other.
#![forbid(unsafe_code)]

mod answers;
mod mounted;
mod options;
mod tree;

pub use mounted::{Mounted, leave_terminal, mount, why_not};
pub use options::Options;
