//! Frames: golden bytes, every check, and any bytes at all.

use onefold_io::{
    Disk, ErrorKind, MemDisk,
    frame::{
        FrameKind, OVERHEAD_BYTES, append_frame, crc64, decode_frame, decode_whole, encode_frame,
        read_frame, write_frame,
    },
};
use proptest::prelude::*;

const KIND: FrameKind = FrameKind {
    magic: *b"ofdemo\0\x01",
    version: 1,
};

/// The worked example of FORMAT.md §1.
const GOLDEN: &str =
    "6f6664656d6f0001 0100 0000 00000000 0500000000000000 68656c6c6f 82b10a6fe7f4b1df";

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|b| *b != b' ')
        .map(|b| (b as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

#[test]
fn golden_bytes() {
    let golden = unhex(GOLDEN);
    assert_eq!(encode_frame(KIND, b"hello"), golden);
    let frame = decode_frame(KIND, &golden, "golden", 0).unwrap();
    assert_eq!(frame.payload, b"hello");
    assert_eq!(frame.frame_bytes, golden.len());
    let mut twice = golden.clone();
    append_frame(&mut twice, KIND, b"hello");
    assert_eq!(twice, [golden.clone(), golden].concat());
}

#[test]
fn the_checksum_is_the_catalogued_crc_64_nvme() {
    assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
}

#[test]
fn frames_on_a_disk_follow_each_other() {
    let disk = MemDisk::new();
    let next = 3 + write_frame(&disk, KIND, 3, b"one").unwrap();
    let end = next + write_frame(&disk, KIND, next, b"").unwrap();
    let read = |at| read_frame(&disk, KIND, at, 100, "memory");
    assert_eq!(read(3).unwrap(), b"one");
    assert_eq!(read(next).unwrap(), b"");
    assert_eq!(read(end).unwrap_err().kind, ErrorKind::Damaged);
}

/// Puts `bytes` onto a disk at 10 and expects the same failure of both readers, with `what` in the message.
fn refused(bytes: &[u8], what: &str) {
    refused_as(ErrorKind::Damaged, bytes, what);
}

fn refused_as(kind: ErrorKind, bytes: &[u8], what: &str) {
    let disk = MemDisk::new();
    disk.write_at(bytes, 10).unwrap();
    let errors = [
        read_frame(&disk, KIND, 10, u64::MAX, "memory").unwrap_err(),
        decode_frame(KIND, bytes, "memory", 10).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind, error.offset), (kind, Some(10)));
        assert!(
            error.to_string().contains(what),
            "{error} should say {what:?}"
        );
    }
}

#[test]
fn each_check_fails_in_its_turn_and_says_so() {
    let good = encode_frame(KIND, b"hello");
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    refused(
        &good[..20],
        "expected a frame header of 24 bytes, found 20 bytes",
    );
    refused(&with(0, b'x'), "expected magic \"ofdemo");
    refused(&with(8, 2), "checksum");
    refused(&with(8, 0), "checksum");
    refused(
        &with(16, 6),
        "expected a payload of at most 5 bytes, found a length of 6",
    );
    refused(&with(23, 0xFF), "found a length of 18374686479671623685");
    refused(&good[..30], "found a length of 5");
    refused(&with(16, 4), "checksum: expected 0x");
    refused(&with(24, b'H'), "checksum");
    refused(&with(10, 1), "checksum");
    refused(&checked(with(12, 1)), "expected reserved bytes 0");
}

/// The frame with its checksum corrected.
fn checked(mut frame: Vec<u8>) -> Vec<u8> {
    let at = frame.len() - 8;
    let crc = crc64(&frame[..at]);
    frame[at..].copy_from_slice(&crc.to_le_bytes());
    frame
}

#[test]
fn another_version_or_a_flag_under_a_right_checksum_is_no_damage() {
    let with = |at: usize, byte: u8| {
        let mut bytes = encode_frame(KIND, b"hello");
        bytes[at] = byte;
        checked(bytes)
    };
    let other = ErrorKind::OtherVersion;
    refused_as(
        other,
        &with(8, 2),
        "a later version of onefold: format version 2",
    );
    refused_as(
        other,
        &with(9, 1),
        "a later version of onefold: format version 257",
    );
    refused_as(
        other,
        &with(8, 0),
        "an earlier version of onefold: format version 0",
    );
    refused_as(
        other,
        &with(10, 1),
        "a later version of onefold: format flags 0x0001",
    );
    refused_as(
        other,
        &with(11, 0x80),
        "a later version of onefold: format flags 0x8000",
    );
}

#[test]
fn a_frame_that_must_end_has_no_byte_behind_it() {
    let mut bytes = encode_frame(KIND, b"hello");
    assert_eq!(decode_whole(KIND, &bytes, "x", 10).unwrap(), b"hello");
    bytes.push(0);
    let error = decode_whole(KIND, &bytes, "x", 10).unwrap_err();
    assert_eq!((error.kind, error.offset), (ErrorKind::Damaged, Some(47)));
    assert!(error.to_string().contains("1 bytes behind"), "{error}");
}

#[test]
fn a_payload_above_the_readers_limit_is_refused() {
    let disk = MemDisk::new();
    write_frame(&disk, KIND, 0, b"hello").unwrap();
    let error = read_frame(&disk, KIND, 0, 4, "memory").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("at most 4 bytes, found a length of 5"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn payloads_come_back(payload in proptest::collection::vec(any::<u8>(), 0..300), offset in 0..9000u64) {
        let disk = MemDisk::new();
        let len = write_frame(&disk, KIND, offset, &payload).unwrap();
        prop_assert_eq!(len as usize, payload.len() + OVERHEAD_BYTES);
        prop_assert_eq!(read_frame(&disk, KIND, offset, 300, "memory").unwrap(), payload);
    }

    #[test]
    fn any_changed_bit_is_noticed(payload in proptest::collection::vec(any::<u8>(), 0..60), at in any::<proptest::sample::Index>(), bit in 0..8) {
        let mut bytes = encode_frame(KIND, &payload);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(decode_frame(KIND, &bytes, "test", 0).is_err());
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), valid_start in any::<bool>()) {
        if valid_start && bytes.len() >= 10 {
            bytes[..10].copy_from_slice(&encode_frame(KIND, b"")[..10]);
        }
        let disk = MemDisk::new();
        disk.write_at(&bytes, 0).unwrap();
        let from_disk = read_frame(&disk, KIND, 0, u64::MAX, "memory");
        let from_slice = decode_frame(KIND, &bytes, "memory", 0);
        prop_assert_eq!(
            from_disk.map_err(|e| e.to_string()),
            from_slice.map_err(|e| e.to_string()).map(|f| f.payload.to_vec())
        );
    }
}
