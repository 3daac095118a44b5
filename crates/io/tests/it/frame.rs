//! Frames: golden bytes, every check, and any bytes at all.

use onefold_io::{
    Disk, ErrorKind, MemDisk,
    frame::{
        FrameKind, OVERHEAD_BYTES, append_frame, crc64, decode_frame, encode_frame, read_frame,
        write_frame,
    },
};
use proptest::prelude::*;

const KIND: FrameKind = FrameKind {
    magic: *b"ofdemo\0\x01",
    version: 1,
};

/// The worked example of FORMAT.md §1.
const GOLDEN: &str =
    "6f6664656d6f0001 0100 0200 00000000 0500000000000000 68656c6c6f cbc4e21fc3b29b05";

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
    assert_eq!(encode_frame(KIND, 2, b"hello"), golden);
    let frame = decode_frame(KIND, &golden, "golden", 0).unwrap();
    assert_eq!((frame.flags, frame.payload), (2, &b"hello"[..]));
    assert_eq!(frame.frame_bytes, golden.len());
    let mut twice = golden.clone();
    append_frame(&mut twice, KIND, 2, b"hello");
    assert_eq!(twice, [golden.clone(), golden].concat());
}

#[test]
fn the_checksum_is_the_catalogued_crc_64_nvme() {
    assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
}

#[test]
fn frames_on_a_disk_follow_each_other() {
    let disk = MemDisk::new();
    let next = 3 + write_frame(&disk, KIND, 3, 0, b"one").unwrap();
    let end = next + write_frame(&disk, KIND, next, 9, b"").unwrap();
    let read = |at| read_frame(&disk, KIND, at, 100, "memory");
    assert_eq!(read(3).unwrap(), (0, b"one".to_vec()));
    assert_eq!(read(next).unwrap(), (9, Vec::new()));
    assert_eq!(read(end).unwrap_err().kind, ErrorKind::Damaged);
}

/// Puts `bytes` onto a disk at 10 and expects both readers to fail alike, with `what` in the message.
fn refused(bytes: &[u8], what: &str) {
    let disk = MemDisk::new();
    disk.write_at(bytes, 10).unwrap();
    let errors = [
        read_frame(&disk, KIND, 10, u64::MAX, "memory").unwrap_err(),
        decode_frame(KIND, bytes, "memory", 10).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind, error.offset), (ErrorKind::Damaged, Some(10)));
        assert!(
            error.to_string().contains(what),
            "{error} should say {what:?}"
        );
    }
}

#[test]
fn each_check_fails_in_its_turn_and_says_so() {
    let good = encode_frame(KIND, 0, b"hello");
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
    refused(&with(8, 2), "expected format version 1, found 2");
    refused(&with(8, 0), "expected format version 1, found 0");
    refused(
        &with(16, 6),
        "expected a payload of at most 5 bytes, found a length of 6",
    );
    refused(&with(23, 0xFF), "found a length of 18374686479671623685");
    refused(&good[..30], "found a length of 5");
    refused(&with(16, 4), "checksum: expected 0x");
    refused(&with(24, b'H'), "checksum");
    refused(&with(10, 1), "checksum");
    let mut reserved = with(12, 1);
    let at = reserved.len() - 8;
    let crc = crc64(&reserved[..at]);
    reserved[at..].copy_from_slice(&crc.to_le_bytes());
    refused(&reserved, "expected reserved bytes 0");
}

#[test]
fn a_payload_above_the_readers_limit_is_refused() {
    let disk = MemDisk::new();
    write_frame(&disk, KIND, 0, 0, b"hello").unwrap();
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
    fn payloads_come_back(payload in proptest::collection::vec(any::<u8>(), 0..300), flags in any::<u16>(), offset in 0..9000u64) {
        let disk = MemDisk::new();
        let len = write_frame(&disk, KIND, offset, flags, &payload).unwrap();
        prop_assert_eq!(len as usize, payload.len() + OVERHEAD_BYTES);
        prop_assert_eq!(read_frame(&disk, KIND, offset, 300, "memory").unwrap(), (flags, payload));
    }

    #[test]
    fn any_changed_bit_is_noticed(payload in proptest::collection::vec(any::<u8>(), 0..60), at in any::<proptest::sample::Index>(), bit in 0..8) {
        let mut bytes = encode_frame(KIND, 0, &payload);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(decode_frame(KIND, &bytes, "test", 0).is_err());
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), valid_start in any::<bool>()) {
        if valid_start && bytes.len() >= 10 {
            bytes[..10].copy_from_slice(&encode_frame(KIND, 0, b"")[..10]);
        }
        let disk = MemDisk::new();
        disk.write_at(&bytes, 0).unwrap();
        let from_disk = read_frame(&disk, KIND, 0, u64::MAX, "memory");
        let from_slice = decode_frame(KIND, &bytes, "memory", 0);
        prop_assert_eq!(
            from_disk.map_err(|e| e.to_string()),
            from_slice.map_err(|e| e.to_string()).map(|f| (f.flags, f.payload.to_vec()))
        );
    }
}
