//! Owners come back by name where this machine has the name, by number on request. Only root can give files away, so only root tests it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use crate::rig::{Ran, Rig};
use crate::untested::{has, is_root, not_tested};

/// Runs the program where `/etc/passwd` and `/etc/group` know these numbers for ann and staff; `None` where that cannot be arranged.
fn with_names(rig: &Rig, name: &str, (uid, gid): (u32, u32), args: &[&str]) -> Option<Ran> {
    rig.write(
        "passwd",
        format!("root:x:0:0::/:\n{name}:x:{uid}:{gid}::/:\n").as_bytes(),
    );
    rig.write("group", format!("root:x:0:\nstaff:x:{gid}:\n").as_bytes());
    let script =
        "mount --bind passwd /etc/passwd && mount --bind group /etc/group || exit 99; exec \"$@\"";
    rig.run_where(script, args).map(|ran| ran.ends(0))
}

#[test]
fn owners_come_back_by_name_or_by_number() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    if !is_root() || !has("unshare") || !has("mount") {
        return;
    }
    if chown(rig.path("s/f"), Some(71_234), Some(75_678)).is_err() {
        not_tested("no file can be given away here");
        return;
    }
    let owner = |path: &str| {
        let stat = fs::metadata(rig.path(path)).expect("restored");
        (stat.uid(), stat.gid())
    };
    if with_names(&rig, "ann", (71_234, 75_678), &["backup", "s"]).is_none() {
        not_tested("there can be no other /etc/passwd here");
        return;
    }
    let source = rig.path("s").display().to_string();
    let from = format!("latest:{source}");
    for (name, flags, expected) in [
        ("ann", &[][..], (2_222, 3_333)),
        ("ann", &["--numeric-owner"], (71_234, 75_678)),
        ("ann", &["--no-owners"], (0, 0)),
        ("bob", &[], (71_234, 3_333)),
    ] {
        let args = [&["restore", &from, "--target", "t"][..], flags].concat();
        with_names(&rig, name, (2_222, 3_333), &args);
        assert_eq!(owner("t/f"), expected, "{name} {flags:?}");
        fs::remove_dir_all(rig.path("t")).expect("remove");
    }
}
