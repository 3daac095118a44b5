//! `copy`, `sync` and `init --like`: the other repository restores what this one does, whatever was interrupted.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::rig::{Files, PASSWORD, Ran, Random, Rig, change, files, seeded};

const OTHER: &str = "another password";

/// A repository of a few generations of a tree.
fn source(random: &mut Random) -> (Rig, Vec<String>) {
    let rig = Rig::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        for _ in 0..3 {
            change(&rig.path("source"), random);
        }
        // One that has recipe chunks.
        rig.write("source/large", &random.bytes(3_000_000));
        ids.push(rig.backup("source"));
    }
    (rig, ids)
}

/// The program with the copy as its repository, and the rig's one as the other.
fn on_copy(rig: &Rig, args: &[&str]) -> Command {
    let mut command = rig.command(["-r", "copy"]);
    command
        .args(args)
        .env_remove("ONEFOLD_REPOSITORY")
        .env("ONEFOLD_PASSWORD", OTHER)
        .env("ONEFOLD_FROM_REPOSITORY", rig.repo())
        .env("ONEFOLD_FROM_PASSWORD", PASSWORD);
    command
}

fn ran(mut command: Command) -> Ran {
    command.output().expect("the program starts").into()
}

fn copy(rig: &Rig, args: &[&str]) -> Ran {
    ran(on_copy(rig, &[&["copy", "--json"], args].concat()))
}

/// Restores all snapshots of the copy, oldest first.
fn restored(rig: &Rig, password: &str) -> Vec<Files> {
    let with_password = |args: &[&str]| {
        let mut command = on_copy(rig, args);
        command.env("ONEFOLD_PASSWORD", password);
        ran(command).ends(0)
    };
    let listed = with_password(&["snapshots", "--json"]).last();
    let ids = listed.as_array().expect("an array").iter();
    ids.map(|snapshot| {
        let target = tempfile::tempdir_in(rig.dir.path()).expect("a target");
        let id = snapshot["id"].as_str().expect("an id");
        let spec = format!("{id}:{}", rig.path("source").display());
        let to = target.path().to_str().expect("UTF-8");
        with_password(&["restore", &spec, "--target", to]);
        files(target.path())
    })
    .collect()
}

fn expected(rig: &Rig, ids: &[String]) -> Vec<Files> {
    ids.iter().map(|id| rig.restored(id, "source")).collect()
}

fn summary(ran: Ran, field: &str) -> u64 {
    ran.ends(0).last()[field].as_u64().expect("a number")
}

#[test]
fn a_copy_restores_the_same_and_is_made_once() {
    let mut random = seeded("copy");
    let (rig, ids) = source(&mut random);
    ran(on_copy(&rig, &["init"])).ends(0);
    assert_eq!(summary(copy(&rig, &[&ids[0]]), "snapshots_copied"), 1);
    let more = copy(&rig, &[]).ends(0);
    assert_eq!(more.last()["snapshots_copied"], 2);
    assert_eq!(restored(&rig, OTHER), expected(&rig, &ids));
    let again = copy(&rig, &[]).ends(0).last();
    assert_eq!(
        (&again["snapshots_copied"], &again["bytes_read"]),
        (&0.into(), &0.into())
    );
    ran(on_copy(&rig, &["check", "--read-data"])).ends(0);
    // Chunks that several snapshots share are stored once.
    let stored = |folder: PathBuf| files(&folder).values().map(Vec::len).sum::<usize>() as f64;
    let (own, copied) = (
        stored(rig.repo().join("containers")),
        stored(rig.path("copy/containers")),
    );
    assert!(copied < own * 1.1, "{own} {copied}");
    let unknown = copy(&rig, &["abcdef12"]).ends(1);
    assert!(unknown.err.contains("abcdef12"), "{}", unknown.err);
    let mut wrong = on_copy(&rig, &["copy"]);
    wrong.env("ONEFOLD_FROM_PASSWORD", "no");
    ran(wrong).ends(12);
}

#[test]
fn into_a_repository_made_alike_nothing_known_is_read() {
    let mut random = seeded("alike");
    let (rig, ids) = source(&mut random);
    let like = rig.repo();
    let like = like.to_str().expect("UTF-8");
    ran(on_copy(&rig, &["init", "--like", like])).ends(0);
    copy(&rig, &[&ids[1]]).ends(0);
    // The same tree, backed up there too: all of it is known.
    ran(on_copy(&rig, &["backup", "source"])).ends(0);
    let last = copy(&rig, &[&ids[2]]).ends(0).last();
    assert_eq!(
        (&last["snapshots_copied"], &last["bytes_read"]),
        (&1.into(), &0.into())
    );
    ran(on_copy(&rig, &["check", "--read-data"])).ends(0);
    let mut own = on_copy(&rig, &["snapshots"]);
    own.env("ONEFOLD_PASSWORD", PASSWORD);
    ran(own).ends(12);
}

/// Kills `command` after `ms` milliseconds, if it still runs.
fn killed(mut command: Command, ms: u64) {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let since = std::time::Instant::now();
    while since.elapsed().as_millis() < ms.into() {
        if child.try_wait().expect("a child").is_some() {
            return;
        }
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn a_killed_copy_or_sync_goes_on_where_it_was() {
    let mut random = seeded("killed copies");
    let (rig, ids) = source(&mut random);
    ran(on_copy(&rig, &["init"])).ends(0);
    for _ in 0..4 {
        killed(on_copy(&rig, &["copy"]), 20 + random.below(400));
    }
    copy(&rig, &[]).ends(0);
    assert_eq!(restored(&rig, OTHER), expected(&rig, &ids));
    ran(on_copy(&rig, &["check", "--read-data"])).ends(0);
    std::fs::remove_dir_all(rig.path("copy")).expect("ours");
    for _ in 0..4 {
        killed(sync_command(&rig, &[]), 2 + random.below(60));
    }
    sync(&rig, &[]).ends(0);
    assert_eq!(restored(&rig, PASSWORD), expected(&rig, &ids));
}

fn sync_command(rig: &Rig, args: &[&str]) -> Command {
    let mut command = rig.command(["sync", "--from", "repo", "--to", "copy", "--json"]);
    command.args(args).env_remove("ONEFOLD_PASSWORD");
    command
}

fn sync(rig: &Rig, args: &[&str]) -> Ran {
    ran(sync_command(rig, args))
}

#[test]
fn a_replica_is_the_repository_again_and_takes_no_other_writer() {
    let mut random = seeded("replica");
    let (rig, mut ids) = source(&mut random);
    sync(&rig, &[]).ends(0);
    assert_eq!(restored(&rig, PASSWORD), expected(&rig, &ids));
    assert_eq!(summary(sync(&rig, &[]), "objects_copied"), 0);
    let with_own = |args: &[&str]| {
        let mut command = on_copy(&rig, args);
        command.env("ONEFOLD_PASSWORD", PASSWORD);
        ran(command)
    };
    with_own(&["check", "--read-data"]).ends(0);
    for writes in [&["backup", "source"][..], &["prune"], &["forget", "latest"]] {
        let refused = with_own(writes);
        assert_ne!(refused.code, Some(0), "{writes:?}");
        assert!(refused.err.contains("replica"), "{}", refused.err);
    }
    // Snapshots that go in the source stay in the copy, until they are to go.
    rig.run(["forget", &ids.remove(0), "--prune"]).ends(0);
    sync(&rig, &[]).ends(0);
    assert_eq!(restored(&rig, PASSWORD).len(), 3);
    assert!(summary(sync(&rig, &["--delete"]), "objects_deleted") > 0);
    assert_eq!(restored(&rig, PASSWORD), expected(&rig, &ids));
    let containers = |folder: &str| files(&rig.path(folder).join("containers"));
    assert_eq!(containers("repo"), containers("copy"));
    // Another repository's place is none for a replica.
    let other = Rig::new();
    let mut command = rig.command(["sync", "--from", "repo", "--to"]);
    command.arg(other.repo());
    let refused = ran(command).ends(2);
    assert!(
        refused.err.contains("another repository"),
        "{}",
        refused.err
    );
}

#[test]
fn what_is_damaged_in_the_source_is_told_and_not_copied() {
    let mut random = seeded("a damaged source");
    let (rig, _) = source(&mut random);
    let containers = files(&rig.repo().join("containers"));
    let (name, bytes) = containers.iter().next().expect("some");
    let mut bytes = bytes.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(rig.repo().join("containers").join(name), bytes).expect("ours");
    let told = sync(&rig, &[]).ends(13);
    assert_eq!(told.last()["damaged"].as_array().map(Vec::len), Some(1));
    let copied = files(&rig.path("copy/containers"));
    assert_eq!(copied.len(), containers.len() - 1);
    assert!(!copied.contains_key(name));
}

/// The largest container holds contents: what a snapshot says of its files is less.
fn largest_container(rig: &Rig) -> PathBuf {
    let containers = files(&rig.repo().join("containers"));
    let largest = containers.iter().max_by_key(|(_, bytes)| bytes.len());
    rig.repo().join("containers").join(largest.expect("some").0)
}

#[test]
fn a_copy_of_what_is_damaged_names_the_file() {
    let mut random = seeded("a damaged copy");
    for (bytes, is_gone) in [(100_000, false), (3_000_000, false), (100_000, true)] {
        let rig = Rig::new();
        rig.write("source/whole", b"as it was");
        rig.write("source/hurt", &random.bytes(bytes));
        rig.backup("source");
        let container = largest_container(&rig);
        if is_gone {
            std::fs::remove_file(container).expect("ours");
        } else {
            let mut damaged = std::fs::read(&container).expect("ours");
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            std::fs::write(container, damaged).expect("ours");
        }
        ran(on_copy(&rig, &["init"])).ends(0);
        let told = copy(&rig, &[]).ends(13);
        assert!(told.err.contains("source/hurt"), "{}", told.err);
        assert!(restored(&rig, OTHER).is_empty());
    }
}

#[test]
fn a_replica_in_the_place_of_the_repository_is_refused() {
    let rig = Rig::new();
    std::os::unix::fs::symlink("repo", rig.path("link")).expect("a link");
    for (to, told) in [
        ("repo", "the repository itself"),
        ("link", "the repository itself"),
        ("repo/replica", "lies in the repository"),
        ("./link/../repo/new/replica", "lies in the repository"),
    ] {
        let mut command = rig.command(["sync", "--from", "repo", "--to", to]);
        command.env_remove("ONEFOLD_PASSWORD");
        let refused = ran(command).ends(2);
        assert!(refused.err.contains(told), "{to}: {}", refused.err);
    }
    assert!(!rig.path("repo/replica").exists());
    let refused = rig.run(["sync", "--from", "repo", "--to", "/proc/replica"]);
    let refused = refused.ends(1);
    assert!(refused.err.contains("/proc/replica"), "{}", refused.err);
    assert!(!refused.err.contains("check"), "{}", refused.err);
}

/// A message says which of two passwords is wrong or missing.
#[test]
fn messages_say_which_repositorys_password_is_meant() {
    let rig = Rig::new();
    ran(on_copy(&rig, &["init"])).ends(0);
    let told = |variable: &str, value: Option<&str>| {
        let mut command = on_copy(&rig, &["copy"]);
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
        // Without a terminal nobody is asked.
        let mut alone = Command::new("setsid");
        alone
            .arg("-w")
            .arg(command.get_program())
            .args(command.get_args());
        alone.current_dir(rig.dir.path());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => alone.env(name, value),
                None => alone.env_remove(name),
            };
        }
        ran(alone).ends(12).err
    };
    let (own, other) = ("the repository at copy", rig.repo().display().to_string());
    for value in [Some("wrong"), None] {
        let err = told("ONEFOLD_PASSWORD", value);
        assert!(
            err.contains(own) && !err.contains(&other),
            "{value:?}: {err}"
        );
        let err = told("ONEFOLD_FROM_PASSWORD", value);
        assert!(
            err.contains(&other) && !err.contains(own) && err.contains("--from-password-file"),
            "{value:?}: {err}"
        );
    }
}

#[test]
fn copies_and_replicas_show_how_far_they_are() {
    let mut random = seeded("progress of copies");
    let (rig, _) = source(&mut random);
    ran(on_copy(&rig, &["init"])).ends(0);
    let status = |mut command: Command| {
        command.env("ONEFOLD_PROGRESS_FPS", "60");
        let lines = ran(command).ends(0).lines();
        let is_status = |line: &&serde_json::Value| line["message_type"] == "status";
        lines.iter().rfind(is_status).cloned()
    };
    // The verb may be done before the first line is due.
    if let Some(last) = status(on_copy(&rig, &["copy", "--json"])) {
        assert_eq!(last["total_snapshots"], 3, "{last}");
        assert!(last["percent_done"].as_f64().is_some(), "{last}");
    }
    std::fs::remove_dir_all(rig.path("copy")).expect("ours");
    if let Some(last) = status(sync_command(&rig, &[])) {
        assert!(last["total_objects"].as_u64() > Some(0), "{last}");
    }
}
