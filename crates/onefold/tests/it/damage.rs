//! How far damage of metadata goes: what is told of it, and that the other snapshots are read all the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::rig::{Ran, Random, Rig, files};

/// Two snapshots of other files, and the one container of metadata that each has for itself.
fn two_snapshots(rig: &Rig) -> [(String, PathBuf); 2] {
    let mut random = Random(7);
    let folder = rig.repo().join("containers");
    let mut known = BTreeSet::new();
    ["old", "new"].map(|source| {
        for name in 0..30 {
            rig.write(&format!("{source}/d{name}/file"), &random.bytes(5_000));
        }
        let id = rig.backup(source);
        let listed: BTreeSet<_> = files(&folder).into_iter().collect();
        let added = listed.iter().filter(|one| !known.contains(*one));
        let small = added.min_by_key(|(_, bytes)| bytes.len()).expect("two");
        let metadata = folder.join(&small.0);
        known = listed;
        (id, metadata)
    })
}

fn flip_a_bit(path: &PathBuf) {
    let mut bytes = fs::read(path).expect("a container");
    bytes[60] ^= 1;
    fs::write(path, bytes).expect("ours");
}

/// Nothing of a container is left.
fn ruin(path: &PathBuf) {
    let len = fs::metadata(path).expect("a container").len();
    fs::write(path, vec![0; len as usize]).expect("ours");
}

#[test]
fn find_and_stats_go_on_past_a_snapshot_that_cannot_be_read() {
    for of_the_object in [false, true] {
        let rig = Rig::open();
        let [(old, _), (new, metadata)] = two_snapshots(&rig);
        if of_the_object {
            flip_a_bit(&rig.repo().join("snapshots").join(&new))
        } else {
            ruin(&metadata)
        }
        let found = rig.run(["find", "file"]).ends(13);
        assert_eq!(found.out.matches("/file\n").count(), 30, "{}", found.out);
        assert!(found.err.contains(&new[..8]), "{}", found.err);
        let found = rig.run(["find", "file", "--json"]).ends(13);
        let results = found.last();
        assert_eq!(results.as_array().map(Vec::len), Some(1));
        assert_eq!(results[0]["snapshot"], old.as_str());
        assert_eq!(results[0]["hits"], 30);
        // Standard error is JSON, too.
        let told = found.errors();
        assert_eq!(told[0]["message_type"], "error");
        assert_eq!(told[0]["item"], new.as_str());
        assert_eq!(told[1]["message_type"], "exit_error");
        let stats = rig.run(["stats", "--json"]).ends(13);
        assert_eq!(stats.last()["total_file_count"], 30);
        assert!(stats.err.contains(&new), "{}", stats.err);
    }
}

#[test]
fn a_snapshot_without_its_listing_is_lost_whole_and_counts_as_that() {
    let rig = Rig::open();
    let snapshots = two_snapshots(&rig);
    for (_, metadata) in &snapshots {
        ruin(metadata);
    }
    for args in [&["check"][..], &["check", "--read-data"]] {
        let ran = rig.run(args).ends(13);
        assert!(ran.err.contains("2 whole snapshots"), "{}", ran.err);
    }
    let checked = rig.run(["check", "--json"]).ends(13);
    let lost: Vec<_> = checked
        .lines()
        .into_iter()
        .filter(|line| line["message_type"] == "hurt")
        .map(|line| (line["snapshot"].clone(), line["what"].clone()))
        .collect();
    let all = snapshots.each_ref();
    let all = all.map(|(id, _)| (id.as_str().into(), "all".into()));
    assert_eq!(lost, all);
    assert_eq!(checked.last()["hurt_snapshots"], 2);
    let ran = rig.run(["restore", "latest", "--target", "t"]).ends(13);
    assert!(ran.err.contains("nothing is restored"), "{}", ran.err);
    assert!(!ran.err.contains("everything else"), "{}", ran.err);
    assert!(!ran.err.contains("1 path"), "{}", ran.err);
    // A lost object is no file either.
    flip_a_bit(&rig.repo().join("snapshots").join(&snapshots[0].0));
    let ran = rig.run(["check"]).ends(13);
    assert!(ran.err.contains("2 whole snapshots"), "{}", ran.err);
}

#[test]
fn what_forgetting_a_damaged_snapshot_would_free_is_told_before_it_is_done() {
    let rig = Rig::new();
    rig.write("s/f", &Random(6).bytes(300_000));
    rig.backup("s");
    let snapshots = rig.repo().join("snapshots");
    let damaged = files(&snapshots).into_keys().next().expect("one");
    flip_a_bit(&snapshots.join(&damaged));
    rig.write("s/f", &Random(7).bytes(300_000));
    let id = rig.backup("s");
    let damaged = damaged.to_str().expect("hex");
    rig.run(["prune"]).ends(13);
    let forget = ["forget", damaged, "--prune", "--json"];
    let tried = rig.run([&forget[..], &["--dry-run"]].concat()).ends(0);
    let done = rig.run(forget).ends(0);
    assert!(done.last()["freed_bytes"].as_u64() > Some(300_000));
    assert_eq!(
        tried.last()["reclaimable_bytes"],
        done.last()["freed_bytes"]
    );
    rig.run(["check", "--read-data"]).ends(0);
    assert_eq!(rig.restored(&id, "s"), files(&rig.path("s")));
}

/// A backup that found chunks damaged does not refer to them, though the index has them.
#[test]
fn a_backup_that_cannot_read_the_listing_before_stores_its_own() {
    let rig = Rig::new();
    for n in 0..20 {
        rig.write(&format!("s/{n}"), &Random(n).bytes(20_000));
    }
    rig.backup("s");
    let folder = rig.repo().join("containers");
    let by_len = files(&folder)
        .into_iter()
        .map(|(name, bytes)| (bytes.len(), name));
    let (_, listing) = by_len.min().expect("a container");
    let mut bytes = fs::read(folder.join(&listing)).expect("read");
    bytes[100] ^= 1;
    fs::write(folder.join(&listing), bytes).expect("write");
    let again = rig.run(["backup", "s"]).ends(0);
    assert!(again.err.contains("files are read anew"), "{}", again.err);
    assert_eq!(rig.restored("latest", "s"), files(&rig.path("s")));
    let checked = rig.run(["check", "--read-data", "--json"]).ends(13);
    assert_eq!(checked.last()["hurt_snapshots"], 1);
}

#[test]
fn containers_with_a_damaged_header_are_read_without_a_repair() {
    let rig = Rig::new();
    rig.write("s/f", &Random(5).bytes(300_000));
    let id = rig.backup("s");
    let before = rig.restored(&id, "s");
    let folder = rig.repo().join("containers");
    let all = files(&folder);
    all.keys().for_each(|name| flip_a_bit(&folder.join(name)));
    assert!(rig.restored(&id, "s") == before);
    let ran = rig.run(["restore", "latest", "--target", "t"]).ends(0);
    assert_eq!(
        ran.err.matches("known to be in it all the same").count(),
        all.len()
    );
    let ran = rig.run(["check", "--read-data"]).ends(13);
    let words = "but all that snapshots refer to can be read";
    assert!(ran.err.contains(words), "{}", ran.err);
    assert!(ran.err.contains("onefold repair"), "{}", ran.err);
    rig.run(["repair"]).ends(0);
    rig.run(["check", "--read-data"]).ends(0);
    assert!(rig.restored(&id, "s") == before);
}

#[test]
fn what_a_repair_removes_is_not_said_to_be_restored() {
    let rig = Rig::open();
    for name in ["condemned", "sketch"] {
        fs::write(rig.repo().join(name), b"torn").expect("ours");
    }
    let ran = rig.run(["repair"]).ends(0);
    assert!(!ran.out.contains("restored"), "{}", ran.out);
    for name in ["condemned", "sketch"] {
        let words = format!("removed {name}, which was damaged and has no second copy");
        assert!(ran.out.contains(&words), "{}", ran.out);
        assert!(!rig.repo().join(name).exists());
    }
}

#[test]
fn a_container_with_a_damaged_block_is_broken() {
    let rig = Rig::open();
    rig.write("s/f", &Random(3).bytes(300_000));
    rig.backup("s");
    let folder = rig.repo().join("containers");
    let all = files(&folder);
    let (name, _) = all
        .iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .expect("one");
    let path = folder.join(name);
    let mut bytes = fs::read(&path).expect("a container");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("ours");
    let checked = rig.run(["check", "--read-data", "--json"]).ends(13);
    let words = rig.run(["check", "--read-data"]).ends(13).err;
    assert!(words.contains("onefold repair"), "{words}");
    assert!(!words.contains("check --read-data"), "{words}");
    let id = path.file_name().expect("a name").to_string_lossy();
    assert_eq!(checked.last()["broken_packs"], serde_json::json!([id]));
    // Damage is told beside the results, by a repair too.
    for args in [
        ["check", "--read-data", "--json"],
        ["repair", "all", "--json"],
    ] {
        let ran = rig.run(args).ends(13);
        assert!(
            ran.lines()
                .iter()
                .all(|line| line["message_type"] != "error")
        );
        assert_eq!(ran.errors()[0]["message_type"], "error", "{args:?}");
    }
}

/// As when a disk gives nothing of it for a while.
#[test]
fn what_was_set_aside_is_named_and_taken_back_once_it_is_whole() {
    let rig = Rig::new();
    rig.write("s/f", &Random(5).bytes(300_000));
    let id = rig.backup("s");
    let before = rig.restored(&id, "s");
    let folder = rig.repo().join("containers");
    let all = files(&folder);
    let (name, bytes) = all
        .iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .expect("one");
    ruin(&folder.join(name));
    let object = format!("containers/{}", name.display());
    let aside = format!("{object}.unreadable");
    let ran = rig.run(["repair", "--json"]).ends(13);
    assert_eq!(ran.last()["set_aside"], serde_json::json!([aside]));
    let ran = rig.run(["check"]).ends(13);
    assert!(
        ran.out.contains(&format!("set aside  {aside}, ")),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("1 container is set aside"), "{}", ran.err);
    let ran = rig.run(["repair"]).ends(13);
    assert!(ran.out.contains(&format!("{aside}, ")), "{}", ran.out);
    assert!(ran.out.contains("it stays so"), "{}", ran.out);
    let still = rig.run(["repair", "--json"]).ends(13).last();
    assert_eq!(still["still_aside"], serde_json::json!([aside]));

    // Somebody put it back by hand, and it is as it was.
    fs::copy(rig.repo().join(&aside), rig.repo().join(&object)).expect("ours");
    let second = rig.run(["repair", "--json"]).ends(13).last();
    assert_eq!(
        second["set_aside"],
        serde_json::json!([format!("{aside}-2")])
    );
    fs::remove_file(rig.repo().join(format!("{aside}-2"))).expect("it is named");

    // By itself it is no damage.
    let rest = rig.run(["forget", &id, "--prune"]).ends(0);
    assert!(!rest.err.contains("aside"), "{}", rest.err);
    let checked = rig.run(["check", "--json"]).ends(0);
    assert_eq!(checked.last()["set_aside"], serde_json::json!([aside]));
    assert_eq!(checked.last()["set_aside_bytes"], bytes.len());
    assert_eq!(checked.last()["num_errors"], 0);

    fs::write(rig.repo().join(&aside), bytes).expect("ours");
    let ran = rig.run(["repair"]).ends(0);
    let words = format!("{object}: an earlier repair set it aside; all of it is there now");
    assert!(ran.out.contains(&words), "{}", ran.out);
    assert!(!rig.repo().join(&aside).exists());
    let ran = rig.run(["check"]).ends(0);
    assert!(!ran.err.contains("set aside"), "{}", ran.err);
    let again = rig.run(["backup", "s", "--json"]).ends(0).last();
    assert_eq!(again["data_blobs"], 0, "{again}");
    let again = again["snapshot_id"].as_str().expect("an id");
    assert!(rig.restored(again, "s") == before);
}

#[test]
fn a_damaged_configuration_whose_copy_is_used_is_warned_of_once() {
    let rig = Rig::open();
    let config = rig.repo().join("config");
    let len = fs::read(&config).expect("a configuration").len();
    fs::write(&config, vec![0; len]).expect("ours");
    let run = |args: &[&str], log: &str| -> crate::rig::Ran {
        let mut command = rig.command(args);
        command
            .env("ONEFOLD_LOG", log)
            .output()
            .expect("runs")
            .into()
    };
    for log in ["", "bogus"] {
        let ran = run(&["snapshots"], log).ends(0);
        assert_eq!(ran.err.matches("WARN").count(), 1, "{log}: {}", ran.err);
    }
    let told = run(&["snapshots", "--json"], "").ends(0).errors();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["message_type"], "warning");
    assert_eq!(run(&["snapshots", "-q"], "").ends(0).err, "");
    assert_eq!(run(&["snapshots"], "error").ends(0).err, "");
    let wrong = run(&["snapshots"], "onefold=loud").ends(0).err;
    assert!(wrong.contains("ONEFOLD_LOG is not understood"), "{wrong}");
}

#[test]
fn a_check_tells_that_the_copy_of_the_configuration_is_missing() {
    let rig = Rig::open();
    fs::remove_file(rig.repo().join("config.copy")).expect("ours");
    let ran = rig.run(["check"]).ends(0);
    assert!(ran.err.contains("config.copy"), "{}", ran.err);
    assert!(ran.out.contains("no damage was found"), "{}", ran.out);
    rig.run(["repair"]).ends(0);
    assert_eq!(rig.run(["check"]).ends(0).err, "");
}

#[test]
fn without_a_key_nobody_is_sent_to_a_repair_that_needs_one() {
    let rig = Rig::new();
    rig.write("s/file", b"content");
    rig.run(["backup", "s"]).ends(0);
    for (slot, _) in files(&rig.repo().join("keys")) {
        fs::remove_file(rig.repo().join("keys").join(slot)).expect("ours");
    }
    for verb in ["snapshots", "repair"] {
        let said = rig.run([verb]).ends(13).err;
        assert!(said.contains("no key slot is left"), "{said}");
        assert!(said.contains("put the folder `keys` back"), "{said}");
        assert!(!said.contains("onefold repair"), "{said}");
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_is_named_with_what_drops_it() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let id = rig.backup("s");
    std::fs::write(rig.repo().join("snapshots").join(&id), b"no snapshot").expect("write");
    let name = &id[..8];
    let told = format!("snapshot {name} cannot be read; `onefold forget {name}` drops it");
    for verb in ["check", "repair", "prune"] {
        let ran = rig.run([verb]).ends(13);
        let said = ran.out + &ran.err;
        assert!(said.contains(&told), "{verb}: {said}");
    }
    rig.run(["forget", name]).ends(0);
    rig.run(["prune"]).ends(0);
}

const CONFIGS: [&str; 2] = ["repo/config", "repo/config.copy"];

#[test]
fn a_configuration_that_is_lost_in_every_copy_comes_back_from_a_key_slot() {
    let rig = Rig::new();
    rig.write("s/f", b"what is kept");
    rig.backup("s");
    let was = CONFIGS.map(|name| fs::read(rig.path(name)).expect("a copy"));
    let lose: [fn(&std::path::Path); 2] = [
        |file| fs::remove_file(file).expect("removed"),
        |file| fs::write(file, "damaged").expect("written"),
    ];
    for lose in lose {
        CONFIGS.iter().for_each(|name| lose(&rig.path(name)));
        let told = rig.run(["snapshots"]).ends(13).err;
        assert!(told.contains("onefold repair"), "{told}");
        let mut wrong = rig.command(["repair"]);
        let wrong = wrong.env("ONEFOLD_PASSWORD", "another").output();
        assert_eq!(wrong.expect("it starts").status.code(), Some(12));
        rig.run(["repair"]).ends(0);
        let is = CONFIGS.map(|name| fs::read(rig.path(name)).expect("a copy"));
        assert_eq!(is, was);
        assert_eq!(rig.restored("latest", "s").len(), 1);
    }
}

#[test]
fn without_encryption_the_configuration_of_a_new_repository_does() {
    let rig = Rig::open();
    rig.write("s/f", b"what is kept");
    rig.backup("s");
    for name in CONFIGS {
        fs::remove_file(rig.path(name)).expect("removed");
    }
    let mut repair = rig.command(["repair"]);
    let told = repair.env_remove("ONEFOLD_PASSWORD").output();
    let told = Ran::from(told.expect("it starts")).ends(13).err;
    assert!(told.contains("onefold init --encryption none"), "{told}");
    let mut init = rig.command(["init", "--encryption", "none", "--repo", "new"]);
    let made = init.env_remove("ONEFOLD_PASSWORD").output();
    Ran::from(made.expect("it starts")).ends(0);
    fs::copy(rig.path("new/config"), rig.path("repo/config")).expect("copied");
    rig.run(["repair"]).ends(0);
    assert_eq!(rig.restored("latest", "s").len(), 1);
}

/// Whoever mixes up two repositories while copying: the password opens the key slot, and that says which it is.
#[test]
fn a_configuration_that_is_another_repositorys_is_put_right_by_a_repair() {
    let (rig, other, open) = (Rig::new(), Rig::new(), Rig::open());
    rig.write("s/f", b"what is kept");
    rig.backup("s");
    let was = CONFIGS.map(|name| fs::read(rig.path(name)).expect("a copy"));
    for theirs in [&other, &open] {
        for mixed_up in [&CONFIGS[..1], &CONFIGS] {
            for name in mixed_up {
                fs::copy(theirs.path(name), rig.path(name)).expect("copied");
            }
            assert_ne!(rig.run(["snapshots"]).code, Some(0));
            rig.run(["repair"]).ends(0);
            let is = CONFIGS.map(|name| fs::read(rig.path(name)).expect("a copy"));
            assert_eq!(is, was);
            assert_eq!(rig.restored("latest", "s").len(), 1);
            rig.run(["check"]).ends(0);
        }
    }
}
