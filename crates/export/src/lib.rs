//! Transports: they serve a [`BlockDevice`](onefold_volume::BlockDevice) to the world and know nothing of what is
//! behind it.
#![forbid(unsafe_code)]

mod raw;

pub use raw::RawDevice;
