//! Damage to files of the index: it costs time only, before a backup and in its middle, whatever the index.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{Encryption, SessionKind, StreamKind};

use super::action::{Action, PLACES, damage, objects};
use super::{stored, try_all};
use crate::fixture::{
    assert_sound, back_up, chunks, decode_root, encode_root, init, open, say_much,
};

fn index_files(device: &SimDir) -> Vec<String> {
    let files = objects(device).into_iter();
    files.filter(|path| path.starts_with("index/")).collect()
}

/// Beside the default: a table with a log, and a tree.
#[test]
fn damage_to_other_indexes_costs_time_only() {
    for index in ["chunkstash", "btree"] {
        let stored = stored(Encryption::None, index);
        let files = index_files(&stored.device);
        assert!(files.len() > 1, "{files:?}");
        try_all(&stored, &files);
    }
}

/// Five backups, so that the next one merges runs of the index.
fn five_backups() -> (SimDir, Vec<Vec<u8>>) {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    init(&dir, Encryption::None).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let known: Vec<_> = (1..=5).flat_map(|seed| chunks(seed, 20)).collect();
    for (seed, data) in (10..).zip(known.chunks(20)) {
        back_up(&repository, data).unwrap();
        say_much(&dir, 1030, seed);
    }
    say_much(&dir, 1030, 20);
    // as much as stays without a run
    say_much(&dir, 1010, 21);
    (device, known)
}

/// Backs up `data`, and damages `path` before it or in its middle; everything is sound afterwards, and the index is
/// whole.
fn back_up_beside_damage(
    device: &SimDir,
    path: &str,
    (action, place): (Action, usize),
    in_the_middle: bool,
    known: &[Vec<u8>],
) {
    let context = format!("{action:?} at place {place} of {path}, in the middle: {in_the_middle}");
    let (image, nobody) = (device.crash_image(1), SimDir::new(2));
    let dir: Arc<dyn Dir> = Arc::new(image.clone());
    let data: Vec<_> = known.iter().cloned().chain(chunks(9, 20)).collect();
    let refs = {
        if !in_the_middle {
            damage(&image, &nobody, path, (action, place));
        }
        let repository = open(&dir, 1, 5).unwrap_or_else(|error| panic!("{context}: {error}"));
        let session = repository
            .session(SessionKind::Backup)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        if in_the_middle {
            damage(&image, &nobody, path, (action, place));
        }
        let mut writer = session.writer(StreamKind::Data).unwrap();
        let mut refs = Vec::new();
        for data in &data {
            let named = [(repository.fingerprinter().fingerprint(data), &data[..])];
            writer
                .write(&named, &mut refs)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        let stats = writer
            .finish()
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(stats.new_chunks, 20, "{context}: what was known is known");
        let root = session.put_root(&encode_root(&refs)).unwrap();
        session
            .finish()
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_sound(&repository, &[(root, data.clone())], &context);
        refs
    };
    let repository = open(&dir, 1, 6).unwrap();
    let (root, stats) = back_up(&repository, &data).unwrap();
    assert_eq!(stats.new_chunks, 0, "{context}: the index is whole again");
    assert_eq!(
        decode_root(&repository.root(&root).unwrap()).len(),
        refs.len()
    );
}

#[test]
fn damage_to_the_index_costs_time_only_in_the_middle_of_a_backup_too() {
    let (device, known) = five_backups();
    let files = index_files(&device);
    for kind in ["manifest", "run-", "log-", "ingested"] {
        assert!(files.iter().any(|path| path.contains(kind)), "{files:?}");
    }
    let actions = [(Action::Truncate, 2), (Action::Empty, 0)];
    for path in &files {
        let places = |action| (0..PLACES).map(move |place| (action, place));
        let flips = places(Action::Flip).chain(places(Action::Unreadable));
        for action in flips.chain(actions) {
            back_up_beside_damage(&device, path, action, true, &known);
            back_up_beside_damage(&device, path, action, false, &known);
        }
        back_up_beside_damage(&device, path, (Action::Delete, 0), false, &known);
        for way in 0..2 {
            back_up_beside_damage(&device, path, (Action::Folder, way), true, &known);
            back_up_beside_damage(&device, path, (Action::Folder, way), false, &known);
        }
        for way in 0..Action::Swap.ways(&device, &SimDir::new(2), path) {
            back_up_beside_damage(&device, path, (Action::Swap, way), false, &known);
        }
    }
}

/// Versions 1 to 3 of its manifest are refused.
#[test]
fn an_index_of_an_earlier_version_is_rebuilt_by_itself() {
    for version in 1..=5 {
        let (device, known) = five_backups();
        let golden = format!("../index/testdata/strata-{version}/manifest");
        let golden = std::fs::read(golden).expect("golden file");
        let replaced = device.damage("index/manifest", |bytes| *bytes = golden);
        replaced.unwrap();
        let dir: Arc<dyn Dir> = Arc::new(device);
        let repository = open(&dir, 1, 5).unwrap();
        let (root, stats) = back_up(&repository, &known).unwrap();
        assert_eq!(stats.new_chunks, 0, "strata-{version}");
        assert_sound(&repository, &[(root, known)], &version);
    }
}
