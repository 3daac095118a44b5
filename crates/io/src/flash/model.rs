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
    /// Microseconds of the controller for a read, besides its pages; neighbours in one call are one read.
    pub read_command_us: f64,
    /// The same for a write.
    pub write_command_us: f64,
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
            read_command_us: 0.0,
            write_command_us: 0.0,
        }
    }

    /// The metadata device of the Dmdedup report (§4.1), an Intel X25-M of 160 GB that is kept busy, with a capacity of
    /// `bytes`. Pages take what its data sheet says of accesses in order, 250 MB/s for reads and 100 MB/s for writes;
    /// commands what is left of 35,000 reads and 8,600 writes of 4 KiB a second at random. Erases are within.
    pub fn x25_m(bytes: u64) -> Self {
        let (read_us, write_us) = (4096.0 / 250.0, 4096.0 / 100.0);
        Self {
            block_pages: 128,
            read_us,
            write_us,
            erase_us: 0.0,
            read_command_us: 1e6 / 35_000.0 - read_us,
            write_command_us: 1e6 / 8_600.0 - write_us,
            ..Self::with_capacity(bytes)
        }
    }

    /// The metadata device of the report's chapter on hints (§6.1), an Intel DC S3700 of 200 GB, in the same way: 500
    /// and 365 MB/s, 75,000 reads and 32,000 writes a second.
    pub fn s3700(bytes: u64) -> Self {
        let (read_us, write_us) = (4096.0 / 500.0, 4096.0 / 365.0);
        Self {
            read_us,
            write_us,
            read_command_us: 1e6 / 75_000.0 - read_us,
            write_command_us: 1e6 / 32_000.0 - write_us,
            ..Self::x25_m(bytes)
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
