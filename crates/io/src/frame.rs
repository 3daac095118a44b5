//! Frames: what every format on disk is wrapped in. Specified in FORMAT.md §1.
//!
//! A frame that reads back whole has the magic, the version, the length and every bit that was written. Authenticity is not its job.

use crate::{Disk, Error, ErrorKind, Result};

/// Bytes before the payload: magic 8, version 2, flags 2, reserved 4, payload length 8.
pub const HEADER_BYTES: usize = 24;
/// Bytes after the payload: the checksum.
pub const TRAILER_BYTES: usize = 8;
/// What a frame adds to its payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TRAILER_BYTES;

/// CRC-64/NVME of `data`.
pub fn crc64(data: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, data)
}

/// What a frame says of itself: which format, which version of it, and flags that the format defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameKind {
    /// Names the format.
    pub magic: [u8; 8],
    /// The format's version.
    pub version: u16,
}

/// The frame around `payload`, as one run of bytes.
pub fn encode_frame(kind: FrameKind, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + OVERHEAD_BYTES);
    frame.extend_from_slice(&kind.magic);
    frame.extend_from_slice(&kind.version.to_le_bytes());
    frame.extend_from_slice(&flags.to_le_bytes());
    frame.extend_from_slice(&0u32.to_le_bytes());
    frame.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    frame.extend_from_slice(payload);
    let crc = crc64(&frame);
    frame.extend_from_slice(&crc.to_le_bytes());
    frame
}

/// A frame found at the start of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The format's own flags.
    pub flags: u16,
    /// What was framed.
    pub payload: &'a [u8],
    /// The frame's whole length in bytes; what follows it starts there.
    pub frame_bytes: usize,
}

/// The frame at the start of `data`, which was read from `path` at `offset` (named in errors only).
///
/// Checks in this order: enough bytes for a header, magic, version, the length against what is there, checksum.
pub fn decode_frame<'a>(
    kind: FrameKind,
    data: &'a [u8],
    path: &str,
    offset: u64,
) -> Result<Frame<'a>> {
    let damaged = |what: String| damaged(path, offset, what);
    if data.len() < OVERHEAD_BYTES {
        return Err(damaged(format!(
            "a frame takes {OVERHEAD_BYTES} bytes at least, found {}",
            data.len()
        )));
    }
    let (flags, payload_len) = decode_header(kind, &data[..HEADER_BYTES], path, offset)?;
    let room = (data.len() - OVERHEAD_BYTES) as u64;
    if payload_len > room {
        return Err(damaged(format!(
            "payload of {payload_len} bytes, but only {room} are there"
        )));
    }
    let end = HEADER_BYTES + payload_len as usize;
    let found = u64::from_le_bytes(
        data[end..end + TRAILER_BYTES]
            .try_into()
            .expect("eight bytes"),
    );
    let expected = crc64(&data[..end]);
    if found != expected {
        return Err(damaged(format!(
            "checksum {found:#018x}, expected {expected:#018x}"
        )));
    }
    Ok(Frame {
        flags,
        payload: &data[HEADER_BYTES..end],
        frame_bytes: end + TRAILER_BYTES,
    })
}

/// Reads the frame at `offset` of `disk`: its flags and payload. `payload_max` bounds what is allocated, as does the disk's length.
pub fn read_frame(
    disk: &dyn Disk,
    kind: FrameKind,
    offset: u64,
    payload_max: u64,
    path: &str,
) -> Result<(u16, Vec<u8>)> {
    let len = disk.len()?;
    let room = len.saturating_sub(offset);
    if room < OVERHEAD_BYTES as u64 {
        return Err(damaged(
            path,
            offset,
            format!("a frame takes {OVERHEAD_BYTES} bytes at least, found {room}"),
        ));
    }
    let mut header = [0; HEADER_BYTES];
    disk.read_at(&mut header, offset)?;
    let (_, payload_len) = decode_header(kind, &header, path, offset)?;
    let room = (room - OVERHEAD_BYTES as u64).min(payload_max);
    if payload_len > room {
        return Err(damaged(
            path,
            offset,
            format!("payload of {payload_len} bytes, at most {room} can be"),
        ));
    }
    let mut whole = vec![0; payload_len as usize + OVERHEAD_BYTES];
    disk.read_at(&mut whole, offset)?;
    let frame = decode_frame(kind, &whole, path, offset)?;
    let (flags, end) = (frame.flags, HEADER_BYTES + frame.payload.len());
    whole.truncate(end);
    whole.drain(..HEADER_BYTES);
    Ok((flags, whole))
}

/// Magic and version checked; flags and payload length returned.
fn decode_header(kind: FrameKind, header: &[u8], path: &str, offset: u64) -> Result<(u16, u64)> {
    if header[..8] != kind.magic {
        let (found, expected) = (header[..8].escape_ascii(), kind.magic.escape_ascii());
        return Err(damaged(
            path,
            offset,
            format!("magic \"{found}\", expected \"{expected}\""),
        ));
    }
    let version = u16::from_le_bytes([header[8], header[9]]);
    if version != kind.version {
        return Err(damaged(
            path,
            offset,
            format!(
                "format version {version}, this program reads {}",
                kind.version
            ),
        ));
    }
    let flags = u16::from_le_bytes([header[10], header[11]]);
    let reserved = u32::from_le_bytes(header[12..16].try_into().expect("four bytes"));
    if reserved != 0 {
        return Err(damaged(
            path,
            offset,
            format!("reserved bytes {reserved:#x}, expected 0"),
        ));
    }
    Ok((
        flags,
        u64::from_le_bytes(header[16..24].try_into().expect("eight bytes")),
    ))
}

/// The error for bytes that are not what was written.
pub fn damaged(path: &str, offset: u64, what: String) -> Error {
    Error {
        op: "read",
        path: path.into(),
        offset: Some(offset),
        kind: ErrorKind::Damaged,
        what,
        source: None,
    }
}
