//! A packed page: several chunks of a page each, compressed by LZ4, in one page of the data device.
//!
//! ```text
//! page := lz4{slots}  zeros  length:u16{slots}, of the last slot first  slots:u8
//! ```
//!
//! Slots are numbered from 1 on and lie one behind the other from the page's begin; numbers are read from its end. The
//! page has a check like any other, which is proved before a slot is unpacked.

use super::layout::{PAGE_BYTES, SLOTS_MAX};

/// Bytes of the number of slots.
const COUNT_BYTES: usize = 1;
/// Bytes of a slot's length.
const LENGTH_BYTES: usize = 2;

/// Bytes that a page has for slots and their lengths.
pub const ROOM_BYTES: usize = PAGE_BYTES - COUNT_BYTES;

/// Bytes that a compressed chunk takes of a page.
pub fn bytes_taken(compressed: usize) -> usize {
    compressed + LENGTH_BYTES
}

/// Writes a page of zeros full: each slot is a compressed chunk. Together they take [`ROOM_BYTES`] at most.
pub fn pack(page: &mut [u8], slots: &[&[u8]]) {
    debug_assert!(page.len() == PAGE_BYTES && slots.len() <= usize::from(SLOTS_MAX));
    let (mut begin, mut end) = (0, ROOM_BYTES);
    page[end] = slots.len() as u8;
    for slot in slots {
        page[begin..begin + slot.len()].copy_from_slice(slot);
        begin += slot.len();
        end -= LENGTH_BYTES;
        page[end..end + LENGTH_BYTES].copy_from_slice(&(slot.len() as u16).to_le_bytes());
    }
    debug_assert!(begin <= end, "the slots fit");
}

/// Unpacks one slot of a page into a chunk.
///
/// # Errors
/// The page is no packed page, has no such slot, or the slot is not a compressed chunk: in words.
pub fn unpack(page: &[u8], slot: u8, chunk: &mut [u8]) -> Result<(), String> {
    let lengths = lengths(page)?;
    let Some(length) = usize::from(slot)
        .checked_sub(1)
        .and_then(|at| lengths.get(at))
    else {
        return Err(format!("slot {slot} of a page that has {}", lengths.len()));
    };
    let begin: usize = lengths[..usize::from(slot) - 1].iter().sum();
    match lz4_flex::block::decompress_into(&page[begin..begin + length], chunk) {
        Ok(bytes) if bytes == chunk.len() => Ok(()),
        Ok(bytes) => Err(format!(
            "slot {slot} holds {bytes} bytes, expected {}",
            chunk.len()
        )),
        Err(error) => Err(format!("slot {slot} cannot be decompressed: {error}")),
    }
}

/// Slots of a page.
///
/// # Errors
/// The page is no packed page: in words.
pub fn slots(page: &[u8]) -> Result<u8, String> {
    lengths(page).map(|lengths| lengths.len() as u8)
}

/// Lengths of the slots, proved to lie within the page.
fn lengths(page: &[u8]) -> Result<Vec<usize>, String> {
    let count = match page.get(ROOM_BYTES) {
        Some(count) if page.len() == PAGE_BYTES => *count,
        _ => {
            return Err(format!(
                "a page of {} bytes, expected {PAGE_BYTES}",
                page.len()
            ));
        }
    };
    if !(1..=SLOTS_MAX).contains(&count) {
        return Err(format!(
            "a page of {count} slots, expected 1 to {SLOTS_MAX}"
        ));
    }
    let first = ROOM_BYTES - usize::from(count) * LENGTH_BYTES;
    let numbers = page[first..ROOM_BYTES].rchunks_exact(LENGTH_BYTES);
    let lengths: Vec<usize> = numbers
        .map(|number| usize::from(u16::from_le_bytes([number[0], number[1]])))
        .collect();
    if lengths.iter().sum::<usize>() <= first && !lengths.contains(&0) {
        Ok(lengths)
    } else {
        Err(format!("slots of {lengths:?} bytes do not fit into a page"))
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::*;

    fn some_chunk(random: &mut Random) -> Vec<u8> {
        let mut chunk = vec![random.below(256) as u8; PAGE_BYTES];
        let noise = random.below(300) as usize;
        chunk[..noise].copy_from_slice(&random.bytes(noise));
        chunk
    }

    fn some_page(random: &mut Random) -> (Vec<u8>, Vec<Vec<u8>>) {
        let count = 1 + random.below(u64::from(SLOTS_MAX).min(10));
        let chunks: Vec<Vec<u8>> = (0..count).map(|_| some_chunk(random)).collect();
        let slots: Vec<Vec<u8>> = chunks
            .iter()
            .map(|it| lz4_flex::block::compress(it))
            .collect();
        let mut page = vec![0; PAGE_BYTES];
        pack(
            &mut page,
            &slots.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        );
        (page, chunks)
    }

    #[test]
    fn chunks_come_back_from_their_slots() {
        let mut random = Random(1);
        for _ in 0..200 {
            let (page, chunks) = some_page(&mut random);
            assert_eq!(usize::from(slots(&page).expect("packed")), chunks.len());
            let mut found = vec![1; PAGE_BYTES];
            for (slot, chunk) in (1..).zip(&chunks) {
                unpack(&page, slot, &mut found).expect("a slot");
                assert!(found == *chunk);
            }
            let behind = chunks.len() as u8 + 1;
            assert!(unpack(&page, behind, &mut found).is_err());
            assert!(unpack(&page, 0, &mut found).is_err());
        }
    }

    /// Bytes that nobody proved give words or some chunk, never a panic.
    #[test]
    fn a_page_of_anything_does_no_harm() {
        let mut random = Random(2);
        let mut refused = 0;
        for _ in 0..5000 {
            let (mut page, _) = some_page(&mut random);
            for _ in 0..1 + random.below(4) {
                let at = if random.one_in(2) {
                    PAGE_BYTES - 1 - random.below(8) as usize
                } else {
                    random.below(4096) as usize
                };
                page[at] = random.next() as u8;
            }
            let mut chunk = vec![0; PAGE_BYTES];
            let slot = random.below(18) as u8;
            refused += u32::from(unpack(&page, slot, &mut chunk).is_err());
        }
        assert!(refused > 1000, "{refused}");
        let mut chunk = vec![0; PAGE_BYTES];
        for bytes in [0, 1, 4095, 4097] {
            assert!(unpack(&vec![1; bytes], 1, &mut chunk).is_err());
        }
    }
}
