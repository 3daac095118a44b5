//! Objects of a later version of the program: every verb reports them, and none takes them for damage.

use std::fs;

use onefold_chunk::Fingerprint;
use onefold_io::frame::crc64;

use crate::rig::{Random, Rig, files};

/// Says of a frame that fills its object that it has version 2.
fn of_version_two(bytes: &mut [u8]) {
    bytes[8] = 2;
    let end = bytes.len() - 8;
    let sum = crc64(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&sum);
}

#[test]
fn a_snapshot_of_a_later_version_is_neither_repaired_nor_dropped_nor_swept() {
    let rig = Rig::open();
    rig.write("source/file", &Random(3).bytes(90_000));
    let id = rig.backup("source");
    let folder = rig.repo().join("snapshots");
    let mut bytes = fs::read(folder.join(&id)).expect("a snapshot");
    fs::remove_file(folder.join(&id)).expect("ours");
    of_version_two(&mut bytes);
    // Without encryption a fingerprint is the BLAKE3 of the bytes, as a snapshot's name is.
    let name = Fingerprint::of(&bytes).to_string();
    fs::write(folder.join(&name), bytes).expect("ours");
    let before = files(&rig.repo().join("containers"));
    let verbs: [&[&str]; 6] = [
        &["check"],
        &["prune"],
        &["repair"],
        &["repair", "snapshots", "--forget"],
        &["repair", "snapshots", "--forget", &name],
        &["restore", "latest", "--target", "there"],
    ];
    for verb in verbs {
        let ran = rig.run(verb).ends(1);
        let words = "a later version of onefold: format version 2";
        assert!(ran.err.contains(words), "{verb:?}: {}", ran.err);
        assert!(
            ran.err.contains("this one leaves it alone"),
            "{verb:?}: {}",
            ran.err
        );
    }
    let ran = rig.run(["stats"]).ends(1);
    assert!(
        ran.err.contains("a later version of onefold"),
        "{}",
        ran.err
    );
    assert!(folder.join(&name).exists());
    assert!(files(&rig.repo().join("containers")) == before);
}

#[test]
fn a_configuration_of_a_later_version_is_no_damage() {
    let rig = Rig::open();
    for name in ["config", "config.copy"] {
        let path = rig.repo().join(name);
        let mut bytes = fs::read(&path).expect("a configuration");
        let half = bytes.len() / 2;
        bytes.chunks_mut(half).for_each(of_version_two);
        fs::write(&path, bytes).expect("ours");
    }
    for verb in ["check", "repair", "snapshots"] {
        let ran = rig.run([verb]).ends(1);
        assert!(
            ran.err.contains("take the version of onefold"),
            "{}",
            ran.err
        );
    }
}
