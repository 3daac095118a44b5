//! The formats of this crate, byte for byte: today's bytes are as before, and yesterday's bytes can still be read.
//! FORMAT.md shows these files.
//!
//! `cargo xtask golden --bless` writes `testdata/` again; only a new format version may need that.

use std::path::Path;
use std::sync::Arc;

use onefold_backup::leaf::{self, Leaf, RecipeRef, recipe};
use onefold_backup::snapshot::{LeafRef, LeafTable, Snapshot, Summary};
use onefold_backup::{Entry, Item, Kind, Owner, Time};
use onefold_chunk::Fingerprint;
use onefold_store::digest::Digest;
use onefold_store::{ChunkRef, ContainerId};

/// Returns the golden file `name`; with `--bless` it is written first, with the bytes of `made`.
fn golden(name: &str, made: &[u8]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1");
    if std::env::var_os("ONEFOLD_BLESS").is_some() {
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(name), made).expect("written");
    }
    std::fs::read(folder.join(name)).expect("golden file")
}

fn chunk() -> ChunkRef {
    ChunkRef {
        fingerprint: Fingerprint(std::array::from_fn(|i| i as u8)),
        container: ContainerId(0x0102_0304_0506_0708),
        len: 9,
    }
}

fn items() -> Vec<Item> {
    let span = 9;
    vec![Item::Chunk {
        chunk: chunk(),
        span,
    }]
}

/// Makes a file of one chunk and a link to it.
fn entries() -> [Entry; 2] {
    let owner = Arc::new(Owner {
        uid: 1000,
        gid: 100,
        user: "ann".into(),
        group: "users".into(),
    });
    let time = Time {
        secs: 1000,
        nanos: 5,
    };
    let entry = |name: &str, kind| {
        let mut entry = Entry::new(name.into(), kind);
        (entry.mode, entry.owner) = (0o644, owner.clone());
        (entry.mtime, entry.ctime) = (time, time);
        (entry.inode, entry.device) = (300, 1);
        entry
    };
    let mut file = entry("notes", Kind::File);
    (file.size, file.content.items) = (9, items());
    let mut link = entry("notes.lnk", Kind::Symlink);
    link.target = b"notes".to_vec();
    [file, link]
}

fn leaf() -> Leaf {
    let mut leaf = Leaf::default();
    entries()
        .into_iter()
        .for_each(|entry| leaf.push(b"/home", entry));
    let chunk = ChunkRef {
        fingerprint: Fingerprint([0xee; 32]),
        container: ContainerId(9),
        len: recipe::encode(&items(), 0).len() as u32,
    };
    leaf.recipes = vec![RecipeRef { chunk, items: 1 }];
    leaf
}

fn snapshot(table: LeafTable) -> Snapshot {
    Snapshot {
        time: Time {
            secs: 1000,
            nanos: 5,
        },
        host: "here".into(),
        user: "ann".into(),
        uid_gid: (1000, 100),
        paths: vec![b"/home".to_vec()],
        tags: vec!["good".into()],
        parent: Some([0xaa; 32]),
        original: Some([0xbb; 32]),
        program: "onefold 1".into(),
        excludes: vec![b"*.o".to_vec()],
        summary: Summary {
            files_new: 1,
            total_files_processed: 300,
            ..Summary::default()
        },
        table,
    }
}

#[test]
fn golden_recipe() {
    let made = recipe::encode(&items(), 0);
    let kept = golden("recipe", &made);
    assert_eq!(made, kept);
    assert_eq!(recipe::decode(&kept, 0).expect("reads"), items());
}

#[test]
fn golden_leaf() {
    let made = leaf::encode(&leaf());
    let kept = golden("leaf", &made);
    assert_eq!(made, kept);
    let mut recipes = |_: &ChunkRef| Ok(items());
    let read = leaf::decode(&kept, &mut recipes).expect("reads");
    assert!(read.iter().map(|(_, entry)| entry).eq(&entries()));
}

/// This leaf has the columns that only some leaves have.
#[test]
fn golden_leaf_all() {
    let mut leaf = leaf();
    leaf.entries[0].content.digest = Some(Digest(std::array::from_fn(|i| 0xd0 | i as u8)));
    for entry in &mut leaf.entries {
        entry.atime = Some(Time {
            secs: 1001,
            nanos: 5,
        });
    }
    let made = leaf::encode(&leaf);
    let kept = golden("leaf-all", &made);
    assert_eq!(made, kept);
    let mut recipes = |_: &ChunkRef| Ok(items());
    assert_eq!(leaf::decode(&kept, &mut recipes).expect("reads"), leaf);
}

#[test]
fn golden_roots() {
    let leaves = ["notes", "notes.lnk"].map(|name| LeafRef {
        chunk: chunk(),
        folder: (*b"/home").into(),
        name: name.into(),
    });
    let tables = [
        ("root", LeafTable::Inline(leaves.to_vec())),
        ("root-long", LeafTable::Chunks(vec![chunk(), chunk()])),
    ];
    for (name, table) in tables {
        let snapshot = snapshot(table);
        let kept = golden(name, &snapshot.encode());
        assert_eq!(snapshot.encode(), kept, "{name}");
        assert_eq!(Snapshot::decode(&kept).expect("reads"), snapshot, "{name}");
    }
}
