//! Packed pages that one try of a read needs: each is read and proved once, however many of its chunks are wanted.

use onefold_io::{PageBuffer, ReadAt};

use super::layout::{Address, Layout, PAGE_BYTES, ZoneNo};
use super::packed_page::unpack;

/// Packed pages, by address.
pub struct PackedReads {
    pages: Vec<(Address, ZoneNo)>,
    bytes: PageBuffer,
    /// Whether each page is what was written; the words say what was found.
    proofs: Vec<Result<(), String>>,
}

impl PackedReads {
    /// The pages of some packed chunks.
    pub fn of(chunks: impl Iterator<Item = (Address, ZoneNo)>) -> Self {
        let mut pages: Vec<(Address, ZoneNo)> = chunks
            .map(|(address, no)| (address.of_page(), no))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        Self {
            bytes: PageBuffer::zeroed(pages.len() * PAGE_BYTES),
            proofs: Vec::new(),
            pages,
        }
    }

    /// The reads that it takes: pages that lie one behind the other by one read.
    pub fn reads<'a>(&'a mut self, layout: &Layout, wanted: &mut Vec<ReadAt<'a>>) {
        let (mut rest, mut at) = (&mut self.bytes[..], 0);
        while at < self.pages.len() {
            let (first, no) = self.pages[at];
            let follows = |(ahead, page): &(usize, &(Address, ZoneNo))| {
                first.is_followed_by(page.0, *ahead as u64, 1)
            };
            let count = self.pages[at..]
                .iter()
                .enumerate()
                .take_while(follows)
                .count();
            let (buf, behind) = rest.split_at_mut(count * PAGE_BYTES);
            let offset = layout.page_offset(no, first.page);
            wanted.push(ReadAt { offset, buf });
            (rest, at) = (behind, at + count);
        }
    }

    /// Proves each page that was read, and opens it where it is sealed.
    pub fn prove(&mut self, check: impl Fn(Address, ZoneNo, &mut [u8]) -> Result<(), String>) {
        let pages = self
            .pages
            .iter()
            .zip(self.bytes.chunks_exact_mut(PAGE_BYTES));
        self.proofs = pages
            .map(|((address, no), bytes)| check(*address, *no, bytes))
            .collect();
    }

    /// Unpacks a chunk of a page that is among these.
    ///
    /// # Errors
    /// Its page is not what was written: in words.
    pub fn unpack(&self, chunk: Address, buffer: &mut [u8]) -> Result<(), String> {
        let page = chunk.of_page();
        let at = self.pages.partition_point(|(known, _)| *known < page);
        match self.proofs.get(at) {
            Some(Ok(())) => {
                let start = at * PAGE_BYTES;
                unpack(&self.bytes[start..start + PAGE_BYTES], chunk.slot, buffer)
            }
            Some(Err(what)) => Err(what.clone()),
            None => Err("its page was not read".into()),
        }
    }
}
