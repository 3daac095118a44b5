//! The configuration and its copy: missing, damaged, changed by somebody, or another repository's.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::config::{CONFIG, decode_twice, encode_twice};
use onefold_store::{Encryption, Error, OpenOptions, Repository, RepositoryConfig, Secret};

use crate::fixture::{back_up, check, chunks, init, init_seeded, open, secret};

fn made() -> (SimDir, Arc<dyn Dir>) {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    (device, dir)
}

#[test]
fn there_is_no_repository_only_where_both_copies_are_missing() {
    let told = |dir: &Arc<dyn Dir>| Repository::config_at(dir).unwrap_err();
    let (device, dir) = made();
    device.lose("config").unwrap();
    device.damage("config.copy", |bytes| bytes.fill(7)).unwrap();
    let damaged = told(&dir);
    assert!(damaged.is_damage() && !matches!(damaged, Error::NoRepository { .. }));
    assert!(damaged.to_string().contains("config.copy"), "{damaged}");
    device.spoil("config.copy", 0..1).unwrap();
    assert!(told(&dir).is_unreadable());
    device.lose("config.copy").unwrap();
    assert!(matches!(told(&dir), Error::NoRepository { .. }));
}

#[test]
fn a_copy_that_is_another_repositorys_is_damage() {
    let (device, dir) = made();
    let other = SimDir::new(2);
    init_seeded(&(Arc::new(other.clone()) as Arc<dyn Dir>), 8);
    let mut theirs = Vec::new();
    other
        .damage("config.copy", |bytes| theirs.clone_from(bytes))
        .unwrap();
    device
        .damage("config.copy", |bytes| *bytes = theirs)
        .unwrap();
    let damage = check(&open(&dir, 1, 1).unwrap()).unwrap().damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].to_string().contains("config.copy"), "{damage:?}");
}

/// Whoever can write to the storage rewrites both copies, with good checksums.
#[test]
fn encryption_cannot_be_switched_off_beside_key_slots() {
    let (device, dir) = made();
    back_up(&open(&dir, 1, 1).unwrap(), &chunks(1, 20)).unwrap();
    let switch_off = |bytes: &mut Vec<u8>| {
        let twice = decode_twice(CONFIG, bytes, "config").unwrap();
        let mut config = RepositoryConfig::decode(twice.payload, "config", twice.offset).unwrap();
        config.encryption = Encryption::None;
        *bytes = encode_twice(CONFIG, &config.encode());
    };
    for name in ["config", "config.copy"] {
        device.damage(name, switch_off).unwrap();
    }
    let told = open(&dir, 1, 2).err().expect("refused");
    assert!(
        told.is_damage() && told.to_string().contains("key slots"),
        "{told}"
    );
}

/// The password would count for nothing, and stored data would be in the clear.
#[test]
fn a_password_where_nothing_is_encrypted_is_refused() {
    let dir: Arc<dyn Dir> = Arc::new(SimDir::new(1));
    init(&dir, Encryption::None).unwrap();
    let secret = Secret::new("open sesame");
    let opened = |secret| Repository::open(Arc::clone(&dir), OpenOptions::default(), secret);
    assert!(matches!(opened(Some(&secret)), Err(Error::Option(_))));
    assert!(opened(None).is_ok());
}

#[test]
fn what_is_opened_is_the_configuration_that_was_agreed_on() {
    let (device, dir) = made();
    let agreed = Repository::config_at(&dir).unwrap();
    let plain = SimDir::new(2);
    init(&(Arc::new(plain.clone()) as Arc<dyn Dir>), Encryption::None).unwrap();
    for name in ["config", "config.copy"] {
        let mut theirs = Vec::new();
        plain
            .damage(name, |bytes| theirs.clone_from(bytes))
            .unwrap();
        device.damage(name, |bytes| *bytes = theirs).unwrap();
    }
    let options = OpenOptions::default();
    let opened = Repository::open_agreed(dir, agreed.clone(), options, Some(&secret())).unwrap();
    assert_eq!(*opened.config(), agreed);
    assert!(check(&opened).unwrap().damage.len() == 2);
}

#[test]
fn what_means_nothing_is_told_at_its_place() {
    let config = RepositoryConfig {
        repository: [7; 16],
        encryption: Encryption::None,
        chunker: "sieve".into(),
        chunk_bytes_mean: 8192,
        index: "strata".into(),
    };
    let told = |place: std::ops::Range<usize>, bytes: &[u8]| {
        let mut encoded = config.encode();
        encoded.splice(place, bytes.iter().copied());
        let error = RepositoryConfig::decode(&encoded, "config.copy", 1000).unwrap_err();
        assert!(error.is_damage(), "{error}");
        error.to_string()
    };
    let mean = told(23..25, &[0xff, 0xff, 0xff, 0xff, 0x7f]);
    assert!(mean.contains("config.copy at offset 1023:"), "{mean}");
    let chunker = told(18..19, &[0xff]);
    assert!(chunker.contains("config.copy at offset 1017:"), "{chunker}");
}
