//! Frames and numbers.

use onefold_io::frame::{FrameKind, decode_frame, encode_frame, read_frame};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};
use onefold_io::{Disk, MemDisk};

use super::{Reach, Target};
use crate::mend;

const KIND: FrameKind = FrameKind {
    magic: *b"ONFuzz\0\0",
    version: 1,
};

pub fn targets() -> Vec<Target> {
    let frame = encode_frame(KIND, b"payload");
    let mut numbers = Vec::new();
    [0, 127, 128, 1 << 40, u64::MAX]
        .into_iter()
        .for_each(|value| put_varint(&mut numbers, value));
    put_bytes(&mut numbers, b"bytes");
    vec![
        Target::new("io/frame", vec![frame.clone()], |bytes| {
            let decoded = decode_frame(KIND, bytes, "fuzz", 0);
            if let Ok(frame) = decoded {
                assert!(frame.frame_bytes <= bytes.len());
            }
            Reach::of(&decoded)
        })
        .mended(mend::frame),
        Target::new("io/frame-of-disk", vec![frame], |bytes| {
            let disk = MemDisk::new();
            disk.write_at(bytes, 0).expect("RAM");
            Reach::of(&read_frame(&disk, KIND, 0, u64::MAX, "fuzz"))
        })
        .mended(mend::frame),
        Target::new("io/varint", vec![numbers], |bytes| {
            let mut reader = ByteReader::new(bytes, "fuzz", 0);
            while reader.varint().is_ok() {}
            let _ = reader.bytes();
            let mut reader = ByteReader::new(bytes, "fuzz", 0);
            while reader.bytes().is_ok() {}
            let _ = reader.count(3);
            let _ = reader.u64();
        }),
    ]
}
