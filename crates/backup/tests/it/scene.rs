//! Tools of the tests: a repository, a tree with every kind of file, and a description of trees to compare.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_backup::backup::{self, Input, Outcome, Parent};
use onefold_backup::forget::GroupBy;
use onefold_backup::{Error, Events, Progress, Time, Xattrs, meta, path, restore, snapshots};
use onefold_io::{Dir, MemDir};
use onefold_store::{Entropy, InitOptions, KdfCost, OpenOptions, Repository, Secret, SessionKind};
use parking_lot::Mutex;

/// Makes a new repository in RAM.
pub fn repository() -> Repository {
    repository_in(&MemDir::default())
}

/// Makes a new repository in a folder that the test looks into.
pub fn repository_in(dir: &MemDir) -> Repository {
    repository_from(dir, Entropy::system())
}

/// Makes a new repository; its chunkers cut alike for equal `entropy`.
pub fn repository_from(dir: &MemDir, entropy: Entropy) -> Repository {
    let dir: Arc<dyn Dir> = Arc::new(dir.clone());
    let mut init = InitOptions::new("test", 1);
    init.entropy = entropy;
    init.kdf_cost = KdfCost::LEAST;
    let secret = Secret::new("open sesame");
    Repository::init(dir.clone(), &init, Some(&secret)).expect("init");
    let options = OpenOptions {
        container_bytes: 256 << 10,
        block_bytes: Some(32 << 10),
        ..OpenOptions::default()
    };
    Repository::open(dir, options, Some(&secret)).expect("open")
}

/// Raises a flag when it is dropped, by a failure too: a thread that goes on until then would run for ever.
pub struct Raised<'a>(pub &'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Collects paths that failed, and warnings.
#[derive(Default)]
pub struct Log {
    pub errors: Mutex<Vec<(String, String)>>,
    pub warnings: Mutex<Vec<(String, String)>>,
}

impl Events for Log {
    fn error(&self, path: &[u8], error: &Error) {
        let source = std::error::Error::source(error)
            .map(|e| format!(": {e}"))
            .unwrap_or_default();
        self.errors
            .lock()
            .push((path::show(path), format!("{error}{source}")));
    }

    fn warning(&self, path: &[u8], what: &str) {
        self.warnings.lock().push((path::show(path), what.into()));
    }
}

/// Returns options of a small, quick backup at `secs`.
pub fn options(secs: i64) -> backup::Options {
    backup::Options {
        walkers: 3,
        readers: 3,
        hashers: 2,
        host: "here".into(),
        user: "me".into(),
        time: Time { secs, nanos: 0 },
        parent: Parent::Newest(GroupBy::default()),
        ..backup::Options::default()
    }
}

pub fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Returns an entry of a snapshot.
pub fn entry(repository: &Repository, outcome: &Outcome, path: &Path) -> onefold_backup::Entry {
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(repository, outcome.id.expect("a snapshot")).expect("load");
    let mut reader = session.reader().expect("reader");
    let tree = onefold_backup::tree::Tree::open(&named.snapshot, &mut reader).expect("tree");
    let entry = tree.entry(&path::clean(&bytes(path)), &mut reader);
    entry.expect("read").expect("an entry")
}

/// Backs up one folder; nothing may fail.
pub fn back_up(repository: &Repository, source: &Path, secs: i64) -> Outcome {
    let log = Log::default();
    let outcome = backup::run(
        repository,
        Input::Paths(vec![bytes(source)]),
        &options(secs),
        &Progress::default(),
        &log,
    )
    .expect("backup");
    assert_eq!(*log.errors.lock(), []);
    outcome
}

/// Restores the folder `source` of a snapshot into `target`; nothing may fail.
pub fn restore_folder(
    repository: &Repository,
    outcome: &Outcome,
    source: &Path,
    target: &Path,
) -> restore::RestoreSummary {
    let options = restore::Options {
        path: path::clean(&bytes(source)),
        ..restore::Options::default()
    };
    restore_with(repository, outcome, target, &options)
}

pub fn restore_with(
    repository: &Repository,
    outcome: &Outcome,
    target: &Path,
    options: &restore::Options,
) -> restore::RestoreSummary {
    let session = repository.session(SessionKind::Read).expect("session");
    let named = snapshots::load(repository, outcome.id.expect("a snapshot")).expect("load");
    let log = Log::default();
    let summary = restore::run(
        &session,
        &named.snapshot,
        &bytes(target),
        options,
        &Progress::default(),
        &log,
    )
    .expect("restore");
    session.finish().expect("finish");
    assert_eq!(*log.errors.lock(), []);
    summary
}

/// Everything that a restore promises for one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
    rdev: u64,
    links: u64,
    content: Vec<u8>,
    xattrs: Xattrs,
    sparse: bool,
}

/// Looks at everything below `root`, by relative path; the root itself is left out.
pub fn look(root: &Path) -> BTreeMap<Vec<u8>, Look> {
    let mut seen = BTreeMap::new();
    look_into(&std::fs::File::open(root).expect("open"), b"", &mut seen);
    seen
}

/// Looks by descriptors, since some trees are deeper than a path may be long.
fn look_into(folder: &std::fs::File, above: &[u8], seen: &mut BTreeMap<Vec<u8>, Look>) {
    let here = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    for entry in std::fs::read_dir(&here).expect("read_dir") {
        let name = entry.expect("entry").file_name();
        let path = here.join(&name);
        let m = path.symlink_metadata().expect("stat");
        let content = if m.is_file() {
            std::fs::read(&path).expect("read")
        } else if m.is_symlink() {
            bytes(&std::fs::read_link(&path).expect("readlink"))
        } else {
            Vec::new()
        };
        let look = Look {
            mode: m.mode(),
            owner: (m.uid(), m.gid()),
            mtime: (m.mtime(), m.mtime_nsec()),
            size: if m.is_dir() { 0 } else { m.len() },
            rdev: m.rdev(),
            links: if m.is_dir() { 0 } else { m.nlink() },
            content,
            xattrs: meta::xattrs_at(folder.as_fd(), name.as_bytes()).expect("xattrs"),
            sparse: m.is_file() && m.blocks() * 512 + 65536 < m.len(),
        };
        let relative = path::join(above, name.as_bytes());
        if m.is_dir() {
            look_into(&std::fs::File::open(&path).expect("open"), &relative, seen);
        }
        seen.insert(relative, look);
    }
}

/// Makes bytes that do not repeat and do not look random: they are cut into short chunks.
pub fn uneven(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = noise(seed, len);
    bytes.iter_mut().for_each(|byte| *byte &= 0x7f);
    bytes
}

/// Makes bytes that look random and repeat for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Makes a tree with every kind of file that this user may make.
pub fn every_kind(root: &Path) {
    plain(root);
    links_and_pipes(root);
    attributes(root);
    if rustix::process::geteuid().is_root() {
        what_only_root_makes(root);
    }
    deep(root);
    old(root);
}

/// Makes folders and regular files.
fn plain(root: &Path) {
    use std::fs;
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("a/b/c")).expect("dirs");
    fs::create_dir_all(at("a-")).expect("dirs");
    fs::create_dir_all(at("empty")).expect("dirs");
    fs::write(at("a/zero"), b"").expect("write");
    fs::write(at("a/one"), b"1").expect("write");
    fs::write(at("a-/after"), b"order of folders is not order of strings").expect("write");
    fs::write(at("a/b/middle"), noise(1, 200_000)).expect("write");
    fs::write(at("a/b/c/large"), noise(2, 3_500_000)).expect("write");
    fs::write(
        root.join(std::ffi::OsStr::from_bytes(b"not-utf8-\xff\xfe")),
        b"bytes",
    )
    .expect("write");
    fs::write(at("new\nline"), b"x").expect("write");
    for i in 0..700 {
        fs::write(
            at("a/b/c").join(format!("many-{i:04}")),
            noise(i % 50, (i % 9 * 1000) as usize),
        )
        .expect("write");
    }
}

fn links_and_pipes(root: &Path) {
    use std::fs;
    let at = |name: &str| root.join(name);
    fs::hard_link(at("a/one"), at("a/b/one-again")).expect("link");
    fs::hard_link(at("a/b/middle"), at("a-/middle-again")).expect("link");
    std::os::unix::fs::symlink("../nowhere/at all", at("a/dangling")).expect("symlink");
    std::os::unix::fs::symlink("/etc", at("a/to-a-folder")).expect("symlink");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &bytes(&at("a/fifo"))[..],
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .expect("fifo");
    drop(std::os::unix::net::UnixListener::bind(at("sock")).expect("socket"));
    sparse(&at("a/sparse"), 40 << 20);
}

/// Sets modes and extended attributes.
fn attributes(root: &Path) {
    use std::fs;
    let at = |name: &str| root.join(name);
    fs::set_permissions(at("a/one"), fs::Permissions::from_mode(0o4711)).expect("chmod");
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o1500)).expect("chmod");
    rustix::fs::setxattr(
        &bytes(&at("a/one"))[..],
        "user.colour",
        b"blue\0green",
        rustix::fs::XattrFlags::empty(),
    )
    .expect("xattr");
    rustix::fs::setxattr(
        &bytes(&at("a/b"))[..],
        "user.of-a-folder",
        b"",
        rustix::fs::XattrFlags::empty(),
    )
    .expect("xattr");
}

/// Sets foreign owners, and makes a device.
fn what_only_root_makes(root: &Path) {
    let at = |name: &str| root.join(name);
    std::os::unix::fs::lchown(at("a/dangling"), Some(12), Some(34)).expect("chown");
    std::os::unix::fs::chown(at("a/b/middle"), Some(56), Some(78)).expect("chown");
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &bytes(&at("null"))[..],
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o666),
        device,
    )
    .expect("node");
}

/// Sets times from before 1970.
fn old(root: &Path) {
    let at = |name: &str| root.join(name);
    let old = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: rustix::fs::Timespec {
            tv_sec: -86_400,
            tv_nsec: 123_456_789,
        },
    };
    for name in ["a/b/c", "a/one", "a/dangling"] {
        rustix::fs::utimensat(
            rustix::fs::CWD,
            &bytes(&at(name))[..],
            &old,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .expect("utimens");
    }
}

/// Makes a file of `len` bytes with data at its start, in its middle and in its last page.
pub fn sparse(path: &Path, len: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).expect("create");
    file.set_len(len).expect("set_len");
    file.write_all_at(&noise(3, 10_000), 0).expect("write");
    file.write_all_at(&noise(4, 100_000), len / 2)
        .expect("write");
    file.write_all_at(b"end", len - 3).expect("write");
}

/// Makes folders deeper than PATH_MAX with a file in the deepest, step by step.
fn deep(root: &Path) {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let name = "d".repeat(200);
    let mut dir = openat(CWD, &bytes(root)[..], flags, Mode::empty()).expect("open");
    for _ in 0..25 {
        mkdirat(&dir, &name, Mode::RWXU).expect("mkdir");
        dir = openat(&dir, &name, flags, Mode::empty()).expect("open");
    }
    let file = openat(
        &dir,
        "deepest",
        OFlags::WRONLY | OFlags::CREATE,
        Mode::RUSR | Mode::WUSR,
    )
    .expect("create");
    rustix::io::write(&file, b"far down").expect("write");
}
