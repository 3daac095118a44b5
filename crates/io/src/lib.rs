//! Disks, folders and frames: every access of Onefold to a device. No other crate opens the engine's own files.
//!
//! The crate has two halves: devices (`file`, `direct`, `uring`, and the simulated ones `mem`, `sim`, `flash`,
//! `spindle`) with data formats (`frame`, `varint`, `replace`, `set_aside`); and [`os`], other functions of the
//! operating system, of which [`ublk`] serves a block device to it.

mod across;
mod aligned;
mod batch;
mod batch_piece;
pub mod count;
pub mod direct;
mod disk;
mod error;
pub mod file;
pub mod flash;
pub mod frame;
mod gate;
mod hex;
mod if_there;
mod interruptions;
mod lock;
pub mod mem;
mod modelled;
mod name;
pub mod os;
mod out_of_memory;
mod page_buffer;
mod pages;
mod random;
mod read_fully;
mod remade;
mod replace;
mod set_aside;
pub mod sim;
pub mod spindle;
pub mod ublk;
mod uring;
pub mod varint;

pub use across::{ReadFrom, read_across, read_across_within};
pub use aligned::DIRECT_ALIGN;
pub use batch::{BatchFile, BatchWays, Batching, IN_FLIGHT_MAX, batch_ways};
pub use count::{CountedDir, CountedDisk, Counters, IoCounts};
pub use direct::DirectDisk;
pub use disk::{Dir, DirEntry, Disk, LockGuard, LockKind, ReadAt, Stretch, WriteAt};
pub use error::{Error, ErrorKind, Result};
pub use file::{FileDir, FileDisk, GroupAccess};
pub use flash::{FlashCounts, FlashDir, FlashModel};
pub use gate::{Gate, GatePass};
pub use hex::hex_number;
pub use if_there::if_there;
pub use interruptions::{Interruptible, Interruptions, unless_interrupted};
pub use mem::{MemDir, MemDisk};
pub use modelled::{Account, ModelledDir};
pub use out_of_memory::{NotingHeap, tell_out_of_memory};
pub use page_buffer::PageBuffer;
pub use random::{Random, mix64};
pub use remade::RemadeDir;
pub use replace::{create_anew, rename_in_place, rename_over, replace_file};
pub use set_aside::{ASIDE_SUFFIX, is_aside, remove_if_there, set_aside};
pub use sim::SimDir;
pub use spindle::{SpindleCounts, SpindleDir, SpindleModel};
pub use uring::uring_works;
