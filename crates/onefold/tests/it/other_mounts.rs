//! Mounts below the source that `-x` is to pass by, whatever can be seen of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::rig::{Ran, Rig, id_of, program};
use crate::untested::{has, is_root, not_tested};
use crate::wait::wait_until;

/// Another user.
const NOBODY: &str = "65534";

/// A folder that a program shows under another name; root's, who keeps all others out.
struct Bindfs {
    at: PathBuf,
    program: Child,
}

impl Bindfs {
    fn new(from: &Path, at: &Path) -> Option<Self> {
        if !is_root() || !has("bindfs") {
            return None;
        }
        for folder in [from, at] {
            fs::create_dir_all(folder).expect("made");
        }
        let device = || fs::metadata(at).map(|about| std::os::unix::fs::MetadataExt::dev(&about));
        let below = device().expect("a folder");
        let mut bindfs = Command::new("bindfs");
        bindfs.args(["-f", "--no-allow-other"]).args([from, at]);
        let mut program = bindfs.spawn().expect("it is there");
        let mut has_ended = false;
        wait_until("the mount", || {
            has_ended = program.try_wait().expect("wait").is_some();
            has_ended || device().is_ok_and(|device| device != below)
        });
        if has_ended {
            not_tested("no FUSE file system can be mounted here");
            return None;
        }
        let at = at.to_owned();
        Some(Self { at, program })
    }

    /// From now on nothing answers for the mount.
    fn die(&mut self) {
        self.program.kill().expect("kill");
        self.program.wait().expect("wait");
    }
}

impl Drop for Bindfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// A repository and a source that somebody else may read, and two mounts in it.
fn rig() -> Rig {
    let rig = Rig::open();
    rig.write("s/f", b"kept");
    rig.write("s/sub/g", b"kept");
    rig
}

/// Runs the program as another user.
fn as_nobody(rig: &Rig, args: &[&str]) -> Ran {
    let with = rig.command(args);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(program().get_program())
        .args(with.get_args())
        .current_dir(rig.dir.path());
    for (name, value) in with.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output().expect("run").into()
}

#[test]
fn a_mount_of_another_user_is_passed_by_where_one_file_system_is_asked_for() {
    let rig = rig();
    let at = rig.path("s/sub/mnt");
    let Some(_mount) = Bindfs::new(&rig.path("real"), &at) else {
        return;
    };
    if !has("setpriv") {
        return;
    }
    rig.write("real/x", b"theirs");
    let open_to_all = |path: &str| {
        let mode = Permissions::from_mode(0o777);
        fs::set_permissions(rig.path(path), mode).expect("chmod");
    };
    open_to_all(".");
    as_nobody(&rig, &["init", "-r", "theirs", "--encryption", "none"]).ends(0);
    let backup = |more: &[&str]| {
        let args = [
            "backup",
            "-r",
            "theirs",
            "--encryption",
            "none",
            "s",
            "--json",
        ];
        as_nobody(&rig, &[&args[..], more].concat())
    };
    // Whoever wants all of it is told.
    let ran = backup(&[]).ends(3);
    assert!(ran.err.contains("s/sub/mnt"), "{}", ran.err);
    let ran = backup(&["-x"]).ends(0);
    assert_eq!(ran.err, "");
    let args = ["restore", "-r", "theirs", "--encryption", "none"];
    let id = id_of(&ran);
    let restore = [&args[..], &[&id, "-t", "back"]].concat();
    as_nobody(&rig, &restore).ends(0);
    // A pattern that means folders alone leaves it out, too.
    assert_eq!(backup(&["-e", "sub/mnt/"]).ends(0).err, "");
}

#[test]
fn a_mount_whose_program_has_died_is_passed_by_where_one_file_system_is_asked_for() {
    let rig = rig();
    let Some(mut mount) = Bindfs::new(&rig.path("real"), &rig.path("s/sub/mnt")) else {
        return;
    };
    mount.die();
    let ran = rig.run(["backup", "s"]).ends(3);
    assert!(ran.err.contains("s/sub/mnt"), "{}", ran.err);
    assert_eq!(rig.run(["backup", "s", "-x", "--json"]).ends(0).err, "");
    assert_eq!(rig.run(["estimate", "s", "-x", "--json"]).ends(0).err, "");
}

/// Its entry is kept; that it cannot be listed says nothing, since nobody wants to.
#[test]
fn a_mount_that_may_not_be_listed_is_no_loss_where_one_file_system_is_asked_for() {
    let rig = rig();
    fs::create_dir(rig.path("s/shut")).expect("made");
    if !is_root() || !has("setpriv") || !has("unshare") {
        return;
    }
    let script = "mount -t tmpfs -o mode=0700 none s/shut || exit 99; chmod 777 . && chmod -R a+rwX repo; exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let Some(ran) = rig.run_where(script, &["backup", "s", "-x", "--json"]) else {
        return not_tested("no file system can be mounted here");
    };
    let id = id_of(&ran.ends(0));
    rig.run(["restore", &id, "-t", "back"]).ends(0);
    let restored = rig
        .path("back")
        .join(rig.path("s/shut").strip_prefix("/").expect("absolute"));
    assert!(restored.is_dir());
}
