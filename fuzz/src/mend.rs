//! Makes checksums true again in what was changed, so that a decoder looks at it: each kind of file has its own.
//!
//! Invariant: what stands at the wrong place, or has lost its magic, stays as it is, and a whole file as it was
//! written is not changed: the tests hold that for every seed, so that what is written here and what the engine writes
//! are the same.

mod cbt;
mod container;
mod pages;
mod strata;
mod zone;

pub use cbt::{cbt_pages, is_cbt_page};
pub use container::{block, container, tail};
pub use pages::{PAGE_BYTES, hold, pages, saved_for};
pub use strata::{log, run};
pub use zone::zone_table;

use onefold_io::frame::{HEADER_BYTES, OVERHEAD_BYTES, TRAILER_BYTES, crc64};

/// Function that makes an input's lengths and checksums true again.
pub type Mend = Box<dyn Fn(&mut [u8])>;

/// A frame that is all of the input.
pub fn frame(bytes: &mut [u8]) {
    close(bytes);
}

/// Frames one behind the other, each up to where the `magic` of its kind is found again.
pub fn frames(magic: [u8; 8]) -> Mend {
    Box::new(move |bytes| {
        let mut start = 0;
        while start < bytes.len() {
            let next = find(bytes, &magic, start + OVERHEAD_BYTES).unwrap_or(bytes.len());
            close(&mut bytes[start..next]);
            start = next;
        }
    })
}

/// Frames with this `magic` that begin at pages, each as long as it says, or up to the next.
pub fn frames_in_pages(magic: [u8; 8]) -> Mend {
    Box::new(move |bytes| {
        let pages = (0..bytes.len()).step_by(PAGE_BYTES);
        let starts: Vec<usize> = pages
            .filter(|at| bytes[*at..].starts_with(&magic))
            .collect();
        for (place, start) in starts.iter().enumerate() {
            let next = starts.get(place + 1).copied().unwrap_or(bytes.len());
            close_as_said(&mut bytes[*start..next]);
        }
    })
}

/// The frame that `bytes` begin with, if its checksum holds.
pub fn whole_frame(bytes: &[u8]) -> Option<&[u8]> {
    let said = usize::try_from(number(bytes.get(HEADER_BYTES - 8..HEADER_BYTES)?)).ok()?;
    let frame = bytes.get(..said.checked_add(OVERHEAD_BYTES)?)?;
    let (body, crc) = frame.split_at(frame.len() - TRAILER_BYTES);
    (crc64(body) == number(crc)).then_some(frame)
}

/// Makes length and checksum of the frame true that all of `bytes` is.
fn close(bytes: &mut [u8]) {
    if let Some(room) = bytes.len().checked_sub(OVERHEAD_BYTES) {
        close_at(bytes, room);
    }
}

/// The same of the frame that `bytes` begin with: it stays as long as it says, if there is room.
fn close_as_said(bytes: &mut [u8]) {
    let Some(room) = bytes.len().checked_sub(OVERHEAD_BYTES) else {
        return;
    };
    let said = number(&bytes[HEADER_BYTES - 8..]);
    close_at(
        bytes,
        usize::try_from(said).map_or(room, |said| said.min(room)),
    );
}

fn close_at(bytes: &mut [u8], payload_len: usize) {
    let end = HEADER_BYTES + payload_len;
    bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&(payload_len as u64).to_le_bytes());
    let crc = crc64(&bytes[..end]);
    bytes[end..end + TRAILER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Where `magic` is found from `from` on.
fn find(bytes: &[u8], magic: &[u8], from: usize) -> Option<usize> {
    let windows = bytes.get(from..)?.windows(magic.len());
    Some(from + windows.into_iter().position(|window| window == magic)?)
}

/// A number of eight bytes, fewer where there are not so many.
fn number(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let len = bytes.len().min(8);
    eight[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(eight)
}

/// A number of four bytes; zero where there are not so many.
fn number_of_four(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |four| u32::from_le_bytes(*four))
}
