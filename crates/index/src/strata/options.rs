//! What `strata` is opened with, and how it divides its RAM.

use super::cache::CACHE_PAGE_BYTES;
use super::tail::TAIL_RECORD_BYTES;
use crate::{Error, Result};

/// The least budget: a small tail, a small cache and the buffers of one merge.
pub const RAM_BUDGET_BYTES_MIN: usize = 1 << 20;
/// RAM a record of the partition that is being written: the record, its packed form, and the making of its filter.
const PARTITION_RECORD_BYTES: usize = 84;
/// A partition's pages and filter are whole pages on disk, so small ones waste some.
const PARTITION_BYTES_MIN: usize = 128 << 10;
/// Bits of filter in RAM for a bit a cell and key: fuse filters take 1.19 cells a key where a
/// partition has some 50 thousand, 1.23 at 15 thousand.
const CELLS_A_KEY_PERCENT: u64 = 122;
/// What a run's filter is written with at least.
const FILTER_BITS_MIN: u8 = 4;
/// Below this a filter lets so much through that it is dropped instead.
const KEPT_BITS_MIN: u8 = 2;
/// Above this a filter brings nothing more: one absent key in 65,536 costs a read.
const FILTER_BITS_MAX: u8 = 16;

/// How an index `strata` works; nothing of it is stored, each opener chooses its own.
#[derive(Clone, Debug)]
pub struct StrataOptions {
    /// All RAM the index may hold: tail, filters, cache, buffers. At least 1 MiB.
    pub ram_budget_bytes: usize,
    /// Merge in a thread of its own. Without, merges run inside `checkpoint`, and a simulated run repeats exactly.
    pub background_merges: bool,
    /// Goes into the names of the files that this opener makes. Random, or a seed where a run must repeat: two openers that live at
    /// once on one folder must differ in it (where they don't, the second takes the next free number).
    pub unique: u64,
}

impl StrataOptions {
    /// The default budget (64 MiB), merges in the background.
    pub fn new(unique: u64) -> StrataOptions {
        StrataOptions {
            ram_budget_bytes: 64 << 20,
            background_merges: true,
            unique,
        }
    }
}

/// How the budget is divided. What is not for filters has a share and a limit, since more of it brings little: filters get the rest, 74 %
/// of a small budget and 90 % of 256 MiB.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Records in the tail: 9 %, at most 6 MiB, and while it is sealed two fifths of that once more.
    pub tail_records: usize,
    /// The prefetch cache: 5 %, at most 5 MiB, and of a small budget up to 10 %, for two windows of the log.
    pub cache_bytes: usize,
    /// All filters: the rest.
    pub filter_bytes: usize,
    /// The spans of log files, all that fit: 2 %.
    pub span_bytes: usize,
    /// Records in a partition that is being written: 5 %, at most 4 MiB, twice, because a seal and a merge may write one each.
    pub partition_records: usize,
    /// Keys that are looked up at once, and pages that are read at once: 3 %, at most 2 MiB.
    pub batch_keys: usize,
}

impl Plan {
    /// Divides a budget, or says that it is too small.
    pub fn new(budget_bytes: usize) -> Result<Plan> {
        if budget_bytes < RAM_BUDGET_BYTES_MIN {
            return Err(Error::Budget {
                budget_bytes,
                what: format!("strata needs at least {RAM_BUDGET_BYTES_MIN}"),
            });
        }
        let share =
            |percent: usize, most_mib: usize| (budget_bytes / 100 * percent).min(most_mib << 20);
        let (tail, cache) = (
            share(9, 6),
            share(5, 5).max((CACHE_PAGE_BYTES * 40).min(budget_bytes / 10)),
        );
        let partition = share(5, 4).max(PARTITION_BYTES_MIN.min(budget_bytes / 10));
        let (batch, spans) = (share(3, 2), share(2, usize::MAX >> 20));
        // what a merge reads of its runs
        let readers = share(3, 2);
        let others = tail * 7 / 5 + cache + partition * 2 + batch + spans + readers;
        Ok(Plan {
            tail_records: tail / TAIL_RECORD_BYTES,
            cache_bytes: cache,
            filter_bytes: budget_bytes.saturating_sub(others),
            span_bytes: spans,
            partition_records: partition / PARTITION_RECORD_BYTES,
            batch_keys: (batch / 4096).clamp(16, 512),
        })
    }

    /// Bits a cell that the filters of a new run of `own` records are written with, where the index has `records` in all: one more than fit if
    /// all had as many, and more for a small run, since [`Plan::allot`] takes what it can of them.
    pub fn filter_bits(&self, records: u64, own: u64) -> u8 {
        let bits = self.filter_bytes as u64 * 8 * 100 / (records.max(1) * CELLS_A_KEY_PERCENT) + 1;
        (bits.max(u64::from(FILTER_BITS_MIN)) + smaller(own, records))
            .min(u64::from(FILTER_BITS_MAX)) as u8
    }

    /// RAM of the filters of `records` at `bits` bits a cell.
    pub fn filter_ram(&self, records: u64, bits: u8) -> usize {
        (records * u64::from(bits) * CELLS_A_KEY_PERCENT / 800) as usize
    }

    /// How many bits a cell each run's filters keep in RAM, where `runs` says each one's records. Bit by bit, to the run where it saves the most
    /// false positives for its RAM; so a run half as large has a bit more (Dayan, Athanassoulis, Idreos: "Monkey", 2017). Where two bits
    /// for the largest do not fit, it goes without a filter, and each lookup that reaches it reads a page.
    pub fn allot(&self, runs: &[u64]) -> Vec<u8> {
        let mut by_size: Vec<usize> = (0..runs.len()).collect();
        by_size.sort_by_key(|run| runs[*run]);
        let (mut bits, mut left) = (vec![0; runs.len()], self.filter_bytes);
        for &run in &by_size {
            let ram = self.filter_ram(runs[run], KEPT_BITS_MIN) + 1;
            if ram > left {
                break;
            }
            (bits[run], left) = (KEPT_BITS_MIN, left - ram);
        }
        by_size.retain(|run| bits[*run] > 0);
        // a bit halves the false positives of its run, for RAM in proportion to the run's records
        let price = |run: usize, bits: &[u8]| u128::from(runs[run]) << bits[run];
        while let Some(place) = (0..by_size.len()).min_by_key(|place| price(by_size[*place], &bits))
        {
            let run = by_size[place];
            let ram = self.filter_ram(runs[run], 1) + 1;
            if bits[run] < FILTER_BITS_MAX && ram <= left {
                bits[run] += 1;
                left -= ram;
            } else {
                by_size.remove(place);
            }
        }
        bits
    }
}

/// How often `own` can be doubled within `whole`.
fn smaller(own: u64, whole: u64) -> u64 {
    u64::from((whole / own.max(1)).max(1).ilog2())
}
