//! Tallies in a file, to be merged with those of other hosts (FORMAT.md §6).

use onefold_io::Result;
use onefold_io::frame::{FrameKind, decode_frame, encode_frame};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};

use crate::tally::{LEVEL_MAX, Seen, is_sampled};
use crate::{Choice, Tally};

/// A file of tallies.
pub const SAVED: FrameKind = FrameKind {
    magic: *b"1FESTIMT",
    version: 1,
};

/// The fewest bytes of an entry: key, length, count.
const ENTRY_BYTES_MIN: usize = 10;

/// The file's bytes.
pub fn encode(tallies: &[(Choice, Tally)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tallies.len() as u64);
    for (choice, tally) in tallies {
        put_bytes(&mut out, choice.chunker.as_bytes());
        for number in [
            choice.mean.into(),
            tally.bytes,
            tally.chunks,
            tally.level.into(),
            tally.seen.len() as u64,
        ] {
            put_varint(&mut out, number);
        }
        let mut all: Vec<_> = tally.seen.iter().collect();
        all.sort_unstable_by_key(|(key, _)| **key);
        for (key, seen) in all {
            out.extend_from_slice(&key.to_le_bytes());
            put_varint(&mut out, seen.bytes.into());
            put_varint(&mut out, seen.count.into());
        }
    }
    encode_frame(SAVED, 0, &out)
}

/// What a file holds; `ram_bytes` is for each tally. `path` is for errors.
pub fn decode(bytes: &[u8], path: &str, ram_bytes: u64) -> Result<Vec<(Choice, Tally)>> {
    let frame = decode_frame(SAVED, bytes, path, 0)?;
    let mut reader = ByteReader::new(frame.payload, path, 24);
    let count = reader.count(6)?;
    let mut tallies = Vec::new();
    for _ in 0..count {
        let chunker = String::from_utf8_lossy(reader.bytes()?).into_owned();
        let mean = reader.varint_max(u32::MAX.into())? as u32;
        let mut tally = Tally::new(ram_bytes);
        tally.bytes = reader.varint()?;
        tally.chunks = reader.varint()?;
        let level = reader.varint_max(LEVEL_MAX.into())? as u32;
        tally.level = level;
        let mut before = None;
        for _ in 0..reader.count(ENTRY_BYTES_MIN)? {
            let key = reader.u64()?;
            if before >= Some(key) || !is_sampled(key, level) {
                return Err(reader.damaged(format!("a chunk {key:016x} where none of it can be")));
            }
            before = Some(key);
            let bytes = reader.varint_max(u32::MAX.into())? as u32;
            let count = reader.varint_max(u32::MAX.into())? as u32;
            tally.note(key, Seen { bytes, count });
        }
        tallies.push((Choice { chunker, mean }, tally));
    }
    reader.end()?;
    Ok(tallies)
}

/// Adds `more` to `tallies`: to the same choice where there is one.
pub fn merge(tallies: &mut Vec<(Choice, Tally)>, more: Vec<(Choice, Tally)>) {
    for (choice, tally) in more {
        match tallies.iter_mut().find(|(known, _)| *known == choice) {
            Some((_, known)) => known.merge(&tally),
            None => tallies.push((choice, tally)),
        }
    }
}
