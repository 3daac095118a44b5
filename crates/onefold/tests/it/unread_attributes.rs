//! Attributes that a backup could not read are told wherever they are missing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::XattrFlags;
use serde_json::Value;

use crate::rig::{Ran, Rig};
use crate::untested::{has, is_root, not_tested};

/// More than a snapshot keeps.
const TOO_MANY: usize = 70;
/// Warning about each such path.
const TOLD: &str = "its attributes could not be read when it was backed up: they are missing";

/// A repository, and a source in RAM, where files may have so many attributes.
struct Scene {
    rig: Rig,
    source: tempfile::TempDir,
}

impl Scene {
    /// A snapshot in which the attributes of `folder` and of `folder/many` are missing. `None` where nothing can have
    /// so many, which is told.
    fn backed_up() -> Option<Self> {
        let source = tempfile::tempdir_in("/dev/shm");
        let Ok(source) = source else {
            not_tested("there is no file system in RAM");
            return None;
        };
        let scene = Self {
            rig: Rig::open(),
            source,
        };
        fs::create_dir(scene.at("folder")).expect("a folder");
        for name in ["folder/many", "folder/some", "plain"] {
            fs::write(scene.at(name), name).expect("write");
        }
        let has_room = ["folder", "folder/many"].map(|name| scene.set(name, TOO_MANY, 60_000));
        if has_room != [true; 2] || !scene.set("folder/some", 1, 9) {
            not_tested("the file system in RAM takes no attributes");
            return None;
        }
        scene.rig.run(["backup", &scene.at("")]).ends(3);
        Some(scene)
    }

    fn at(&self, name: &str) -> String {
        self.source.path().join(name).display().to_string()
    }

    fn set(&self, name: &str, count: usize, len: usize) -> bool {
        let set = |n: usize| {
            let name = (self.at(name), format!("user.{n}"));
            let value = vec![b'x'; len];
            rustix::fs::setxattr(&name.0[..], &name.1[..], &value, XattrFlags::empty())
        };
        (0..count).all(|n| set(n).is_ok())
    }

    /// Restores all with these arguments, into a target of that name.
    fn restore(&self, target: &str, args: &[&str]) -> Ran {
        let from = format!("latest:{}", self.source.path().display());
        let restore = ["restore", &from, "--target", target];
        self.rig.run([&restore[..], args].concat())
    }
}

/// The paths of which warnings tell that they lack their attributes, in order.
fn warned(ran: &Ran) -> Vec<String> {
    let told = ran
        .errors()
        .into_iter()
        .filter(|line| line["message"] == TOLD);
    let mut paths: Vec<String> = told
        .map(|line| line["item"].as_str().expect("a path").to_owned())
        .collect();
    paths.sort();
    paths
}

#[test]
fn a_restore_tells_which_attributes_its_snapshot_lacks() {
    let Some(scene) = Scene::backed_up() else {
        return;
    };
    let ran = scene.restore("words", &[]).ends(3);
    assert!(
        ran.err.contains(&format!("/folder/many: {TOLD}")),
        "{}",
        ran.err
    );
    let sum = "the snapshot lacks the attributes of 2 paths: they could not be read";
    assert!(ran.err.contains(sum), "{}", ran.err);
    let restored = fs::read_to_string(scene.rig.path("words/folder/many"));
    assert_eq!(restored.expect("it is there"), "folder/many");

    let count = |ran: &Ran| ran.last()["unread_attributes_count"].clone();
    for (target, args) in [("dry", &["--dry-run"][..]), ("json", &[])] {
        let ran = scene.restore(target, &[args, &["--json"]].concat()).ends(3);
        assert_eq!(warned(&ran), ["/folder", "/folder/many"], "{target}");
        assert_eq!(count(&ran), 2, "{target}");
        assert_eq!(ran.last()["error_count"], 0, "{target}");
    }
    // A folder that is made on the way lacks what it should have had.
    let ran = scene.restore("made", &["--include", "many", "--json"]);
    assert_eq!(warned(&ran.ends(3)), ["/folder", "/folder/many"]);
    // Files that stay as they were lack nothing, and attributes that are not asked for are not missed.
    for dry in [&[][..], &["--dry-run"]] {
        let args = ["--overwrite", "never", "--include", "many", "--json"];
        let ran = scene.restore("json", &[&args[..], dry].concat()).ends(0);
        assert_eq!(warned(&ran), [""; 0], "{dry:?}");
        let ran = scene.restore("none", &[&["--no-xattrs", "--json"], dry].concat());
        assert_eq!(count(&ran.ends(0)), 0);
        let ran = scene.restore("part", &[&["--include", "plain", "--json"], dry].concat());
        assert_eq!(count(&ran.ends(0)), 0);
    }
}

#[test]
fn attributes_that_could_not_be_read_are_flagged_in_lists_archives_and_comparisons() {
    let Some(scene) = Scene::backed_up() else {
        return;
    };
    let rig = &scene.rig;
    let lines = rig.run(["ls", "latest", "--json"]).ends(0).lines();
    let flagged = lines
        .iter()
        .filter(|node| node["unread_attributes"] == true);
    let flagged: Vec<&Value> = flagged.map(|node| &node["path"]).collect();
    assert_eq!(flagged, [&scene.at("folder"), &scene.at("folder/many")]);

    let dump = |args: &[&str]| rig.run([&["dump", "latest", &scene.at("")], args].concat());
    let ran = dump(&["--target", "all.tar"]).ends(3);
    let line = format!(
        "{} (its attributes could not be read)",
        scene.at("folder/many")
    );
    assert!(ran.err.contains(&line), "{}", ran.err);
    let sum = "the archive lacks the attributes of 2 paths";
    assert!(ran.err.contains(sum), "{}", ran.err);
    // No zip has attributes: those that could be read are told of.
    let ran = dump(&["--target", "all.zip", "--archive", "zip"]).ends(0);
    let left_out = "left out the extended attributes and ACLs of 1 path: ";
    assert!(ran.err.starts_with(left_out), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);

    rig.run(["backup", &scene.at("")]).ends(3);
    fs::set_permissions(scene.at("plain"), Permissions::from_mode(0o600)).expect("chmod");
    assert!(scene.set("folder/many", 1, 60_000));
    rig.run(["backup", &scene.at("")]).ends(3);
    let ids = rig.snapshots();
    let changes = |from: usize, to: usize, args: &[&str]| -> Vec<String> {
        let to = format!("{}:{}", ids[to], scene.source.path().display());
        let diff = ["diff", &ids[from], &to, "--json"];
        let lines = rig.run([&diff[..], args].concat()).ends(0).lines();
        let changes = lines.iter().filter(|line| line["message_type"] == "change");
        let text = |line: &Value, field: &str| line[field].as_str().expect("text").to_owned();
        changes
            .map(|line| text(line, "modifier") + &text(line, "path"))
            .collect()
    };
    assert_eq!(changes(0, 1, &["--metadata"]), [""; 0]);
    assert_eq!(changes(1, 2, &[]), [""; 0]);
    let expected = ["U/plain", "?/folder/many"];
    assert_eq!(changes(1, 2, &["--metadata"]), expected);
}

/// The attributes of pipes and links are reached by way of `/proc`.
#[test]
fn attributes_are_kept_or_told_as_missing_where_proc_is_not_mounted() {
    if !is_root() || !has("unshare") || !has("umount") {
        return not_tested("only root can unmount /proc, for itself alone");
    }
    let rig = Rig::open();
    rig.write("s/folder/file", b"x");
    std::os::unix::fs::symlink("file", rig.path("s/folder/link")).expect("link");
    let set = |name: &str| {
        let path = rig.path(name);
        rustix::fs::lsetxattr(&path, "trusted.x", b"kept", XattrFlags::empty())
    };
    let Ok(()) = ["s/folder", "s/folder/file", "s/folder/link"]
        .into_iter()
        .try_for_each(set)
    else {
        return not_tested("the file system takes no attributes");
    };
    let source = rig.path("s").display().to_string();
    let script = "umount -l /proc || exit 99; exec \"$@\"";
    let Some(ran) = rig.run_where(script, &["backup", &source]) else {
        return not_tested("/proc cannot be unmounted here");
    };
    let told = ran.ends(3).err;
    assert!(told.contains("/proc, which is not mounted"), "{told}");
    assert_eq!(told.matches("s/folder/link").count(), 1, "{told}");
    let from = format!("latest:{source}");
    rig.run(["restore", &from, "--target", "t"]).ends(3);
    let has_it = |name: &str| {
        let mut value = [0; 9];
        rustix::fs::lgetxattr(rig.path(name), "trusted.x", &mut value[..]).is_ok()
    };
    let kept = ["t/folder", "t/folder/file", "t/folder/link"].map(has_it);
    assert_eq!(kept, [true, true, false]);
}
