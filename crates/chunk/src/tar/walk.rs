//! The position of a stream in a tar archive: headers are read as they pass, in pieces of any size.

use super::header::{self, Follows};
use super::{BLOCK, Tars};
use alloc::vec::Vec;

/// Largest size of pax records, in bytes, that are read; otherwise the size in the header counts.
const PAX_BYTES_MAX: u64 = 64 << 10;

/// The kind of data at the position of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TarRegion {
    /// Data between contents.
    Between,
    /// A content with this many bytes to come, at least one.
    Content(u64),
    /// Data behind something that is no tar.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemberPart {
    /// The first header of the stream.
    First(Tars),
    /// A header, or zeros at the end of an archive.
    Header,
    /// A block of a sparse map, before content of this length.
    SparseMap(u64),
    /// Pax records: this many bytes, then zeros to the next block.
    PaxRecords(u64),
    /// Bytes up to the next header.
    Skip(u64),
    /// A content: bytes to come, and zeros behind them.
    Content(u64, u64),
    Lost,
}

/// A position in a tar archive.
#[derive(Clone, Debug)]
pub struct TarWalk {
    part: MemberPart,
    /// Bytes seen so far of an incomplete header or of pax records.
    seen: Vec<u8>,
    /// Size of the next member, if pax records tell it.
    size: Option<u64>,
}

impl TarWalk {
    /// The position before the first byte of a stream.
    pub fn new(tars: Tars) -> Self {
        Self {
            part: MemberPart::First(tars),
            seen: Vec::new(),
            size: None,
        }
    }

    /// The position before the first byte of a stream that begins with `head`: some thousand bytes, or all, or none if
    /// they are unknown. A stream whose head is no tar counts as [`TarRegion::Lost`].
    pub fn begin(tars: Tars, head: &[u8]) -> Self {
        let may_be_one = match head.first_chunk::<BLOCK>() {
            Some(block) => header::begins(block, tars),
            None => head.is_empty(),
        };
        let mut walk = Self::new(tars);
        if !may_be_one {
            walk.part = MemberPart::Lost;
        }
        walk
    }

    pub fn at(&self) -> TarRegion {
        match self.part {
            MemberPart::Content(left, _) => TarRegion::Content(left),
            MemberPart::Lost => TarRegion::Lost,
            _ => TarRegion::Between,
        }
    }

    /// Moves on by `length` bytes of the present content.
    pub fn skip_content(&mut self, length: u64) {
        if let MemberPart::Content(left, zeros) = self.part {
            self.part = match left.saturating_sub(length) {
                0 => skip(zeros),
                left => MemberPart::Content(left, zeros),
            };
        }
    }

    /// Moves on to the beginning of a content or of data that is no tar, or to the end of `data`. Returns the number of
    /// bytes passed.
    ///
    /// A block that is no header is not passed. Where it came in several pieces, all but the last piece are passed.
    pub fn advance(&mut self, data: &[u8]) -> usize {
        let mut at = 0;
        while at < data.len() && self.at() == TarRegion::Between {
            at += self.step(&data[at..]);
        }
        at
    }

    fn step(&mut self, data: &[u8]) -> usize {
        match self.part {
            MemberPart::Skip(left) => {
                let length = shorter(data, left);
                self.part = skip(left - length as u64);
                length
            }
            MemberPart::PaxRecords(bytes) => self.pax_records(data, bytes),
            _ => self.block(data),
        }
    }

    fn pax_records(&mut self, data: &[u8], bytes: u64) -> usize {
        let left = bytes - self.seen.len() as u64;
        let length = shorter(data, left);
        self.seen.extend_from_slice(&data[..length]);
        if length as u64 == left {
            self.size = header::pax_size(&self.seen);
            self.seen.clear();
            self.part = skip(padding(bytes));
        }
        length
    }

    /// Reads a block of a header or of a sparse map, which may come in several pieces.
    fn block(&mut self, data: &[u8]) -> usize {
        if let (Some(block), true) = (data.first_chunk(), self.seen.is_empty()) {
            return if self.has_read(block) { BLOCK } else { 0 };
        }
        let length = shorter(data, (BLOCK - self.seen.len()) as u64);
        self.seen.extend_from_slice(&data[..length]);
        let Ok(block) = <[u8; BLOCK]>::try_from(&self.seen[..]) else {
            return length;
        };
        self.seen.clear();
        if self.has_read(&block) { length } else { 0 }
    }

    /// Moves on behind a block; `false` where the block is none of a tar: the walk is lost then.
    fn has_read(&mut self, block: &[u8; BLOCK]) -> bool {
        let follows = match self.part {
            MemberPart::First(tars) if !header::begins(block, tars) => None,
            MemberPart::SparseMap(size) if block[504] != 0 => Some(Follows::SparseMap(size)),
            MemberPart::SparseMap(size) => Some(Follows::Content(size)),
            _ => header::read(block),
        };
        self.part = match follows {
            Some(follows) => self.part_of(follows),
            None => MemberPart::Lost,
        };
        follows.is_some()
    }

    fn part_of(&mut self, follows: Follows) -> MemberPart {
        match follows {
            Follows::PaxRecords(bytes) if (1..=PAX_BYTES_MAX).contains(&bytes) => {
                MemberPart::PaxRecords(bytes)
            }
            Follows::PaxRecords(bytes) | Follows::About(bytes) => {
                match bytes.checked_add(padding(bytes)) {
                    Some(all) => skip(all),
                    None => MemberPart::Lost,
                }
            }
            Follows::SparseMap(size) => MemberPart::SparseMap(size),
            Follows::Content(size) => {
                let size = self.size.take().unwrap_or(size);
                match size {
                    0 => MemberPart::Header,
                    _ => MemberPart::Content(size, padding(size)),
                }
            }
            Follows::Nothing => {
                self.size = None;
                MemberPart::Header
            }
        }
    }
}

/// The number of zeros behind `bytes` up to the next block.
fn padding(bytes: u64) -> u64 {
    bytes.wrapping_neg() % BLOCK as u64
}

fn skip(bytes: u64) -> MemberPart {
    match bytes {
        0 => MemberPart::Header,
        _ => MemberPart::Skip(bytes),
    }
}

fn shorter(data: &[u8], length: u64) -> usize {
    data.len()
        .min(usize::try_from(length).unwrap_or(usize::MAX))
}
