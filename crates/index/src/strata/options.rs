//! What `strata` is opened with, and how it divides its RAM.

use super::cache::CACHE_PAGE_BYTES;
use super::tail::TAIL_RECORD_BYTES;
use crate::{Error, Result};

/// The least budget: a small tail, a small cache and the buffers of one merge.
pub const RAM_BUDGET_BYTES_MIN: usize = 1 << 20;
/// RAM a record of the partition that is being written: the record, its packed form, and the making of its filter.
const PARTITION_RECORD_BYTES: usize = 84;
/// Bits of filter in RAM for a bit a cell and key: fuse filters of partitions of some 100 thousand keys take 1.18 cells a key.
const CELLS_A_KEY_PERCENT: u64 = 119;
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

/// How the budget is divided.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Records in the tail: 14 %.
    pub tail_records: usize,
    /// The prefetch cache: 10 %.
    pub cache_bytes: usize,
    /// All filters: 55 %.
    pub filter_bytes: usize,
    /// The spans of log files, all that fit: 2 %.
    pub span_bytes: usize,
    /// Records in a partition that a merge writes: 13 % for making it.
    pub partition_records: usize,
    /// Keys that are looked up at once, each with a page to read into: 4 %.
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
        let percent = |share: usize| budget_bytes / 100 * share;
        Ok(Plan {
            tail_records: percent(14) / TAIL_RECORD_BYTES,
            cache_bytes: percent(10).max(CACHE_PAGE_BYTES * 2),
            filter_bytes: percent(55),
            span_bytes: percent(2),
            partition_records: percent(13) / PARTITION_RECORD_BYTES,
            batch_keys: (percent(4) / 4096).clamp(16, 1024),
        })
    }

    /// Bits a cell for the filters of a new run of `own` records, where the index has `records` in all: so many that it may grow by a
    /// quarter, and more for a small run. See [`Plan::allot`].
    pub fn filter_bits(&self, records: u64, own: u64) -> u8 {
        let bits = self.filter_bytes as u64 * 8 * 100
            / (records.max(1) * CELLS_A_KEY_PERCENT * 5 / 4).max(1);
        (bits.max(u64::from(FILTER_BITS_MIN)) + smaller(own, records))
            .min(u64::from(FILTER_BITS_MAX)) as u8
    }

    /// RAM of the filters of `records` at `bits` bits a cell.
    pub fn filter_ram(&self, records: u64, bits: u8) -> usize {
        (records * u64::from(bits) * CELLS_A_KEY_PERCENT / 800) as usize
    }

    /// How many bits a cell each run's filters keep in RAM, where `runs` says each one's records. A run half as large has a bit more, which
    /// costs as little RAM as it brings (Dayan, Athanassoulis, Idreos: "Monkey", 2017); where two bits for the largest do not fit, it
    /// goes without a filter, and each lookup that reaches it reads a page.
    pub fn allot(&self, runs: &[u64]) -> Vec<u8> {
        let mut by_size: Vec<usize> = (0..runs.len()).collect();
        by_size.sort_by_key(|run| runs[*run]);
        for kept in (1..=by_size.len()).rev() {
            let (with, largest) = (&by_size[..kept], runs[by_size[kept - 1]]);
            for (base, more) in (KEPT_BITS_MIN..=FILTER_BITS_MAX)
                .rev()
                .flat_map(|base| [16, 6, 3, 0].map(|more| (base, more)))
            {
                let bits = |run: usize| {
                    (u64::from(base) + smaller(runs[run], largest).min(more))
                        .min(u64::from(FILTER_BITS_MAX))
                };
                let ram: usize = with
                    .iter()
                    .map(|run| self.filter_ram(runs[*run], bits(*run) as u8))
                    .sum();
                if ram <= self.filter_bytes {
                    let mut kept_bits = vec![0; runs.len()];
                    with.iter()
                        .for_each(|run| kept_bits[*run] = bits(*run) as u8);
                    return kept_bits;
                }
            }
        }
        vec![0; runs.len()]
    }
}

/// How often `own` can be doubled within `whole`.
fn smaller(own: u64, whole: u64) -> u64 {
    u64::from((whole / own.max(1)).max(1).ilog2())
}
