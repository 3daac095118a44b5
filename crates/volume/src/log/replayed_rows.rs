//! Rows of zones that the journal went through: each chunk is named anew, since a group has no hashes.

use std::collections::HashSet;

use super::Fingerprinter;
use super::group::GroupHeader;
use super::layout::{Layout, PAGE_BYTES, WHOLE};
use super::packed_page::{slots, unpack};
use super::page_sealer::PageSealer;
use super::zone::chunk_hash;
use super::zone_table::{Row, ZoneTable};

/// Adds checks and rows of a group to the table of its zone, of which `zone_bytes` are the bytes. Chunks whose pages
/// are not what was written have no rows.
pub fn add(
    table: &mut ZoneTable,
    group: &GroupHeader,
    zone_bytes: &[u8],
    sealer: &PageSealer,
    layout: &Layout,
    fingerprint: &Fingerprinter,
) {
    let first = group.first_data_page as usize;
    table.checks.put(first, &group.checks);
    table.pages_used = (first + group.checks.len()) as u32;
    let data = &zone_bytes[first * PAGE_BYTES..(first + group.checks.len()) * PAGE_BYTES];
    let (data, are_whole) = sealer.opened(group.first_data(), data, &group.checks);
    let pages = (group.first_data_page..).step_by(layout.chunk_pages as usize);
    let is_whole = |page: u32| {
        (page..page + layout.chunk_pages)
            .all(|page| are_whole.get(page as usize - first) == Some(&true))
    };
    let packed = packed_pages(group);
    // Packed chunks, and then the others: each with its place.
    let (mut unpacked, mut whole) = (Vec::new(), Vec::new());
    for (page, bytes) in pages.zip(data.chunks_exact(layout.chunk_bytes())) {
        if !is_whole(page) {
            continue;
        }
        if packed.contains(&page) {
            unpacked.extend(unpack_all(page, bytes))
        } else {
            whole.push((page, WHOLE, bytes))
        }
    }
    let unpacked = unpacked
        .iter()
        .map(|(page, slot, bytes)| (*page, *slot, &bytes[..]));
    let chunks: Vec<(u32, u8, &[u8])> = unpacked.chain(whole).collect();
    let bytes: Vec<&[u8]> = chunks.iter().map(|(_, _, bytes)| *bytes).collect();
    let named = chunks.iter().zip(fingerprint(&bytes));
    table
        .rows
        .extend(named.map(|((page, slot, _), fingerprint)| Row {
            page: *page,
            slot: *slot,
            hash: chunk_hash(&fingerprint),
        }));
}

/// Pages of a group that hold several chunks: its entries name each chunk that came with it.
fn packed_pages(group: &GroupHeader) -> HashSet<u32> {
    let targets = group.entries.iter().filter_map(|entry| entry.target);
    let own = targets.filter(|at| at.zone == group.zone && at.page >= group.first_data_page);
    own.filter(|at| at.slot != WHOLE)
        .map(|at| at.page)
        .collect()
}

/// The chunks of a packed page, each with the page and its slot. A page that was proved by its check holds nothing that
/// cannot be unpacked.
fn unpack_all(page: u32, bytes: &[u8]) -> Vec<(u32, u8, Vec<u8>)> {
    let unpacked = |slot: u8| {
        let mut chunk = vec![0; PAGE_BYTES];
        unpack(bytes, slot, &mut chunk).ok()?;
        Some((page, slot, chunk))
    };
    (1..=slots(bytes).unwrap_or(0))
        .filter_map(unpacked)
        .collect()
}
