//! Leaves and recipes: round trips, and damaged bytes, which give errors only.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_backup::leaf::{self, Leaf, RecipeRef, recipe};
use onefold_backup::{Content, Entry, Flags, Item, Kind, Owner, Time, path};
use onefold_chunk::Fingerprint;
use onefold_store::digest::Digest;
use onefold_store::{ChunkRef, ContainerId};
use proptest::prelude::*;

/// Chunks in RAM.
#[derive(Default)]
struct Chunks(HashMap<Fingerprint, Vec<u8>>);

impl Chunks {
    fn put(&mut self, bytes: Vec<u8>) -> ChunkRef {
        let fingerprint = Fingerprint::of(&bytes);
        let chunk = ChunkRef {
            fingerprint,
            container: ContainerId(77),
            len: bytes.len() as u32,
        };
        self.0.insert(fingerprint, bytes);
        chunk
    }

    /// Stores the leaf's recipe chunks and returns the leaf's bytes.
    fn encode(&mut self, leaf: &mut Leaf) -> Vec<u8> {
        let items: Vec<Item> = leaf.items().copied().collect();
        leaf.recipes = recipe::groups(&items)
            .into_iter()
            .map(|group| RecipeRef {
                chunk: self.put(recipe::encode(group, 0)),
                items: group.len() as u32,
            })
            .collect();
        leaf::encode(leaf)
    }

    fn decode(&self, bytes: &[u8]) -> onefold_backup::Result<Leaf> {
        leaf::decode(bytes, &mut |chunk| match self.0.get(&chunk.fingerprint) {
            Some(bytes) => recipe::decode(bytes, 0),
            None => Err(onefold_backup::Error::NotInSnapshot(
                "a recipe chunk".into(),
            )),
        })
    }
}

fn item() -> impl Strategy<Value = Item> {
    let chunk =
        (any::<[u8; 32]>(), 0..4u64, 1..100_000u32).prop_map(|(fingerprint, container, len)| {
            Item::Chunk {
                chunk: ChunkRef {
                    fingerprint: Fingerprint(fingerprint),
                    container: ContainerId(container),
                    len,
                },
                span: len.into(),
            }
        });
    prop_oneof![9 => chunk, 1 => (1..u64::MAX / 1024).prop_map(|len| Item::Hole { len })]
}

fn content() -> impl Strategy<Value = Content> {
    let digest = prop::option::of(any::<[u8; 16]>().prop_map(Digest));
    (0..3u8, prop::collection::vec(item(), 0..40), digest).prop_map(|(depth, items, digest)| {
        Content {
            depth,
            items,
            digest,
        }
    })
}

fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Time { secs, nanos })
}

fn entry() -> impl Strategy<Value = Entry> {
    let what = (
        1..8u8,
        0..0o10000u16,
        0..3u32,
        time(),
        time(),
        any::<(u64, u64)>(),
    );
    let more = (
        any::<u64>(),
        prop::collection::vec(any::<u8>(), 0..9),
        0..3usize,
        0..4u8,
        content(),
    );
    (what, more).prop_map(
        |(
            (kind, mode, uid, mtime, ctime, (inode, device)),
            (links, bytes, xattrs, flags, content),
        )| {
            let kind = Kind::from_u8(kind).expect("1 to 7");
            let mut entry = Entry::new(Vec::new(), kind);
            (entry.mode, entry.mtime, entry.ctime) = (mode, mtime, ctime);
            (entry.inode, entry.device, entry.links) = (inode, device, links);
            entry.owner = Arc::new(Owner {
                uid,
                gid: uid * 7,
                user: format!("user{uid}").into(),
                group: "".into(),
            });
            entry.flags = Flags(flags);
            entry.xattrs = vec![(b"user.x"[..].into(), bytes.clone().into()); xattrs].into();
            match kind {
                Kind::File => {
                    entry.size = content.items.iter().map(Item::span).sum();
                    entry.content = content;
                }
                Kind::Symlink => entry.target = bytes,
                Kind::CharDevice | Kind::BlockDevice => entry.rdev = inode ^ device,
                _ => {}
            }
            entry
        },
    )
}

/// Makes leaves whose names and folders are in order.
fn leaf() -> impl Strategy<Value = Leaf> {
    let name = prop::collection::vec(prop_oneof![1..46u8, 48..=255u8], 1..6)
        .prop_filter("no dots alone", |name| path::name_is_safe(name));
    let entries = prop::collection::vec(
        (prop::collection::vec(name.clone(), 0..3), name, entry()),
        0..30,
    );
    (entries, any::<bool>()).prop_map(|(entries, has_atimes)| {
        let mut placed: Vec<(Vec<u8>, Entry)> = Vec::new();
        for (folders, name, mut entry) in entries {
            let folder = folders
                .iter()
                .fold(Vec::new(), |above, name| path::join(&above, name));
            entry.name = name;
            entry.atime = has_atimes.then_some(Time {
                secs: entry.ctime.secs.wrapping_add(7),
                nanos: 999_999_999 - entry.mtime.nanos,
            });
            placed.push((folder, entry));
        }
        let key = |(folder, entry): &(Vec<u8>, Entry)| (folder.clone(), entry.name.clone());
        placed.sort_by(|a, b| path::entry_order((&a.0, &a.1.name), (&b.0, &b.1.name)));
        placed.dedup_by_key(|placed| key(placed));
        let mut leaf = Leaf::default();
        placed
            .into_iter()
            .for_each(|(folder, entry)| leaf.push(&folder, entry));
        leaf
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_encoded_is_decoded(leaf in leaf()) {
        let (mut leaf, mut chunks) = (leaf, Chunks::default());
        let bytes = chunks.encode(&mut leaf);
        prop_assert_eq!(&chunks.decode(&bytes).expect("decode"), &leaf);
        let (bare, counts) = leaf::decode_bare(&bytes).expect("decode");
        prop_assert_eq!(bare.recipes, leaf.recipes.clone());
        prop_assert_eq!(counts.iter().sum::<u64>(), leaf.items().count() as u64);
    }

    #[test]
    fn damaged_leaves_are_errors_or_leaves(leaf in leaf(), at in any::<prop::sample::Index>(), bit in 0..8u32, cut in any::<prop::sample::Index>()) {
        let (mut leaf, mut chunks) = (leaf, Chunks::default());
        let mut bytes = chunks.encode(&mut leaf);
        let (mut flipped, at) = (bytes.clone(), at.index(bytes.len()));
        flipped[at] ^= 1 << bit;
        let _ = chunks.decode(&flipped);
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(chunks.decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_errors_or_recipes(bytes in prop::collection::vec(any::<u8>(), 0..200), depth in 0..9u8) {
        let _ = recipe::decode(&bytes, depth);
        let _ = leaf::decode_bare(&bytes);
        let _ = onefold_backup::snapshot::Snapshot::decode(&bytes);
        let _ = onefold_backup::snapshot::decode_table(&bytes);
    }

    #[test]
    fn folders_are_ordered_component_by_component(a in "[a-c/-]{0,8}", b in "[a-c/-]{0,8}") {
        let (a, b) = (path::clean(a.as_bytes()), path::clean(b.as_bytes()));
        let parts = |path: &[u8]| path.split(|b| *b == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
        prop_assert_eq!(path::order(&a, &b), parts(&a).cmp(&parts(&b)));
    }
}

/// Anybody who can write to a repository without encryption can write such a leaf.
#[test]
fn names_and_folders_that_lead_elsewhere_are_damage() {
    let names = ["..", ".", "", "a/b", "/etc/passwd", "a\0b"];
    let folders = ["/..", "/a/../b", "/a/.", "/a//b", "a", "/", "../a", "/a/"];
    let in_root = names.iter().map(|name| ("", *name));
    let as_folder = folders.iter().map(|folder| (*folder, "name"));
    let leaf = |folder: &str, name: &str| {
        let mut leaf = Leaf::default();
        leaf.push(folder.as_bytes(), Entry::new(name.into(), Kind::Dir));
        leaf::encode(&leaf)
    };
    for (folder, name) in in_root.chain(as_folder) {
        let error = leaf::decode_bare(&leaf(folder, name)).expect_err("a leaf");
        assert!(error.is_damage(), "{folder:?} {name:?}: {error}");
    }
    assert!(leaf::decode_bare(&leaf("/a", "...")).is_ok());
}

#[test]
fn a_column_of_digests_without_one_is_damage() {
    let mut entry = Entry::new(b"name".to_vec(), Kind::File);
    entry.content.digest = Some(Digest([7; 16]));
    let mut leaf = Leaf::default();
    leaf.push(b"/a", entry);
    let mut bytes = leaf::encode(&leaf);
    assert_eq!(
        bytes.split_off(bytes.len() - 18),
        [&[17, 1][..], &[7; 16]].concat()
    );
    bytes.extend([1, 0]);
    let error = leaf::decode_bare(&bytes).expect_err("a leaf");
    assert!(
        error.is_damage() && error.to_string().contains("digests"),
        "{error}"
    );
}

#[test]
fn recipes_of_large_files_are_built_in_layers_and_come_back() {
    let mut chunks = Chunks::default();
    let mut builder = recipe::Builder::default();
    let items: Vec<Item> = (0..100_000u64)
        .map(|i| item_number(i, 1 + i as u32 % 9))
        .collect();
    for item in &items {
        builder
            .push(*item, &mut |bytes| Ok(chunks.put(bytes)))
            .expect("push");
    }
    let content = builder
        .finish(&mut |bytes| Ok(chunks.put(bytes)))
        .expect("finish");
    assert_eq!(content.depth, 2);
    assert!(content.items.len() <= recipe::LEAF_ITEMS_MAX);
    let mut found = content.items;
    for depth in (0..content.depth).rev() {
        let read = |item: &Item| {
            recipe::decode(
                &chunks.0[&item.chunk().expect("no hole").fingerprint],
                depth,
            )
            .expect("decode")
        };
        found = found.iter().flat_map(read).collect();
    }
    assert!(found == items);
}

fn item_number(i: u64, len: u32) -> Item {
    let chunk = ChunkRef {
        fingerprint: Fingerprint::of(&i.to_le_bytes()),
        container: ContainerId(i / 1000),
        len,
    };
    Item::Chunk {
        chunk,
        span: len.into(),
    }
}
