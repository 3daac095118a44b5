//! What a backup could not read is not what a restore deletes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::rig::{Ran, Rig, files, program};

/// The program without the right to read everything, which root has.
fn unprivileged(rig: &Rig, args: [&str; 2]) -> Command {
    let with = rig.command(args);
    if fs::metadata(rig.path(".")).expect("stat").uid() != 0 {
        return with;
    }
    let caps = "-dac_override,-dac_read_search";
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", caps, "--inh-caps", caps])
        .arg(program().get_program())
        .args(with.get_args())
        .current_dir(with.get_current_dir().unwrap_or(&rig.path(".")));
    for (name, value) in with.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn mode(rig: &Rig, name: &str, mode: u32) {
    fs::set_permissions(rig.path(name), Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn a_restore_that_deletes_leaves_what_the_backup_could_not_read() {
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    let rig = Rig::new();
    if !has_setpriv && fs::metadata(rig.path(".")).expect("stat").uid() == 0 {
        println!("root can read everything, and there is no setpriv to change that: not tested");
        return;
    }
    for name in [
        "s/a",
        "s/secret",
        "s/shut/one",
        "s/shut/deep/two",
        "s/blind/three",
    ] {
        rig.write(name, name.as_bytes());
    }
    fs::hard_link(rig.path("s/secret"), rig.path("s/secret2")).expect("link");
    let before = files(&rig.path("s"));
    let shut = |modes: [u32; 3]| {
        mode(&rig, "s/secret", modes[0]);
        mode(&rig, "s/shut", modes[1]);
        mode(&rig, "s/blind", modes[2]);
    };
    shut([0, 0, 0o444]);
    let output = unprivileged(&rig, ["backup", "s"]).output();
    Ran::from(output.expect("run")).ends(3);
    shut([0o644, 0o755, 0o755]);
    rig.write("s/later", b"made after the backup");

    let listed = rig.run(["ls", "--long", "latest"]).ends(0).out;
    for line in [
        "s/secret (could not be read)",
        "s/secret2 (could not be read)",
        "s/shut (could not be listed)",
        "s/blind (could not be listed)",
    ] {
        assert!(listed.contains(line), "{line} in:\n{listed}");
    }
    let source = fs::canonicalize(rig.path("s")).expect("path");
    let from = format!("latest:{}", source.display());
    let ran = rig.run(["restore", &from, "--target", "s", "--delete"]);
    let ran = ran.ends(0);
    assert!(ran.err.contains("could not list"), "{}", ran.err);
    assert!(!rig.path("s/later").exists());
    // The folders have the modes they had when they were backed up.
    shut([0o644, 0o755, 0o755]);
    assert_eq!(files(&rig.path("s")), before);

    rig.run(["restore", &from, "--target", "elsewhere"]).ends(0);
    assert!(rig.path("elsewhere/a").exists() && !rig.path("elsewhere/secret").exists());

    let snapshot = rig.backup("s");
    assert_eq!(rig.restored(&snapshot, "s"), before);
}
