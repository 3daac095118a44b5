//! Transports: they serve a [`BlockDevice`] to the world and know nothing of what is
//! behind it.
#![forbid(unsafe_code)]

pub mod attach;
pub mod control;
mod error;
mod fuse;
mod hinted;
mod host;
mod kernel_nbd;
mod listen;
pub mod nbd;
mod nbd_netlink;
pub mod process;
mod raw;
mod socket_path;
mod ublk;

pub use error::{Error, Result};
pub use hinted::with_hints;
pub use listen::Listener;
pub use raw::RawDevice;

use std::ops::Range;

use onefold_volume::{BlockDevice, Buffer, Completion, Hints, Op, Request};

/// Has everything that was answered survive a crash, and waits for that.
///
/// # Errors
/// The device failed.
pub fn flush(device: &dyn BlockDevice) -> onefold_volume::Result<()> {
    carry_out(device, Op::Flush, 0..0, Buffer::zeroed(0)).map(drop)
}

/// Has the device carry out one request, waits for it, and returns the buffer: with what was read.
///
/// # Errors
/// The device refused it, or failed.
pub fn carry_out(
    device: &dyn BlockDevice,
    op: Op,
    range: Range<u64>,
    buffer: Buffer,
) -> onefold_volume::Result<Buffer> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let completion = Completion::new(move |result| {
        let _ = sender.send(result);
    });
    device.submit(&mut vec![Request {
        op,
        offset: range.start,
        bytes: range.end - range.start,
        buffer,
        fua: false,
        hints: Hints::default(),
        completion,
    }]);
    receiver
        .recv()
        .unwrap_or(Err(onefold_volume::Error::Closing))
}
