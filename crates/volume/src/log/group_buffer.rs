//! Data of a group, in memory from which it is written as it lies: aligned for direct I/O, with room for the group's
//! header before it.

use onefold_io::PageBuffer;

use onefold_keys::TAG_BYTES;

use super::group::header_pages_max;
use super::layout::PAGE_BYTES;

/// Data pages of a group at most: 1 MiB is one large write.
pub const GROUP_PAGES_MAX: usize = 256;
/// Changes of a group at most.
pub const GROUP_ENTRIES_MAX: usize = 4096;
/// Bytes before the data.
const HEADER_BYTES_MAX: usize =
    header_pages_max(GROUP_ENTRIES_MAX + 1, GROUP_PAGES_MAX, TAG_BYTES as u32) * PAGE_BYTES;

/// Room for a group.
pub struct GroupBuffer {
    buffer: PageBuffer,
    header_bytes: usize,
    data_bytes: usize,
}

impl GroupBuffer {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            buffer: PageBuffer::zeroed(HEADER_BYTES_MAX + GROUP_PAGES_MAX * PAGE_BYTES),
            header_bytes: 0,
            data_bytes: 0,
        }
    }

    /// The data so far.
    pub fn data(&self) -> &[u8] {
        &self.buffer[HEADER_BYTES_MAX..][..self.data_bytes]
    }

    /// The data so far, to be sealed where it lies.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[HEADER_BYTES_MAX..][..self.data_bytes]
    }

    /// Data pages so far.
    pub fn pages(&self) -> usize {
        self.data_bytes / PAGE_BYTES
    }

    /// Appends a chunk, for which there is room.
    pub fn push(&mut self, chunk: &[u8]) {
        let start = HEADER_BYTES_MAX + self.data_bytes;
        self.buffer[start..start + chunk.len()].copy_from_slice(chunk);
        self.data_bytes += chunk.len();
    }

    /// Appends a page of zeros, for which there is room, to be filled.
    pub fn push_zeros(&mut self) -> &mut [u8] {
        let start = HEADER_BYTES_MAX + self.data_bytes;
        self.data_bytes += PAGE_BYTES;
        let page = &mut self.buffer[start..start + PAGE_BYTES];
        page.fill(0);
        page
    }

    /// Puts the header, whole pages, right before the data.
    pub fn set_header(&mut self, header: &[u8]) {
        let start = HEADER_BYTES_MAX - header.len();
        self.buffer[start..HEADER_BYTES_MAX].copy_from_slice(header);
        self.header_bytes = header.len();
    }

    /// Header and data.
    pub fn group(&self) -> &[u8] {
        let start = HEADER_BYTES_MAX - self.header_bytes;
        &self.buffer[start..HEADER_BYTES_MAX + self.data_bytes]
    }

    /// Removes header and data.
    pub fn clear(&mut self) {
        (self.header_bytes, self.data_bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_its_header_and_its_data() {
        let mut buffer = GroupBuffer::new();
        buffer.push(&[1; 4096]);
        buffer.push(&[2; 8192]);
        assert_eq!((buffer.pages(), buffer.data()[4096]), (3, 2));
        buffer.set_header(&[9; 4096]);
        assert_eq!(buffer.group().len(), 4 * 4096);
        assert_eq!(buffer.group()[..4097], [&[9; 4096][..], &[1]].concat());
        buffer.clear();
        assert!(buffer.group().is_empty());
    }
}
