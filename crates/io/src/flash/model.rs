//! The parameters of a flash, and the figures of its account.

/// The parameters of a flash: sizes and costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashModel {
    /// Bytes a page.
    pub page_bytes: u64,
    /// Pages a block.
    pub block_pages: u32,
    /// Pages that users can write.
    pub capacity_pages: u32,
    /// Blocks of the translation layer besides `capacity_pages`, at least 2: room to move pages.
    pub spare_blocks: u32,
    /// Microseconds a page read.
    pub read_us: f64,
    /// Microseconds a page write.
    pub write_us: f64,
    /// Microseconds a block erase.
    pub erase_us: f64,
    /// Number of channels that work side by side, at least 1.
    pub channels: u32,
    /// Number of pages of one call under way at once, at least 1.
    pub queue_depth: u32,
}

impl FlashModel {
    /// The papers' flash, with a capacity of `bytes` and 7 % of spare blocks.
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

    /// This device with the parallelism of the dissertation's PCIe prototype of 1 TB: 32 channels, 256 commands.
    pub fn pcie(self) -> Self {
        Self {
            channels: 32,
            queue_depth: 256,
            ..self
        }
    }
}

/// The figures of a flash's account.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FlashCounts {
    /// Pages read, moved pages included.
    pub page_reads: u64,
    /// Pages written, moved pages included.
    pub page_writes: u64,
    /// Pages that the translation layer moved, each one read and one write.
    pub page_moves: u64,
    /// Blocks erased.
    pub block_erases: u64,
    /// Modelled time of all requests, in microseconds.
    pub modelled_us: f64,
}
