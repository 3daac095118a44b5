//! Snapshots of a few stored bytes that claim very many items, as anybody with the key can make them. No command does
//! more work for them than the stored bytes, or the bytes that it writes, are worth; items beyond that are damage, and
//! the rest is restored.

use std::fs;
use std::sync::Arc;

use onefold_backup::leaf::{self, Leaf, RecipeRef, recipe};
use onefold_backup::list::Adder;
use onefold_backup::repair::{Repaired, repair};
use onefold_backup::roots::{Hurt, hurt};
use onefold_backup::snapshot::{LeafRef, LeafTable, Snapshot, Summary};
use onefold_backup::snapshots::{self, Named};
use onefold_backup::tree::{Tree, Visit, visit_items};
use onefold_backup::{
    Content, Entry, Item, Kind, Owner, Progress, content, diff, dump, objects, path, restore,
};
use onefold_store::{ChunkRef, ChunkWriter, Repository, RootId, Session, SessionKind, StreamKind};

use crate::scene::{self, Log, bytes};

/// Largest number of items that a reader takes from one recipe chunk.
const MANY: usize = 1 << 16;

/// Makes a snapshot by hand.
struct Forger<'a> {
    session: &'a Session,
    writer: ChunkWriter,
    leaves: Vec<LeafRef>,
}

impl<'a> Forger<'a> {
    fn new(session: &'a Session) -> Self {
        Self {
            session,
            writer: session.writer(StreamKind::Metadata).expect("writer"),
            leaves: Vec::new(),
        }
    }

    fn store(&mut self, bytes: &[u8]) -> ChunkRef {
        let fingerprint = self.session.fingerprinter().fingerprint(bytes);
        let mut refs = Vec::new();
        let stored = self.writer.write(&[(fingerprint, bytes)], &mut refs);
        stored.expect("store");
        refs[0]
    }

    /// Makes a content of `layers` recipe chunks above each other, each of which names the one below 65,536 times.
    fn bomb(&mut self, item: Item, layers: u8) -> Content {
        let mut item = item;
        for depth in 0..layers {
            let chunk = self.store(&recipe::encode(&vec![item; MANY], depth));
            let span = item.span() * MANY as u64;
            item = Item::Chunk { chunk, span };
        }
        Content {
            items: vec![item],
            depth: layers,
            ..Content::default()
        }
    }

    /// Makes the content of a file with `text`.
    fn plain(&mut self, text: &str) -> Content {
        let chunk = self.store(text.as_bytes());
        let span = text.len() as u64;
        Content {
            items: vec![Item::Chunk { chunk, span }],
            ..Content::default()
        }
    }

    /// Ends a leaf of files in the folder /a, with these names, contents and owners.
    fn leaf(&mut self, files: Vec<(&str, Content, Owner)>) {
        let mut leaf = Leaf::default();
        let mut items = Vec::new();
        for (name, content, owner) in files {
            let mut entry = Entry::new(name.into(), Kind::File);
            entry.size = content.items.iter().map(Item::span).sum();
            entry.mode = 0o600;
            entry.owner = Arc::new(owner);
            if content.depth == 0 {
                items.extend_from_slice(&content.items);
            }
            entry.content = content;
            leaf.push(b"/a", entry);
        }
        if !items.is_empty() {
            let chunk = self.store(&recipe::encode(&items, 0));
            let items = items.len() as u32;
            leaf.recipes.push(RecipeRef { chunk, items });
        }
        let chunk = self.store(&leaf::encode(&leaf));
        self.leaves.push(LeafRef {
            chunk,
            folder: leaf.runs[0].folder.clone().into(),
            name: leaf.entries[0].name.clone(),
        });
    }

    fn finish(self) -> RootId {
        self.writer.finish().expect("finish");
        let root = snapshot(LeafTable::Inline(self.leaves)).encode();
        self.session.put_root(&root).expect("put")
    }
}

fn snapshot(table: LeafTable) -> Snapshot {
    Snapshot {
        time: onefold_backup::Time::default(),
        host: "here".into(),
        user: "me".into(),
        uid_gid: (0, 0),
        paths: vec![b"/a".to_vec()],
        tags: Vec::new(),
        parent: None,
        original: None,
        program: "test".into(),
        excludes: Vec::new(),
        summary: Summary::default(),
        table,
    }
}

fn me() -> Owner {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    Owner {
        uid: uid.as_raw(),
        gid: gid.as_raw(),
        user: "".into(),
        group: "".into(),
    }
}

/// Makes a snapshot of good files with the files of `make` between them.
fn forge(
    repository: &Repository,
    make: impl FnOnce(&mut Forger<'_>) -> Vec<(&'static str, Content)>,
) -> Named {
    let session = repository.session(SessionKind::Backup).expect("session");
    let mut forger = Forger::new(&session);
    let (first, last) = (forger.plain("the first"), forger.plain("the last"));
    let mut files = vec![("a", first, me())];
    files.extend(
        make(&mut forger)
            .into_iter()
            .map(|(name, content)| (name, content, me())),
    );
    files.push(("z", last, me()));
    forger.leaf(files);
    let id = forger.finish();
    session.finish().expect("finish");
    snapshots::load(repository, id).expect("load")
}

/// Makes contents of 2^32 holes, of as many chunks of a byte, and of 2^48 of these.
fn unpaid(forger: &mut Forger<'_>) -> Vec<(&'static str, Content)> {
    let chunk = forger.store(b"x");
    let byte = Item::Chunk { chunk, span: 1 };
    vec![
        ("bytes", forger.bomb(byte, 2)),
        ("bytes-deep", forger.bomb(byte, 3)),
        ("holes", forger.bomb(Item::Hole { len: 1 }, 2)),
    ]
}

/// Makes a content of 2^48 chunks that its data pays for: the file claims 2^60 bytes.
fn paid(forger: &mut Forger<'_>) -> Vec<(&'static str, Content)> {
    let chunk = forger.store(&[7; 4096]);
    vec![("long", forger.bomb(Item::Chunk { chunk, span: 4096 }, 3))]
}

/// Restores everything; returns the paths that failed.
fn restored(repository: &Repository, named: &Named, target: &std::path::Path) -> Vec<String> {
    let session = repository.session(SessionKind::Read).expect("session");
    let (options, log) = (restore::Options::default(), Log::default());
    let progress = Progress::default();
    restore::run(
        &session,
        &named.snapshot,
        &bytes(target),
        &options,
        &progress,
        &log,
    )
    .expect("restore");
    session.finish().expect("finish");
    let errors = log.errors.into_inner().into_iter();
    errors
        .map(|(path, error)| format!("{path}: {error}"))
        .collect()
}

#[test]
fn a_restore_names_files_that_expand_without_end_and_restores_the_rest() {
    let (repository, target) = (scene::repository(), tempfile::tempdir().expect("tempdir"));
    let named = forge(&repository, unpaid);
    let errors = restored(&repository, &named, target.path());
    for name in ["/a/bytes", "/a/bytes-deep", "/a/holes"] {
        let told = errors
            .iter()
            .find(|error| error.contains(&format!("{name}:")));
        let told = told.unwrap_or_else(|| panic!("{name}: {errors:?}"));
        assert!(told.contains("no backup makes such"), "{told}");
        let left = fs::metadata(target.path().join(&name[1..]));
        assert!(left.is_err(), "nothing is left of {name}");
    }
    assert_eq!(errors.len(), 3, "{errors:?}");
    for (name, text) in [("a", "the first"), ("z", "the last")] {
        let restored = fs::read_to_string(target.path().join("a").join(name));
        assert_eq!(restored.expect("it is there"), text);
    }
}

#[test]
fn a_dump_of_a_file_that_expands_without_end_ends_as_damage() {
    struct Counted(u64);
    impl std::io::Write for Counted {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            self.0 += buf.len() as u64;
            Ok(buf.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let repository = scene::repository();
    let named = forge(&repository, unpaid);
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    for name in ["bytes", "bytes-deep", "holes"] {
        let path = format!("/a/{name}").into_bytes();
        let entry = tree
            .entry(&path, &mut reader)
            .expect("read")
            .expect("an entry");
        let mut out = Counted(0);
        let dumped = dump::file(&path, &entry, &mut reader, &mut out, &mut ());
        assert!(matches!(dumped, Err(error) if error.is_damage()), "{name}");
        assert!(out.0 < 1 << 20, "{name}: {} bytes", out.0);
    }
}

/// `find`, `stats`, `diff` and repairs open each recipe chunk once: if they opened it each time, none of them would
/// end.
#[test]
fn whoever_asks_what_is_in_a_file_that_repeats_itself_ends() {
    let repository = scene::repository();
    let named = forge(&repository, paid);
    // The same data, cut at other places.
    let other = forge(&repository, |forger| {
        let chunk = forger.store(&[7; 4096]);
        let below = vec![Item::Chunk { chunk, span: 4096 }; MANY / 2];
        let two = forger.store(&recipe::encode(&below, 0));
        let span = 4096 * MANY as u64 / 2;
        let items = vec![Item::Chunk { chunk: two, span }; MANY];
        let one = forger.store(&recipe::encode(&items, 1));
        let span = span * MANY as u64;
        let top = Item::Chunk { chunk: one, span };
        let content = forger.bomb(top, 0);
        let content = Content {
            items: vec![content.items[0]; 64],
            depth: 2,
            ..content
        };
        vec![("long", content)]
    });
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");

    let mut of_file = 0;
    objects::visit(&named.snapshot, &mut reader, &mut |met| {
        if let objects::ReferencedObject::OfFile { path, .. } = met {
            of_file += u64::from(path == b"/a/long");
        }
        Ok(())
    })
    .expect("found");
    assert_eq!(of_file, 3 * MANY as u64 + 1);

    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    let mut adder = Adder::of_versions();
    adder.add(&tree, &mut reader).expect("added");
    assert_eq!(adder.sizes().versions_blob_count, 3);

    let (mut hurts, mut nothing) = (Vec::new(), |_: &ChunkRef| false);
    hurt(&named.snapshot, &mut reader, &mut nothing, &mut |hurt| {
        hurts.push(hurt)
    })
    .expect("looked");
    assert_eq!(hurts, []);
    let whole = repair(&repository, &named, &|_| false, false).expect("repair");
    assert_eq!(whole, Repaired::Whole);

    let second = Tree::open(&other.snapshot, &mut reader).expect("tree");
    let mut marks = Vec::new();
    let told = &mut |mark, path: &[u8], _: Option<&Entry>, _: Option<&Entry>| {
        marks.push((mark, path::show(path)));
    };
    diff::diff((&tree, &second), &mut reader, b"", false, told).expect("compared");
    assert_eq!(marks, [(diff::Mark::Content, "/a/long".to_owned())]);
}

#[test]
fn a_repair_keeps_the_names_of_files_that_expand_without_end_and_the_rest_whole() {
    let repository = scene::repository();
    let named = forge(&repository, unpaid);
    let repaired = repair(&repository, &named, &|_| false, false).expect("repair");
    let Repaired::Anew(hurts, Some(id)) = repaired else {
        panic!("{repaired:?}");
    };
    let expected = ["/a/bytes", "/a/bytes-deep", "/a/holes"];
    assert_eq!(hurts, expected.map(|path| Hurt::File(path.into())));
    let target = tempfile::tempdir().expect("tempdir");
    let new = snapshots::load(&repository, id).expect("load");
    restored(&repository, &new, target.path());
    let names = |path: &std::path::Path| fs::read_dir(path).expect("a folder").count();
    assert_eq!(names(&target.path().join("a")), 2);
}

#[test]
fn a_backup_whose_parent_expands_without_end_reads_the_file_anew() {
    let (repository, dir) = (scene::repository(), tempfile::tempdir().expect("tempdir"));
    let file = fs::File::create(dir.path().join("file")).expect("create");
    file.set_len(1 << 32).expect("a file of a hole alone");
    let before = scene::back_up(&repository, dir.path(), 1);
    let entry = scene::entry(&repository, &before, &dir.path().join("file"));
    // The same entry, with a recipe that has each byte of the hole as an item.
    let session = repository.session(SessionKind::Backup).expect("session");
    let mut forger = Forger::new(&session);
    let content = forger.bomb(Item::Hole { len: 1 }, 2);
    let named = snapshots::load(&repository, before.id.expect("a snapshot")).expect("load");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    for stored in tree.leaves() {
        let mut leaf = onefold_backup::tree::read_leaf(stored, &mut reader).expect("a leaf");
        for one in &mut leaf.entries {
            if one.name == entry.name {
                one.content = content.clone();
            }
        }
        leaf.recipes.clear();
        let chunk = forger.store(&leaf::encode(&leaf));
        forger.leaves.push(LeafRef {
            chunk,
            ..stored.clone()
        });
    }
    forger.writer.finish().expect("finish");
    let forged = Snapshot {
        time: onefold_backup::Time { secs: 2, nanos: 0 },
        table: LeafTable::Inline(forger.leaves),
        ..named.snapshot
    };
    session.put_root(&forged.encode()).expect("put");
    session.finish().expect("finish");
    let after = scene::back_up(&repository, dir.path(), 3);
    let entry = scene::entry(&repository, &after, &dir.path().join("file"));
    assert_eq!(entry.content.items, [Item::Hole { len: 1 << 32 }]);
}

/// The shortest items that a backup stores, and a file of one repeated block, are no bombs.
#[test]
fn what_a_backup_may_store_expands_as_far_as_it_must() {
    let repository = scene::repository();
    let session = repository.session(SessionKind::Backup).expect("session");
    let mut forger = Forger::new(&session);
    let chunk = forger.store(&[7; 512]);
    let page = Item::Chunk { chunk, span: 512 };
    // Blocks and holes of the finest file system in turns; one block again and again; a tar of members of one byte.
    let byte = Item::Chunk {
        chunk: forger.store(b"x"),
        span: 1,
    };
    let cases: [&[Item]; 3] = [&[page, Item::Hole { len: 512 }], &[page], &[page, byte]];
    for pattern in cases {
        let mut builder = recipe::Builder::default();
        let store = &mut |bytes: Vec<u8>| Ok(forger.store(&bytes));
        for _ in 0..300_000 {
            for item in pattern {
                builder.push(*item, store).expect("push");
            }
        }
        let content = builder.finish(store).expect("finish");
        forger.writer.finish().expect("finish");
        forger.writer = session.writer(StreamKind::Metadata).expect("writer");
        let mut reader = session.reader().expect("reader");
        let mut items = 0;
        visit_items(&content, &mut reader, &mut |met, _| {
            items += usize::from(!matches!(met, Visit::Recipe(_)));
            Ok(true)
        })
        .expect("visited");
        assert_eq!(items, 300_000 * pattern.len());
        assert!(content::is_same(&content, &content, &mut reader).expect("compared"));
    }
}

#[test]
fn an_owner_that_no_system_has_is_damage_and_the_rest_is_restored() {
    let (repository, target) = (scene::repository(), tempfile::tempdir().expect("tempdir"));
    let session = repository.session(SessionKind::Backup).expect("session");
    let mut forger = Forger::new(&session);
    let owner = |bytes: usize| Owner {
        user: "u".repeat(bytes).into(),
        ..me()
    };
    let beside = [
        ("1", owner(255)),
        ("2", owner(256)),
        ("3", owner(4 << 20)),
        ("4", me()),
    ];
    let beside = beside.map(|(name, owner)| (name, forger.plain(name), owner));
    forger.leaf(beside.into());
    // Each of these owners alone is possible, but not all of them together.
    let empty = || Content::default();
    let many = (0..20_000).map(|n| {
        let name: &str = Box::leak(format!("5-{n:05}").into_boxed_str());
        let owner = Owner {
            uid: n,
            group: format!("{n:0250}").into(),
            ..owner(250)
        };
        (name, empty(), owner)
    });
    forger.leaf(many.collect());
    let id = forger.finish();
    session.finish().expect("finish");
    let named = snapshots::load(&repository, id).expect("load");
    let errors = restored(&repository, &named, target.path());
    assert_eq!(errors.len(), 3, "{errors:?}");
    for name in ["/a/2:", "/a/3:"] {
        let named = |error: &String| error.contains(name) && error.contains("255 bytes");
        assert!(errors.iter().any(named), "{errors:?}");
    }
    let there = |name: &str| target.path().join("a").join(name).exists();
    assert_eq!(
        ["1", "2", "3", "4", "5-00000"].map(there),
        [true, false, false, true, false]
    );
    // A check and a repair know it, too, and what the repair makes is whole.
    let session = repository.session(SessionKind::Read).expect("session");
    let (mut hurts, mut reader) = (Vec::new(), session.reader().expect("reader"));
    let mut nothing = |_: &ChunkRef| false;
    hurt(&named.snapshot, &mut reader, &mut nothing, &mut |one| {
        hurts.push(one)
    })
    .expect("looked");
    let files = ["/a/2", "/a/3"].map(|path| Hurt::File(path.into()));
    assert_eq!(hurts[..2], files);
    let repaired = repair(&repository, &named, &|_| false, false).expect("repair");
    let Repaired::Anew(_, Some(id)) = repaired else {
        panic!("{repaired:?}");
    };
    let new = snapshots::load(&repository, id).expect("load");
    let repaired = repair(&repository, &new, &|_| false, false).expect("repair");
    assert_eq!(repaired, Repaired::Whole);
}

/// Entries by the thousand may share what they hold, damage too: it is read and decoded once.
#[test]
fn entries_that_share_a_recipe_chunk_have_it_decoded_once() {
    let repository = scene::repository();
    let session = repository.session(SessionKind::Backup).expect("session");
    let mut forger = Forger::new(&session);
    let chunk = forger.store(&[7; 4096]);
    let items = vec![Item::Chunk { chunk, span: 4096 }; 300];
    let recipe = forger.store(&recipe::encode(&items, 0));
    forger.writer.finish().expect("finish");
    let mut reader = session.reader().expect("reader");
    let mut decoded = 0;
    for _ in 0..1000 {
        let value = reader.decoded(&recipe, |bytes| {
            decoded += 1;
            (recipe::decode(bytes, 0).expect("ours"), 20_000)
        });
        assert_eq!(value.expect("read").len(), 300);
    }
    assert_eq!(decoded, 1);
}
