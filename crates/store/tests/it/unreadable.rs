//! A device that does not give some of its bytes: whoever looks at all there is goes on with the rest, and no repair
//! makes the loss final.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::{Faults, SimDir, When};
use onefold_store::block::BLOCK_HEADER_BYTES;
use onefold_store::{ASIDE_SUFFIX, Encryption, Error, RootId, container};

use crate::fixture::{
    Hasty, Lists, assert_sound, back_up, check, chunks, containers, decode_root, open, restore,
    stored_with, sweep,
};

/// Number of a repair's reads of which each is made to fail in turn.
const READS: u64 = 40;

fn stored() -> (SimDir, RootId, Vec<Vec<u8>>) {
    stored_with(Encryption::Aes256Gcm)
}

/// Its length, untouched.
fn len(device: &SimDir, path: &str) -> u64 {
    let mut len = 0;
    device.damage(path, |bytes| len = bytes.len()).unwrap();
    len as u64
}

#[test]
fn a_region_is_named_and_costs_the_blocks_that_it_touches() {
    let (device, root, data) = stored();
    let container = containers(&device).remove(0);
    let middle = len(&device, &container) / 2;
    device.spoil(&container, middle..middle + 1).unwrap();
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let repository = open(&dir, 1, 2).unwrap();

    let found = check(&repository).unwrap();
    let named = |error: &Error| error.to_string().contains(&container);
    assert!(found.damage.iter().any(named), "{:?}", found.damage);

    let report = repository.repair(&Lists, &mut Hasty).unwrap();
    assert_eq!(report.set_aside.len(), 1);
    assert!(report.replaced_containers.is_empty());
    assert!(report.saved_chunks > 0 && (report.saved_chunks as usize) < data.len());
    let page = middle / 4096 * 4096;
    assert_eq!(
        report.found[0].to_string(),
        format!("{container} at offset {page}: 4096 bytes that the device does not give")
    );
    assert!(containers(&device).contains(&format!("{container}{ASIDE_SUFFIX}")));
    assert!(restore(&repository, &root).is_err());
    assert!(!report.left.hurt.is_empty());

    let again = repository.repair(&Lists, &mut Hasty).unwrap();
    assert!(again.found.is_empty(), "{:?}", again.found);
    let aside = format!("{container}{ASIDE_SUFFIX}");
    let [(still, why)] = &again.still_aside[..] else {
        panic!("{:?}", again.still_aside);
    };
    assert_eq!(still.object, aside);
    assert!(why.is_unreadable(), "{why}");

    // A check names it, beside what is lost by it; once the device gives it, a repair takes it back.
    device.heal();
    let set_aside = check(&repository).unwrap().set_aside;
    assert_eq!(set_aside, std::slice::from_ref(still));
    assert_eq!(set_aside[0].bytes, len(&device, &aside));
    let last = repository.repair(&Lists, &mut Hasty).unwrap();
    assert_eq!(last.taken_back, [report.set_aside[0].id]);
    assert!(last.still_aside.is_empty());
    assert!(last.left.set_aside.is_empty());
    assert_sound(&repository, &[(root, data)], &"taken back");
}

/// A container that was set aside, on a device that gives it again.
fn set_aside() -> (SimDir, String, RootId, Vec<Vec<u8>>) {
    let (device, root, data) = stored();
    let container = containers(&device).remove(0);
    device.spoil(&container, 100..101).unwrap();
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let repository = open(&dir, 1, 2).unwrap();
    let report = repository.repair(&Lists, &mut Hasty).unwrap();
    assert_eq!(report.set_aside.len(), 1);
    device.heal();
    (device, format!("{container}{ASIDE_SUFFIX}"), root, data)
}

#[test]
fn what_is_not_whole_or_has_no_name_to_take_stays_set_aside() {
    let (device, aside, ..) = set_aside();
    for (edit, why) in [
        (None, "the name is taken"),
        (Some(150), "checksum"),
        (Some(0), "magic"),
    ] {
        let image = device.fork();
        match edit {
            Some(at) => image.damage(&aside, |bytes| bytes[at] ^= 1).unwrap(),
            None => {
                let own = aside.strip_suffix(ASIDE_SUFFIX).unwrap();
                let (folder, name) = own.rsplit_once('/').unwrap();
                let folder = folder.rsplit_once('/').unwrap().1;
                let root: Arc<dyn Dir> = Arc::new(image.clone());
                let containers = root.open_subdir("containers").unwrap();
                let folder = containers.open_subdir(folder).unwrap();
                folder.create(name).unwrap();
                let mut whole = Vec::new();
                image
                    .damage(&aside, |bytes| whole.clone_from(bytes))
                    .unwrap();
                image.damage(own, |bytes| *bytes = whole).unwrap();
            }
        }
        let dir: Arc<dyn Dir> = Arc::new(image.clone());
        let repository = open(&dir, 1, 3).unwrap();
        let report = repository.repair(&Lists, &mut Hasty).unwrap();
        assert!(report.taken_back.is_empty());
        let told = report.still_aside[0].1.to_string();
        assert!(told.contains(why), "{why}: {told}");
        assert!(containers(&image).contains(&aside));
    }
}

/// A folder that lies there belongs to a user, and is no container.
#[test]
fn a_folder_that_was_set_aside_is_not_tried() {
    let (device, aside, ..) = set_aside();
    let (folder, name) = aside.rsplit_once('/').unwrap();
    let folder = folder.rsplit_once('/').unwrap().1;
    device.lose(&aside).unwrap();
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let containers = dir.open_subdir("containers").unwrap();
    let folder = containers.open_subdir(folder).unwrap();
    folder.subdir(name).unwrap();
    let repository = open(&dir, 1, 3).unwrap();
    assert!(check(&repository).unwrap().set_aside.is_empty());
    let report = repository.repair(&Lists, &mut Hasty).unwrap();
    assert!(report.still_aside.is_empty() && report.taken_back.is_empty());
}

#[test]
fn a_crash_while_it_is_taken_back_loses_nothing() {
    let (device, _, root, data) = set_aside();
    device.inject(Faults::default());
    let rehearsal = device.fork();
    let take_back = |device: &SimDir| {
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        open(&dir, 1, 3).and_then(|open| open.repair(&Lists, &mut Hasty))
    };
    assert_eq!(take_back(&rehearsal).unwrap().taken_back.len(), 1);
    let points = rehearsal.counts().points - device.counts().points;
    assert!(points > 0);
    for point in 0..points {
        let device = device.fork();
        device.inject(Faults {
            crash_at: Some(point),
            ..Faults::default()
        });
        let died = take_back(&device);
        assert!(died.is_err() || device.crashed(), "point {point}");
        let image = device.crash_image(point);
        let context = format!("crash at {point} of {points}");
        take_back(&image).unwrap_or_else(|error| panic!("{context}: {error}"));
        let dir: Arc<dyn Dir> = Arc::new(image.clone());
        let repository = open(&dir, 1, 4).unwrap();
        assert_sound(&repository, &[(root, data.clone())], &context);
        sweep(&repository).unwrap();
        assert_sound(&repository, &[(root, data.clone())], &context);
    }
}

/// The worst case: from some read on nothing comes any more, while writes succeed. When the device is well again, so is
/// the repository.
#[test]
fn a_repair_on_a_failing_device_loses_nothing() {
    let (device, root, data) = stored();
    let rehearsal = device.fork();
    let reads = |device: &SimDir| {
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        let repaired = open(&dir, 1, 3).and_then(|open| open.repair(&Lists, &mut Hasty));
        (repaired, device.counts().reads)
    };
    rehearsal.inject(Faults::default());
    let all = reads(&rehearsal).1;
    let mut were_set_aside = 0;
    for n in (0..all).step_by((all / READS).max(1) as usize) {
        for read_error in [When::From(n), When::Once(n)] {
            let context = format!("reads fail: {read_error:?} of {all}");
            let device = device.fork();
            device.inject(Faults {
                read_error,
                ..Faults::default()
            });
            let repaired = reads(&device).0;
            device.inject(Faults::default());
            were_set_aside += repaired.map_or(0, |report| report.set_aside.len());
            let dir: Arc<dyn Dir> = Arc::new(device.clone());
            take_back(&dir, &device);
            let repository = open(&dir, 1, 4).unwrap();
            repository
                .repair(&Lists, &mut Hasty)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_sound(&repository, &[(root, data.clone())], &context);
        }
    }
    assert!(were_set_aside > 0);
}

/// Header and footer tell the salt; without encryption, blocks need none.
#[test]
fn of_a_container_without_header_and_footer_all_is_saved_or_all_is_kept() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        let (device, root, data) = stored_with(encryption);
        let ends = |bytes: &mut Vec<u8>| {
            for at in [20, bytes.len() - 20] {
                bytes[at] ^= 1;
            }
        };
        for container in containers(&device) {
            device.damage(&container, ends).unwrap();
        }
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        let repository = open(&dir, 1, 2).unwrap();
        let report = repository.repair(&Lists, &mut Hasty).unwrap();
        if encryption != Encryption::None {
            assert_eq!(report.saved_chunks, 0);
            assert_eq!(report.set_aside.len(), report.found.len());
            for container in containers(&device) {
                device.damage(&container, ends).unwrap();
            }
            take_back(&dir, &device);
            repository.repair(&Lists, &mut Hasty).unwrap();
        }
        assert_sound(&repository, &[(root, data)], &"in the end");
    }
}

/// One that is worth rewriting stays as it is where it cannot be read; the others are swept.
#[test]
fn a_bad_block_keeps_a_sweep_from_no_other_container() {
    for is_spoilt in [true, false] {
        let (device, root, data) = stored();
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        let repository = open(&dir, 1, 2).unwrap();
        let dead = back_up(&repository, &chunks(2, 60)).unwrap().0;
        let half: Vec<_> = data.iter().step_by(2).cloned().collect();
        let kept = back_up(&repository, &half).unwrap().0;
        let bad = decode_root(&repository.root(&root).unwrap())[0].container;
        let bad = container::object_name(bad);
        // In its first block, of chunks that are referred to still.
        if is_spoilt {
            device.spoil(&bad, 100..101).unwrap()
        } else {
            device.damage(&bad, |bytes| bytes[100] ^= 1).unwrap()
        }
        for gone in [root, dead] {
            repository.remove_root(&gone).unwrap();
        }
        let report = sweep(&repository).unwrap();
        assert!(report.deleted_containers > 0, "{report:?}");
        assert!(report.unused_bytes_left > 0, "{report:?}");
        assert!(containers(&device).contains(&bad));
        if is_spoilt {
            device.heal();
            assert_sound(&repository, &[(kept, half)], &"read again");
        }
    }
}

/// All that is to be copied is read before any is written: what was copied of it would be there twice, and be removed
/// and copied again by each sweep.
#[test]
fn of_a_container_with_a_bad_block_at_its_end_no_sweep_copies_the_rest() {
    for is_spoilt in [true, false] {
        let (device, root, data) = stored();
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        let repository = open(&dir, 1, 2).unwrap();
        let refs = decode_root(&repository.root(&root).unwrap());
        let first = refs[0].container;
        let own = refs.iter().filter(|chunk| chunk.container == first).count();
        // The kept chunks are some of the container's first block and of its last, with few between.
        let mut kept = data[..own].to_vec();
        kept.drain(3..own - 3);
        back_up(&repository, &kept).unwrap();
        let bad = container::object_name(first);
        let mut at = 0;
        let find_last = |bytes: &mut Vec<u8>| {
            let block = bytes.windows(4).rposition(|four| four == b"1FB\n");
            at = block.unwrap() + BLOCK_HEADER_BYTES;
        };
        device.damage(&bad, find_last).unwrap();
        if is_spoilt {
            device.spoil(&bad, at as u64..at as u64 + 1).unwrap()
        } else {
            device.damage(&bad, |bytes| bytes[at] ^= 1).unwrap()
        }
        repository.remove_root(&root).unwrap();
        for _ in 0..2 {
            let report = sweep(&repository).unwrap();
            assert!(report.unused_bytes_left > 0, "{report:?}");
            assert_eq!(containers(&device), [&bad[..]]);
        }
    }
}

/// Renames containers that were set aside back, as a person does when the disk reads again.
pub fn take_back(dir: &Arc<dyn Dir>, device: &SimDir) {
    for path in containers(device) {
        let Some(name) = path.strip_suffix(ASIDE_SUFFIX) else {
            continue;
        };
        let (folder, name) = name.rsplit_once('/').unwrap();
        let folder = folder.rsplit_once('/').unwrap().1;
        let containers = dir.open_subdir("containers").unwrap();
        let folder = containers.open_subdir(folder).unwrap();
        let aside = format!("{name}{ASIDE_SUFFIX}");
        folder.rename(&aside, name).unwrap();
        folder.sync().unwrap();
    }
}
