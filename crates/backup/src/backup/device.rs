//! A block device whose owner knows what changed since an earlier backup: what did not keeps the items of the parent,
//! and is not read.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;

use onefold_store::ChunkReader;
use rustix::io::Errno;

use super::parts::{LargePart, PartSender};
use super::read::Source;
use super::source::{Abandoned, FileEnd, Reader};
use crate::content::ContentCursor;
use crate::meta::Stat;
use crate::{Content, Item, Slice, Xattrs};

/// Items that go to the store together.
const ITEMS_AT_ONCE: usize = 512;

/// The next bytes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch {
    /// This many bytes are as in the parent, at the same place.
    Same(u64),
    /// This many bytes are zeros that take no space.
    Hole(u64),
    /// This many bytes come from [`DeviceStream::bytes`].
    Data(u64),
}

/// All bytes of a device, in order.
pub struct DeviceStream {
    /// The bytes of all [`Stretch::Data`], one behind the other.
    pub bytes: OwnedFd,
    /// The stretches. Each is given before its bytes.
    pub stretches: Box<dyn Iterator<Item = io::Result<Stretch>> + Send>,
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

impl Reader<'_> {
    /// Sends all parts of a device.
    pub fn device(&mut self, work: DeviceWork, parts: &PartSender) -> Result<(), Abandoned> {
        let DeviceWork {
            stream,
            base,
            reader,
            stat,
        } = work;
        let source = Source::stream(stream.bytes, stat, self.progress);
        let mut base = BaseItems::new(&base, reader);
        let mut at = 0;
        for stretch in stream.stretches {
            let sent = match stretch {
                Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
                Ok(Stretch::Hole(bytes)) => {
                    parts.send(LargePart::Hole(bytes))?;
                    Ok(bytes)
                }
                Ok(Stretch::Same(bytes)) => base.send(at, bytes, parts)?.map(|()| bytes),
                Ok(Stretch::Data(bytes)) => {
                    let end = self.segments(parts, false).send(&source, at..at + bytes)?;
                    match end {
                        Ok(end) if end == at + bytes => Ok(bytes),
                        Ok(_) => Err(Errno::IO),
                        Err(error) => Err(error),
                    }
                }
            };
            match sent {
                Ok(bytes) => at += bytes,
                Err(error) => return parts.send(LargePart::End(Err(error))),
            }
        }
        let end = match at == stream.size {
            true => Ok(FileEnd {
                xattrs: Ok(stream.marks),
                ..FileEnd::new(source, false)
            }),
            false => Err(Errno::IO),
        };
        parts.send(LargePart::End(end))
    }
}

/// Goes through the parent's items, forwards alone.
struct BaseItems {
    cursor: ContentCursor,
    reader: ChunkReader,
    /// Offset of the next item, in bytes.
    at: u64,
}

impl BaseItems {
    fn new(content: &Content, reader: ChunkReader) -> Self {
        Self {
            cursor: ContentCursor::new(content),
            reader,
            at: 0,
        }
    }

    /// Sends the items of the next `bytes` bytes from `start` on, cut to them.
    fn send(
        &mut self,
        start: u64,
        bytes: u64,
        parts: &PartSender,
    ) -> Result<Result<(), Errno>, Abandoned> {
        let end = start + bytes;
        let mut items = Vec::new();
        let mut at = start;
        while at < end {
            let Some((depth, item)) = self.cursor.peek() else {
                return Ok(Err(Errno::IO));
            };
            let item_end = self.at + item.span();
            if item_end <= at {
                self.at = item_end;
                self.cursor.pass();
                continue;
            }
            if depth > 0 {
                // A recipe chunk: its items are looked at one by one.
                if self.cursor.open(&mut self.reader).is_err() {
                    return Ok(Err(Errno::IO));
                }
                continue;
            }
            let part = at - self.at..item_end.min(end) - self.at;
            at = self.at + part.end;
            items.push(match item.data() {
                Some(slice) => Slice::part(&slice, part.start as usize..part.end as usize).into(),
                None => Item::Hole {
                    len: part.end - part.start,
                },
            });
            if items.len() == ITEMS_AT_ONCE {
                parts.send(LargePart::Kept(std::mem::take(&mut items)))?;
            }
        }
        parts.send(LargePart::Kept(items))?;
        Ok(Ok(()))
    }
}
