//! Logs and runs of strata, FORMAT.md §5: sealed pages, and behind them a footer.

use onefold_io::frame::{HEADER_BYTES, crc64};

use super::pages::seal;
use super::{Mend, PAGE_BYTES, close_as_said, number_of_four};

/// Bytes of a log footer's page before its part of the frame: the seal, no records, no spans.
const LOG_PAGE_HEAD_BYTES: usize = 10;
const LOG_MAGIC: &[u8] = b"OFSTRLOG";
const RUN_MAGIC: &[u8] = b"OFSTRRUN";
/// A partition's line of a run's footer.
const PARTITION_BYTES: usize = 37;

/// A log file of this name: its footers, each spread over pages, then all pages.
pub fn log(name: &str) -> Mend {
    let mark = mark_of(name);
    Box::new(move |bytes| {
        footer_of_log(bytes);
        for (number, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
            seal(page, number, mark);
        }
    })
}

fn footer_of_log(bytes: &mut [u8]) {
    let begins = |page: &[u8]| page[LOG_PAGE_HEAD_BYTES..].starts_with(LOG_MAGIC);
    let pages = bytes.chunks_exact(PAGE_BYTES);
    if let Some(first) = pages.into_iter().position(begins) {
        let of_footer = &mut bytes[first * PAGE_BYTES..];
        let bodies = of_footer.chunks_exact(PAGE_BYTES);
        let mut frame: Vec<u8> = bodies
            .flat_map(|page| &page[LOG_PAGE_HEAD_BYTES..])
            .copied()
            .collect();
        close_as_said(&mut frame);
        let parts = frame.chunks_exact(PAGE_BYTES - LOG_PAGE_HEAD_BYTES);
        for (page, part) in of_footer.chunks_exact_mut(PAGE_BYTES).zip(parts) {
            page[LOG_PAGE_HEAD_BYTES..].copy_from_slice(part);
        }
    }
}

/// A run of this name, `seed` before it was changed: what was a page with records in the seed is one still; then its
/// filters' checksums, then the footer. What stands behind a partition's pages is no page of its own.
pub fn run(name: &str, seed: &[u8]) -> Mend {
    let mark = mark_of(name);
    let is_sealed = |(number, page): (usize, &[u8])| {
        let mut sealed = page.to_vec();
        seal(&mut sealed, number, mark);
        sealed == page && page.iter().any(|byte| *byte != 0)
    };
    let pages = seed.chunks_exact(PAGE_BYTES).enumerate().map(is_sealed);
    let pages: Vec<bool> = pages.collect();
    let footer = seed
        .windows(RUN_MAGIC.len())
        .rposition(|at| at == RUN_MAGIC);
    let footer = footer.expect("a run has a footer");
    Box::new(move |bytes| {
        let of_records = bytes.chunks_exact_mut(PAGE_BYTES).enumerate();
        for (number, page) in of_records.filter(|(number, _)| pages.get(*number) == Some(&true)) {
            seal(page, number, mark);
        }
        if let Some((before, footer)) = bytes.split_at_mut_checked(footer) {
            filters(before, footer);
            close_as_said(footer);
        }
    })
}

/// Makes the checksum true of each filter that the footer lists, if it lies within `before`.
fn filters(before: &[u8], footer: &mut [u8]) {
    let Some((log2, lines)) = footer
        .get_mut(HEADER_BYTES + 8..)
        .and_then(<[u8]>::split_first_mut)
    else {
        return;
    };
    let partitions = 1 << (*log2).min(8);
    for line in lines.chunks_exact_mut(PARTITION_BYTES).take(partitions) {
        let [first_page, pages] = [0, 8].map(|at| number_of_four(&line[at..]) as usize);
        let (bits, blocks) = (usize::from(line[16]), number_of_four(&line[17..]) as usize);
        let start = first_page.saturating_add(pages).saturating_mul(PAGE_BYTES);
        let end = start.saturating_add(blocks.saturating_mul(bits * 16));
        match before.get(start..end) {
            Some(filter) if bits > 0 => {
                line[29..].copy_from_slice(&crc64(filter).to_le_bytes());
            }
            _ => {}
        }
    }
}

/// Returns the mark of `log-<unique>-<number>` or `run-<unique>-<number>`.
fn mark_of(name: &str) -> u64 {
    let mut parts = name.rsplit('-').map(|part| u64::from_str_radix(part, 16));
    let mut next = || parts.next().and_then(Result::ok).expect("a file's name");
    let number = next();
    next() ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93)
}
