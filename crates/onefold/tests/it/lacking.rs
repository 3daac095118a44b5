//! Targets that do not keep all metadata: what they refuse, and what they take and do not keep.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::mount::Mount;
use crate::rig::{Ran, Rig};
use crate::untested::not_tested;

/// Seconds since 1970 of all that is backed up here.
const BACK_THEN: u64 = 981_173_106;

/// `source` with this many files, a link and a folder, all from [`BACK_THEN`], owned by somebody.
fn rig(files: usize) -> Rig {
    let rig = Rig::open();
    for n in 0..files {
        rig.write(&format!("source/sub/{n}"), b"content");
    }
    let source = rig.path("source");
    std::os::unix::fs::symlink("sub", source.join("link")).expect("link");
    let paths = (0..files).map(|n| source.join(format!("sub/{n}")));
    let paths: Vec<_> = paths.chain([source.join("sub")]).collect();
    for path in &paths {
        // Without root's rights, everything is owned by who runs this.
        let _ = chown(path, Some(1234), Some(5678));
        set_time(path, BACK_THEN);
    }
    rig
}

fn set_time(path: &Path, secs: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(secs, 123_456_789);
    let file = File::open(path).expect("open");
    file.set_modified(time).expect("set the time");
}

fn restore(rig: &Rig, target: &str, how: &[&str]) -> Ran {
    let spec = format!("latest:{}", rig.path("source").display());
    rig.run([&["restore", &spec, "--target", target], how].concat())
}

fn lines<'a>(ran: &'a Ran, with: &str) -> Vec<&'a str> {
    ran.err.lines().filter(|line| line.contains(with)).collect()
}

/// Many file systems of FUSE take a call that sets one time alone, and do nothing.
#[test]
fn times_come_back_where_none_may_be_left_out() {
    let rig = rig(3);
    rig.backup("source");
    let Some(_mount) = Mount::bindfs(&[], &rig.path("real"), &rig.path("mounted")) else {
        return;
    };
    restore(&rig, "mounted/out", &["--verify"]).ends(0);
    for name in ["sub", "sub/0", "sub/1", "sub/2"] {
        let there = fs::metadata(rig.path("mounted/out").join(name)).expect("stat");
        let expected = (BACK_THEN as i64, 123_456_789);
        assert_eq!((there.mtime(), there.mtime_nsec()), expected, "{name}");
    }
}

#[test]
fn what_a_target_says_it_took_and_did_not_keep_is_told_once_and_counted() {
    let rig = rig(20);
    let secret = rig.path("source/sub/7");
    fs::set_permissions(secret, PermissionsExt::from_mode(0o640)).expect("chmod");
    rig.backup("source");
    let ignored = ["--chown-ignore", "--chgrp-ignore", "--chmod-ignore"];
    let Some(_mount) = Mount::bindfs(&ignored, &rig.path("real"), &rig.path("mounted")) else {
        return;
    };
    let flags = ["--no-owners", "--no-modes", "--no-xattrs"];
    for (n, verify) in [&[][..], &["--verify"]].into_iter().enumerate() {
        let ran = restore(&rig, &format!("mounted/{n}"), verify).ends(3);
        for kind in ["its owner reads as", "its mode reads as"] {
            assert_eq!(lines(&ran, kind).len(), 1, "{}", ran.err);
        }
        // The files, their folder and the target; the link is root's.
        let told = "owner of 21, mode of 22";
        assert!(ran.err.contains(told), "{}", ran.err);
        assert!(ran.err.contains(&flags.join(" ")), "{}", ran.err);
        let silent = [&flags[..], verify].concat();
        let silent = restore(&rig, &format!("mounted/silent-{n}"), &silent);
        assert_eq!(silent.ends(0).err, "");
        let named = [&["-v"], verify].concat();
        let all = restore(&rig, &format!("mounted/named-{n}"), &named).ends(3);
        assert_eq!(lines(&all, "its owner reads as").len(), 21, "{}", all.err);
    }
}

/// As FAT is, but for its modes.
#[test]
fn a_target_without_owners_and_attributes_is_told_of_once_with_the_flags_that_help() {
    let rig = rig(50);
    for n in 0..10 {
        let file = File::open(rig.path(&format!("source/sub/{n}"))).expect("open");
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::fsetxattr(&file, "user.colour", b"blue", flags).is_err() {
            return not_tested("the file system for tests has no attributes");
        }
    }
    rig.backup("source");
    let denied = ["--chown-deny", "--chgrp-deny", "--xattr-none"];
    let Some(_mount) = Mount::bindfs(&denied, &rig.path("real"), &rig.path("mounted")) else {
        return;
    };
    // The target, the folder and the link have owners, too; what was told is not told again when it is read back.
    for (target, how) in [("mounted/a", &[][..]), ("mounted/b", &["--verify"])] {
        let ran = restore(&rig, target, how).ends(3);
        for op in ["set the owner of", "set an attribute of"] {
            assert_eq!(lines(&ran, op).len(), 1, "{}", ran.err);
        }
        assert_eq!(lines(&ran, "reads as"), [""; 0], "{}", ran.err);
        let told = "53 paths lack some of their metadata: owner of 53, attributes of 10;";
        assert!(ran.err.contains(told), "{}", ran.err);
        assert!(
            ran.err.contains("--no-owners --no-modes --no-xattrs"),
            "{}",
            ran.err
        );
    }
    let all = restore(&rig, "mounted/c", &["-v"]).ends(3);
    assert_eq!(lines(&all, "set the owner of").len(), 53, "{}", all.err);
    let json = restore(&rig, "mounted/d", &["--json"]).ends(3);
    let summary = json.last();
    assert_eq!(summary["incomplete_metadata_count"], 53);
    assert_eq!(summary["incomplete_metadata"]["owner"], 53);
    assert_eq!(summary["incomplete_metadata"]["attributes"], 10);
    let without = ["--no-owners", "--no-xattrs", "--verify"];
    for how in [&without[..2], &without] {
        let ran = restore(&rig, "mounted/e", how).ends(0);
        assert_eq!(ran.err, "");
    }
}

/// Inodes of 128 bytes end in 2038, and the system says that all went well.
#[test]
fn a_time_that_the_target_cannot_hold_is_told() {
    let rig = rig(2);
    let far = 4_102_444_800;
    set_time(&rig.path("source/sub/1"), far);
    rig.backup("source");
    let image = rig.path("image");
    let Some(_mount) = Mount::ext4(&image, 8, &["-I", "128"], &rig.path("small")) else {
        return;
    };
    for (target, how) in [("small/read-back", &["--verify"][..]), ("small/out", &[])] {
        let ran = restore(&rig, target, how).ends(3);
        let told = lines(&ran, "its time of change reads as");
        assert!(told.len() == 1 && told[0].contains("sub/1"), "{}", ran.err);
        assert!(told[0].contains("expected @4102444800."), "{}", ran.err);
        let summed = "1 path lacks some of its metadata: times of 1";
        assert!(ran.err.contains(summed), "{}", ran.err);
    }
    // Whole seconds are all that it has: a time that was cut to them is no loss.
    assert_eq!(
        fs::metadata(rig.path("small/out/sub/0"))
            .expect("stat")
            .mtime_nsec(),
        0
    );
}
