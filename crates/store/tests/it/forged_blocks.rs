//! Blocks put where others belong by somebody who knows the format and makes every checksum right again.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::count::{CountedDir, Counters};
use onefold_io::frame::crc64;
use onefold_io::sim::SimDir;
use onefold_store::block::BLOCK_HEADER_BYTES;
use onefold_store::container::HEADER_BYTES;
use onefold_store::{ASIDE_SUFFIX, Encryption, Repository};

use crate::fixture::{Hasty, Lists, back_up, check, decode_root, init, open, restore};

/// Chunks of one length that nothing compresses, so that all blocks are equally long.
fn alike(seed: u64, count: u64) -> Vec<Vec<u8>> {
    let one = |i: u64| {
        let mut out = vec![0; 1000];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&i.to_le_bytes());
        hasher.finalize_xof().fill(&mut out);
        out
    };
    (0..count).map(one).collect()
}

/// Where the blocks of a container lie.
fn blocks(container: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), HEADER_BYTES);
    while container[at..].starts_with(b"1FB\n") {
        let len = container[at + 16..at + 20].try_into().expect("4 bytes");
        let end = at + BLOCK_HEADER_BYTES + u32::from_le_bytes(len) as usize;
        found.push(at..end);
        at = end;
    }
    found
}

/// Puts `block` where another is, with that one's number and a good checksum.
fn put(container: &mut [u8], at: &Range<usize>, block: &[u8]) {
    assert_eq!(at.len(), block.len());
    let place = &mut container[at.clone()];
    let number: [u8; 4] = place[4..8].try_into().expect("4 bytes");
    place.copy_from_slice(block);
    place[4..8].copy_from_slice(&number);
    let sum = crc64(&place[..20]).rotate_left(17) ^ crc64(&place[BLOCK_HEADER_BYTES..]);
    place[20..BLOCK_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Says of a block's chunks that they are longer, with a good checksum.
fn lengthen(container: &mut [u8], at: &Range<usize>) {
    let place = &mut container[at.clone()];
    // Raw bytes, so its trailer stands at the end: the lengths, then how many bytes they are.
    let len = place.len();
    place[len - 4..].fill(0xff);
    let sum = crc64(&place[..20]).rotate_left(17) ^ crc64(&place[BLOCK_HEADER_BYTES..]);
    place[20..BLOCK_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn containers(device: &SimDir) -> Vec<String> {
    let paths = device.paths().into_iter();
    let is_container = |path: &String| path.starts_with("containers/") && path.len() > 14;
    paths.filter(is_container).collect()
}

fn bytes_of(device: &SimDir, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    device
        .damage(path, |found| bytes.clone_from(found))
        .unwrap();
    bytes
}

/// Neither of the data nor of what is in its place is anything given out; a check names the container.
fn assert_refused(repository: &Repository, root: &onefold_store::RootId, path: &str) {
    let restored = restore(repository, root);
    assert!(restored.is_err_and(|error| error.is_damage()));
    let damage = check(repository).unwrap().damage;
    let name = path.rsplit('/').next().expect("a name");
    let is_named = damage.iter().any(|error| error.to_string().contains(name));
    assert!(is_named, "{damage:?}");
}

#[test]
fn a_block_in_the_place_of_another_is_damage_though_every_checksum_is_right() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let device = SimDir::new(1);
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        init(&dir, encryption).unwrap();
        let repository = open(&dir, 1, 1).unwrap();
        let (root, _) = back_up(&repository, &alike(1, 40)).unwrap();
        let refs = decode_root(&repository.root(&root).unwrap());
        let ids: std::collections::BTreeSet<_> = refs.iter().map(|r| r.container).collect();
        assert!(ids.len() > 1, "several containers");
        drop(repository);
        let paths = containers(&device);
        let (here, there) = (bytes_of(&device, &paths[0]), bytes_of(&device, &paths[1]));
        let places = blocks(&here);
        let others = [
            ("of the same container", &here[places[1].clone()]),
            ("of another container", &there[blocks(&there)[0].clone()]),
        ];
        for (which, other) in others {
            println!("{encryption:?}: a block {which}");
            let image = device.crash_image(1);
            image
                .damage(&paths[0], |bytes| put(bytes, &places[0], other))
                .unwrap();
            let dir: Arc<dyn Dir> = Arc::new(image);
            let repository = open(&dir, 1, 2).unwrap();
            assert_refused(&repository, &root, &paths[0]);
        }
        // Rightly put, a block is right: the tool that forges does not fail for another reason.
        let image = device.crash_image(1);
        image
            .damage(&paths[0], |bytes| {
                put(bytes, &places[0], &here[places[0].clone()])
            })
            .unwrap();
        let dir: Arc<dyn Dir> = Arc::new(image);
        let repository = open(&dir, 1, 2).unwrap();
        assert!(check(&repository).unwrap().damage.is_empty());
        assert_eq!(restore(&repository, &root).unwrap(), alike(1, 40));
    }
}

/// Says of a block that it holds more than any may, with a good checksum.
fn overstate(container: &mut [u8], at: &Range<usize>) {
    let place = &mut container[at.clone()];
    let most = onefold_store::block::BLOCK_RAW_BYTES_MAX as u32;
    place[12..16].copy_from_slice(&(most + 1).to_le_bytes());
    let sum = crc64(&place[..20]).rotate_left(17) ^ crc64(&place[BLOCK_HEADER_BYTES..]);
    place[20..BLOCK_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Its checksum says that it was stored so: whoever can read it may come yet.
#[test]
fn a_repair_goes_on_past_a_block_that_cannot_be_and_deletes_it_not() {
    for forge in [lengthen, overstate] {
        let device = SimDir::new(1);
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        init(&dir, Encryption::None).unwrap();
        let repository = open(&dir, 1, 1).unwrap();
        back_up(&repository, &alike(1, 40)).unwrap();
        let path = containers(&device).remove(0);
        let places = blocks(&bytes_of(&device, &path));
        assert!(places.len() > 2);
        device
            .damage(&path, |bytes| {
                forge(bytes, &places[0]);
                // The rest of it is looked through only where something else is wrong, too.
                bytes[places[1].end - 1] ^= 1;
            })
            .unwrap();
        let report = repository.repair(&Lists, &mut Hasty).unwrap();
        assert!(report.saved_chunks > 0);
        assert_eq!(report.replaced_containers.len(), 0);
        assert_eq!(report.set_aside.len(), 1);
        let aside = format!("{path}{ASIDE_SUFFIX}");
        assert!(containers(&device).contains(&aside), "{aside}");
    }
}

/// Each header is a good one, as far as it goes, and says that its block goes on to the end.
#[test]
fn a_repair_gives_up_a_container_in_which_blocks_seem_to_begin_everywhere() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    back_up(&open(&dir, 1, 1).unwrap(), &alike(1, 4)).unwrap();
    let path = containers(&device).remove(0);
    let headers = 6000;
    device
        .damage(&path, |bytes| {
            bytes.truncate(HEADER_BYTES);
            for left in (0..headers).rev() {
                let body = left * BLOCK_HEADER_BYTES as u32;
                let mut header = [0; BLOCK_HEADER_BYTES];
                header[..4].copy_from_slice(b"1FB\n");
                header[12..16].copy_from_slice(&body.to_le_bytes());
                header[16..20].copy_from_slice(&body.to_le_bytes());
                bytes.extend_from_slice(&header);
            }
        })
        .unwrap();
    let counters = Counters::new();
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(dir, counters.clone()));
    let repository = open(&counted, 1, 2).unwrap();
    let before = counters.counts();
    let report = repository.repair(&Lists, &mut Hasty).unwrap();
    let read = (counters.counts() - before).read_bytes;
    let len = u64::from(headers) * BLOCK_HEADER_BYTES as u64;
    assert!(read < 100 * len, "{read} bytes of a container of {len}");
    assert_eq!(report.set_aside.len(), 1);
    let told: Vec<_> = report.found.iter().map(ToString::to_string).collect();
    assert!(
        told.iter()
            .any(|told| told.contains("not searched to its end")),
        "{told:?}"
    );
}
