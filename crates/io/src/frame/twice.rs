//! A payload framed twice in one file, so that damage in one place leaves a whole copy: used for configurations and key
//! slots.

use super::{FrameKind, HEADER_BYTES, damaged, decode_frame, decode_whole, encode_frame};
use crate::{Error, ErrorKind, Result};

/// Encodes `payload` in two equal frames, one behind the other.
pub fn encode_twice(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    encode_frame(kind, payload).repeat(2)
}

/// The result of [`decode_twice`].
pub struct Twice<'a> {
    /// Payload of the first whole copy.
    pub payload: &'a [u8],
    /// Offset of the payload in the file, in bytes.
    pub offset: u64,
    /// The error of the other copy, if that is damaged.
    pub damage: Option<Error>,
}

/// Decodes either copy in the file `path`. Both are written at once, so another version's mark in one of them alone is
/// damage.
///
/// # Errors
/// The error of the first copy: [`ErrorKind::Damaged`] where both are damaged, [`ErrorKind::OtherVersion`] where
/// another version wrote both.
pub fn decode_twice<'a>(kind: FrameKind, bytes: &'a [u8], path: &str) -> Result<Twice<'a>> {
    let first = decode_frame(kind, bytes, path, 0);
    // The second copy begins behind the first, and must be found even where the first is damaged.
    let half = match &first {
        Ok(first) => first.frame_bytes,
        Err(_) => bytes.len() / 2,
    };
    let second = decode_whole(kind, &bytes[half..], path, half as u64);
    let differ = || damaged(path, half as u64, "the two copies differ".into());
    let header = HEADER_BYTES as u64;
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(Twice {
            payload: first.payload,
            offset: header,
            damage: (first.payload != second).then(differ),
        }),
        (Ok(first), Err(error)) => Ok(Twice {
            payload: first.payload,
            offset: header,
            damage: Some(of_one_copy(error)),
        }),
        (Err(error), Ok(payload)) => Ok(Twice {
            payload,
            offset: half as u64 + header,
            damage: Some(of_one_copy(error)),
        }),
        (Err(_), Err(error)) if error.kind == ErrorKind::OtherVersion => Err(error),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Turns another version's mark in one copy alone into damage.
fn of_one_copy(mut error: Error) -> Error {
    if error.kind == ErrorKind::OtherVersion {
        error.kind = ErrorKind::Damaged;
    }
    error
}
