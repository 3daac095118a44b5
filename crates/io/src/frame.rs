//! Frames: the wrapper of everything on disk (FORMAT.md §1).
//!
//! ```text
//! magic[8] version:u16 flags:u16 reserved:u32=0 payload_len:u64 payload[payload_len] crc64:u64
//! ```
//!
//! A reader checks in this order, and its error says which check failed: magic, length, checksum, reserved, version,
//! flags. The magic comes first so that a wrong file is called wrong, not damaged; the length is compared with the
//! available bytes before anything is allocated for it. Version and flags come last, because they count only under a
//! right checksum. A flipped bit is therefore damage, and a frame of another version of the program never is
//! ([`ErrorKind::OtherVersion`](crate::ErrorKind)): nothing may repair or remove it. Frames do not prove authenticity.

mod twice;

use crc_fast::{CrcAlgorithm, Digest};

pub use twice::{Twice, decode_twice, encode_twice};

use crate::{Disk, Error, ErrorKind, Result};

/// Bytes before the payload: magic 8, version 2, flags 2, reserved 4, payload length 8.
pub const HEADER_BYTES: usize = 24;
/// Bytes after the payload: the checksum.
pub const TRAILER_BYTES: usize = 8;
/// Bytes that a frame adds to its payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TRAILER_BYTES;

/// The format in a frame, and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameKind {
    /// Identifies the format.
    pub magic: [u8; 8],
    /// Version of the format, from 1. A reader of several versions tries one after the other.
    pub version: u16,
}

/// A frame at the start of some bytes, whose checks all succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The bytes inside the frame.
    pub payload: &'a [u8],
    /// Length of the whole frame in bytes; the next data begins there.
    pub frame_bytes: usize,
}

/// Encodes `payload` in a frame.
pub fn encode_frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(OVERHEAD_BYTES + payload.len());
    append_frame(&mut out, kind, payload);
    out
}

/// Appends the frame around `payload` to `out`.
pub fn append_frame(out: &mut Vec<u8>, kind: FrameKind, payload: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&kind.magic);
    out.extend_from_slice(&kind.version.to_le_bytes());
    // no format has flags so far
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(payload);
    let crc = crc64(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Writes a frame at `offset` with one write and returns its length in bytes. Durable after the disk's `sync`.
///
/// # Errors
/// Errors of [`Disk::write_at`].
pub fn write_frame(disk: &dyn Disk, kind: FrameKind, offset: u64, payload: &[u8]) -> Result<u64> {
    let frame = encode_frame(kind, payload);
    disk.write_at(&frame, offset)?;
    Ok(frame.len() as u64)
}

/// Decodes the frame at the start of `data`, which was read from `path` at `offset` (for errors only). Bytes behind the
/// frame are ignored.
///
/// # Errors
/// [`ErrorKind::Damaged`]: `data` ends early, or magic, length, checksum or reserved bytes are wrong.
/// [`ErrorKind::OtherVersion`]: a whole frame of another version than `kind`'s, or with flags.
pub fn decode_frame<'a>(
    kind: FrameKind,
    data: &'a [u8],
    path: &str,
    offset: u64,
) -> Result<Frame<'a>> {
    let place = FramePlace { path, offset };
    let Some(header) = data.first_chunk::<HEADER_BYTES>() else {
        return Err(place.no_header(data.len() as u64));
    };
    let payload_len = place.header(kind, header, data.len() as u64, u64::MAX)?;
    let frame_bytes = OVERHEAD_BYTES + payload_len;
    let (payload, crc) = split_crc(&data[HEADER_BYTES..frame_bytes]);
    place.body(kind, header, payload, crc)?;
    Ok(Frame {
        payload,
        frame_bytes,
    })
}

/// Decodes the frame that makes up all of `data`, and returns its payload.
///
/// # Errors
/// Errors of [`decode_frame`]; also [`ErrorKind::Damaged`] where a byte follows the frame.
pub fn decode_whole<'a>(
    kind: FrameKind,
    data: &'a [u8],
    path: &str,
    offset: u64,
) -> Result<&'a [u8]> {
    let frame = decode_frame(kind, data, path, offset)?;
    let behind = data.len() - frame.frame_bytes;
    if behind > 0 {
        let end = offset + frame.frame_bytes as u64;
        return Err(damaged(
            path,
            end,
            format!("{behind} bytes behind a frame that ends here"),
        ));
    }
    Ok(frame.payload)
}

/// Reads the payload of the frame at `offset` of `disk`. The allocation is bounded by `payload_max` and by the disk's
/// length. `path` is for errors only.
///
/// # Errors
/// Errors of [`Disk::len`] and [`Disk::read_at`]; [`ErrorKind::Damaged`] where the disk ends early, the payload exceeds
/// `payload_max`, or magic, length, checksum or reserved bytes are wrong; [`ErrorKind::OtherVersion`] as for
/// [`decode_frame`].
pub fn read_frame(
    disk: &dyn Disk,
    kind: FrameKind,
    offset: u64,
    payload_max: u64,
    path: &str,
) -> Result<Vec<u8>> {
    let place = FramePlace { path, offset };
    let there = disk.len()?.saturating_sub(offset);
    if there < HEADER_BYTES as u64 {
        return Err(place.no_header(there));
    }
    let mut header = [0; HEADER_BYTES];
    disk.read_at(&mut header, offset)?;
    let payload_len = place.header(kind, &header, there, payload_max)?;
    let mut payload = vec![0; payload_len + TRAILER_BYTES];
    disk.read_at(&mut payload, offset + HEADER_BYTES as u64)?;
    let crc = split_crc(&payload).1;
    payload.truncate(payload_len);
    place.body(kind, &header, &payload, crc)?;
    Ok(payload)
}

/// CRC-64/NVME of `bytes`, the checksum of frames.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The error for bytes that are not what was written.
pub fn damaged(path: &str, offset: u64, what: String) -> Error {
    Error::damaged("read", path, offset, what)
}

/// The error for bytes with a right checksum that contain `found`, a flag or a value that no format of this version
/// has.
pub fn later_version(path: &str, offset: u64, found: &str) -> Error {
    let what =
        format!("made by a later version of onefold: {found}, which this version does not know");
    Error::new("read", path, ErrorKind::OtherVersion, what).at(offset)
}

/// Checks that a format's `version`, found under a right checksum, is `known`.
///
/// # Errors
/// [`ErrorKind::OtherVersion`] where it is not.
pub fn check_version(path: &str, offset: u64, version: u16, known: u16) -> Result<()> {
    if version > known {
        return Err(later_version(
            path,
            offset,
            &format!("format version {version}"),
        ));
    }
    if version < known {
        let what = format!(
            "made by an earlier version of onefold: format version {version}, which this version no longer reads"
        );
        return Err(Error::new("read", path, ErrorKind::OtherVersion, what).at(offset));
    }
    Ok(())
}

/// The place of a frame, for errors.
struct FramePlace<'a> {
    path: &'a str,
    offset: u64,
}

impl FramePlace<'_> {
    /// Checks magic and length; `there` bytes follow the frame's start. Returns the length of the payload.
    fn header(
        &self,
        kind: FrameKind,
        bytes: &[u8; HEADER_BYTES],
        there: u64,
        payload_max: u64,
    ) -> Result<usize> {
        if bytes[..8] != kind.magic {
            let (expected, found) = (kind.magic.escape_ascii(), bytes[..8].escape_ascii());
            return Err(self.damaged(format!("expected magic \"{expected}\", found \"{found}\"")));
        }
        let len = u64::from_le_bytes(bytes[16..].try_into().expect("eight of 24 bytes"));
        let fits = there
            .checked_sub(OVERHEAD_BYTES as u64)
            .map(|room| room.min(payload_max));
        match (fits, usize::try_from(len)) {
            (Some(max), Ok(payload_len)) if len <= max => Ok(payload_len),
            _ => {
                let max = fits.unwrap_or(0);
                Err(self.damaged(format!(
                    "expected a payload of at most {max} bytes, found a length of {len}"
                )))
            }
        }
    }

    /// Checks the checksum, then that the reserved bytes are zero, then version and flags.
    fn body(
        &self,
        kind: FrameKind,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        stored: u64,
    ) -> Result<()> {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(header);
        digest.update(payload);
        let found = digest.finalize();
        if found != stored {
            return Err(self.damaged(format!(
                "checksum: expected {stored:#018x}, found {found:#018x}"
            )));
        }
        if header[12..16] != [0; 4] {
            return Err(self.damaged(format!(
                "expected reserved bytes 0, found {:02x?}",
                &header[12..16]
            )));
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        check_version(self.path, self.offset, version, kind.version)?;
        match u16::from_le_bytes([header[10], header[11]]) {
            0 => Ok(()),
            flags => {
                let found = format!("format flags {flags:#06x}");
                Err(later_version(self.path, self.offset, &found))
            }
        }
    }

    fn no_header(&self, there: u64) -> Error {
        self.damaged(format!(
            "expected a frame header of {HEADER_BYTES} bytes, found {there} bytes"
        ))
    }

    fn damaged(&self, what: String) -> Error {
        damaged(self.path, self.offset, what)
    }
}

/// Splits the last eight bytes off, as a number. `bytes` must hold at least eight.
fn split_crc(bytes: &[u8]) -> (&[u8], u64) {
    let (payload, crc) = bytes
        .split_last_chunk::<TRAILER_BYTES>()
        .expect("the length was checked");
    (payload, u64::from_le_bytes(*crc))
}
