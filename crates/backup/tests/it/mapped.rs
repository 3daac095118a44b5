//! Large files that are stored already are looked at in the page cache. Whatever other programs do to them meanwhile,
//! each chunk of a snapshot has the bytes that its fingerprint says.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use onefold_backup::backup::{self, Input, Outcome};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::{Change, Error, Events, Progress};
use onefold_io::os::FileWindow;
use onefold_store::{CheckDepth, Repository};

use crate::scene::{self, Log, back_up, bytes, options, restore_folder};
use crate::untested::not_tested;

const MIB: usize = 1 << 20;

/// Reads all files again, one after another: what comes behind known files is likely to be known. Nothing may fail.
fn read_again(repository: &Repository, source: &Path, secs: i64, events: &dyn Events) -> Outcome {
    let again = backup::Options {
        force_reread: true,
        readers: 1,
        ..options(secs)
    };
    let input = Input::Paths(vec![bytes(source)]);
    backup::run(repository, input, &again, &Progress::default(), events).expect("backup")
}

/// Checks that every chunk of the repository has the bytes that its fingerprint says.
fn check(repository: &Repository) {
    let (progress, found) = (&mut |_| {}, &mut |error: &_| panic!("{error}"));
    let all = CheckDepth::Data { part: 1, of: 1 };
    let report = repository.check(&SnapshotRoots, all, progress, found);
    assert_eq!(report.expect("check").damage.len(), 0);
}

/// One half of a file is known and the other half is new, behind other known files: nothing is lost, and only new
/// chunks are stored.
#[test]
fn new_chunks_among_known_ones_are_stored() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let known = scene::noise(1, 24 * MIB);
    fs::write(dir.path().join("1"), &known).unwrap();
    let repository = scene::repository();
    back_up(&repository, dir.path(), 1);
    let mut mixed = known.clone();
    for at in (9 * MIB..24 * MIB).step_by(4 * MIB) {
        mixed[at..at + 50_000].copy_from_slice(&scene::noise(at as u64, 50_000));
    }
    fs::write(dir.path().join("2"), &mixed).unwrap();
    fs::write(dir.path().join("3"), &known[5..]).unwrap();
    let outcome = read_again(&repository, dir.path(), 2, &Log::default());
    check(&repository);
    let stored = outcome.snapshot.summary.data_added;
    assert!(stored >= 4 * 50_000, "{stored} bytes");
    // A long chunk may span two of the changed places.
    let new = outcome.snapshot.summary.data_chunks;
    assert!((2..120).contains(&new), "{new} new chunks");
    restore_folder(&repository, &outcome, dir.path(), out.path());
    for name in ["1", "2", "3"] {
        let read = |dir: &Path| fs::read(dir.join(name)).unwrap();
        assert!(read(dir.path()) == read(out.path()), "{name}");
    }
}

/// Writes to a file when the file before it is done, while parts of it that were read ahead wait for the store.
struct WriteWhen<'a> {
    log: Log,
    done: &'a [u8],
    /// Time for the threads that fingerprint the next parts.
    pause: Duration,
    write: &'a (dyn Fn() + Sync),
}

impl Events for WriteWhen<'_> {
    fn error(&self, path: &[u8], error: &Error) {
        self.log.error(path, error);
    }

    fn warning(&self, path: &[u8], what: &str) {
        self.log.warning(path, what);
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, path: &[u8], _: Change, _: u64) {
        if path.ends_with(self.done) {
            std::thread::sleep(self.pause);
            (self.write)();
        }
    }
}

/// Whether this file can be looked at in the page cache.
fn is_mapped(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    let window = FileWindow::map(file.as_fd(), 0, 8 * MIB);
    window.is_some_and(|window| window.populate(0..8 * MIB))
}

/// Bytes that do not look random, so that chunks are short and most lie in a window whole.
fn plain(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = scene::noise(seed, len);
    bytes.iter_mut().for_each(|byte| *byte &= 15);
    bytes
}

/// New bytes of a mapped file change after they were fingerprinted and before they are stored: no chunk is stored under
/// a wrong fingerprint. The file is read twice if the change came in between; else the test tries again with more time
/// to fingerprint.
#[test]
fn a_file_that_changes_before_it_is_stored_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let known = plain(2, 40 * MIB);
    for name in ["1", "2", "3"] {
        fs::write(path(name), &known).unwrap();
    }
    let repository = scene::repository();
    back_up(&repository, dir.path(), 1);
    for attempt in 0..8u64 {
        // The file is so short that all of it is read before the store asks for any.
        let mut new = known[..10 * MIB].to_vec();
        new[6 * MIB..].copy_from_slice(&plain(3 + 2 * attempt, 4 * MIB));
        fs::write(path("3"), &new).unwrap();
        // The new bytes have the same length, so that only bytes and times differ.
        let later = plain(4 + 2 * attempt, 4 * MIB);
        let file = File::options().write(true).open(path("3")).unwrap();
        let events = WriteWhen {
            log: Log::default(),
            done: b"/2",
            pause: Duration::from_millis(50 << attempt),
            write: &|| file.write_all_at(&later, 6 << 20).unwrap(),
        };
        let outcome = read_again(&repository, dir.path(), 2 + attempt as i64, &events);
        assert_eq!(*events.log.errors.lock(), []);
        check(&repository);
        let out = tempfile::tempdir().unwrap();
        restore_folder(&repository, &outcome, dir.path(), out.path());
        assert!(fs::read(out.path().join("2")).unwrap() == known);
        let found = fs::read(out.path().join("3")).unwrap();
        let is_before = found == new;
        new[6 * MIB..].copy_from_slice(&later);
        assert!(found == new || is_before);
        if outcome.snapshot.summary.bytes_read > 90 * MIB as u64 {
            assert!(!is_before, "read again, and not as it is now");
            return;
        }
        if !is_mapped(&path("3")) {
            eprintln!("NOT RUN: files are not mapped here");
            return;
        }
    }
    panic!("it was never read again");
}

/// Cancels the backup when a file is done.
struct CancelWhen<'a> {
    done: &'a [u8],
    progress: &'a Progress,
}

impl Events for CancelWhen<'_> {
    fn error(&self, _: &[u8], _: &Error) {}

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, path: &[u8], _: Change, _: u64) {
        if path.ends_with(self.done) {
            std::thread::sleep(Duration::from_millis(200));
            self.progress.cancel();
        }
    }
}

/// A reader that waits for the store to have all of a mapped file is woken when the store gives up.
#[test]
fn nobody_waits_for_a_store_that_gave_up() {
    let dir = tempfile::tempdir().unwrap();
    let known = scene::noise(7, 40 * MIB);
    for (name, len) in [("1", 40), ("2", 40), ("3", 10), ("4", 9)] {
        fs::write(dir.path().join(name), &known[..len * MIB]).unwrap();
    }
    let repository = scene::repository();
    back_up(&repository, dir.path(), 1);
    for done in ["/1", "/2", "/3"] {
        let progress = Progress::default();
        let events = CancelWhen {
            done: done.as_bytes(),
            progress: &progress,
        };
        let again = backup::Options {
            force_reread: true,
            ..options(2)
        };
        let input = Input::Paths(vec![bytes(dir.path())]);
        let ended = backup::run(&repository, input, &again, &progress, &events);
        assert!(matches!(ended, Err(Error::Cancelled)), "{done}");
    }
}

/// Looking at a hole in a mapping fills it on a file system in RAM: nothing before a file's data is looked at.
#[test]
fn holes_before_data_stay_holes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let known = scene::noise(8, 24 * MIB);
    fs::write(dir.path().join("1"), &known).unwrap();
    let sparse = File::create(dir.path().join("2")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    for at in [8, 24, 40] {
        sparse.write_all_at(&known[..9 * MIB], at << 20).unwrap();
    }
    let blocks = || sparse.metadata().unwrap().blocks();
    let before = blocks();
    let repository = scene::repository();
    back_up(&repository, dir.path(), 1);
    let outcome = read_again(&repository, dir.path(), 2, &Log::default());
    assert_eq!(outcome.snapshot.summary.data_chunks, 0);
    assert_eq!(blocks(), before);
}

/// Files are cut short and grow again, all the time, while they are read: no backup ends because of it, and each
/// snapshot can be restored.
#[test]
fn files_may_be_cut_short_while_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let known = scene::noise(6, 32 * MIB);
    for name in ["1", "2"] {
        fs::write(dir.path().join(name), &known).unwrap();
    }
    let repository = scene::repository();
    back_up(&repository, dir.path(), 1);
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = scene::Raised(over);
        scope.spawn(|| {
            let file = File::options().write(true).open(dir.path().join("2"));
            let file = file.unwrap();
            while !over.load(Relaxed) {
                for at in [3 * MIB, 17 * MIB + 5, 31 * MIB] {
                    file.set_len(at as u64).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                    file.write_all_at(&known[at..], at as u64).unwrap();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        for secs in 2..12 {
            let log = Log::default();
            let outcome = read_again(&repository, dir.path(), secs, &log);
            assert_eq!(*log.errors.lock(), []);
            let out = tempfile::tempdir().unwrap();
            restore_folder(&repository, &outcome, dir.path(), out.path());
            assert!(fs::read(out.path().join("1")).unwrap() == known);
            let found = fs::read(out.path().join("2")).unwrap();
            assert!(found.len() <= known.len());
            // Zeros may stand between a cut and the end that was written again.
            let strange = found.iter().zip(&known).filter(|(a, b)| a != b && **a != 0);
            assert_eq!(strange.count(), 0);
        }
    });
    check(&repository);
}

/// A program that has a file mapped changes its dirty pages without any sign until they are written.
#[test]
fn what_is_written_through_a_mapping_behind_a_backup_is_in_the_next() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().join("mapped");
    fs::write(&path, [b'0'; 4096]).unwrap();
    let map = Map::new(&path);
    let time = || {
        let about = fs::metadata(&path).unwrap();
        (about.mtime(), about.mtime_nsec())
    };
    map.write(b'1');
    File::open(&path).unwrap().sync_all().unwrap();
    let before = time();
    std::thread::sleep(Duration::from_millis(50));
    map.write(b'1');
    if time() == before {
        return not_tested("times of mappings, which leave none on this file system");
    }
    // longer than the time within which no file is trusted
    std::thread::sleep(Duration::from_millis(100));
    let repository = scene::repository();
    back_up(&repository, dir.path(), 1);
    map.write(b'2');
    let outcome = back_up(&repository, dir.path(), 2);
    restore_folder(&repository, &outcome, dir.path(), out.path());
    assert_eq!(fs::read(out.path().join("mapped")).unwrap()[0], b'2');
}

/// The first page of a file, mapped.
struct Map(*mut u8);

impl Map {
    fn new(path: &Path) -> Self {
        use std::os::fd::AsRawFd;
        let file = File::options().read(true).write(true).open(path).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping of a page that the file has.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_SHARED, fd, 0) };
        assert!(map != libc::MAP_FAILED);
        Self(map.cast())
    }

    fn write(&self, byte: u8) {
        // SAFETY: the mapping is a page long and lives as long as this process; nobody cuts the file short.
        unsafe { self.0.write_volatile(byte) }
    }
}
