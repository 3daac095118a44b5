//! Owners come back by name where this machine has the name, by number on request. Only root can give files away, so
//! only root tests it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use crate::rig::{Ran, Rig};
use crate::untested::{has, is_root, not_tested};

/// Runs the program where `/etc/passwd` and `/etc/group` know these numbers for ann and staff; `None` where that cannot
/// be arranged.
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

/// Runs the program where systemd, and not `/etc/passwd`, knows carl and crew by these numbers, as a directory of a
/// company would; `None` where that cannot be arranged.
fn with_directory(rig: &Rig, (uid, gid): (u32, u32), args: &[&str]) -> Option<Ran> {
    let carl = format!(r#"{{"userName":"carl","uid":{uid},"gid":{gid},"disposition":"regular"}}"#);
    let crew = format!(r#"{{"groupName":"crew","gid":{gid},"disposition":"regular"}}"#);
    rig.write("userdb/carl.user", carl.as_bytes());
    rig.write(&format!("userdb/{uid}.user"), carl.as_bytes());
    rig.write("userdb/crew.group", crew.as_bytes());
    rig.write(&format!("userdb/{gid}.group"), crew.as_bytes());
    let script = "mount -t tmpfs none /run && cp -r userdb /run/ || exit 99
        getent passwd carl && getent group crew || exit 99; exec \"$@\"";
    let ran = rig.run_where(script, args)?;
    fs::remove_dir_all(rig.path("userdb")).expect("remove");
    Some(ran.ends(0))
}

#[test]
fn owners_that_a_directory_knows_have_names_too() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    if !is_root() || !has("unshare") || !has("mount") || !has("getent") {
        return;
    }
    if chown(rig.path("s/f"), Some(71_234), Some(75_678)).is_err() {
        return not_tested("no file can be given away here");
    }
    if with_directory(&rig, (71_234, 75_678), &["backup", "s"]).is_none() {
        return not_tested("libnss-systemd is not asked here, or has no names of its own");
    }
    let source = rig.path("s/f").display().to_string();
    let listed = rig.run(["ls", "latest", &source, "--json"]).ends(0).last();
    assert_eq!(
        (&listed["user"], &listed["group"]),
        (&"carl".into(), &"crew".into())
    );
    let restore = ["restore", "latest", "--target", "t"];
    with_directory(&rig, (2_222, 3_333), &restore).expect("as before");
    let restored = rig.path("t").join(source.trim_start_matches('/'));
    let stat = fs::metadata(&restored).expect("restored");
    assert_eq!((stat.uid(), stat.gid()), (2_222, 3_333));
    // Where nobody knows them, numbers are left.
    rig.run(restore).ends(0);
    let stat = fs::metadata(&restored).expect("restored");
    assert_eq!((stat.uid(), stat.gid()), (71_234, 75_678));
}
