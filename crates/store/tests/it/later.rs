//! Objects of another version of the program are no damage: every command that meets them reports it, and neither a
//! repair nor a sweep touches them. Such an object in an impossible place is damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::frame::{HEADER_BYTES, TRAILER_BYTES, crc64};
use onefold_io::sim::SimDir;
use onefold_store::block::BLOCK_HEADER_BYTES;
use onefold_store::container::{HEADER_BYTES as CONTAINER_HEADER_BYTES, object_name};
use onefold_store::footer::FOOTER_BYTES;
use onefold_store::{ChunkRef, Encryption, Result, RootId, SessionKind};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, check, chunks, decode_root, init, open, sweep,
};

/// A repository with a root, containers of which some are unused, a sketch, and an empty list of the condemned.
fn stored(encryption: Encryption) -> (SimDir, Arc<dyn Dir>) {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, encryption).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    back_up(&repository, &chunks(1, 40)).unwrap();
    let (unused, _) = back_up(&repository, &chunks(2, 40)).unwrap();
    repository.remove_root(&unused).unwrap();
    repository.put_sketch(b"learnt").unwrap();
    let list = onefold_io::frame::encode_frame(onefold_store::condemned::CONDEMNED, &[]);
    put(
        &*dir.subdir("condemned").unwrap(),
        "0123456789abcdef",
        &list,
    );
    (device, dir)
}

fn put(folder: &dyn Dir, name: &str, bytes: &[u8]) {
    folder.create(name).unwrap().write_at(bytes, 0).unwrap();
}

/// Changes a byte of the header of the frame at `at`, and makes its checksum right again.
fn change(bytes: &mut [u8], at: usize, field: usize, value: u8) {
    bytes[at + field] = value;
    let len = bytes[at + 16..at + 24].try_into().expect("8 bytes");
    let end = at + HEADER_BYTES + u64::from_le_bytes(len) as usize;
    let sum = crc64(&bytes[at..end]).to_le_bytes();
    bytes[end..end + TRAILER_BYTES].copy_from_slice(&sum);
}

/// Gives a block a codec that nobody knows, and a checksum that is right for it.
fn set_codec(block: &mut [u8]) {
    block[8] = 2;
    let len = u32::from_le_bytes(block[16..20].try_into().expect("4 bytes")) as usize;
    let body = &block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + len];
    let sum = crc64(&block[..20]).rotate_left(17) ^ crc64(body);
    block[20..28].copy_from_slice(&sum.to_le_bytes());
}

const VERSION: usize = 8;
const FLAGS: usize = 10;

/// Everything but what any verb may make and remove: locks, pins, the index.
fn kept(device: &SimDir) -> BTreeMap<String, Vec<u8>> {
    let paths = device.paths().into_iter();
    let is_kept = |path: &String| {
        let passing = ["locks/", "sessions/", "index/", "scratch/"];
        !passing.iter().any(|folder| path.starts_with(folder))
    };
    paths
        .filter(is_kept)
        .map(|path| {
            let mut bytes = Vec::new();
            let copy = |found: &mut Vec<u8>| bytes.clone_from(found);
            device.damage(&path, copy).unwrap();
            (path, bytes)
        })
        .collect()
}

/// Which verbs go past it, and do the rest of their work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Past {
    None,
    Sweep,
    SweepAndRepair,
}

/// Every verb that meets it says what it is, and all stays as it was.
fn assert_left_alone(device: &SimDir, dir: &Arc<dyn Dir>, place: &str, past: Past) {
    let before = kept(device);
    let told = |what: &str, error: Option<onefold_store::Error>| {
        let error = error.unwrap_or_else(|| panic!("{place}: {what} goes on"));
        assert!(error.is_other_version(), "{place}, {what}: {error}");
        assert!(!error.is_loss(), "{place}, {what}: {error}");
        let words = "made by a later version of onefold";
        assert!(error.to_string().contains(words), "{place}: {error}");
    };
    let repository = match open(dir, 1, 3) {
        Ok(repository) => repository,
        refused => return told("open", refused.err()),
    };
    told(
        "check",
        check(&repository).map_or_else(Some, |report| {
            assert!(report.damage.is_empty(), "{place}: {:?}", report.damage);
            report.other_versions.into_iter().next()
        }),
    );
    match past {
        Past::SweepAndRepair => drop(repository.repair(&Lists, &mut Hasty).unwrap()),
        _ => told("repair", repository.repair(&Lists, &mut Hasty).err()),
    }
    match past {
        Past::None => told("sweep", sweep(&repository).err()),
        Past::Sweep => {}
        Past::SweepAndRepair => drop(sweep(&repository).unwrap()),
    }
    drop(repository);
    let after = kept(device);
    let is_left = match past {
        Past::SweepAndRepair => after.get(place) == before.get(place),
        _ => after == before,
    };
    assert!(is_left, "{place}: something was changed");
}

/// The paths that begin so.
fn below(device: &SimDir, folder: &str) -> Vec<String> {
    let paths = device.paths().into_iter();
    paths.filter(|path| path.starts_with(folder)).collect()
}

#[test]
fn what_a_later_version_made_is_told_as_that_and_left_alone() {
    for (field, value) in [(VERSION, 9), (FLAGS, 1), (FLAGS + 1, 0x80)] {
        for place in ["config", "config.copy", "keys/", "condemned", "sketch"] {
            let (device, dir) = stored(Encryption::Aes256Gcm);
            for path in below(&device, place) {
                let edit = |bytes: &mut Vec<u8>| {
                    change(bytes, 0, field, value);
                    if place.starts_with("config") || place == "keys/" {
                        let half = bytes.len() / 2;
                        change(bytes, half, field, value);
                    }
                };
                device.damage(&path, edit).unwrap();
            }
            let past = match place {
                "sketch" => Past::SweepAndRepair,
                "config.copy" => Past::Sweep,
                _ => Past::None,
            };
            assert_left_alone(&device, &dir, place, past);
        }
    }
}

#[test]
fn a_container_of_a_later_version_is_left_alone_used_or_not() {
    for (field, value) in [(VERSION, 2), (FLAGS, 1)] {
        for number in 0.. {
            let (device, dir) = stored(Encryption::None);
            let Some(path) = below(&device, "containers/").into_iter().nth(number) else {
                assert!(number > 2, "{number} containers");
                break;
            };
            let edit = |bytes: &mut Vec<u8>| {
                change(bytes, 0, field, value);
                let footer = bytes.len() - FOOTER_BYTES;
                change(bytes, footer, field, value);
            };
            device.damage(&path, edit).unwrap();
            assert_left_alone(&device, &dir, &path, Past::SweepAndRepair);
        }
    }
}

#[test]
fn a_codec_of_a_later_version_is_left_alone() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        let (device, dir) = stored(encryption);
        let (_, path) = references(&device, &dir);
        let edit = |bytes: &mut Vec<u8>| {
            set_codec(&mut bytes[CONTAINER_HEADER_BYTES..]);
        };
        device.damage(&path, edit).unwrap();
        assert_left_alone(&device, &dir, &path, Past::SweepAndRepair);
        // Further damage to such an object is no reason to change or delete it.
        let last = |bytes: &mut Vec<u8>| *bytes.last_mut().expect("not empty") ^= 1;
        device.damage(&path, last).unwrap();
        let repository = open(&dir, 1, 4).unwrap();
        let report = repository.repair(&Lists, &mut Hasty).unwrap();
        assert_eq!(report.set_aside.len(), 1, "{report:?}");
        let aside = format!("{path}{}", onefold_store::ASIDE_SUFFIX);
        assert!(device.paths().contains(&aside));
    }
}

/// Whoever can write to the storage can put one there: by its header it is one, or by its footer.
#[test]
fn a_container_of_a_later_version_hides_no_copy_of_a_chunk_in_another() {
    for by_header in [true, false] {
        let (device, dir) = stored(Encryption::Aes256Gcm);
        let (refs, path) = references(&device, &dir);
        let mut foreign = Vec::new();
        let copy = |bytes: &mut Vec<u8>| {
            let (header, footer) = (CONTAINER_HEADER_BYTES, bytes.len() - FOOTER_BYTES);
            foreign = if by_header {
                [&bytes[..header], &[7; 900]].concat()
            } else {
                [&[7; 900], &bytes[footer..]].concat()
            };
        };
        device.damage(&path, copy).unwrap();
        change(&mut foreign, if by_header { 0 } else { 900 }, VERSION, 9);
        let folder = dir.open_subdir("containers").unwrap();
        put(&*folder.subdir("11").unwrap(), "1122334455667788", &foreign);
        // Nothing but the tables tells where the chunks are.
        for path in below(&device, "index/") {
            device.lose(&path).unwrap();
        }
        let repository = open(&dir, 1, 6).unwrap();
        let session = repository.session(SessionKind::Read).unwrap();
        let mut reader = session.reader().unwrap();
        for (mut chunk, data) in refs.into_iter().zip(chunks(1, 40)) {
            chunk.container = onefold_store::ContainerId(5);
            assert!(reader.read(&chunk).unwrap()[..] == data[..], "{by_header}");
        }
    }
}

#[test]
fn a_block_of_a_later_version_hides_no_other_where_the_table_is_damaged() {
    let (device, dir) = stored(Encryption::Aes256Gcm);
    let (refs, path) = references(&device, &dir);
    let edit = |bytes: &mut Vec<u8>| {
        set_codec(&mut bytes[CONTAINER_HEADER_BYTES..]);
        *bytes.last_mut().expect("not empty") ^= 1;
    };
    device.damage(&path, edit).unwrap();
    let repository = open(&dir, 1, 6).unwrap();
    let session = repository.session(SessionKind::Read).unwrap();
    let mut reader = session.reader().unwrap();
    let own: Vec<_> = refs
        .iter()
        .filter(|chunk| chunk.container == refs[0].container)
        .collect();
    let came = own
        .iter()
        .filter(|chunk| reader.read(chunk).is_ok())
        .count();
    assert!(came > 0 && came < own.len(), "{came} of {}", own.len());
}

/// The only root.
fn root(device: &SimDir) -> (String, Vec<u8>) {
    let roots = kept(device).into_iter();
    let mut roots = roots.filter(|(path, _)| path.starts_with("snapshots/"));
    roots.next().expect("a root")
}

/// Returns the references of the only root, and the container of the first.
fn references(device: &SimDir, dir: &Arc<dyn Dir>) -> (Vec<ChunkRef>, String) {
    let (name, _) = root(device);
    let id = RootId::parse(&name["snapshots/".len()..]).expect("a root's name");
    let refs = decode_root(&open(dir, 1, 2).unwrap().root(&id).unwrap());
    let path = object_name(refs[0].container);
    (refs, path)
}

/// Puts a root's bytes under their own name.
fn put_root(dir: &Arc<dyn Dir>, bytes: &[u8]) -> RootId {
    let id = RootId(*blake3::hash(bytes).as_bytes());
    let folder = dir.open_subdir("snapshots").unwrap();
    put(&*folder, &id.to_string(), bytes);
    id
}

#[test]
fn a_root_of_a_later_version_is_left_alone() {
    for (field, value) in [(VERSION, 2), (FLAGS, 1)] {
        let (device, dir) = stored(Encryption::Aes256Gcm);
        let (path, mut bytes) = root(&device);
        device.lose(&path).unwrap();
        change(&mut bytes, 0, field, value);
        put_root(&dir, &bytes);
        assert_left_alone(&device, &dir, "root", Past::None);
    }
}

#[test]
fn without_the_key_no_root_can_be_copied_under_another_name() {
    let (device, dir) = stored(Encryption::Aes256Gcm);
    let (_, bytes) = root(&device);
    let repository = open(&dir, 1, 5).unwrap();
    let mut forged: Vec<Vec<u8>> = Vec::new();
    for (field, value) in [(VERSION, 2), (FLAGS, 1), (FLAGS + 1, 7), (12, 1), (15, 1)] {
        let mut copy = bytes.clone();
        change(&mut copy, 0, field, value);
        forged.push(copy);
    }
    forged.push([&bytes[..], b"\0"].concat());
    // A longer payload, with the right checksum.
    let mut longer = bytes[..bytes.len() - TRAILER_BYTES].to_vec();
    longer.extend_from_slice(&[0; 1 + TRAILER_BYTES]);
    let len = (longer.len() - HEADER_BYTES - TRAILER_BYTES) as u64;
    longer[16..24].copy_from_slice(&len.to_le_bytes());
    change(&mut longer, 0, 12, 0);
    forged.push(longer);
    for (number, copy) in forged.iter().enumerate() {
        let id = put_root(&dir, copy);
        assert!(repository.root(&id).is_err(), "forged copy {number}");
    }
}

#[test]
fn what_stands_behind_a_frame_that_must_end_is_damage_and_no_copy_is_given_up_for_it() {
    for place in ["config", "config.copy", "keys/", "condemned", "sketch"] {
        let (device, dir) = stored(Encryption::Aes256Gcm);
        let path = below(&device, place).remove(0);
        device.damage(&path, |bytes| bytes.push(0)).unwrap();
        let repository = open(&dir, 1, 3).unwrap();
        let damage = check(&repository).unwrap().damage;
        let is_named = damage.iter().any(|error| error.to_string().contains(&path));
        assert!(is_named && damage.len() == 1, "{place}: {damage:?}");
        let report = repository.repair(&Lists, &mut Hasty).unwrap();
        assert!(report.left.damage.is_empty(), "{place}: {report:?}");
    }
}

/// With checksums that are right for it.
#[test]
fn fields_of_a_container_that_say_nothing_or_say_it_twice_are_checked() -> Result<()> {
    let payload = HEADER_BYTES;
    // In the header the zeros; in the footer blocks, chunks and zeros.
    let places = [
        (true, payload + 15),
        (false, payload + 20),
        (false, payload + 24),
        (false, payload + 31),
    ];
    for (in_header, field) in places {
        let (device, dir) = stored(Encryption::None);
        let (root, _) = root(&device);
        let id = RootId::parse(&root["snapshots/".len()..]).expect("a root's name");
        let refs = decode_root(&open(&dir, 1, 2)?.root(&id)?);
        let path = object_name(refs[0].container);
        let edit = |bytes: &mut Vec<u8>| {
            let at = if in_header {
                0
            } else {
                bytes.len() - FOOTER_BYTES
            };
            let value = bytes[at + field] ^ 1;
            change(bytes, at, field, value);
        };
        device.damage(&path, edit)?;
        let repository = open(&dir, 1, 3)?;
        let damage = check(&repository)?.damage;
        let is_named = damage.iter().any(|error| error.to_string().contains(&path));
        assert!(is_named, "{field}: {damage:?}");
        repository.repair(&Lists, &mut Hasty)?;
        assert_sound(&repository, &[(id, chunks(1, 40))], &"repaired");
    }
    Ok(())
}
