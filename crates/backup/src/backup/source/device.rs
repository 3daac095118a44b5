//! Reads a block device that tells what changed.

use onefold_store::ChunkReader;
use rustix::io::Errno;

use super::Reader;
use crate::backup::device::{DeviceStretch, DeviceWork};
use crate::backup::file_end::{Abandoned, FileEnd};
use crate::backup::parts::{LargePart, PartSender};
use crate::backup::read::Source;
use crate::content::ContentCursor;
use crate::{Content, Item, Slice};

/// Items that go to the store together.
const ITEMS_AT_ONCE: usize = 512;

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
                Ok(DeviceStretch::Hole(bytes)) => {
                    parts.send(LargePart::Hole(bytes))?;
                    Ok(bytes)
                }
                Ok(DeviceStretch::Same(bytes)) => base.send(at, bytes, parts)?.map(|()| bytes),
                Ok(DeviceStretch::Data(bytes)) => {
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
        let end = if at == stream.size {
            Ok(FileEnd {
                xattrs: Ok(stream.marks),
                ..FileEnd::new(source, false)
            })
        } else {
            Err(Errno::IO)
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
