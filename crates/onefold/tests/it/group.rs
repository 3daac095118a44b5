//! A repository that a group shares: each member does there what the others can go on with. Only root can be several
//! users, so only root tests it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::rig::{Ran, Rig, files};
use crate::untested::{has, is_root, not_tested};

const OWNER: u32 = 61_001;
const MEMBER: u32 = 61_002;
const STRANGER: u32 = 61_003;
/// The group that shares the repository; each user's own group has the user's number.
const TEAM: u32 = 62_000;

/// A rig whose folder everybody can enter and the owner owns; `None` where no other user can run the program.
fn rig() -> Option<Rig> {
    if !is_root() || !has("setpriv") {
        return None;
    }
    let rig = Rig::empty();
    fs::set_permissions(rig.dir.path(), Permissions::from_mode(0o755)).expect("open to all");
    chown(rig.dir.path(), Some(OWNER), Some(OWNER)).expect("root gives it away");
    rig.write("src/a", b"the first file");
    let version = run_as(&rig, STRANGER, "077", &["version"]);
    if version.code != Some(0) {
        not_tested("no other user can run the program here");
        return None;
    }
    Some(rig)
}

/// Runs the program as a user whom only the owner and the member share a group with.
fn run_as(rig: &Rig, user: u32, umask: &str, args: &[&str]) -> Ran {
    let with = rig.command(args);
    let groups = match user {
        STRANGER => "--clear-groups".to_owned(),
        _ => format!("--groups={TEAM}"),
    };
    let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    let mut command = Command::new("setpriv");
    command
        .args([&user, &group, &groups, "sh", "-c"])
        .arg(format!("umask {umask}; exec \"$0\" \"$@\""))
        .arg(with.get_program())
        .args(with.get_args())
        .current_dir(rig.dir.path());
    for (name, value) in with.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output().expect("it starts").into()
}

/// Makes an empty folder for the repository that belongs to the team.
fn make_folder(rig: &Rig, mode: u32) {
    fs::create_dir(rig.repo()).expect("a folder");
    chown(rig.repo(), Some(OWNER), Some(TEAM)).expect("root gives it away");
    fs::set_permissions(rig.repo(), Permissions::from_mode(mode)).expect("its mode");
}

/// All that owner and member do, one after the other.
fn work_together(rig: &Rig, umask: &str) {
    let restore = |user, target: &str| {
        let from = format!("latest:{}", rig.path("src").display());
        let target = rig.path(target);
        fs::create_dir(&target).expect("a target");
        chown(&target, Some(user), Some(user)).expect("root gives it away");
        let target = target.display().to_string();
        run_as(rig, user, umask, &["restore", &from, "--target", &target]).ends(0);
        assert_eq!(files(Path::new(&target)), files(&rig.path("src")));
    };
    for (round, (one, other)) in [(OWNER, MEMBER), (MEMBER, OWNER)].into_iter().enumerate() {
        rig.write(
            &format!("src/{round}"),
            format!("file {round}").repeat(9_000).as_bytes(),
        );
        run_as(rig, one, umask, &["backup", "src"]).ends(0);
        restore(other, &format!("out-{round}"));
        run_as(rig, other, umask, &["backup", "src", "--force"]).ends(0);
        run_as(rig, one, umask, &["forget", "--keep-last", "1", "--prune"]).ends(0);
        run_as(rig, other, umask, &["check", "--read-data"]).ends(0);
        run_as(rig, other, umask, &["repair"]).ends(0);
    }
}

/// Each path of the repository that the team cannot use as the mode says, or that others can.
fn not_shared(rig: &Rig, file: u32, folder: u32) -> Vec<String> {
    let (mut amiss, mut folders) = (Vec::new(), vec![rig.repo()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).expect("a folder") {
            let path = entry.expect("an entry").path();
            let stat = fs::metadata(&path).expect("it is there");
            let expected = if stat.is_dir() { folder } else { file };
            if (stat.mode() & 0o777, stat.gid()) != (expected, TEAM) {
                amiss.push(format!(
                    "{} {:o} {}",
                    path.display(),
                    stat.mode(),
                    stat.gid()
                ));
            }
            folders.extend(stat.is_dir().then_some(path));
        }
    }
    amiss
}

#[test]
fn members_of_a_group_back_up_restore_and_prune_in_one_repository() {
    // However it is said, and whatever files would be made with otherwise.
    for (mode, flag, umask) in [
        (0o2770, None, "077"),
        (0o2775, None, "022"),
        (0o700, Some("--group-writable"), "027"),
    ] {
        let Some(rig) = rig() else {
            return;
        };
        make_folder(&rig, mode);
        let init: Vec<&str> = ["init"].into_iter().chain(flag).collect();
        run_as(&rig, OWNER, umask, &init).ends(0);
        work_together(&rig, umask);
        assert_eq!(not_shared(&rig, 0o660, 0o770), [""; 0], "{mode:o} {flag:?}");
        let stranger = run_as(&rig, STRANGER, umask, &["snapshots"]);
        assert_ne!(stranger.code, Some(0), "{}", stranger.out);
    }
}

#[test]
fn members_of_a_group_share_an_index_folder_that_was_made_for_them() {
    let Some(rig) = rig() else {
        return;
    };
    make_folder(&rig, 0o2770);
    let fast = rig.path("fast");
    fs::create_dir(&fast).expect("a folder");
    chown(&fast, Some(OWNER), Some(TEAM)).expect("root gives it away");
    fs::set_permissions(&fast, Permissions::from_mode(0o2770)).expect("its mode");
    let fast = fast.display().to_string();
    run_as(&rig, OWNER, "077", &["init", "--index-dir", &fast]).ends(0);
    for (user, round) in [(OWNER, 0), (MEMBER, 1), (OWNER, 2)] {
        rig.write(&format!("src/{round}"), &[round; 9_000]);
        let ran = run_as(&rig, user, "077", &["backup", "src", "--index-dir", &fast]).ends(0);
        assert_eq!(ran.err, "", "round {round}");
    }
}

#[test]
fn a_repository_of_one_becomes_a_groups_by_the_modes_of_its_files() {
    let Some(rig) = rig() else {
        return;
    };
    run_as(&rig, OWNER, "022", &["init"]).ends(0);
    run_as(&rig, OWNER, "022", &["backup", "src"]).ends(0);
    // Before, it is its owner's alone.
    assert_ne!(run_as(&rig, MEMBER, "022", &["snapshots"]).code, Some(0));
    // The commands of docs/repository.md.
    let repo = rig.repo().display().to_string();
    for args in [["chgrp", "-R", "62000"], ["chmod", "-R", "g+rwX"]] {
        let done = Command::new(args[0]).args(&args[1..]).arg(&repo).status();
        assert!(done.expect("it starts").success());
    }
    work_together(&rig, "077");
    assert_eq!(not_shared(&rig, 0o660, 0o770), [""; 0]);
}

#[test]
fn members_who_may_only_read_restore_and_store_nothing() {
    let Some(rig) = rig() else {
        return;
    };
    make_folder(&rig, 0o700);
    run_as(&rig, OWNER, "077", &["init", "--group-readable"]).ends(0);
    run_as(&rig, OWNER, "077", &["backup", "src"]).ends(0);
    assert_eq!(not_shared(&rig, 0o640, 0o750), [""; 0]);
    let dump = ["dump", "latest", &rig.path("src/a").display().to_string()];
    let dumped = run_as(&rig, MEMBER, "077", &dump).ends(0);
    assert_eq!(dumped.out, "the first file");
    run_as(&rig, MEMBER, "077", &["backup", "src"]).ends(1);
}

#[test]
fn what_root_stores_in_a_groups_repository_is_the_groups() {
    let Some(rig) = rig() else {
        return;
    };
    make_folder(&rig, 0o2770);
    run_as(&rig, OWNER, "077", &["init"]).ends(0);
    rig.backup("src");
    assert_eq!(not_shared(&rig, 0o660, 0o770), [""; 0]);
    run_as(&rig, MEMBER, "077", &["backup", "src"]).ends(0);
}

#[test]
fn a_repository_is_its_owners_alone_unless_somebody_says_otherwise() {
    let rig = Rig::empty();
    rig.write("src/a", b"x");
    fs::create_dir(rig.repo()).expect("a folder");
    // As below a shared folder, where nobody has said that its members may write to what is in there.
    fs::set_permissions(rig.repo(), Permissions::from_mode(0o2755)).expect("its mode");
    rig.run(["init"]).ends(0);
    rig.backup("src");
    for name in ["config", "keys", "containers", "snapshots"] {
        let mode = fs::metadata(rig.repo().join(name))
            .expect("it is there")
            .mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
    let both = rig.run(["init", "--group-readable", "--group-writable"]);
    both.ends(2);
}
