//! Options for opening `strata`, and the division of its RAM.

use super::cache::CACHE_PAGE_BYTES;
use super::loose::LOOSE_BYTES;
use super::page::PAGE_BYTES;
use super::run_filters::FilterShare;
use super::run_size::RunSize;
use super::tail::Tail;
use crate::{Error, Result};

/// The least budget: a small tail, a small cache and the buffers of one merge.
pub const RAM_BUDGET_BYTES_MIN: usize = 1 << 20;
/// RAM for a record of the partition that is being written, in bytes: the record, its packed form, and the building of
/// its filter.
const PARTITION_RECORD_BYTES: usize = 60;
/// Smallest size of a partition in bytes. Pages and filter are whole pages on disk, so small partitions waste some.
const PARTITION_BYTES_MIN: usize = 96 << 10;
/// RAM for a key that is being looked up, in bytes.
const KEY_BYTES: usize = 128;
/// Smallest number of pages read at once: two windows of the log.
const BATCH_PAGES_MIN: usize = 32;
/// Bytes of filter in RAM for a bit a slot and 8 million keys, in thousands: see [`super::ribbon`].
const SLOTS_A_KEY_PER_MILLE: u64 = 1030;
/// Percentage of the filters' RAM that stays free for runs to come; when it is used up, RAM is allotted anew to all
/// runs.
const SPARE_PERCENT: usize = 2;
/// Smallest number of bits a slot with which a run's filter is written.
const FILTER_BITS_MIN: u8 = 4;
/// Largest number of bits a slot: with it, one absent key in 65,536 costs a read.
const FILTER_BITS_MAX: u8 = 16;

/// Options of an index `strata`. None is stored: each opener chooses its own.
#[derive(Clone, Debug)]
pub struct StrataOptions {
    /// All RAM the index may hold: tail, filters, cache, buffers. At least 1 MiB.
    pub ram_budget_bytes: usize,
    /// Merge in a thread of its own. Otherwise merges run inside `checkpoint`, and a simulated run repeats exactly.
    pub background_merges: bool,
    /// Number that goes into the names of this opener's files: random, or a seed where a run must repeat. Openers that
    /// are alive on one folder at once must differ in it (where they don't, the second takes the next free number).
    pub unique: u64,
    /// How long `open` waits for the folder's lock, in milliseconds, before it fails with [`Error::Held`]; `None`: as
    /// long as it takes. The lock is held for milliseconds, and the kernel frees it with its holder; but a holder may
    /// be stopped, and a program that only reads can do without an index.
    pub lock_wait_ms_max: Option<u64>,
}

impl StrataOptions {
    /// Options with the default budget (64 MiB) and merges in the background.
    pub fn new(unique: u64) -> StrataOptions {
        StrataOptions {
            ram_budget_bytes: 64 << 20,
            background_merges: true,
            unique,
            lock_wait_ms_max: None,
        }
    }
}

/// Division of the RAM budget. Every part but the filters has a share and a limit, since more of it brings little;
/// filters get the rest, 75 % of a small budget and 90 % of 256 MiB.
#[derive(Clone, Copy, Debug)]
pub struct RamPlan {
    /// Records in the tail: 6 % of the budget, at most 8 MiB. Loose records take [`LOOSE_BYTES`] besides. An opener
    /// that reads another manifest holds the loose records of both for a moment, and writes no partition meanwhile.
    /// Sealing takes two fifths of tail and loose records once more.
    pub tail_records: usize,
    /// Bytes of the prefetch cache: 4 %, at most 5 MiB; up to 10 % of a small budget, for two windows of the log. The
    /// cache is larger while filters are small: [`RamPlan::cache_beside`].
    pub cache_bytes: usize,
    /// Bytes of all filters: the rest.
    pub filter_bytes: usize,
    /// Bytes for the spans of log files; spans that do not fit are read from the log: 1.5 %.
    pub span_bytes: usize,
    /// Records in a partition that is being written: 2.5 %, at most 2 MiB, twice, because a seal and a merge may write
    /// one each.
    pub partition_records: usize,
    /// Keys that are looked up at once: 0.5 % and more, at most 512.
    pub batch_keys: usize,
    /// Pages that are read at once by a lookup: 2 %, at most 2 MiB.
    pub batch_pages: usize,
    /// Pages that a merge buffers of all its runs, and that are written or copied at once: 3 %, at most 2 MiB.
    pub merge_pages: usize,
}

impl RamPlan {
    /// Divides a budget; fails with [`Error::Budget`] where it is too small.
    pub fn new(budget_bytes: usize) -> Result<RamPlan> {
        if budget_bytes < RAM_BUDGET_BYTES_MIN {
            return Err(Error::Budget {
                budget_bytes,
                what: format!("strata needs at least {RAM_BUDGET_BYTES_MIN}"),
            });
        }
        let share = |per_mille: usize, most_mib: usize| {
            (budget_bytes / 1000 * per_mille).min(most_mib << 20)
        };
        let least = |bytes: usize| bytes.min(budget_bytes / 10);
        let (tail, cache) = (share(60, 8), share(40, 5).max(least(CACHE_PAGE_BYTES * 40)));
        let partition = share(25, 2).max(least(PARTITION_BYTES_MIN));
        let spans = share(15, usize::MAX >> 20);
        let batch_keys = (budget_bytes / 200 / KEY_BYTES).clamp(64, 512);
        let batch = share(20, 2).max(least(BATCH_PAGES_MIN * PAGE_BYTES));
        let merge = share(30, 2).max(least(BATCH_PAGES_MIN * PAGE_BYTES));
        let exact = (tail + LOOSE_BYTES) * 7 / 5;
        let others = exact + cache + partition * 2 + spans + batch + batch_keys * KEY_BYTES;
        Ok(RamPlan {
            tail_records: tail / Tail::RECORD_BYTES,
            cache_bytes: cache,
            filter_bytes: budget_bytes.saturating_sub(others + merge),
            span_bytes: spans,
            partition_records: partition / PARTITION_RECORD_BYTES,
            batch_keys,
            batch_pages: batch / PAGE_BYTES,
            merge_pages: merge / PAGE_BYTES,
        })
    }

    /// The size of the prefetch cache in bytes beside filters of `filter_bytes`, where the log has `log_pages` pages.
    /// An index that is small for its budget leaves most of it to future filters: half of what is free while a merge
    /// holds twice the filters goes to the cache, as far as there are log pages to fill it. The size is a whole number
    /// of shares, so that it seldom changes.
    pub fn cache_beside(&self, filter_bytes: usize, log_pages: u64) -> usize {
        let twice = filter_bytes.saturating_mul(2);
        let lent = self.filter_bytes.saturating_sub(twice) / 2 / self.cache_bytes;
        let whole = log_pages.saturating_mul(CACHE_PAGE_BYTES as u64);
        let wanted = whole.div_ceil(self.cache_bytes as u64).next_power_of_two();
        let shares = wanted.min(1 + lent as u64);
        self.cache_bytes * shares as usize
    }

    /// Bits a slot with which the filters of a new run of `own` records are written, where the index has `records` in
    /// all: one more than fit if all runs had as many, and more for a small run, since [`RamPlan::allot`] keeps as many
    /// of them as RAM allows.
    pub fn filter_bits(&self, records: u64, own: u64) -> u8 {
        let bits =
            self.filter_bytes as u64 * 8 * 1000 / (records.max(1) * SLOTS_A_KEY_PER_MILLE) + 1;
        (bits.max(u64::from(FILTER_BITS_MIN)) + smaller(own, records))
            .min(u64::from(FILTER_BITS_MAX)) as u8
    }

    /// Bits a slot that each run's filters keep in RAM, where RAM is shared by all `runs`. Bits are given one by one to
    /// the run where a bit saves the most false positives for its RAM; so a run half as large has a bit more (Dayan,
    /// Athanassoulis, Idreos: "Monkey", 2017). Where a bit no longer fits, some partitions get it. Where one bit for
    /// the largest run does not fit, it has no filter, and each lookup that reaches it reads a page.
    pub fn allot(&self, runs: &[RunSize]) -> Vec<FilterShare> {
        let bare: usize = runs.iter().map(RunSize::bare_ram).sum();
        let mut left = (self.filter_bytes / 100 * (100 - SPARE_PERCENT)).saturating_sub(bare);
        let mut shares = vec![FilterShare::default(); runs.len()];
        let mut open: Vec<usize> = (0..runs.len()).collect();
        // a bit halves the false positives of its run, for RAM in proportion to the run's records
        let price =
            |run: usize, shares: &[FilterShare]| u128::from(runs[run].records) << shares[run].bits;
        while let Some(place) = (0..open.len()).min_by_key(|place| price(open[*place], &shares)) {
            let run = open[place];
            let ram = runs[run].bit_bytes + 1;
            if shares[run].bits < FILTER_BITS_MAX && ram <= left {
                shares[run].bits += 1;
                left -= ram;
            } else {
                if shares[run].bits < FILTER_BITS_MAX {
                    shares[run].more = (left * 256 / ram) as u8;
                    left = 0;
                }
                open.remove(place);
            }
        }
        shares
    }
}

/// Returns how often `own` can be doubled without exceeding `whole`.
fn smaller(own: u64, whole: u64) -> u64 {
    u64::from((whole / own.max(1)).max(1).ilog2())
}
