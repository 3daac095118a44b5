//! What a flash is made of, and what it did.

/// What a flash is made of, and what it costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashModel {
    /// Bytes a page.
    pub page_bytes: u64,
    /// Pages a block.
    pub block_pages: u32,
    /// Pages that users can write.
    pub capacity_pages: u32,
    /// Blocks that the translation layer has beside those, at least 2: room to move pages.
    pub spare_blocks: u32,
    /// Microseconds a page read.
    pub read_us: f64,
    /// Microseconds a page write.
    pub write_us: f64,
    /// Microseconds a block erase.
    pub erase_us: f64,
    /// Channels that work side by side, at least 1.
    pub channels: u32,
    /// Pages of one call that are under way at once, at least 1.
    pub queue_depth: u32,
}

impl FlashModel {
    /// The papers' flash, of this capacity and 7 % of spare blocks.
    pub fn with_capacity(bytes: u64) -> Self {
        let (page_bytes, block_pages) = (4096, 32);
        let capacity_pages = bytes.div_ceil(page_bytes) as u32;
        Self {
            page_bytes,
            block_pages,
            capacity_pages,
            spare_blocks: (capacity_pages / block_pages * 7 / 100).max(2),
            read_us: 25.0,
            write_us: 200.0,
            erase_us: 1500.0,
            channels: 1,
            queue_depth: 1,
        }
    }

    /// This device with the parallelism of the dissertation's SATA drive (§4.5.1, Intel X25-E): 10 channels, and the 32
    /// commands of NCQ.
    pub fn sata(self) -> Self {
        Self {
            channels: 10,
            queue_depth: 32,
            ..self
        }
    }

    /// This device with a parallelism as that of the dissertation's PCIe prototype of 1 TB: 32 channels, 256 commands.
    pub fn pcie(self) -> Self {
        Self {
            channels: 32,
            queue_depth: 256,
            ..self
        }
    }
}

/// What a flash did.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FlashCounts {
    /// Pages read, those that were moved included.
    pub page_reads: u64,
    /// Pages written, those that were moved included.
    pub page_writes: u64,
    /// Of both, pages that the translation layer moved.
    pub page_moves: u64,
    /// Blocks erased.
    pub block_erases: u64,
    /// The time that all of it takes.
    pub modelled_us: f64,
}
