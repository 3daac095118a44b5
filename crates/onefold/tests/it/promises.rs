//! Promises of the documentation about sizes, levels and resuming, tried on repositories as the program makes them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::rig::{Random, Rig};
use crate::wait::wait_until;

/// Lengths of all containers, the longest first. Files that a backup is still writing, or renames meanwhile, are none.
pub fn containers(rig: &Rig) -> Vec<u64> {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries(rig.repo().join("containers"));
    let is_whole = |entry: &fs::DirEntry| !entry.file_name().to_string_lossy().contains("tmp-");
    let lens = folders
        .flat_map(|folder| entries(folder.path()))
        .filter(is_whole)
        .filter_map(|entry| entry.metadata().ok())
        .map(|meta| meta.size());
    let mut lens: Vec<_> = lens.collect();
    lens.sort_unstable_by(|a, b| b.cmp(a));
    lens
}

#[test]
fn containers_are_of_sixteen_mib() {
    let rig = Rig::new();
    rig.write("s/noise", &Random(1).bytes(50 << 20));
    rig.backup("s");
    let lens = containers(&rig);
    // Blocks that are being sealed when one is full still go into it.
    assert!(lens.iter().all(|len| *len < 24 << 20), "{lens:?}");
    let data: Vec<_> = lens.iter().filter(|len| **len > 1 << 20).collect();
    assert!((3..=4).contains(&data.len()), "{lens:?}");
}

/// Words in no order: text, as far as compressors go.
fn text(len: usize) -> Vec<u8> {
    let mut random = Random(2);
    let words: Vec<Vec<u8>> = (0..4000)
        .map(|_| {
            let len = 3 + random.below(8) as usize;
            let letter = |byte: u8| b'a' + byte % 26;
            random.bytes(len).into_iter().map(letter).collect()
        })
        .collect();
    let mut text = Vec::new();
    while text.len() < len {
        text.extend_from_slice(&words[random.below(4000).min(random.below(4000)) as usize]);
        text.push(b' ');
    }
    text
}

#[test]
fn the_level_of_compression_can_be_chosen_and_what_does_not_compress_stays_as_it_is() {
    let text = text(4 << 20);
    let stored = |data: &[u8], level: &str| -> u64 {
        let rig = Rig::open();
        rig.write("s/data", data);
        rig.run(["backup", "s", "--compression", level]).ends(0);
        containers(&rig).into_iter().sum()
    };
    let levels = ["off", "fastest", "auto", "better", "max"].map(|level| stored(&text, level));
    assert!(
        levels[0] > 4 << 20 && levels[1] < levels[0] * 3 / 5,
        "{levels:?}"
    );
    let [_, fastest, auto, _, max] = levels;
    assert!(fastest > auto && auto > max, "{levels:?}");
    let noise = Random(3).bytes(4 << 20);
    let (off, auto) = (stored(&noise, "off"), stored(&noise, "auto"));
    assert!(auto.abs_diff(off) < off / 1000, "{off} and {auto}");
}

/// A repository with what a killed backup of `total` bytes left in it; `None` where the backup ended before the kill.
fn after_a_killed_backup(seed: u64, total: usize) -> Option<Rig> {
    let rig = Rig::open();
    for n in 0..60 {
        rig.write(&format!("s/{n:02}"), &Random(seed + n).bytes(total / 60));
    }
    let mut child = rig.command(["backup", "s"]).spawn().expect("starts");
    wait_until("a second container", || containers(&rig).len() >= 2);
    child.kill().expect("kill");
    child.wait().expect("wait");
    rig.snapshots().is_empty().then_some(rig)
}

#[test]
fn a_backup_that_was_killed_goes_on_from_what_is_stored() {
    let total = 240 << 20;
    let rig = [0, 1000, 2000]
        .into_iter()
        .find_map(|seed| after_a_killed_backup(seed, total))
        .expect("one of three backups was killed before it ended");
    let there: u64 = containers(&rig).into_iter().sum();
    let ran = rig.run(["backup", "s", "--json"]).ends(0);
    let added = ran.last()["data_added"].as_u64().expect("a number");
    let total = total as u64;
    // All but what containers say of their chunks.
    assert!(
        added < total + total / 100 - there * 98 / 100,
        "{added} of {total} were stored again, {there} were there"
    );
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn a_backup_leaves_out_what_ignore_files_name() {
    let rig = Rig::open();
    for name in ["s/kept", "s/left", "s/sub/left", "s/sub/also", "s/sub/kept"] {
        rig.write(name, b"x");
    }
    rig.write("s/.skip", b"# not these\nleft\n!/left\n");
    rig.write("s/sub/.skip", b"also\n");
    let ran = rig.run(["backup", "s", "--ignore-file", ".skip", "--json"]);
    let id = crate::rig::id_of(&ran.ends(0));
    let names: Vec<_> = rig.restored(&id, "s").into_keys().collect();
    let expected = [".skip", "kept", "left", "sub/.skip", "sub/kept"];
    assert_eq!(names, expected.map(std::path::PathBuf::from));
}
