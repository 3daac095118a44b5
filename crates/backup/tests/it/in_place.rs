//! Files of bytes that look random: stored in long chunks, and in short ones where they change in place.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::tree::{Visit, visit_items};
use onefold_backup::{Progress, Slice, dump, path, restore};
use onefold_chunk::adaptive::{DEEP_BYTES_MAX, LONG_BYTES_MIN};
use onefold_io::MemDir;
use onefold_io::sim::SimDir;
use onefold_store::{
    CheckDepth, ChunkRef, Entropy, Repository, SessionKind, SweepOptions, Unused, container,
};
use rustix::fs::{Advice, fadvise};

use crate::crash::{NoWait, init, open};
use crate::scene::{
    Log, back_up, bytes, entry, look, noise, options, repository_from, restore_folder, restore_with,
};
use crate::untested::not_tested;

const FILE_BYTES: usize = 40 << 20;
const PLACES: [u64; 3] = [1 << 20, 17 << 20, 39 << 20];

fn change(file: &fs::File, seed: u64) {
    for (place, seed) in PLACES.into_iter().zip(seed..) {
        let write = file.write_all_at(&noise(seed, 4096), place);
        write.expect("write");
    }
    file.sync_all().expect("sync");
}

fn added(outcome: &Outcome) -> u64 {
    outcome.snapshot.summary.data_added
}

#[test]
fn what_changes_in_place_costs_little_from_its_first_change_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir(&source).expect("mkdir");
    fs::write(source.join("disk"), noise(1, FILE_BYTES)).expect("write");
    // With other cuts, a change may move a cut, and then a second long chunk changes: with this seed none does.
    let repository: Repository = repository_from(&MemDir::default(), Entropy::seeded(1));
    let first = back_up(&repository, &source, 1);
    let chunks = first.snapshot.summary.data_chunks;
    assert!(chunks < 12, "{chunks}");

    let file = fs::File::options()
        .write(true)
        .open(source.join("disk"))
        .expect("open");
    change(&file, 10);
    let second = back_up(&repository, &source, 2);
    assert!(added(&second) < 100_000, "{}", added(&second));

    for (seed, time) in [(20, 3), (30, 4)] {
        change(&file, seed);
        let next = back_up(&repository, &source, time);
        assert!(added(&next) < 100_000, "{}", added(&next));
        if time == 4 {
            let options = restore::Options {
                path: path::clean(&bytes(&source)),
                verify: true,
                ..restore::Options::default()
            };
            restore_with(&repository, &next, &target, &options);
            assert_eq!(look(&source), look(&target));
        }
    }
}

/// A file of 40 MiB on a device that can be damaged.
struct Scene {
    dir: tempfile::TempDir,
    device: SimDir,
    repository: Repository,
    /// Time of the next snapshot, in seconds.
    secs: i64,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::create_dir(dir.path().join("source")).expect("mkdir");
        let device = SimDir::new(1);
        init(&device);
        let repository = open(&device, 1).expect("open");
        let scene = Self {
            dir,
            device,
            repository,
            secs: 0,
        };
        fs::write(scene.disk(), noise(1, FILE_BYTES)).expect("write");
        scene
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn disk(&self) -> PathBuf {
        self.source().join("disk")
    }

    fn change(&self, place: u64, seed: u64) {
        let file = fs::File::options().write(true).open(self.disk());
        let write = file.expect("open").write_all_at(&noise(seed, 4096), place);
        write.expect("write");
    }

    /// Changes more than half of a long chunk, so that it is cut into short ones.
    fn change_much(&self, place: u64, seed: u64) {
        let file = fs::File::options().write(true).open(self.disk());
        let much = noise(seed, DEEP_BYTES_MAX);
        let write = file.expect("open").write_all_at(&much, place);
        write.expect("write");
    }

    fn back_up(&mut self, is_forced: bool) -> Outcome {
        self.secs += 1;
        let options = backup::Options {
            force_reread: is_forced,
            ..options(self.secs)
        };
        let (log, progress) = (Log::default(), Progress::default());
        let input = Input::Paths(vec![bytes(&self.source())]);
        let outcome = backup::run(&self.repository, input, &options, &progress, &log);
        assert!(log.errors.lock().is_empty());
        outcome.expect("backup")
    }

    /// Returns the chunks of the file; a chunk comes as often as the file has parts of it.
    fn chunks(&self, outcome: &Outcome) -> Vec<ChunkRef> {
        let slices = self.slices(outcome);
        slices.into_iter().map(|slice| slice.chunk).collect()
    }

    fn slices(&self, outcome: &Outcome) -> Vec<Slice> {
        let content = entry(&self.repository, outcome, &self.disk()).content;
        let session = self.repository.session(SessionKind::Read).expect("session");
        let mut reader = session.reader().expect("reader");
        let mut slices = Vec::new();
        visit_items(&content, &mut reader, &mut |visit, _| {
            if let Visit::Data(slice, _) = visit {
                slices.push(slice);
            }
            Ok(true)
        })
        .expect("read");
        slices
    }

    /// Damages all containers with these chunks, and has the repository repaired as far as possible.
    fn lose(&mut self, chunks: &[ChunkRef]) {
        let containers: HashSet<_> = chunks.iter().map(|chunk| chunk.container).collect();
        for id in containers {
            let flip = |bytes: &mut Vec<u8>| {
                let all = bytes.len();
                bytes[64..all - 64]
                    .iter_mut()
                    .step_by(500)
                    .for_each(|byte| *byte ^= 1);
            };
            let object = container::object_name(id);
            self.device.damage(&object, flip).expect("a container");
        }
        self.repository = open(&self.device, 2).expect("open");
        self.repository
            .repair(&SnapshotRoots, &mut NoWait)
            .expect("a repair");
        assert!(!self.is_whole());
    }

    fn is_whole(&self) -> bool {
        let depth = CheckDepth::Data { part: 1, of: 1 };
        let check = self
            .repository
            .check(&SnapshotRoots, depth, &mut |_| {}, &mut |_| {});
        let report = check.expect("a check");
        report.damage.is_empty() && report.hurt.is_empty()
    }

    fn assert_restores(&self, outcome: &Outcome) {
        let target = tempfile::tempdir().expect("tempdir");
        restore_folder(&self.repository, outcome, &self.source(), target.path());
        assert_eq!(look(&self.source()), look(target.path()));
    }
}

fn is_long(chunk: &ChunkRef) -> bool {
    chunk.len as usize > LONG_BYTES_MIN / 2
}

#[test]
fn a_long_chunk_that_was_lost_is_stored_again_as_it_was() {
    for (is_forced, changes) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut scene = Scene::new();
        let first = scene.back_up(false);
        let chunks = scene.chunks(&first);
        assert!(chunks.iter().all(is_long), "{chunks:?}");
        scene.lose(&chunks[2..3]);
        if changes {
            // The change is in the last chunk but one.
            scene.change(FILE_BYTES as u64 - 2 * DEEP_BYTES_MAX as u64, 5);
        }
        let second = scene.back_up(is_forced);
        assert!(scene.is_whole(), "{is_forced}, {changes}");
        scene.assert_restores(&second);
        let target = tempfile::tempdir().expect("tempdir");
        restore_folder(&scene.repository, &first, &scene.source(), target.path());
        let restored = fs::read(target.path().join("disk")).expect("read");
        assert!(restored == noise(1, FILE_BYTES));
    }
}

#[test]
fn short_chunks_that_were_lost_are_stored_again_as_they_were() {
    for is_forced in [false, true] {
        let mut scene = Scene::new();
        scene.back_up(false);
        scene.change_much(17 << 20, 2);
        let second = scene.back_up(false);
        let (long, short): (Vec<_>, Vec<_>) = scene.chunks(&second).into_iter().partition(is_long);
        assert!(long.len() > 3 && short.len() > 100, "{long:?}");
        scene.lose(&short);
        let third = scene.back_up(is_forced);
        assert!(scene.is_whole(), "{is_forced}");
        scene.assert_restores(&second);
        assert_eq!(scene.chunks(&third).len(), long.len() + short.len());
    }
}

#[test]
fn what_was_stored_finely_is_found_under_another_name_and_in_a_stream() {
    let mut scene = Scene::new();
    scene.back_up(false);
    scene.change_much(17 << 20, 3);
    let changed = scene.back_up(false);
    let chunks = scene.chunks(&changed).len();
    assert!(chunks > 200, "{chunks}");
    let content = fs::read(scene.disk()).expect("read");

    fs::rename(scene.disk(), scene.source().join("moved")).expect("rename");
    let moved = scene.back_up(false);
    assert!(added(&moved) < 100_000, "{}", added(&moved));
    assert_eq!(moved.snapshot.summary.data_chunks, 0);

    let (stream, mut producer) = std::io::pipe().expect("pipe");
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || producer.write_all(&content).expect("write"));
        let input = Input::Stream(stream.into(), b"/dump".to_vec());
        let (log, progress) = (Log::default(), Progress::default());
        backup::run(&scene.repository, input, &options(9), &progress, &log)
    });
    let dumped = outcome.expect("backup").snapshot.summary;
    assert_eq!(dumped.data_chunks, 0, "{dumped:?}");
}

#[test]
fn a_file_that_another_takes_the_place_of_keeps_long_chunks() {
    let mut scene = Scene::new();
    scene.back_up(false);
    let other = scene.source().join("other");
    fs::write(&other, noise(2, FILE_BYTES)).expect("write");
    fs::rename(other, scene.disk()).expect("rename");
    let second = scene.back_up(false);
    assert!(scene.chunks(&second).iter().all(is_long));
    assert_eq!(second.snapshot.summary.files_changed, 1);
    // The same goes for a file that grows.
    let mut file = fs::File::options()
        .append(true)
        .open(scene.disk())
        .expect("open");
    file.write_all(&noise(3, FILE_BYTES)).expect("write");
    let third = scene.back_up(false);
    let short = scene
        .chunks(&third)
        .into_iter()
        .filter(|chunk| !is_long(chunk));
    let short: u64 = short.map(|chunk| u64::from(chunk.len)).sum();
    assert!(short <= 2 * DEEP_BYTES_MAX as u64, "{short}");
}

/// This holds wherever the file changes, and whatever changed before.
#[test]
fn what_is_the_same_is_kept_as_parts_of_the_chunk_that_was_there() {
    let mut scene = Scene::new();
    let first = scene.back_up(false);
    let whole: HashSet<_> = scene.chunks(&first).into_iter().collect();
    for (round, place) in [17 << 20, (17 << 20) + 500_000, 100, 18 << 20, 17 << 20]
        .into_iter()
        .enumerate()
    {
        scene.change(place, place + round as u64);
        let next = scene.back_up(false);
        assert!(added(&next) < 50_000, "{place}: {}", added(&next));
        let parts = scene.slices(&next);
        let (own, new): (Vec<Slice>, Vec<Slice>) =
            parts.iter().partition(|part| whole.contains(&part.chunk));
        assert!(!own.iter().all(Slice::is_whole));
        let new: u64 = new.iter().map(|part| u64::from(part.len)).sum();
        assert!(new <= 8192 * (round as u64 + 1), "{place}: {new}");
        scene.assert_restores(&next);
        // Nothing has changed, so the same parts are kept again.
        let again = scene.back_up(true);
        assert_eq!(again.snapshot.summary.data_chunks, 0, "{place}");
        assert_eq!(scene.slices(&again), parts);
    }
    assert!(scene.is_whole());
}

/// The fingerprint of a chunk does not cover its parts; the digest of the whole file does.
#[test]
fn what_has_parts_and_was_moved_has_the_same_parts() {
    let mut scene = Scene::new();
    scene.back_up(false);
    scene.change(17 << 20, 1);
    let file = fs::File::open(scene.disk()).expect("open");
    file.sync_all().expect("sync");
    // The file is put out of the cache, since mapped bytes, which other programs may change, give no digest.
    fadvise(&file, 0, None, Advice::DontNeed).expect("fadvise");
    let second = scene.back_up(false);
    let parts = scene.slices(&second);
    assert!(!parts.iter().all(Slice::is_whole));
    let content = entry(&scene.repository, &second, &scene.disk()).content;
    if content.digest.is_none() {
        return not_tested("files that are put out of the page cache");
    }
    let moved = scene.source().join("moved");
    fs::rename(scene.disk(), &moved).expect("rename");
    fs::read(&moved).expect("read");
    let third = scene.back_up(false);
    assert_eq!(third.snapshot.summary.data_chunks, 0);
    let found = entry(&scene.repository, &third, &moved).content;
    assert!(found == content, "it was cut anew");
}

#[test]
fn what_changes_all_over_or_for_the_most_part_is_cut_into_short_chunks() {
    let mut scene = Scene::new();
    let first = scene.back_up(false);
    let whole: HashSet<_> = scene.chunks(&first).into_iter().collect();
    // Between two of the changes, fewer bytes stay equal than are worth a part.
    (0..100).for_each(|number| scene.change((16 << 20) + number * 50_000, number));
    let second = scene.back_up(false);
    let parts = scene.slices(&second);
    let short = parts.iter().filter(|part| !is_long(&part.chunk)).count();
    assert!(short > 300, "{short}");
    // The file is replaced by another one: some chunks are compared, in vain.
    fs::write(scene.disk(), noise(99, FILE_BYTES)).expect("write");
    let third = scene.back_up(false);
    assert!(
        scene
            .chunks(&third)
            .iter()
            .all(|chunk| !whole.contains(chunk))
    );
    scene.assert_restores(&third);
}

#[test]
fn a_chunk_stays_as_long_as_a_part_of_it_is_used_and_its_loss_is_told() {
    let mut scene = Scene::new();
    let first = scene.back_up(false);
    scene.change(17 << 20, 1);
    let second = scene.back_up(false);
    let id = first.id.expect("a snapshot");
    scene.repository.remove_root(&id).expect("forget");
    let options = SweepOptions {
        unused_max: Some(Unused::Bytes(0)),
        ..SweepOptions::default()
    };
    let swept = scene
        .repository
        .sweep(&SnapshotRoots, &options, &mut NoWait);
    swept.expect("a sweep");
    assert!(scene.is_whole());
    scene.assert_restores(&second);
    let entry = entry(&scene.repository, &second, &scene.disk());
    let session = scene.repository.session(SessionKind::Read);
    let mut reader = session.expect("session").reader().expect("reader");
    let mut dumped = Vec::new();
    dump::file(b"/disk", &entry, &mut reader, &mut dumped, &mut ()).expect("dump");
    assert!(dumped == fs::read(scene.disk()).expect("read"));

    let parts = scene.slices(&second);
    let part = parts.iter().find(|part| !part.is_whole()).expect("a part");
    scene.lose(&[part.chunk]);
    let third = scene.back_up(true);
    scene.assert_restores(&third);
}
