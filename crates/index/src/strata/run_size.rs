//! The figures of a run by which RAM is divided among the filters of all runs.

use super::run::{Partition, Run};
use super::run_filters::{FilterShare, RunFilters};

/// RAM of a partition without its filter, in bytes.
const PARTITION_BYTES: usize = size_of::<Partition>() + RunFilters::PARTITION_BYTES;

/// The figures of a run by which RAM is divided.
#[derive(Clone, Copy, Debug)]
pub struct RunSize {
    /// Number of records.
    pub records: u64,
    /// Bytes that one bit a slot takes in all partitions.
    pub bit_bytes: usize,
    /// Number of partitions.
    pub partitions: usize,
}

impl RunSize {
    /// RAM of a run without filters, in bytes.
    pub fn bare_ram(&self) -> usize {
        self.partitions * PARTITION_BYTES + size_of::<Run>()
    }

    /// RAM of a run with filters, in bytes.
    pub fn ram(&self, share: FilterShare) -> usize {
        self.bare_ram()
            + self.bit_bytes * (usize::from(share.bits) * 256 + usize::from(share.more)) / 256
    }
}

impl Run {
    /// The figures of this run for dividing RAM.
    pub fn size(&self) -> RunSize {
        let shapes = self
            .partitions
            .iter()
            .filter_map(|partition| partition.filter.as_ref());
        RunSize {
            records: self
                .partitions
                .iter()
                .map(|partition| u64::from(partition.records))
                .sum(),
            bit_bytes: shapes
                .map(|shape| shape.narrowed(1).bytes().unwrap_or(0))
                .sum(),
            partitions: self.partitions.len(),
        }
    }
}
