//! Entries of a node, in its page: keys of one length with 8-byte values, ascending. In a leaf the values are those of
//! the tree; above, they are pages, and a key is the lowest that can be below its page. The first key of a node above the
//! leaves means nothing: all that is lower than the second is below the first page.

use std::ops::Range;

use super::page::{BODY_AT, BODY_BYTES, count, key_bytes, set_count, u64_at};

/// Entries that fit in a node: 252 of LBNs, 168 of hashes.
pub(super) fn capacity(key_bytes: usize) -> usize {
    BODY_BYTES / (key_bytes + 8)
}

fn entries(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let entry = key_bytes(bytes) + 8;
    BODY_AT + range.start * entry..BODY_AT + range.end * entry
}

pub(super) fn key(bytes: &[u8], at: usize) -> &[u8] {
    let range = entries(bytes, at..at + 1);
    &bytes[range.start..range.end - 8]
}

pub(super) fn value(bytes: &[u8], at: usize) -> u64 {
    u64_at(bytes, entries(bytes, at..at + 1).end - 8)
}

pub(super) fn set_value(bytes: &mut [u8], at: usize, value: u64) {
    let end = entries(bytes, at..at + 1).end;
    bytes[end - 8..end].copy_from_slice(&value.to_le_bytes());
}

/// Where the key is, or where it would be.
pub(super) fn find(bytes: &[u8], wanted: &[u8]) -> Result<usize, usize> {
    let (mut low, mut high) = (0, count(bytes));
    while low < high {
        let middle = low.midpoint(high);
        match key(bytes, middle).cmp(wanted) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Ok(middle),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

/// The entry of a node above the leaves that leads to the key.
pub(super) fn find_child(bytes: &[u8], wanted: &[u8]) -> usize {
    match find(bytes, wanted) {
        Ok(at) => at,
        Err(at) => at.saturating_sub(1),
    }
}

/// There is room for another.
pub(super) fn insert(bytes: &mut [u8], at: usize, key: &[u8], value: u64) {
    let old = count(bytes);
    let behind = entries(bytes, at..old);
    let place = entries(bytes, at..at + 1);
    bytes.copy_within(behind, place.end);
    bytes[place.start..place.end - 8].copy_from_slice(key);
    set_count(bytes, old + 1);
    set_value(bytes, at, value);
}

pub(super) fn remove(bytes: &mut [u8], at: usize) {
    let old = count(bytes);
    let behind = entries(bytes, at + 1..old);
    let place = entries(bytes, at..at + 1);
    bytes.copy_within(behind, place.start);
    let last = entries(bytes, old - 1..old);
    bytes[last].fill(0);
    set_count(bytes, old - 1);
}

/// Takes the entries from `at` on out of the node.
pub(super) fn split_off(bytes: &mut [u8], at: usize) -> Vec<u8> {
    let taken = entries(bytes, at..count(bytes));
    let out = bytes[taken.clone()].to_vec();
    bytes[taken].fill(0);
    set_count(bytes, at);
    out
}

/// Puts entries behind those that are there; they fit.
pub(super) fn append(bytes: &mut [u8], raw: &[u8]) {
    let old = count(bytes);
    let start = entries(bytes, old..old).start;
    bytes[start..start + raw.len()].copy_from_slice(raw);
    let more = raw.len() / (key_bytes(bytes) + 8);
    set_count(bytes, old + more);
}
