//! A payload that is framed twice in one file, so that one damaged place leaves a whole copy: configurations and key
//! slots.

use super::{FrameKind, HEADER_BYTES, damaged, decode_frame, decode_whole, encode_frame};
use crate::{Error, ErrorKind, Result};

/// `payload` framed twice, one frame behind the other.
pub fn encode_twice(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    encode_frame(kind, payload).repeat(2)
}

/// What [`decode_twice`] found.
pub struct Twice<'a> {
    /// The payload of the first copy that is whole.
    pub payload: &'a [u8],
    /// The payload's offset in the file, in bytes.
    pub offset: u64,
    /// Why the other copy is not whole, where it is not.
    pub damage: Option<Error>,
}

/// The payload of either copy in the file `path`. Both are written at once, so a version that only one of them has is
/// damage.
///
/// # Errors
/// Of the first copy, of kind [`ErrorKind::Damaged`], where both are damaged; of kind [`ErrorKind::OtherVersion`] where
/// another version wrote both.
pub fn decode_twice<'a>(kind: FrameKind, bytes: &'a [u8], path: &str) -> Result<Twice<'a>> {
    let first = decode_frame(kind, bytes, path, 0);
    // The second copy begins behind the first, and reads whole whatever is wrong with that one.
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

/// Another version's mark in one copy alone is damage.
fn of_one_copy(mut error: Error) -> Error {
    if error.kind == ErrorKind::OtherVersion {
        error.kind = ErrorKind::Damaged;
    }
    error
}
