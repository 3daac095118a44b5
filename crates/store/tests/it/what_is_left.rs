//! A damaged container gives all that its blocks hold, without a repair: one bad place costs no more than the block
//! that it is in.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::frame::{HEADER_BYTES as FRAME_HEADER_BYTES, crc64};
use onefold_io::sim::SimDir;
use onefold_store::block::BLOCK_HEADER_BYTES;
use onefold_store::container::{HEADER_BYTES, object_name};
use onefold_store::footer::FOOTER_BYTES;
use onefold_store::{CheckDepth, Encryption, Packing, Repository, RootId, SessionKind};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up_packed, check, chunks, containers, decode_root, init, open,
    restore, stored_with, sweep,
};

/// Opened by a process that cannot ask an index.
fn open_again(device: &SimDir) -> Repository {
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    open(&dir, 1, 9).unwrap()
}

/// How many chunks come one by one, and how many a container at a time.
fn readable(repository: &Repository, root: &RootId) -> (usize, usize) {
    let session = repository.session(SessionKind::Read).unwrap();
    let refs = decode_root(&repository.root(root).unwrap());
    let mut reader = session.reader().unwrap();
    let came = refs.iter().filter(|chunk| reader.read(chunk).is_ok());
    let one_by_one = came.count();
    let mut reader = session.reader().unwrap();
    let mut together = 0;
    for refs in refs.chunk_by(|a, b| a.container == b.container) {
        let wanted: Vec<_> = refs.iter().map(|chunk| chunk.fingerprint).collect();
        let mut visit = |_: &_, _: &[u8]| {
            together += 1;
            Ok(())
        };
        let _ = reader.read_container(refs[0].container, &wanted, &mut visit);
    }
    (one_by_one, together)
}

/// More than half of `all` chunks come, and not all; how many.
fn most_come(repository: &Repository, root: &RootId, all: usize) -> usize {
    let (one_by_one, together) = readable(repository, root);
    assert_eq!(one_by_one, together);
    assert!(one_by_one < all && one_by_one > all / 2, "{one_by_one}");
    one_by_one
}

/// Everything comes, and a check says that it is damaged and that nothing is lost.
fn assert_all_comes(device: &SimDir, root: &RootId, data: &[Vec<u8>], context: &str) {
    let repository = open_again(device);
    let found = restore(&repository, root).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(found == data, "{context}: other bytes");
    let came = readable(&repository, root);
    assert_eq!(came, (data.len(), data.len()), "{context}");
    let report = check(&open_again(device)).unwrap();
    let damaged = containers(device).len();
    assert_eq!(
        report.damage.len(),
        damaged,
        "{context}: {:?}",
        report.damage
    );
    assert_eq!(report.broken.len(), damaged, "{context}");
    assert_eq!(report.chunks_read, data.len() as u64, "{context}");
    let refs = decode_root(&repository.root(root).unwrap());
    let lost = refs.iter().filter(|chunk| report.hurt.hurts(chunk));
    assert_eq!(lost.count(), 0, "{context}");
    // Damaged containers are not rewritten, and not deleted.
    sweep(&repository).unwrap();
    assert_eq!(containers(device).len(), damaged, "{context}");
}

#[test]
fn a_bit_in_header_footer_or_table_costs_nothing() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        // From the end where it is below zero: the table lies before the footer.
        let table = -(FOOTER_BYTES as i64) - 40;
        let footer = -(FOOTER_BYTES as i64);
        let alone = [
            [0; 2],
            [30; 2],
            [50; 2],
            [63; 2],
            [table; 2],
            [footer; 2],
            [-50; 2],
            [-1; 2],
        ];
        let both = [[20, table], [table, -1]];
        for places in alone.into_iter().chain(both) {
            let (device, root, data) = stored_with(encryption);
            for path in containers(&device) {
                let edit = |bytes: &mut Vec<u8>| {
                    let len = bytes.len() as i64;
                    let at = places.map(|at| at.rem_euclid(len) as usize);
                    bytes[at[0]] ^= 4;
                    if at[1] != at[0] {
                        bytes[at[1]] ^= 4;
                    }
                };
                device.damage(&path, edit).unwrap();
            }
            let context = format!("{encryption:?}, {places:?}");
            assert_all_comes(&device, &root, &data, &context);
        }
    }
}

#[test]
fn a_sector_of_the_footer_that_the_device_does_not_give_costs_the_blocks_in_it_alone() {
    let (device, root, data) = stored_with(Encryption::Aes256Gcm);
    let paths = containers(&device);
    let mut last = 0;
    device
        .damage(&paths[0], |bytes| last = bytes.len() as u64 - 1)
        .unwrap();
    device.spoil(&paths[0], last..last + 1).unwrap();
    let repository = open_again(&device);
    most_come(&repository, &root, data.len());
    // Bytes that did not come are not lost: the device may give them the next time, to the same reader, too.
    let error = restore(&repository, &root).unwrap_err();
    assert!(error.is_unreadable(), "{error}");
    device.heal();
    assert_eq!(readable(&repository, &root), (data.len(), data.len()));
    assert!(restore(&repository, &root).unwrap() == data);
}

#[test]
fn a_check_of_the_structure_believes_no_damaged_container_unread() {
    let (device, root, data) = stored_with(Encryption::Aes256Gcm);
    let path = &containers(&device)[0];
    let edit = |bytes: &mut Vec<u8>| {
        bytes[30] ^= 1;
        bytes[HEADER_BYTES + BLOCK_HEADER_BYTES + 5] ^= 1;
    };
    device.damage(path, edit).unwrap();
    let repository = open_again(&device);
    let (depth, quiet) = (CheckDepth::Structure, &mut |_: &_| {});
    let report = repository.check(&Lists, depth, &mut |_| {}, quiet).unwrap();
    let refs = decode_root(&repository.root(&root).unwrap());
    let lost = refs.iter().filter(|chunk| report.hurt.hurts(chunk)).count();
    assert_eq!(lost, data.len() - readable(&repository, &root).0);
    assert!(lost > 0);
}

/// Chunks' contents are anybody's: what only looks like a block of a later version must not keep a repair off, nor let
/// it delete what it cannot read.
#[test]
fn a_chunk_that_looks_like_a_block_of_a_later_version_stops_no_repair() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    let body = b"from later times";
    let mut planted = b"1FB\n".to_vec();
    planted.extend_from_slice(&0u32.to_le_bytes());
    planted.extend_from_slice(&[2, 0, 0, 0]);
    planted.extend_from_slice(&900u32.to_le_bytes());
    planted.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let sum = crc64(&planted).rotate_left(17) ^ crc64(body);
    planted.extend_from_slice(&sum.to_le_bytes());
    planted.extend_from_slice(body);
    let mut data = chunks(1, 60);
    data.insert(3, planted);
    let repository = open(&dir, 1, 1).unwrap();
    let raw = |_: usize| Packing::AsIs;
    let root = back_up_packed(&repository, &data, &raw).unwrap().0;
    let planted = decode_root(&repository.root(&root).unwrap())[3];
    let path = &object_name(planted.container);
    drop(repository);
    // The block in which it lies, and the table, so that it is searched for.
    let edit = |bytes: &mut Vec<u8>| {
        bytes[HEADER_BYTES + BLOCK_HEADER_BYTES + 5] ^= 1;
        *bytes.last_mut().unwrap() ^= 1;
    };
    device.damage(path, edit).unwrap();
    let repository = open_again(&device);
    let lost = data.len() - readable(&repository, &root).0;
    assert!(lost > 0 && lost < data.len() / 2, "{lost}");
    let report = repository.repair(&Lists, &mut Hasty).unwrap();
    assert_eq!(report.set_aside.len(), 1, "{report:?}");
    assert!(report.replaced_containers.is_empty(), "{report:?}");
    let told = |error: &onefold_store::Error| error.to_string().contains("later version");
    assert!(report.found.iter().any(told), "{report:?}");
    assert_eq!(data.len() - readable(&open_again(&device), &root).0, lost);
}

#[test]
fn a_container_that_was_cut_short_gives_the_blocks_that_are_there() {
    let (device, root, data) = stored_with(Encryption::Aes256Gcm);
    let path = &containers(&device)[0];
    device
        .damage(path, |bytes| bytes.truncate(bytes.len() / 2))
        .unwrap();
    let repository = open_again(&device);
    let came = most_come(&repository, &root, data.len());
    let error = restore(&repository, &root).unwrap_err();
    assert!(error.is_damage(), "{error}");
    let report = check(&repository).unwrap();
    let refs = decode_root(&repository.root(&root).unwrap());
    let lost = refs.iter().filter(|chunk| report.hurt.hurts(chunk)).count();
    assert_eq!(lost, data.len() - came);
}

/// By somebody who makes checksums right again, or by bits that no checksum sees.
#[test]
fn of_two_salts_the_one_counts_that_opens() {
    for (in_header, with_table) in [(true, true), (false, true), (true, false), (false, false)] {
        let (device, root, data) = stored_with(Encryption::Aes256Gcm);
        for path in containers(&device) {
            let edit = |bytes: &mut Vec<u8>| {
                let footer = bytes.len() - FOOTER_BYTES;
                let (from, to) = if in_header {
                    (0, HEADER_BYTES)
                } else {
                    (footer, bytes.len())
                };
                // The salt is the last of the payload.
                bytes[to - 20] ^= 1;
                let sum = crc64(&bytes[from..to - 8]);
                bytes[to - 8..to].copy_from_slice(&sum.to_le_bytes());
                if !with_table {
                    bytes[footer - FRAME_HEADER_BYTES] ^= 1;
                }
            };
            device.damage(&path, edit).unwrap();
        }
        let context = format!("in the header: {in_header}, with a table: {with_table}");
        assert_all_comes(&device, &root, &data, &context);
        let repository = open_again(&device);
        repository.repair(&Lists, &mut Hasty).unwrap();
        assert_sound(&repository, &[(root, data)], &context);
    }
}
