//! Large files that look like one in an earlier snapshot are verified: by their digests where the repository has a
//! secret key, along their cuts where it has none. Whatever the result, a snapshot has the files' real content.

use std::fs::{self, File, FileTimes};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onefold_backup::backup::{self, Input, Outcome, Rules};
use onefold_backup::{Content, Progress, Slice};
use onefold_io::Dir;
use onefold_io::os::cached_bytes;
use onefold_io::sim::SimDir;
use onefold_store::{
    Encryption, Entropy, InitOptions, KdfCost, OpenOptions, Repository, Secret, container,
};
use rustix::fs::{Advice, fadvise};

use crate::leased::{F_SETSIG, lease};
use crate::scene::{Log, bytes, entry, look, options, restore_folder, uneven};
use crate::untested::not_tested;

mod holes;

const MIB: usize = 1 << 20;

/// A file of 20 MiB in a folder, and a repository that cuts it first into pieces of one length. Later it cuts by
/// content, so the chunks tell whether the file was cut again.
struct Scene {
    dir: tempfile::TempDir,
    device: SimDir,
    secret: Option<Secret>,
    repository: Repository,
    first: Content,
    secs: i64,
}

fn open(device: &SimDir, secret: Option<&Secret>) -> Repository {
    let options = OpenOptions {
        container_bytes: 2 << 20,
        block_bytes: Some(256 << 10),
        entropy: Entropy::system(),
        ..OpenOptions::default()
    };
    Repository::open(Arc::new(device.clone()), options, secret).expect("open")
}

impl Scene {
    /// Makes a scene with a secret key, and so with digests, and one without.
    fn each() -> [Self; 2] {
        [Encryption::Aes256Gcm, Encryption::None].map(Self::with)
    }

    fn with(encryption: Encryption) -> Self {
        Self::of(encryption, |file| {
            let all = uneven(1, 20 * MIB + 5);
            file.write_all_at(&all, 0).expect("write");
        })
    }

    fn of(encryption: Encryption, write: impl FnOnce(&File)) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::create_dir(dir.path().join("a")).expect("mkdir");
        write(&File::create(dir.path().join("a/file.xyz")).expect("create"));
        let device = SimDir::new(1);
        let secret = (encryption != Encryption::None).then(|| Secret::new("open sesame"));
        let mut init = InitOptions::new("test", 1);
        init.encryption = encryption;
        init.kdf_cost = KdfCost::LEAST;
        init.chunker = "context".into();
        let place: Arc<dyn Dir> = Arc::new(device.clone());
        Repository::init(place, &init, secret.as_ref()).expect("init");
        let mut scene = Self {
            dir,
            repository: open(&device, secret.as_ref()),
            device,
            secret,
            first: Content::default(),
            secs: 0,
        };
        let rules = Rules::with("fixed compress xyz").expect("rules");
        let outcome = scene.back_up_as("a", |options| options.chunk_rules = Some(Arc::new(rules)));
        scene.first = scene.content(&outcome, "a/file.xyz");
        assert_eq!(scene.first.digest.is_some(), scene.secret.is_some());
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn back_up_as(&mut self, name: &str, choose: impl FnOnce(&mut backup::Options)) -> Outcome {
        self.secs += 1;
        let mut options = options(self.secs);
        choose(&mut options);
        let (log, progress) = (Log::default(), Progress::default());
        let input = Input::Paths(vec![bytes(&self.path(name))]);
        let outcome = backup::run(&self.repository, input, &options, &progress, &log);
        assert_eq!(*log.errors.lock(), []);
        let outcome = outcome.expect("backup");
        let target = tempfile::tempdir().expect("tempdir");
        restore_folder(&self.repository, &outcome, &self.path(name), target.path());
        assert_eq!(look(&self.path(name)), look(target.path()));
        outcome
    }

    fn back_up(&mut self, name: &str) -> Outcome {
        self.back_up_as(name, |_| {})
    }

    fn read_again(&mut self, name: &str) -> Outcome {
        self.back_up_as(name, |options| options.force_reread = true)
    }

    fn content(&self, outcome: &Outcome, name: &str) -> Content {
        entry(&self.repository, outcome, &self.path(name)).content
    }

    /// Makes a copy that looks the same.
    fn copy(&self, name: &str, change: impl FnOnce(&File)) {
        let (from, to) = (self.path("a/file.xyz"), self.path(name));
        fs::create_dir(to.parent().expect("a folder")).expect("mkdir");
        fs::copy(&from, &to).expect("copy");
        let file = File::options().write(true).open(to).expect("open");
        change(&file);
        let about = fs::metadata(from).expect("stat");
        let times = FileTimes::new().set_modified(about.modified().expect("mtime"));
        file.set_times(times).expect("utimens");
    }
}

/// Whether the kernel says that the file lies in its page cache.
fn is_cached(path: &Path) -> bool {
    let file = File::open(path).expect("open");
    let len = fs::read(path).expect("read").len() as u64;
    let cached = cached_bytes(file.as_fd(), 0, len);
    cached.is_some_and(|bytes| bytes >= len) || {
        not_tested("files in the page cache, of which this kernel does not tell");
        false
    }
}

#[test]
fn what_is_read_again_keeps_its_chunks() {
    for mut scene in Scene::each() {
        if is_cached(&scene.path("a/file.xyz")) {
            let outcome = scene.read_again("a");
            assert_eq!(outcome.snapshot.summary.bytes_read, 20 * MIB as u64 + 5);
            assert_eq!(outcome.snapshot.summary.data_chunks, 0);
            assert_eq!(outcome.snapshot.summary.files_unmodified, 1);
            assert_eq!(scene.content(&outcome, "a/file.xyz"), scene.first);
        }
    }
}

#[test]
fn what_was_moved_or_copied_is_found_by_its_looks() {
    for mut scene in Scene::each() {
        scene.copy("b/copy.xyz", |_| {});
        if is_cached(&scene.path("b/copy.xyz")) {
            let outcome = scene.back_up("b");
            assert_eq!(outcome.snapshot.summary.data_chunks, 0);
            assert_eq!(scene.content(&outcome, "b/copy.xyz"), scene.first);
        }
        fs::rename(scene.path("a"), scene.path("c")).expect("rename");
        if is_cached(&scene.path("c/file.xyz")) {
            let outcome = scene.back_up("c");
            assert_eq!(outcome.snapshot.summary.bytes_read, 20 * MIB as u64 + 5);
            assert_eq!(scene.content(&outcome, "c/file.xyz"), scene.first);
        }
    }
}

/// Puts a file out of the page cache, where the file system allows it.
fn put_out(path: &Path) {
    let file = File::open(path).expect("open");
    file.sync_all().expect("sync");
    fadvise(&file, 0, None, Advice::DontNeed).expect("fadvise");
    let cached = cached_bytes(file.as_fd(), 0, 20 << 20);
    if cached.is_none_or(|bytes| bytes > 0) {
        not_tested("files that are put out of the page cache");
    }
}

#[test]
fn what_lies_on_the_disk_is_verified_by_its_digest() {
    let mut scene = Scene::with(Encryption::Aes256Gcm);
    scene.copy("b/file.xyz", |_| {});
    put_out(&scene.path("b/file.xyz"));
    let outcome = scene.back_up("b");
    assert_eq!(outcome.snapshot.summary.data_chunks, 0);
    assert_eq!(outcome.snapshot.summary.bytes_read, 20 * MIB as u64 + 5);
    assert_eq!(scene.content(&outcome, "b/file.xyz"), scene.first);

    for (name, at) in [("c", 1), ("d", 20 * MIB as u64 + 4)] {
        let name = format!("{name}/file.xyz");
        scene.copy(&name, |file| {
            file.write_all_at(b"\xff", at).expect("write");
        });
        put_out(&scene.path(&name));
        let outcome = scene.back_up(&name[..1]);
        let content = scene.content(&outcome, &name);
        assert_ne!(content.items, scene.first.items);
        // The file has no digest if some of it was mapped when it began anew.
        assert_ne!(content.digest, scene.first.digest);
    }
}

/// One byte differs, anywhere: the real content is stored.
#[test]
fn what_only_looks_the_same_is_cut() {
    for mut scene in Scene::each() {
        for (nth, at) in [0, 9 * MIB as u64 + 1, 20 * MIB as u64 + 4]
            .into_iter()
            .enumerate()
        {
            let folder = format!("b{nth}");
            let name = format!("{folder}/file.xyz");
            scene.copy(&name, |file| {
                file.write_all_at(b"\xff", at).expect("write");
            });
            let outcome = scene.back_up(&folder);
            let content = scene.content(&outcome, &name);
            assert_ne!(content.items, scene.first.items);
            assert_ne!(Some(content.digest), scene.first.digest.map(Some));
        }
        // The length of the file that it looks like does not count either.
        let file = File::options().write(true).open(scene.path("a/file.xyz"));
        file.expect("open").set_len(9 * MIB as u64).expect("cut");
        scene.read_again("a");
    }
}

/// A container that cannot be read, and whose chunks the index was never told of, is not referred to: its chunks are
/// stored again from the file.
#[test]
fn what_lies_in_a_damaged_container_is_stored_again() {
    for (mut scene, place) in [
        (Encryption::Aes256Gcm, 2),
        // This part is the end of a file, where its digest says whether it is the same.
        (Encryption::Aes256Gcm, 1),
        (Encryption::None, 2),
    ]
    .map(|(encryption, part)| (Scene::with(encryption), part))
    {
        let slices = scene.slices(&scene.first);
        let object = object_of(&slices[(slices.len() - 1) / place]);
        let flip = |bytes: &mut Vec<u8>| bytes.iter_mut().step_by(500).for_each(|byte| *byte ^= 1);
        scene.device.damage(&object, flip).expect("a container");
        scene.index_anew();
        let outcome = scene.read_again("a");
        assert!(outcome.snapshot.summary.data_chunks > 0);
    }
}

/// A file that cannot be as before is not read to find that out.
#[test]
fn what_is_lost_or_was_written_with_its_time_kept_is_read_once() {
    let mut scene = Scene::with(Encryption::Aes256Gcm);
    let path = scene.path("a/file.xyz");
    let mtime = fs::metadata(&path).expect("stat").modified();
    let file = File::options().write(true).open(&path).expect("open");
    file.write_all_at(b"\xff", 19 * MIB as u64).expect("write");
    file.set_modified(mtime.expect("mtime")).expect("utimens");
    put_out(&path);
    let outcome = scene.back_up("a");
    assert_eq!(outcome.snapshot.summary.files_changed, 1);
    assert_eq!(outcome.snapshot.summary.bytes_read, scene.size());

    // From here on its ctime is trusted.
    std::thread::sleep(Duration::from_millis(50));
    scene.back_up("a");
    let outcome = scene.back_up("a");
    assert_eq!(outcome.snapshot.summary.bytes_read, 0);
    let content = scene.content(&outcome, "a/file.xyz");
    let slices = scene.slices(&content);
    let object = object_of(slices.last().expect("a slice"));
    let (folder, name) = object.rsplit_once('/').expect("a path");
    let folder = folder.split('/').try_fold(
        Arc::new(scene.device.clone()) as Arc<dyn Dir>,
        |dir, name| dir.subdir(name),
    );
    folder
        .and_then(|dir| dir.remove(name))
        .expect("a container");
    scene.index_anew();
    put_out(&path);
    let outcome = scene.back_up("a");
    assert_eq!(outcome.snapshot.summary.bytes_read, scene.size());
    assert!(outcome.snapshot.summary.data_chunks > 0);
}

/// The parts of an archive look alike when they are unpacked at once.
#[test]
fn of_many_that_look_the_same_the_one_of_this_name_is_taken() {
    let mut scene = Scene::with(Encryption::Aes256Gcm);
    let other = |number: u64| move |file: &File| file.write_all_at(b"\xff", number).expect("write");
    for number in 0..3 {
        scene.copy(&format!("b{number}/{number}.xyz"), other(number));
        let (from, to) = (format!("b{number}/{number}.xyz"), format!("a/{number}.xyz"));
        fs::rename(scene.path(&from), scene.path(&to)).expect("rename");
    }
    scene.back_up("a");
    fs::rename(scene.path("a"), scene.path("c")).expect("rename");
    for name in fs::read_dir(scene.path("c")).expect("list") {
        put_out(&name.expect("a name").path());
    }
    let outcome = scene.back_up("c");
    assert_eq!(outcome.snapshot.summary.bytes_read, 4 * scene.size());
    assert_eq!(outcome.snapshot.summary.data_chunks, 0);
}

/// After one file turned out another, no trace is tried for those behind it.
#[test]
fn what_only_looks_the_same_is_read_twice_but_once() {
    let mut scene = Scene::with(Encryption::Aes256Gcm);
    for number in 0..3 {
        let (from, to) = (format!("b{number}/{number}.xyz"), format!("b/{number}.xyz"));
        scene.copy(&from, |file| {
            file.write_all_at(b"\xff", number).expect("write");
        });
        fs::create_dir_all(scene.path("b")).expect("mkdir");
        fs::rename(scene.path(&from), scene.path(&to)).expect("rename");
        put_out(&scene.path(&to));
    }
    let outcome = scene.back_up_as("b", |options| options.readers = 1);
    assert_eq!(outcome.snapshot.summary.bytes_read, 4 * scene.size());
}

/// A file that is cut short after it was looked at, and before it is opened, has the rest of its content.
#[test]
fn what_was_cut_short_before_it_was_opened_has_no_more_than_that() {
    for left in [0, 10 * MIB as u64, 9 * MIB as u64 + 3] {
        let mut scene = Scene::with(Encryption::Aes256Gcm);
        let held = scene.path("a/0 held");
        fs::write(&held, "content").expect("write");
        let held = File::options().read(true).write(true).open(&held);
        let held = held.expect("open");
        // The request to give the lease back comes as a signal, which this process ignores.
        lease(&held, F_SETSIG, libc::SIGURG).expect("a signal");
        if lease(&held, libc::F_SETLEASE, libc::F_WRLCK).is_none() {
            not_tested("there are no leases here");
            return;
        }
        let file = File::options().write(true).open(scene.path("a/file.xyz"));
        let file = file.expect("open");
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || {
                while lease(&held, libc::F_GETLEASE, 0) == Some(libc::F_WRLCK) {
                    std::thread::yield_now();
                }
                // By now the only reader has opened nothing, and everything is planned.
                std::thread::sleep(Duration::from_millis(200));
                file.set_len(left).expect("cut");
                lease(&held, libc::F_SETLEASE, libc::F_UNLCK).expect("given back");
            });
            scene.back_up_as("a", |options| {
                options.readers = 1;
                options.force_reread = true;
            })
        });
        assert_eq!(outcome.snapshot.summary.errors, 0);
    }
}

/// A user who says how files are to be cut has them cut so.
#[test]
fn rules_of_ones_own_count_for_more_than_a_trace() {
    let mut scene = Scene::with(Encryption::Aes256Gcm);
    let rules = Rules::with("content compress xyz").expect("rules");
    let outcome = scene.back_up_as("a", |options| {
        options.chunk_rules = Some(Arc::new(rules));
        options.force_reread = true;
    });
    assert_ne!(scene.content(&outcome, "a/file.xyz"), scene.first);
}

impl Scene {
    fn size(&self) -> u64 {
        20 * MIB as u64 + 5
    }

    fn index_anew(&mut self) {
        self.repository = open(&self.device, self.secret.as_ref());
        self.repository.rebuild_index().expect("an index");
    }

    fn slices(&self, content: &Content) -> Vec<Slice> {
        use onefold_backup::tree::{Visit, visit_items};
        let kind = onefold_store::SessionKind::Read;
        let session = self.repository.session(kind).expect("session");
        let mut reader = session.reader().expect("reader");
        let mut slices = Vec::new();
        visit_items(content, &mut reader, &mut |visit, _| {
            if let Visit::Data(slice, _) = visit {
                slices.push(slice);
            }
            Ok(true)
        })
        .expect("read");
        slices
    }
}

fn object_of(slice: &Slice) -> String {
    container::object_name(slice.chunk.container)
}
