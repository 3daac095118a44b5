//! Key slots of which one is damaged: the others are listed, and open; and the last that does stays.

use std::sync::Arc;

use onefold_io::sim::SimDir;
use onefold_io::{Dir, LockKind};
use onefold_store::config::{decode_twice, encode_twice};
use onefold_store::slots::SLOT;
use onefold_store::{Encryption, Error, KdfCost, KeyInfo, Secret};

use crate::fixture::{
    Hasty, Lists, check, containers, init, init_seeded, open, restore, secret, stored_with,
};

#[test]
fn a_damaged_key_hides_no_others_and_the_last_good_one_stays() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let damaged = repository.keys().unwrap().remove(0).id;
    let good = repository
        .add_key(&secret(), "test", KdfCost::LEAST, 2)
        .unwrap();
    device
        .damage(&format!("keys/{damaged}"), |bytes| bytes.fill(7))
        .unwrap();
    let repository = open(&dir, 1, 2).unwrap();
    let listed = repository.keys().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, good);
    let refused = repository.remove_key(&good).err();
    assert!(matches!(refused, Some(Error::Option(_))), "{refused:?}");
    repository.remove_key(&damaged).unwrap();
    open(&dir, 1, 3).unwrap();
}

/// The key may have been made for a machine with more memory; here it asks for no lanes at all.
#[test]
fn a_key_that_cannot_be_derived_keeps_no_other_from_opening() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    repository
        .add_key(&secret(), "test", KdfCost::LEAST, 2)
        .unwrap();
    // the one that is tried first
    let first = repository.keys().unwrap().remove(0).id;
    let no_lanes = |bytes: &mut Vec<u8>| {
        let mut payload = decode_twice(SLOT, bytes, "slot").unwrap().payload.to_vec();
        payload[8..12].fill(0);
        *bytes = encode_twice(SLOT, &payload);
    };
    device.damage(&format!("keys/{first}"), no_lanes).unwrap();
    open(&dir, 1, 2).unwrap();
}

#[test]
fn a_repair_restores_no_key_that_is_just_being_removed() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let locks = dir.subdir("locks").unwrap();
    let removing = locks.lock("keys", LockKind::Exclusive).unwrap();
    let refused = repository.repair(&Lists, &mut Hasty).err();
    assert!(matches!(refused, Some(Error::Locked { .. })), "{refused:?}");
    drop(removing);
    repository.repair(&Lists, &mut Hasty).unwrap();
}

/// A desktop or a synchronizing program leaves such files.
#[test]
fn a_file_that_is_no_key_is_nobodys_damage_and_a_damaged_key_can_be_removed() {
    let dir: Arc<dyn Dir> = Arc::new(onefold_io::MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let keys = dir.open_subdir("keys").unwrap();
    for name in [
        ".DS_Store",
        "0123456789abcdef~",
        "backup",
        "0123456789ABCDEF",
    ] {
        keys.create(name).unwrap();
    }
    let repository = open(&dir, 1, 1).unwrap();
    assert_eq!(repository.key_names().unwrap().len(), 1);
    assert!(check(&repository).unwrap().damage.is_empty());
    let torn = "0123456789abcdef";
    keys.create(torn).unwrap().write_at(b"1FKEYSLT", 0).unwrap();
    let damage = check(&repository).unwrap().damage;
    assert!(
        damage.len() == 1 && damage[0].to_string().contains(torn),
        "{damage:?}"
    );
    repository.remove_key(torn).unwrap();
    assert!(check(&repository).unwrap().damage.is_empty());
    assert!(repository.remove_key(".DS_Store").is_err());
}

/// The same password opens both; which is tried first, their names decide.
#[test]
fn a_key_of_another_repository_keeps_nobody_out_and_is_told_where_no_other_opens() {
    let (device, other) = (SimDir::new(1), SimDir::new(2));
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    init_seeded(&(Arc::new(other.clone()) as Arc<dyn Dir>), 8);
    let theirs = other
        .paths()
        .into_iter()
        .find(|path| path.starts_with("keys/"));
    let mut bytes = Vec::new();
    other
        .damage(&theirs.expect("a slot"), |slot| bytes.clone_from(slot))
        .unwrap();
    let keys = dir.open_subdir("keys").unwrap();
    let own = keys.list().unwrap().remove(0).name;
    for name in ["0000000000000000", "ffffffffffffffff"] {
        let slot = keys.create(name).unwrap();
        slot.write_at(&bytes, 0).unwrap();
    }
    open(&dir, 1, 1).unwrap();
    keys.remove(&own).unwrap();
    let told = open(&dir, 1, 2).err().expect("it is not this one's");
    assert!(told.is_damage(), "{told}");
    assert!(told.to_string().contains("keys/ffffffffffffffff"), "{told}");
}

/// Its frames are made right again: whoever can write to the storage can do that.
#[test]
fn a_key_whose_label_date_or_cost_somebody_forged_is_told_and_shown_as_that() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let own = repository.current_key().unwrap().to_owned();
    let other = Secret::new("another");
    let id = repository
        .add_key(&other, "host", KdfCost::LEAST, 5)
        .unwrap();
    assert_eq!(repository.keys().unwrap().len(), 2);
    // Offsets of memory, passes, lanes, salt, date and label.
    for at in [1, 4, 8, 12, 28, 37] {
        let device = device.fork();
        let path = format!("keys/{id}");
        let forge = |bytes: &mut Vec<u8>| {
            let mut payload = decode_twice(SLOT, bytes, "slot").unwrap().payload.to_vec();
            payload[at] ^= 2;
            *bytes = encode_twice(SLOT, &payload);
        };
        device.damage(&path, forge).unwrap();
        let repository = open(&(Arc::new(device.clone()) as Arc<dyn Dir>), 1, 2).unwrap();
        let keys = repository.keys().unwrap();
        let told = |key: &KeyInfo| key.is_proved == (key.id == own);
        assert!(keys.iter().all(told), "byte {at}: {keys:?}");
        // Lanes for which the memory is too little are damage.
        assert_eq!(keys.len(), if at == 8 { 1 } else { 2 }, "byte {at}");
        let last = repository.remove_key(&own);
        assert!(last.is_err(), "byte {at}: the last key that is proved");
        let damage = check(&repository).unwrap().damage;
        let is_named = damage.len() == 1 && damage[0].to_string().contains(&path);
        assert!(is_named, "byte {at}: {damage:?}");
        repository.remove_key(&id).unwrap();
        assert!(check(&repository).unwrap().damage.is_empty());
    }
}

#[test]
fn a_key_that_asks_for_less_than_the_algorithm_takes_is_damage_and_named() {
    for number in [0..4, 4..8, 8..12] {
        let device = SimDir::new(1);
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        init(&dir, Encryption::Aes256Gcm).unwrap();
        let mut slots = device.paths().into_iter();
        let slot = slots.find(|path| path.starts_with("keys/"));
        let slot = slot.expect("one");
        let none = |bytes: &mut Vec<u8>| {
            let mut payload = decode_twice(SLOT, bytes, "slot").unwrap().payload.to_vec();
            payload[number].fill(0);
            *bytes = encode_twice(SLOT, &payload);
        };
        device.damage(&slot, none).unwrap();
        let told = open(&dir, 1, 2).err().expect("it cannot be derived");
        assert!(told.is_damage(), "{told:?}");
        assert!(told.to_string().contains(&slot), "{told}");
    }
}

/// As after a copy to the wrong place, or half of one. With the right files back, all is there.
#[test]
fn a_repair_with_the_key_of_another_repository_touches_no_container() {
    let (device, root, data) = stored_with(Encryption::Aes256Gcm);
    let other = SimDir::new(2);
    init_seeded(&(Arc::new(other.clone()) as Arc<dyn Dir>), 99);
    let files = |device: &SimDir| -> Vec<(String, Vec<u8>)> {
        let is_of_key = |path: &String| path.starts_with("config") || path.starts_with("keys/");
        let read = |path: String| {
            let mut bytes = Vec::new();
            device.damage(&path, |all| bytes.clone_from(all)).unwrap();
            (path, bytes)
        };
        device
            .paths()
            .into_iter()
            .filter(is_of_key)
            .map(read)
            .collect()
    };
    let put = |files: &[(String, Vec<u8>)]| {
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        let keys = dir.open_subdir("keys").unwrap();
        for entry in keys.list().unwrap() {
            keys.remove(&entry.name).unwrap();
        }
        for (path, bytes) in files {
            let (dir, name) = match path.split_once('/') {
                Some((_, name)) => (&keys, name),
                None => (&dir, &path[..]),
            };
            let _ = dir.remove(name);
            dir.create(name).unwrap().write_at(bytes, 0).unwrap();
        }
    };
    let own = files(&device);
    put(&files(&other));
    let before = containers(&device);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    let told = open(&dir, 1, 7)
        .and_then(|repository| repository.repair(&Lists, &mut Hasty))
        .unwrap_err();
    assert!(told.to_string().contains("those of another"), "{told}");
    assert_eq!(containers(&device), before);
    put(&own);
    assert!(restore(&open(&dir, 1, 8).unwrap(), &root).unwrap() == data);
}
