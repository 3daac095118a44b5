//! Metadata of a few bytes that claim very many things, as anybody who can write to a repository without encryption can
//! make it; and metadata of backups, which is never taken for that.

use onefold_backup::leaf::{self, Leaf, LeafCutter, RecipeRef, recipe};
use onefold_backup::snapshot::{LeafRef, decode_table, encode_table};
use onefold_backup::{Content, Entry, Item, Kind, Slice, path};
use onefold_chunk::Fingerprint;
use onefold_store::{ChunkRef, ContainerId};

fn chunk(number: u64) -> ChunkRef {
    ChunkRef {
        fingerprint: Fingerprint::of(&number.to_le_bytes()),
        container: ContainerId(7),
        len: 9,
    }
}

fn file(name: String, items: Vec<Item>) -> Entry {
    let mut entry = Entry::new(name.into(), Kind::File);
    entry.size = items.iter().map(Item::span).sum();
    entry.content = Content {
        items,
        ..Content::default()
    };
    entry
}

fn assert_damage<T: std::fmt::Debug>(decoded: onefold_backup::Result<T>, what: &str) {
    match decoded {
        Ok(_) => panic!("{what}: it is taken"),
        Err(error) => assert!(error.is_damage(), "{what}: {error}"),
    }
}

#[test]
fn items_that_cover_nothing_are_damage() {
    let hole = Item::Hole { len: 0 };
    assert_damage(recipe::decode(&recipe::encode(&[hole], 0), 0), "a hole");
    let chunk = chunk(1);
    let nothing = Item::Chunk { chunk, span: 0 };
    for depth in 1..9 {
        let bytes = recipe::encode(&[nothing], depth);
        assert_damage(recipe::decode(&bytes, depth), "a recipe chunk");
    }
    let something = Item::Chunk { chunk, span: 1 };
    assert!(recipe::decode(&recipe::encode(&[something], 1), 1).is_ok());
}

#[test]
fn a_part_of_a_chunk_lies_within_it() {
    let chunk = ChunkRef {
        len: 1000,
        ..chunk(1)
    };
    let slice = |skip, len| Item::Slice(Slice { chunk, skip, len });
    let decoded = |item| recipe::decode(&recipe::encode(&[item], 0), 0);
    for item in [slice(0, 999), slice(1, 999), slice(999, 1), slice(500, 1)] {
        assert_eq!(decoded(item).expect("a part"), [item]);
    }
    for (skip, len) in [
        (0, 1000),
        (0, 1001),
        (1, 1000),
        (1000, 1),
        (u32::MAX, 1),
        (1, 0),
        (1, u32::MAX),
    ] {
        assert_damage(decoded(slice(skip, len)), "no part");
    }
    // Recipe chunks cannot have parts.
    let bytes = recipe::encode(&[slice(1, 2)], 1);
    assert_damage(recipe::decode(&bytes, 1), "a part of a recipe chunk");
}

#[test]
fn a_recipe_chunk_of_very_many_items_is_damage() {
    let holes = |count| recipe::encode(&vec![Item::Hole { len: 1 }; count], 0);
    assert_eq!(recipe::decode(&holes(4096), 0).expect("items").len(), 4096);
    assert_damage(recipe::decode(&holes(100_000), 0), "holes");
}

#[test]
fn a_leaf_that_names_a_recipe_chunk_again_and_again_reads_none_of_them() {
    let holes = vec![Item::Hole { len: 1 }; 4096];
    let mut leaf = Leaf::default();
    for number in 0..200 {
        leaf.push(b"/a", file(format!("{number:05}"), holes.clone()));
        let (chunk, items) = (chunk(1), 4096);
        leaf.recipes.push(RecipeRef { chunk, items });
    }
    let bytes = leaf::encode(&leaf);
    let mut reads = 0;
    let decoded = leaf::decode(&bytes, &mut |_| {
        reads += 1;
        Ok(holes.clone())
    });
    assert_damage(decoded, "800,000 items");
    assert_eq!(reads, 0);
    leaf.recipes.iter_mut().for_each(|recipe| recipe.items = 0);
    assert_damage(leaf::decode_bare(&leaf::encode(&leaf)), "no items");
}

#[test]
fn names_and_folders_that_are_long_by_what_they_share_are_damage() {
    let names = |count: usize| {
        let mut leaf = Leaf::default();
        let start = "a".repeat(240);
        for number in 0..count {
            let name = format!("{start}{number:05}");
            leaf.push(b"/a", Entry::new(name.into(), Kind::Fifo));
        }
        leaf::decode_bare(&leaf::encode(&leaf))
    };
    assert!(names(1500).is_ok());
    assert_damage(names(5000), "names");

    let folders = |count: usize| {
        let mut leaf = Leaf::default();
        let start = path::join(b"", &vec![b'a'; 1 << 20]);
        for number in 0..count {
            let folder = path::join(&start, format!("{number:05}").as_bytes());
            leaf.push(&folder, Entry::new(b"a".to_vec(), Kind::Fifo));
        }
        leaf::decode_bare(&leaf::encode(&leaf))
    };
    assert!(folders(17).is_ok());
    assert_damage(folders(140), "folders");
}

#[test]
fn a_table_of_long_folders_or_out_of_order_is_damage() {
    let leaf = |folder: Vec<u8>, number: u64| LeafRef {
        chunk: chunk(number),
        folder: folder.into(),
        name: format!("{number:05}").into(),
    };
    // Makes a table of `count` folders with `leaves_each` leaves.
    let table = |len: usize, count: u64, leaves_each: u64| {
        let folder = |i: u64| {
            let name = [
                &vec![b'a'; len],
                format!("{:05}", i / leaves_each).as_bytes(),
            ]
            .concat();
            path::join(b"", &name)
        };
        let leaves: Vec<_> = (0..count).map(|i| leaf(folder(i), i)).collect();
        decode_table(&encode_table(&leaves))
    };
    assert_eq!(table(4000, 2_000, 1).expect("leaves").len(), 2_000);
    assert_damage(table(1 << 20, 300, 1), "long folders");
    // A deep folder of many entries fills many leaves.
    let shared = table(1 << 20, 300, 100).expect("leaves");
    assert!(std::sync::Arc::ptr_eq(
        &shared[0].folder,
        &shared[99].folder
    ));
    for (first, second) in [(1, 1), (2, 1)] {
        let leaves = [leaf(b"/a".to_vec(), first), leaf(b"/a".to_vec(), second)];
        assert_damage(decode_table(&encode_table(&leaves)), "out of order");
    }
}

/// Cuts entries into leaves as a backup does, and reads each leaf back.
fn assert_cut_is_read(entries: impl Iterator<Item = (Vec<u8>, Entry)>) {
    let mut cutter = LeafCutter::default();
    let mut leaves = 0;
    let mut read = |mut leaf: Leaf| {
        let items: Vec<Item> = leaf.items().copied().collect();
        let groups = recipe::groups(&items);
        let recipe = |group: &&[Item]| RecipeRef {
            chunk: chunk(1),
            items: group.len() as u32,
        };
        leaf.recipes = groups.iter().map(recipe).collect();
        let mut groups = groups.into_iter();
        let decoded = leaf::decode(&leaf::encode(&leaf), &mut |_| {
            Ok(groups.next().expect("a group").to_vec())
        });
        assert!(decoded.expect("a leaf") == leaf);
        let folders: usize = leaf.runs.iter().map(|run| run.folder.len()).sum();
        assert!(folders < 18 << 20, "{folders} bytes of folders");
        leaves += 1;
    };
    for (folder, entry) in entries {
        if let Some(leaf) = cutter.push(&folder, entry) {
            read(leaf);
        }
    }
    cutter.finish().map(&mut read);
    assert!(leaves > 3);
}

#[test]
fn what_a_backup_cuts_is_within_all_limits() {
    let long = "a".repeat(250);
    assert_cut_is_read((0..9000).map(|number| {
        let entry = file(format!("{long}{number:05}"), Vec::new());
        (b"/a".to_vec(), entry)
    }));
    assert_cut_is_read((0..9000).map(|number| {
        let items = (0..64).map(|i| Item::Hole { len: i % 3 + 1 }).collect();
        (b"/a".to_vec(), file(format!("{number:05}"), items))
    }));
    let mut folder = Vec::new();
    assert_cut_is_read((0..700).map(|_| {
        folder = path::join(&folder, long.as_bytes());
        (folder.clone(), Entry::new(long.clone().into(), Kind::Dir))
    }));
}
