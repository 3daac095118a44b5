//! Data counts as unchanged wherever a sweep has moved its chunks.

use std::fs;
use std::path::Path;

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::leaf::recipe;
use onefold_backup::list::Adder;
use onefold_backup::tree::Tree;
use onefold_backup::{Content, Item, Progress, content, diff, roots, snapshots};
use onefold_chunk::Fingerprint;
use onefold_store::{
    ChunkRef, ChunkWriter, ContainerId, PinInfo, Repository, Roots, Seen, Session, SessionKind,
    StreamKind, SweepObserver, SweepOptions, Unused,
};

use crate::scene::{self, Log, back_up, bytes, options, uneven};

struct NoWait;

impl SweepObserver for NoWait {
    fn progress(&mut self, _: onefold_store::StageProgress) {}

    fn wait_for(&mut self, _: &[PinInfo]) -> bool {
        false
    }
}

/// Sweeps so that nothing unused is left: chunks that share containers with unused ones move.
fn sweep(repository: &Repository) {
    let options = SweepOptions {
        unused_max: Some(Unused::Bytes(0)),
        ..SweepOptions::default()
    };
    let report = repository.sweep(&roots::SnapshotRoots, &options, &mut NoWait);
    assert!(report.expect("sweep").compacted_containers > 0);
}

fn read_again(repository: &Repository, source: &Path, secs: i64) -> Outcome {
    let again = backup::Options {
        force_reread: true,
        ..options(secs)
    };
    let input = Input::Paths(vec![bytes(source)]);
    backup::run(
        repository,
        input,
        &again,
        &Progress::default(),
        &Log::default(),
    )
    .expect("backup")
}

/// Makes two snapshots of one large file, between which a sweep has moved its beginning.
fn moved(folder: &Path) -> (Repository, [Outcome; 2]) {
    fs::write(folder.join("junk"), uneven(1, 100_000)).expect("write");
    fs::write(folder.join("large"), uneven(2, 3_000_000)).expect("write");
    let repository = scene::repository();
    let first = back_up(&repository, folder, 1);
    fs::remove_file(folder.join("junk")).expect("remove");
    let before = back_up(&repository, folder, 2);
    repository
        .remove_root(&first.id.expect("id"))
        .expect("forget");
    sweep(&repository);
    let after = read_again(&repository, folder, 3);
    let [a, b] = [&before, &after]
        .map(|outcome| scene::entry(&repository, outcome, &folder.join("large")).content);
    assert_eq!((a.depth, b.depth), (1, 1));
    let recipe = |content: &Content| content.items[0].chunk().map(|chunk| chunk.fingerprint);
    assert_ne!(recipe(&a), recipe(&b));
    (repository, [before, after])
}

fn marks(repository: &Repository, [a, b]: &[Outcome; 2]) -> String {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let [a, b] = [a, b].map(|outcome| {
        let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
        Tree::open(&named.snapshot, &mut reader).expect("tree")
    });
    let mut marks = String::new();
    let tell = &mut |mark: diff::Mark, _: &[u8], _: Option<&_>, _: Option<&_>| {
        marks.push(mark.letter());
    };
    diff::diff((&a, &b), &mut reader, b"", false, tell).expect("diff");
    marks
}

fn contents(repository: &Repository, outcomes: &[Outcome]) -> u64 {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let mut adder = Adder::of_versions();
    for outcome in outcomes {
        let named = snapshots::load(repository, outcome.id.expect("id")).expect("load");
        let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
        adder.add(&tree, &mut reader).expect("add");
    }
    adder.sizes().contents_count
}

#[test]
fn a_large_file_whose_chunks_moved_is_the_same_to_diff_and_stats() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (repository, outcomes) = moved(dir.path());
    assert_eq!(marks(&repository, &outcomes), "");
    assert_eq!(contents(&repository, &outcomes), 1);
}

#[test]
fn a_large_file_that_changed_after_its_chunks_moved_differs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (repository, [before, _]) = moved(dir.path());
    let mut other = uneven(2, 3_000_000);
    other[2_999_999] ^= 1;
    fs::write(dir.path().join("large"), other).expect("write");
    let outcomes = [before, read_again(&repository, dir.path(), 4)];
    assert_eq!(marks(&repository, &outcomes), "M");
    assert_eq!(contents(&repository, &outcomes), 2);
}

/// Whether all containers that a snapshot refers to are there.
fn refers_to_what_is_there(repository: &Repository, outcome: &Outcome) -> bool {
    let there = repository.containers().expect("containers");
    let is_there = |chunk: &ChunkRef| there.iter().any(|(id, _)| *id == chunk.container);
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let id = outcome.id.expect("id");
    let root = repository.root(&id).expect("root");
    let mut all = true;
    let visit = &mut |chunk: &ChunkRef| {
        all &= is_there(chunk);
        Ok(())
    };
    let seen = &mut Seen::default();
    let refs = roots::SnapshotRoots.for_each_ref(&id, &root, &mut reader, seen, visit);
    refs.expect("references");
    all
}

#[test]
fn a_backup_after_a_compaction_reads_no_file_that_is_unchanged() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("s"), dir.path().join("t"));
    fs::create_dir(&source).expect("folder");
    // Many files will go, between others that stay: small files, one of 20 chunks, and one with recipe chunks.
    for n in 0..40 {
        fs::write(source.join(format!("{n:02}")), uneven(n, 5_000)).expect("write");
        fs::write(source.join(format!("{n:02}-junk")), uneven(100 + n, 9_000)).expect("write");
    }
    fs::write(source.join("a"), uneven(2, 300_000)).expect("write");
    fs::write(source.join("a-junk"), uneven(3, 300_000)).expect("write");
    fs::write(source.join("large"), uneven(4, 3_000_000)).expect("write");
    let repository = scene::repository();
    let first = back_up(&repository, &source, 1);
    for entry in fs::read_dir(&source).expect("folder") {
        let path = entry.expect("entry").path();
        if path.to_string_lossy().ends_with("-junk") {
            fs::remove_file(path).expect("remove");
        }
    }
    let before = back_up(&repository, &source, 2);
    repository
        .remove_root(&first.id.expect("id"))
        .expect("forget");
    sweep(&repository);
    assert!(
        !refers_to_what_is_there(&repository, &before),
        "nothing moved"
    );

    let after = back_up(&repository, &source, 3);
    let summary = &after.snapshot.summary;
    assert_eq!((summary.bytes_read, summary.files_unmodified), (0, 42));
    assert!(refers_to_what_is_there(&repository, &after));
    assert_eq!(marks(&repository, &[before, after]), "");
    let again = back_up(&repository, &source, 4);
    assert_eq!(again.snapshot.summary.bytes_read, 0);
    scene::restore_folder(&repository, &again, &source, &target);
    assert_eq!(scene::look(&source), scene::look(&target));
}

/// Makes a recipe of `items` as a writer would cut it, and one with recipe chunks cut at other places.
fn in_layers(
    items: &[Item],
    cuts: &[usize],
    (session, writer): (&Session, &mut ChunkWriter),
) -> Content {
    let mut content = Content {
        items: items.to_vec(),
        ..Content::default()
    };
    for len in cuts {
        let chunks = content.items.chunks(*len);
        let above = chunks.map(|below| {
            let bytes = recipe::encode(below, content.depth);
            let mut refs = Vec::new();
            let chunk = (session.fingerprinter().fingerprint(&bytes), &bytes[..]);
            writer.write(&[chunk], &mut refs).expect("write");
            Item::Chunk {
                chunk: refs[0],
                span: below.iter().map(Item::span).sum(),
            }
        });
        content = Content {
            items: above.collect(),
            depth: content.depth + 1,
            ..Content::default()
        };
    }
    content
}

/// Makes the items of a file with a hole, in these containers.
fn items(container: u64) -> Vec<Item> {
    let chunk = |number: u64| Item::Chunk {
        chunk: ChunkRef {
            fingerprint: Fingerprint::of(&number.to_le_bytes()),
            container: ContainerId(container + number % 3),
            len: 100,
        },
        span: 100,
    };
    let mut items: Vec<_> = (0..500).map(chunk).collect();
    items[250] = Item::Hole { len: 12_345 };
    items
}

#[test]
fn contents_are_the_same_however_their_recipes_are_cut() {
    let repository = scene::repository();
    let session = repository.session(SessionKind::Backup).expect("session");
    let mut writer = session.writer(StreamKind::Metadata).expect("writer");
    let same = items(1);
    let mut other = items(1);
    other[499] = other[0];
    let layers: [&[usize]; 5] = [&[], &[500], &[10], &[10, 7], &[13, 2, 5]];
    let mut made = Vec::new();
    for (number, cuts) in layers.iter().enumerate() {
        made.push((true, in_layers(&same, cuts, (&session, &mut writer))));
        made.push((
            true,
            in_layers(&items(10 + number as u64), cuts, (&session, &mut writer)),
        ));
        made.push((false, in_layers(&other, cuts, (&session, &mut writer))));
        made.push((
            false,
            in_layers(&same[..499], cuts, (&session, &mut writer)),
        ));
    }
    writer.finish().expect("finish");
    let mut reader = session.reader().expect("reader");
    let (_, first) = &made[0];
    let name = content::name(first, &mut reader).expect("name");
    for (expected, content) in &made {
        for (a, b) in [(first, content), (content, first)] {
            let is_same = content::is_same(a, b, &mut reader).expect("read");
            assert_eq!(is_same, *expected, "{:?}", content.depth);
        }
        let is_same = content::name(content, &mut reader).expect("read") == name;
        assert_eq!(is_same, *expected, "{:?}", content.depth);
    }
}
