//! Tallies in a file, for merging with those of other hosts (FORMAT.md §6).

use onefold_io::Result;
use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};

use crate::sketch::SketchRegister;
use crate::{ChunkerChoice, Tally};

/// A file of tallies.
pub const SAVED: FrameKind = FrameKind {
    magic: *b"1FESTIMT",
    version: 2,
};

/// Smallest size of an entry in bytes: key, length.
const ENTRY_BYTES_MIN: usize = 9;
/// Smallest size of a register in bytes: distance from the one before, two numbers.
const REGISTER_BYTES_MIN: usize = 9;

/// Encodes tallies as the bytes of a file.
pub fn encode(tallies: &[(ChunkerChoice, Tally)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tallies.len() as u64);
    for (choice, tally) in tallies {
        put_bytes(&mut out, choice.chunker.as_bytes());
        for number in [
            choice.mean.into(),
            tally.bytes,
            tally.chunks,
            tally.sketched_max.into(),
            tally.seen.len() as u64,
        ] {
            put_varint(&mut out, number);
        }
        let mut all: Vec<_> = tally.seen.iter().collect();
        all.sort_unstable_by_key(|(key, _)| **key);
        for (key, bytes) in all {
            out.extend_from_slice(&key.to_le_bytes());
            put_varint(&mut out, u64::from(*bytes));
        }
        put_varint(&mut out, tally.sketch.filled().count() as u64);
        let mut next = 0;
        for (place, register) in tally.sketch.filled() {
            put_varint(&mut out, (place - next) as u64);
            out.extend_from_slice(&register.bytes.to_le_bytes());
            out.extend_from_slice(&register.chunks.to_le_bytes());
            next = place + 1;
        }
    }
    encode_frame(SAVED, &out)
}

/// Decodes the tallies in a file; each may take `ram_bytes` of RAM. Errors name `path`.
///
/// # Errors
/// [`Damaged`](onefold_io::ErrorKind::Damaged), with the offset: no whole frame, or a chunk or register that no tally
/// can have. [`OtherVersion`](onefold_io::ErrorKind::OtherVersion): another version's file.
pub fn decode(bytes: &[u8], path: &str, ram_bytes: u64) -> Result<Vec<(ChunkerChoice, Tally)>> {
    let payload = decode_whole(SAVED, bytes, path, 0)?;
    let mut reader = ByteReader::new(payload, path, 24);
    let count = reader.count(7)?;
    let mut tallies = Vec::new();
    for _ in 0..count {
        let chunker = String::from_utf8_lossy(reader.bytes()?).into_owned();
        let mean = reader.varint_max(u32::MAX.into())? as u32;
        let mut tally = Tally::new(ram_bytes);
        tally.bytes = reader.varint()?;
        tally.chunks = reader.varint()?;
        let sketched_max = reader.varint_max(u32::MAX.into())? as u32;
        tally.sketch_to(sketched_max);
        let mut before = None;
        for _ in 0..reader.count(ENTRY_BYTES_MIN)? {
            let key = reader.u64()?;
            let bytes = reader.varint_max(u32::MAX.into())? as u32;
            if before >= Some(key) || bytes <= sketched_max {
                return Err(reader.damaged(format!(
                    "chunk {key:016x} of {bytes} bytes, out of order or not above {sketched_max}"
                )));
            }
            before = Some(key);
            tally.note(key, bytes);
        }
        registers(&mut reader, sketched_max, &mut tally)?;
        tallies.push((ChunkerChoice { chunker, mean }, tally));
    }
    reader.end()?;
    Ok(tallies)
}

/// Reads the sketch, which is empty where all chunks are listed.
fn registers(reader: &mut ByteReader<'_>, sketched_max: u32, tally: &mut Tally) -> Result<()> {
    let mut next = 0usize;
    for _ in 0..reader.count(REGISTER_BYTES_MIN)? {
        let place = next.saturating_add(reader.varint_max(u32::MAX.into())? as usize);
        let register = SketchRegister {
            bytes: f32::from_bits(reader.u32()?),
            chunks: f32::from_bits(reader.u32()?),
        };
        let can_be = [register.bytes, register.chunks]
            .iter()
            .all(|value| *value > 0.0);
        let noted = tally.sketch.lower(place, register);
        if !can_be || sketched_max == 0 || noted.is_none() {
            return Err(reader.damaged(format!("an impossible register {place}")));
        }
        next = place + 1;
    }
    Ok(())
}

/// Adds `more` to `tallies`: to the tally of the same choice where there is one.
pub fn merge(tallies: &mut Vec<(ChunkerChoice, Tally)>, more: Vec<(ChunkerChoice, Tally)>) {
    for (choice, tally) in more {
        match tallies.iter_mut().find(|(known, _)| *known == choice) {
            Some((_, known)) => known.merge(&tally),
            None => tallies.push((choice, tally)),
        }
    }
}
