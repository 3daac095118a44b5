//! Transports: they serve a [`BlockDevice`] to the world and know nothing of what is
//! behind it.
#![forbid(unsafe_code)]

pub mod attach;
pub mod control;
mod error;
mod fuse;
mod host;
mod listen;
pub mod nbd;
pub mod process;
mod raw;

pub use error::{Error, Result};
pub use listen::Listener;
pub use raw::RawDevice;

use onefold_volume::{BlockDevice, Buffer, Completion, Hints, Op, Request};

/// Has everything that was answered survive a crash, and waits for that.
///
/// # Errors
/// The device failed.
pub fn flush(device: &dyn BlockDevice) -> onefold_volume::Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let completion = Completion::new(move |result| {
        let _ = sender.send(result.map(drop));
    });
    device.submit(&mut vec![Request {
        op: Op::Flush,
        offset: 0,
        bytes: 0,
        buffer: Buffer::zeroed(0),
        fua: false,
        hints: Hints::default(),
        completion,
    }]);
    receiver
        .recv()
        .unwrap_or(Err(onefold_volume::Error::Closing))
}
