//! Disks, folders and frames: every way Onefold touches a device. Nothing but this crate opens the engine's own files.

mod across;
mod aligned;
mod batch;
pub mod count;
pub mod direct;
mod disk;
mod error;
pub mod file;
pub mod flash;
pub mod frame;
mod lock;
mod mapped;
pub mod mem;
mod name;
mod page_cache;
mod pages;
mod read_fully;
mod rng;
pub mod sim;
pub mod spindle;
mod uring;
pub mod varint;

pub use across::{BatchFile, ReadFrom, read_across};
pub use batch::Batching;
pub use count::{CountedDir, CountedDisk, Counters, IoCounts};
pub use direct::DirectDisk;
pub use disk::{Dir, DirEntry, Disk, LockGuard, LockKind, ReadAt};
pub use error::{Error, ErrorKind, Result};
pub use file::{FileDir, FileDisk};
pub use flash::{FlashCounts, FlashDir, FlashModel};
pub use mapped::{MAPPED_MIN, Mapped, mapped_bytes};
pub use mem::{MemDir, MemDisk};
pub use page_cache::cached_bytes;
pub use sim::SimDir;
pub use spindle::{SpindleCounts, SpindleDir, SpindleModel};
pub use uring::uring_works;
