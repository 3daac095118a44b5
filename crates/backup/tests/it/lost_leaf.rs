//! Snapshots that have lost one leaf of metadata, each leaf in turn, and the repair of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use onefold_backup::backup::Outcome;
use onefold_backup::repair::{Repaired, repair};
use onefold_backup::roots::{Hurt, SnapshotRoots};
use onefold_backup::snapshots::{self, Named};
use onefold_backup::tree::Tree;
use onefold_backup::{Flags, Progress, path, restore};
use onefold_io::Dir;
use onefold_io::sim::SimDir;
use onefold_store::{
    CheckDepth, CheckReport, ContainerId, Encryption, InitOptions, OpenOptions, Repository,
    SessionKind,
};

use crate::crash::NoWait;
use crate::scene::{self, Log, back_up, bytes, restore_with};

/// Makes a device with a new repository, not encrypted.
pub fn device() -> SimDir {
    let device = SimDir::new(1);
    let mut init = InitOptions::new("test", 1);
    init.encryption = Encryption::None;
    Repository::init(Arc::new(device.clone()) as Arc<dyn Dir>, &init, None).expect("init");
    device
}

/// Opens the repository with containers so small that each holds one leaf.
pub fn open(device: &SimDir) -> Repository {
    let options = OpenOptions {
        container_bytes: 4 << 10,
        block_bytes: Some(4 << 10),
        ..OpenOptions::default()
    };
    Repository::open(Arc::new(device.clone()), options, None).expect("open")
}

/// Makes nested folders with so many long names that they make several leaves: more than the longest leaf holds, since
/// the cuts depend on the paths, which begin with a random name.
fn write_source(root: &Path) {
    for folder in 0..24 {
        let folder = root.join(format!("{}/{}/{folder:02}", folder % 2, folder % 6));
        fs::create_dir_all(&folder).expect("dirs");
        for file in 0..80 {
            let name = long_name(&format!("{} {file}", folder.display()));
            fs::write(folder.join(name), file.to_string()).expect("write");
        }
    }
}

/// Makes a long name that does not compress.
pub fn long_name(text: &str) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    (0..15)
        .map(|round| {
            for byte in text.bytes().chain([round]) {
                state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            format!("{state:016x}")
        })
        .collect()
}

fn containers(device: &SimDir) -> Vec<String> {
    let paths = device.paths().into_iter();
    paths
        .filter(|path| path.starts_with("containers/") && path.len() > 14)
        .collect()
}

pub fn object(id: ContainerId) -> String {
    let name = id.to_string();
    format!("containers/{}/{name}", &name[..2])
}

pub fn check(repository: &Repository) -> CheckReport {
    let depth = CheckDepth::Data { part: 1, of: 1 };
    repository
        .check(&SnapshotRoots, depth, &mut |_| {}, &mut |_| {})
        .expect("check")
}

/// Returns every path of a snapshot, with its flags and size.
pub fn entries(repository: &Repository, named: &Named) -> BTreeMap<Vec<u8>, About> {
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    let mut found = BTreeMap::new();
    for leaf in tree.leaves() {
        let leaf = onefold_backup::tree::read_leaf(leaf, &mut reader).expect("a leaf");
        for (folder, entry) in leaf.iter() {
            let about = (entry.flags, entry.size, entry.is_dir());
            let before = found.insert(path::join(folder, &entry.name), about);
            assert!(before.is_none(), "twice");
        }
    }
    found
}

fn load(repository: &Repository, outcome: &Outcome) -> Named {
    snapshots::load(repository, outcome.id.expect("a snapshot")).expect("load")
}

/// Flags, size, and whether the entry is a folder.
pub type About = (Flags, u64, bool);

/// Removes the container of one leaf, and repairs the snapshot; returns the new one, and the reported losses.
fn lose_and_repair(
    hurt: &SimDir,
    named: &Named,
    container: ContainerId,
) -> (Repository, Named, Vec<Hurt>) {
    let gone = object(container);
    assert!(containers(hurt).contains(&gone), "{gone}");
    hurt.lose(&gone).expect("lose");
    let repository = open(hurt);
    let report = check(&repository);
    assert!(!report.damage.is_empty());
    let is_lost = |chunk: &_| report.hurt.hurts(chunk);
    let Repaired::Anew(hurts, Some(new)) =
        repair(&repository, named, &is_lost, false).expect("repair")
    else {
        panic!("nothing was repaired");
    };
    assert!(!hurts.contains(&Hurt::All));
    repository.remove_root(&named.id).expect("remove");
    let left = check(&repository);
    assert!(left.damage.is_empty(), "{:?}", left.damage);
    let new = snapshots::load(&repository, new).expect("load");
    (repository, new, hurts)
}

/// Checks that every lost path was reported, and that the rest is unchanged; returns whether anything is lost.
fn assert_told(
    all: &BTreeMap<Vec<u8>, About>,
    kept: &BTreeMap<Vec<u8>, About>,
    hurts: &[Hurt],
) -> bool {
    let is_told = |path: &[u8]| {
        hurts.iter().any(|hurt| match hurt {
            Hurt::File(file) => file == path,
            Hurt::Entries(from, to) => {
                order(from, path).is_le() && to.as_ref().is_none_or(|to| order(path, to).is_lt())
            }
            Hurt::All => true,
        })
    };
    for (path, about) in all {
        let shown = path::show(path);
        match kept.get(path) {
            Some(_) if is_told(path) => {}
            Some(now) if about.2 => assert_eq!(about.1, now.1, "{shown}"),
            Some(now) => assert_eq!(about, now, "{shown}"),
            None => {
                assert!(is_told(path), "{shown} went untold");
                // Lost names must not count as removed.
                let flags = kept.get(path::split(path).0).map(|about| about.0);
                assert!(
                    flags.is_none_or(|flags| flags.has(Flags::UNLISTED)),
                    "the folder of {shown} passes for whole"
                );
            }
        }
    }
    kept.len() < all.len()
}

/// Paths whose folder has no entry any more are restored all the same.
fn assert_restored(repository: &Repository, new: &Named, kept: &BTreeMap<Vec<u8>, About>) {
    let target = tempfile::tempdir().expect("tempdir");
    let outcome = Outcome {
        id: Some(new.id),
        snapshot: new.snapshot.clone(),
        missing_sources: 0,
    };
    let options = restore::Options::default();
    restore_with(repository, &outcome, target.path(), &options);
    let readable = |about: &About| !about.2 && !about.0.has(Flags::UNREADABLE);
    for (path, about) in kept.iter().filter(|(_, about)| readable(about)) {
        let there = target.path().join(path::show(path).trim_start_matches('/'));
        let is_there = fs::metadata(&there).is_ok_and(|there| there.len() == about.1);
        assert!(is_there, "{} is not restored", there.display());
    }
}

#[test]
fn of_a_snapshot_without_a_leaf_all_else_is_left() {
    let source = tempfile::tempdir().expect("tempdir");
    write_source(source.path());
    let device = device();
    let repository = open(&device);
    let outcome = back_up(&repository, source.path(), 1);
    let named = load(&repository, &outcome);
    let all = entries(&repository, &named);
    let leaves: Vec<_> = {
        let session = repository.session(SessionKind::Read).expect("session");
        let mut reader = session.reader().expect("reader");
        let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
        tree.leaves().to_vec()
    };
    drop(repository);
    assert!(leaves.len() > 1, "only {} leaves", leaves.len());
    for number in BTreeSet::from([0, 1, leaves.len() / 2, leaves.len() - 1]) {
        println!("leaf {number}");
        let container = leaves[number].chunk.container;
        let (repository, new, hurts) = lose_and_repair(&device.fork(), &named, container);
        let kept = entries(&repository, &new);
        assert!(assert_told(&all, &kept, &hurts), "nothing is lost");
        if number == 0 {
            assert_restored(&repository, &new, &kept);
        }
    }
}

#[test]
fn a_snapshot_without_any_leaf_is_lost_as_a_whole() {
    let source = tempfile::tempdir().expect("tempdir");
    write_source(source.path());
    let device = device();
    let repository = open(&device);
    let named = load(&repository, &back_up(&repository, source.path(), 1));
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    let leaves: BTreeSet<_> = tree
        .leaves()
        .iter()
        .map(|leaf| object(leaf.chunk.container))
        .collect();
    drop((session, reader, repository));
    for leaf in leaves {
        device.lose(&leaf).expect("lose");
    }
    let repository = open(&device);
    let report = check(&repository);
    let is_lost = |chunk: &_| report.hurt.hurts(chunk);
    let repaired = repair(&repository, &named, &is_lost, false).expect("repair");
    assert!(matches!(repaired, Repaired::Gone), "{repaired:?}");
}

/// A backup is acknowledged during a slow check, and stores again the chunks that were lost before it.
#[test]
fn what_a_backup_stores_again_after_the_look_is_not_lost_for_a_repair() {
    let source = tempfile::tempdir().expect("tempdir");
    fs::write(source.path().join("file"), scene::noise(1, 40_000)).expect("write");
    let device = device();
    let first = load(&open(&device), &back_up(&open(&device), source.path(), 1));
    let entry = {
        let repository = open(&device);
        let outcome_of = back_up(&repository, source.path(), 2);
        scene::entry(&repository, &outcome_of, &source.path().join("file"))
    };
    let data = entry.content.items.iter().find_map(|item| item.chunk());
    device
        .lose(&object(data.expect("a chunk").container))
        .expect("lose");
    let repository = open(&device);
    repository
        .repair(&SnapshotRoots, &mut NoWait)
        .expect("repair");
    let report = check(&repository);
    let is_lost = |chunk: &_| report.hurt.hurts(chunk);
    let dry = repair(&repository, &first, &is_lost, true).expect("repair");
    assert!(matches!(dry, Repaired::Anew(_, None)), "{dry:?}");
    let second = load(&repository, &back_up(&repository, source.path(), 3));
    for named in [first, second] {
        let repaired = repair(&repository, &named, &is_lost, false).expect("repair");
        assert_eq!(repaired, Repaired::Whole);
    }
    assert!(check(&repository).damage.is_empty());
}

/// Two snapshots have the lost leaf, and data behind it is lost, too.
#[test]
fn a_check_goes_on_behind_a_lost_leaf_in_every_snapshot_that_has_it() {
    let source = tempfile::tempdir().expect("tempdir");
    write_source(source.path());
    let last = source.path().join("zz");
    fs::create_dir(&last).expect("mkdir");
    let last = last.join("zz");
    fs::write(&last, scene::noise(1, 40_000)).expect("write");
    let device = device();
    let repository = open(&device);
    let outcomes = [1, 2].map(|secs| back_up(&repository, source.path(), secs));
    let named = load(&repository, &outcomes[0]);
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    let lost = &tree.leaves()[1];
    let last = scene::entry(&repository, &outcomes[0], &last);
    let data = last.content.items.iter().find_map(|item| item.chunk());
    let data = data.expect("a chunk").container;
    drop(session);
    device.lose(&object(lost.chunk.container)).expect("lose");
    device.lose(&object(data)).expect("lose");
    let report = check(&open(&device));
    let mut roots = outcomes.map(|outcome| outcome.id.expect("id")).to_vec();
    roots.sort();
    let mut damaged = report.damaged_roots.clone();
    damaged.sort();
    assert_eq!(damaged, roots);
    let is_named = report.hurt.containers.contains(&data) || !report.hurt.chunks.is_empty();
    assert!(is_named, "what is lost behind the leaf");
    let repository = open(&device);
    let is_lost = |chunk: &_| report.hurt.hurts(chunk);
    for root in roots {
        let named = snapshots::load(&repository, root).expect("load");
        let repaired = repair(&repository, &named, &is_lost, false).expect("repair");
        assert!(matches!(repaired, Repaired::Anew(..)), "{repaired:?}");
        repository.remove_root(&root).expect("remove");
    }
    let left = check(&repository).damage;
    assert!(left.is_empty(), "{left:?}");
}

/// With a leaf lost, the snapshot's other names in the folder are not known.
#[test]
fn a_restore_that_deletes_stops_deleting_where_a_leaf_is_lost_and_restores_the_rest() {
    let place = tempfile::tempdir().expect("tempdir");
    let source = place.path().join("source");
    write_source(&source);
    let device = device();
    let repository = open(&device);
    let outcome = back_up(&repository, &source, 1);
    let named = load(&repository, &outcome);
    let session = repository.session(SessionKind::Read).expect("session");
    let mut reader = session.reader().expect("reader");
    let tree = Tree::open(&named.snapshot, &mut reader).expect("tree");
    let leaves = tree.leaves().to_vec();
    for number in BTreeSet::from([1, leaves.len() / 2, leaves.len() - 1]) {
        let (hurt, target) = (device.fork(), place.path().join(number.to_string()));
        let lost = &leaves[number];
        hurt.lose(&object(lost.chunk.container)).expect("lose");
        scene::restore_folder(&repository, &outcome, &source, &target);
        let repository = open(&hurt);
        let others = [b"/0/0/other", b"/1/5/other"];
        let place_of = |other: &[u8]| target.join(path::show(&other[1..]));
        for other in others {
            fs::write(place_of(other), "").expect("write");
        }
        let session = repository.session(SessionKind::Read).expect("session");
        let options = restore::Options {
            path: path::clean(&bytes(&source)),
            delete: true,
            ..restore::Options::default()
        };
        let (log, progress) = (Log::default(), Progress::default());
        let (snapshot, to) = (&named.snapshot, bytes(&target));
        let summary = restore::run(&session, snapshot, &to, &options, &progress, &log);
        let summary = summary.expect("the rest is restored");
        assert_eq!((summary.lost_parts, summary.errors), (1, 1));
        assert!(summary.files > 0);
        for other in others {
            let full = [&bytes(&source)[..], other].concat();
            let from = path::join(&lost.folder, &lost.name);
            let is_after = order(&from, &full).is_lt();
            assert_eq!(place_of(other).exists(), is_after, "{}", path::show(other));
        }
        let files = |root: &Path| scene::look(root).len();
        let left = others.map(|other| usize::from(place_of(other).exists()));
        assert_eq!(files(&target), files(&source) + left[0] + left[1]);
    }
}

/// Compares paths in the order of a snapshot's entries: by folder, then by name.
fn order(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let ((folder_a, name_a), (folder_b, name_b)) = (path::split(a), path::split(b));
    path::order(folder_a, folder_b).then(name_a.cmp(name_b))
}
