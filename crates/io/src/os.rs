//! Functions of the operating system besides files: memory and its pages, mapped windows and SIGBUS, the page cache,
//! the allocator's heap, nameless files, places of files on their device, and calls that its C library lacks.
//!
//! Invariant: this module does not know [`Disk`](crate::Disk) and [`Dir`](crate::Dir), and does not decide what is
//! stored; without it the engine would be slower, and otherwise the same. Most unsafe code of the crate is here; the
//! rest is io_uring and `PageBuffer`.

mod attributes;
mod bus_errors;
mod extents;
mod file_window;
mod heap;
mod huge_pages;
mod mapped;
mod page_cache;
mod prefetch;
mod scratch;

pub use attributes::has_no_attributes;
pub use extents::{FileExtent, file_extents};
pub use file_window::FileWindow;
pub use heap::tune_heap;
pub use huge_pages::{HUGE_PAGE_BYTES, prefer_huge_pages};
pub use mapped::{MAPPED_MIN, Mapped, PAGES_BYTES, mapped_bytes, mapped_peak, reset_mapped_peak};
pub use page_cache::{begin_write_back, cached_bytes};
pub use prefetch::prefetch;
pub use scratch::Scratch;
