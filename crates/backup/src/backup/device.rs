//! A block device whose owner knows what changed since an earlier backup: what did not keeps the items of the parent,
//! and is not read.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;

use onefold_store::ChunkReader;

use crate::meta::Stat;
use crate::{Content, Xattrs};

/// The next bytes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceStretch {
    /// This many bytes are as in the parent, at the same place.
    Same(u64),
    /// This many bytes are zeros that take no space.
    Hole(u64),
    /// This many bytes come from [`DeviceStream::bytes`].
    Data(u64),
}

/// All bytes of a device, in order.
pub struct DeviceStream {
    /// The bytes of all [`DeviceStretch::Data`], one behind the other.
    pub bytes: OwnedFd,
    /// The stretches. Each is given before its bytes.
    pub stretches: Box<dyn Iterator<Item = io::Result<DeviceStretch>> + Send>,
    /// Size of the device, in bytes.
    pub size: u64,
    /// Attributes to keep with the device: by them a later backup knows what this one has.
    pub marks: Xattrs,
}

/// A device that can tell what changed.
pub trait ChangedDevice: Send + Debug {
    /// Begins to give the device's bytes. `marks` are those of the parent, where its chunks are all there.
    ///
    /// # Errors
    /// The device cannot be read.
    fn begin(self: Box<Self>, marks: Option<&Xattrs>) -> io::Result<DeviceStream>;
}

/// A device on its way to a reader thread.
pub struct DeviceWork {
    pub stream: DeviceStream,
    /// Content that the parent has of the device.
    pub base: Content,
    pub reader: ChunkReader,
    pub stat: Stat,
}
