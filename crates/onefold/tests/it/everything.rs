//! A generated tree with every kind of file: restored it is the same for `diff -r` and inode by inode, and its dump is
//! the same for the system's `tar`. What only root may make is in it when root runs the test, ACLs where the file
//! system has them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, Permissions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use onefold_backup::meta::xattrs_at;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};

use crate::rig::{Random, Rig, seeded};

/// Properties of an inode that must come back, whatever its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
    device: u64,
    /// The first path, in order, with the same inode.
    first_name: Vec<u8>,
    /// Bytes of a file, target of a link.
    content: Vec<u8>,
    attributes: onefold_backup::Xattrs,
    is_sparse: bool,
}

pub type Looks = BTreeMap<Vec<u8>, Look>;

/// Everything below `root`.
pub fn look(root: &Path) -> Looks {
    let mut looks = Looks::new();
    look_into(&File::open(root).expect("open"), b"", &mut looks);
    let mut firsts: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    for (path, look) in &mut looks {
        let first = firsts.entry(std::mem::take(&mut look.first_name));
        look.first_name = first.or_insert_with(|| path.clone()).clone();
    }
    looks
}

/// By descriptors, since some paths are too long for the system.
fn look_into(folder: &File, above: &[u8], looks: &mut Looks) {
    let here = format!("/proc/self/fd/{}", folder.as_raw_fd());
    for entry in fs::read_dir(&here).expect("list") {
        let name = entry.expect("entry").file_name();
        let at = Path::new(&here).join(&name);
        let m = at.symlink_metadata().expect("stat");
        let path = [above, b"/", name.as_bytes()].concat();
        if m.is_dir() {
            look_into(&File::open(&at).expect("open"), &path, looks);
        }
        let attributes = xattrs_at(folder.as_fd(), name.as_bytes()).expect("attributes");
        looks.insert(path, Look::of(&at, &m, attributes));
    }
}

impl Look {
    fn of(at: &Path, m: &Metadata, attributes: onefold_backup::Xattrs) -> Self {
        let content = if m.is_file() {
            fs::read(at).expect("read")
        } else if m.is_symlink() {
            fs::read_link(at)
                .expect("link")
                .as_os_str()
                .as_bytes()
                .to_vec()
        } else {
            Vec::new()
        };
        Self {
            mode: m.mode(),
            owner: (m.uid(), m.gid()),
            mtime: (m.mtime(), m.mtime_nsec()),
            size: if m.is_dir() { 0 } else { m.len() },
            device: m.rdev(),
            first_name: format!("{}:{}", m.dev(), m.ino()).into_bytes(),
            content,
            attributes,
            is_sparse: m.is_file() && m.blocks() * 512 + 65_536 < m.len(),
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// In `plain` what every program can compare, in `special` what is neither file nor folder nor link, in `deep` a path
/// that is longer than the system takes.
pub fn generate(root: &Path, random: &mut Random) {
    let plain = root.join("plain");
    for n in 0..40 {
        let folder = plain.join(format!("d{}/e{}", random.below(4), random.below(3)));
        fs::create_dir_all(&folder).expect("folders");
        let len = [0, 1, 700, 9_000, 150_000][random.below(5) as usize];
        fs::write(folder.join(format!("f{n}")), random.bytes(len)).expect("write");
    }
    fs::create_dir_all(plain.join("empty/also empty")).expect("folders");
    fs::write(plain.join("large"), random.bytes(3_000_000)).expect("write");
    names_that_are_no_text(&plain);
    sparse(&plain.join("sparse"), random);
    fs::hard_link(plain.join("large"), plain.join("empty/large again")).expect("link");
    fs::write(plain.join("d0-run"), b"#!/bin/sh\n").expect("write");
    fs::hard_link(plain.join("d0-run"), plain.join("z-run")).expect("link");
    for (name, target) in [
        ("dangling", "../no where"),
        ("to-folder", "empty"),
        ("abs", "/etc"),
    ] {
        std::os::unix::fs::symlink(target, plain.join(name)).expect("symlink");
    }
    fs::hard_link(plain.join("dangling"), plain.join("empty/dangling again")).expect("link");
    special(&root.join("special"));
    deep(&root.join("deep"));
    if is_root() {
        std::os::unix::fs::lchown(plain.join("dangling"), Some(1234), Some(5678)).expect("owner");
        std::os::unix::fs::chown(plain.join("large"), Some(70_000), Some(3_000_000))
            .expect("owner");
    }
    let mode = |name: &str, mode| {
        fs::set_permissions(plain.join(name), Permissions::from_mode(mode)).expect("mode");
    };
    mode("d0-run", 0o4755);
    mode("empty", 0o3771);
    mode("empty/also empty", 0o500);
    attributes(&plain);
    times(root, random);
}

fn names_that_are_no_text(plain: &Path) {
    for name in [
        &b"not utf-8 \xff\xfe"[..],
        b"new\nline",
        b"\\back",
        b"-rf",
        b" ",
    ] {
        fs::write(plain.join(OsStr::from_bytes(name)), name).expect("write");
    }
    fs::write(plain.join("n".repeat(255)), b"long").expect("write");
}

/// Holes at the start, between data, and at the end; and nothing but a hole.
pub fn sparse(path: &Path, random: &mut Random) {
    let file = File::create(path).expect("create");
    file.write_all_at(&random.bytes(5_000), 1 << 20)
        .expect("write");
    file.write_all_at(&random.bytes(80_000), 5 << 20)
        .expect("write");
    file.set_len(9 << 20).expect("length");
    let hole = File::create(path.with_extension("hole")).expect("create");
    hole.set_len(1 << 20).expect("length");
}

fn special(folder: &Path) {
    fs::create_dir(folder).expect("folder");
    let node = |name: &str, kind, device| {
        let path = folder.join(name);
        rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), device).expect("node");
    };
    node("pipe", FileType::Fifo, 0);
    fs::hard_link(folder.join("pipe"), folder.join("pipe again")).expect("link");
    drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).expect("socket"));
    if is_root() {
        node("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        node(
            "block",
            FileType::BlockDevice,
            rustix::fs::makedev(250, 70_000),
        );
    }
}

/// A file whose path is longer than `PATH_MAX`.
pub fn deep(folder: &Path) {
    fs::create_dir(folder).expect("folder");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(folder, flags, Mode::empty()).expect("open");
    let name = "d".repeat(240);
    for _ in 0..20 {
        rustix::fs::mkdirat(&at, &name, Mode::RWXU).expect("folder");
        at = rustix::fs::openat(&at, &name, flags, Mode::empty()).expect("open");
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&at, "deepest", create, Mode::RUSR).expect("create");
    rustix::io::write(&file, b"far down").expect("write");
}

/// A POSIX ACL as the kernel stores it, with an entry of its own for user 1234.
fn acl(owner: u16, user: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (0x01, owner, NOBODY),
        (0x02, user, 1234),
        (0x04, 5, NOBODY),
        (0x10, 7, NOBODY),
        (0x20, 0, NOBODY),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn attributes(plain: &Path) {
    let set = |name: &str, attribute: &str, value: &[u8]| match rustix::fs::lsetxattr(
        plain.join(name),
        attribute,
        value,
        XattrFlags::empty(),
    ) {
        Err(rustix::io::Errno::NOTSUP) => {
            crate::untested::not_tested(&format!("no {attribute} here"))
        }
        other => other.expect("an attribute"),
    };
    set("large", "user.colour", b"blue\0green\n=");
    set("empty", "user.nothing", b"");
    set("large", "system.posix_acl_access", &acl(6, 4));
    set("empty", "system.posix_acl_access", &acl(7, 5));
    set("empty", "system.posix_acl_default", &acl(7, 1));
    if is_root() {
        set("dangling", "trusted.of-a-link", b"x");
        set(
            "d0-run",
            "security.capability",
            b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
    }
}

/// Times with nanoseconds, some before 1970, of everything that a path reaches; folders after what is in them.
fn times(root: &Path, random: &mut Random) {
    let mut all = vec![root.to_owned()];
    let mut at = 0;
    while at < all.len() {
        if all[at].is_dir() && !all[at].is_symlink() && all[at].as_os_str().len() < 2000 {
            let entries = fs::read_dir(&all[at]).expect("list");
            all.extend(entries.map(|entry| entry.expect("entry").path()));
        }
        at += 1;
    }
    for path in all.iter().rev() {
        let time = Timespec {
            tv_sec: random.below(2_000_000_000) as i64 - 100_000_000,
            tv_nsec: random.below(1_000_000_000) as i64,
        };
        let both = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &both, AtFlags::SYMLINK_NOFOLLOW).expect("times");
    }
}

/// Runs a program of the system that must find nothing to say.
#[track_caller]
pub fn silently(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.is_empty(),
        "{command:?}:\n{text}\n{errors}"
    );
}

#[track_caller]
pub fn assert_same(found: &Looks, expected: &Looks) {
    let show = |path: &[u8]| String::from_utf8_lossy(&path[..path.len().min(300)]).into_owned();
    for (path, look) in expected {
        let found = found
            .get(path)
            .unwrap_or_else(|| panic!("{} is missing", show(path)));
        let brief = |look: &Look| {
            let content = look.content.len();
            format!(
                "{:?} of {content} bytes",
                Look {
                    content: Vec::new(),
                    ..look.clone()
                }
            )
        };
        assert!(
            found == look,
            "{}:\n{}\n{}",
            show(path),
            brief(found),
            brief(look)
        );
    }
    let more = found.keys().find(|path| !expected.contains_key(*path));
    assert_eq!(more.map(|path| show(path)), None, "nobody made this");
}

#[test]
fn every_kind_of_file_comes_back() {
    let mut random = seeded("everything");
    let rig = Rig::open();
    let (source, target) = (rig.path("source"), rig.path("target"));
    fs::create_dir(&source).expect("folder");
    generate(&source, &mut random);
    let expected = look(&source);
    rig.run(["backup", "source"]).ends(0);
    let spec = format!("latest:{}", source.display());
    rig.run(["restore", &spec, "--target", "target"]).ends(0);
    assert_same(&look(&target), &expected);
    assert_same(&look(&source), &expected);
    let plain = |root: &Path| root.join("plain");
    silently(
        Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([plain(&source), plain(&target)]),
    );
    // Restored over itself, all of it, nothing changes.
    rig.run(["restore", &spec, "--target", "target"]).ends(0);
    assert_same(&look(&target), &expected);
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn the_systems_tar_reads_a_dump_of_every_kind_of_file() {
    let mut random = seeded("everything in a tar");
    let rig = Rig::open();
    let source = rig.path("source");
    fs::create_dir(&source).expect("folder");
    generate(&source, &mut random);
    rig.run(["backup", "source"]).ends(0);
    for part in ["plain", "special"] {
        let from = source.join(part);
        let archive = rig.path(&format!("{part}.tar"));
        let folder = from.to_str().expect("UTF-8");
        let archived = archive.to_str().expect("UTF-8");
        rig.run(["dump", "latest", folder, "--target", archived])
            .ends(0);
        let extracted = |name: &str, flags: &[&str]| {
            let to = rig.path(&format!("{name}-{part}"));
            fs::create_dir(&to).expect("folder");
            // Times before 1970 make it warn.
            silently(
                Command::new("tar")
                    .args(["--extract", "--preserve-permissions", "--numeric-owner"])
                    .args(["--warning=no-timestamp", "--file", archived])
                    .args(flags)
                    .arg("--directory")
                    .arg(&to),
            );
            look(&to)
        };
        let mut expected = look(&from);
        expected.retain(|path, _| !is_socket(&from.join(OsStr::from_bytes(&path[1..]))));
        let whole = extracted("whole", &["--xattrs", "--xattrs-include=*"]);
        assert_same(&whole, &expected);
        for look in expected.values_mut() {
            let acls = std::mem::take(&mut look.attributes).into_iter();
            let acls = acls.filter(|(name, _)| name.starts_with(b"system.posix_acl_"));
            look.attributes = acls.collect();
        }
        assert_same(&extracted("acls", &["--acls"]), &expected);
    }
}

fn is_socket(path: &Path) -> bool {
    let stat = path.symlink_metadata();
    stat.is_ok_and(|stat| stat.file_type().is_socket())
}
