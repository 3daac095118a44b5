//! What can be saved of a damaged container: it is searched for blocks from its header to its end, a window at a time.
//!
//! What always holds: every chunk that is given stood in a block whose seal holds; RAM is one window and one block, whatever the object's length.

use onefold_index::ContainerId;

use crate::Result;
use crate::block::{self, BLOCK_HEADER_BYTES, BLOCK_RAW_BYTES_MAX, BlockHeader};
use crate::compression::Decompressor;
use crate::container::{self, HEADER_BYTES, Header};
use crate::footer::{FOOTER_BYTES, Footer};
use crate::keys::Sealer;
use crate::objects::ObjectStore;
use crate::repository::Shared;

/// So much is searched at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// No block is stored in more: what cannot be compressed is stored raw, with a seal behind it.
const STORED_BYTES_MAX: u64 = BLOCK_RAW_BYTES_MAX as u64 + (64 << 10);

/// A damaged container that can be unsealed.
pub struct Salvage<'a> {
    objects: &'a dyn ObjectStore,
    object: String,
    /// Bytes of the object, as far as there are any.
    len: u64,
    header: Header,
    sealer: Sealer,
}

impl<'a> Salvage<'a> {
    /// Header or footer tells the salt; `None`: neither does, and nothing can be unsealed. Errors: the device failed.
    pub fn begin(shared: &'a Shared, id: ContainerId) -> Result<Option<Self>> {
        let (objects, object) = (&*shared.objects, container::object_name(id));
        let len = objects.len(&object)?;
        let mut from_header = None;
        if len >= HEADER_BYTES as u64 {
            let mut bytes = [0; HEADER_BYTES];
            objects.get_range(&object, 0, &mut bytes)?;
            from_header = Header::decode(id, &bytes).ok();
        }
        if from_header.is_none() && len >= FOOTER_BYTES as u64 {
            let mut bytes = [0; FOOTER_BYTES];
            objects.get_range(&object, len - FOOTER_BYTES as u64, &mut bytes)?;
            from_header = Footer::decode(id, &bytes, len)
                .ok()
                .map(|footer| footer.header);
        }
        Ok(from_header.map(|header| Self {
            objects,
            object,
            len,
            sealer: shared.keys.container_sealer(&header.salt),
            header,
        }))
    }

    /// What the container's header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Visits every chunk of every block that can be read. Where a block's header is damaged, the next one is searched for.
    pub fn chunks(&self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut zstd = Decompressor::new()?;
        let mut at = HEADER_BYTES as u64;
        while let Some(start) = self.next_header(at)? {
            at = match self.block(start, &mut zstd)? {
                None => start + 1,
                Some((raw, end)) => {
                    self.visit_block(start, &raw, visit)?;
                    end
                }
            };
        }
        Ok(())
    }

    fn visit_block(
        &self,
        start: u64,
        raw: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rest = raw;
        for len in block::chunk_lengths(raw, &self.object, start)? {
            let (chunk, after) = rest.split_at(len as usize);
            visit(chunk)?;
            rest = after;
        }
        Ok(())
    }

    /// Where a block may begin, from `at` on.
    fn next_header(&self, mut at: u64) -> Result<Option<u64>> {
        let mut window = Vec::new();
        while at + BLOCK_HEADER_BYTES as u64 <= self.len {
            window.resize(WINDOW_BYTES.min(self.len - at) as usize, 0);
            self.objects.get_range(&self.object, at, &mut window)?;
            if let Some(found) = block::find_header(&window) {
                return Ok(Some(at + found as u64));
            }
            at += (window.len() - BLOCK_HEADER_BYTES + 1) as u64;
        }
        Ok(None)
    }

    /// The raw bytes of the block that begins at `start`, if one does, and where it ends.
    fn block(&self, start: u64, zstd: &mut Decompressor) -> Result<Option<(Vec<u8>, u64)>> {
        let mut stored = vec![0; BLOCK_HEADER_BYTES];
        self.objects.get_range(&self.object, start, &mut stored)?;
        let Ok(header) = BlockHeader::decode(&stored, &self.object, start) else {
            return Ok(None);
        };
        let body = u64::from(header.stored_len);
        let end = start + BLOCK_HEADER_BYTES as u64 + body;
        if end > self.len || body > STORED_BYTES_MAX {
            return Ok(None);
        }
        stored.resize((end - start) as usize, 0);
        self.objects.get_range(&self.object, start, &mut stored)?;
        let (number, sealer) = (header.number, &self.sealer);
        match block::decode_block(&self.header, number, &stored, start, sealer, zstd) {
            Ok(raw) => Ok(Some((raw, end))),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
