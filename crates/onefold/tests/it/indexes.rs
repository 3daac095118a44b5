//! Repositories with each index there is, through all that touches an index.

use onefold_papers::KINDS;

use crate::rig::{Random, Rig, files};

/// Two sources that share half of their contents.
fn write_sources(rig: &Rig, seed: u64) {
    for (source, first) in [("old", 0), ("new", 15)] {
        for number in first..first + 30 {
            let mut random = Random(seed << 32 | number);
            let bytes: Vec<u8> = (0..2500)
                .flat_map(|_| random.next().to_le_bytes())
                .collect();
            rig.write(&format!("{source}/{}/{number}", number % 3), &bytes);
        }
    }
}

/// Backs up `source`; returns the bytes that were stored anew.
fn added(rig: &Rig, source: &str) -> u64 {
    let summary = rig.run(["backup", source, "--json"]).ends(0).last();
    summary["data_added"].as_u64().expect("a number")
}

fn lives_a_life(index: &str) {
    let rig = Rig::empty();
    println!("{index}");
    let made = rig
        .run(["init", "--encryption", "none", "--index", index])
        .ends(0);
    assert!(made.out.contains(index), "{}", made.out);
    write_sources(&rig, 3);
    let (all, half) = (added(&rig, "old"), added(&rig, "new"));
    assert!(
        half < all * 6 / 10,
        "{index}: {half} of {all} bytes are new"
    );
    assert!(
        added(&rig, "old") < all / 20,
        "{index}: nothing of it is new"
    );
    let stats = rig.run(["stats", "--mode", "raw-data"]).ends(0);
    assert!(stats.out.contains(&format!("{index}:")), "{}", stats.out);

    // drops the first backup of "old" and the only one of "new": containers go, and half-dead ones move
    let ids = rig.snapshots();
    rig.run(["forget", &ids[0], &ids[1], "--prune"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
    assert_eq!(rig.restored("latest", "old"), files(&rig.path("old")));
    let again = added(&rig, "new");
    assert!(
        again > all * 4 / 10,
        "{index}: {again} of {all}: what was swept is stored again"
    );
    assert!(
        added(&rig, "old") < all / 20,
        "{index}: what was kept is not"
    );

    // an index that is gone, and one that is damaged, are made anew from the containers
    let folder = rig.repo().join("index");
    std::fs::remove_dir_all(&folder).expect("remove");
    assert_eq!(rig.restored("latest", "old"), files(&rig.path("old")));
    assert!(added(&rig, "old") < all / 20, "{index}: after its loss");
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("a file");
        std::fs::write(&path, vec![0x5a; bytes.len()]).expect("damage");
    }
    for kept in ["photos/one", "notes"] {
        rig.write(&format!("repo/index/{kept}"), b"not of an index");
    }
    assert!(added(&rig, "new") < all / 20, "{index}: after damage");
    rig.run(["repair", "index"]).ends(0);
    for kept in ["photos/one", "notes"] {
        assert!(folder.join(kept).exists(), "{index}: {kept} is removed");
    }
    rig.run(["repair"]).ends(0);
    assert!(added(&rig, "new") < all / 20, "{index}: after a repair");
    rig.run(["check"]).ends(0);
}

#[test]
fn every_index_lives_a_life() {
    std::thread::scope(|scope| {
        let names = KINDS.iter().map(|kind| kind.name);
        for index in names.chain(["ram"]) {
            scope.spawn(move || lives_a_life(index));
        }
    });
}

#[test]
fn an_unknown_index_is_refused_and_the_known_ones_are_named() {
    let rig = Rig::empty();
    let refused = rig.run(["init", "--index", "quantum"]).ends(2);
    for name in ["quantum", "strata", "bloomstore", "ram"] {
        assert!(refused.err.contains(name), "{}", refused.err);
    }
    assert!(!rig.repo().exists());
}
