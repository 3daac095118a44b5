//! restic's fields, modes and orders where they mean the same here: front ends written for it are to work. Its flags
//! stand in `restic_flags`.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::rig::{Random, Rig};

#[track_caller]
fn keys(value: &Value) -> BTreeSet<&str> {
    let fields = value.as_object().expect("an object");
    fields.keys().map(String::as_str).collect()
}

fn of<'a>(lines: &'a [Value], field: &str, is: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line[field] == is).collect()
}

#[test]
fn a_verbose_backup_tells_of_each_entry() {
    let rig = Rig::open();
    let bytes = Random(1).bytes(50_000);
    rig.write("s/a", &bytes);
    rig.write("s/twin", &bytes);
    let ran = rig.run(["backup", "s", "--json", "-v"]).ends(0);
    let lines = ran.lines();
    let scanned = of(&lines, "action", "scan_finished");
    assert_eq!(scanned.len(), 1, "{}", ran.out);
    assert_eq!(
        (&scanned[0]["total_files"], &scanned[0]["data_size"]),
        (&2.into(), &100_000.into())
    );
    let of_restic = BTreeSet::from([
        "message_type",
        "action",
        "item",
        "duration",
        "data_size",
        "data_size_in_repo",
        "metadata_size",
        "metadata_size_in_repo",
        "total_files",
    ]);
    let all = of(&lines, "message_type", "verbose_status");
    assert!(
        all.iter().all(|line| keys(line) == of_restic),
        "{}",
        ran.out
    );
    let size = |name: &str| {
        let is_it = |line: &&&Value| line["item"].as_str().expect("a path").ends_with(name);
        all.iter().find(is_it).expect("a line")["data_size"].as_u64()
    };
    assert!(all.iter().all(|line| line["data_size_in_repo"].is_u64()));
    // Content that is stored already is not new.
    assert_eq!((size("/s/a"), size("/s/twin")), (Some(50_000), Some(0)));
}

#[test]
fn a_verbose_restore_tells_of_each_file_and_folder() {
    let rig = Rig::open();
    rig.write("s/a", b"first");
    rig.write("s/b", b"second");
    rig.write("s/c", b"third");
    rig.backup("s");
    let spec = format!("latest:{}", rig.path("s").display());
    let restore = |more: &[&str]| {
        let args = ["restore", &spec, "--target", "t", "--json", "-v"];
        let lines = rig.run(args.iter().chain(more)).ends(0).lines();
        let actions: BTreeSet<String> = of(&lines, "message_type", "verbose_status")
            .iter()
            .map(|line| {
                let (action, item) = (line["action"].as_str(), line["item"].as_str());
                format!("{} {}", action.expect("a word"), item.expect("a path"))
            })
            .collect();
        (
            actions.into_iter().collect::<Vec<_>>(),
            lines.last().expect("a summary").clone(),
        )
    };
    let (first, summary) = restore(&[]);
    assert_eq!(first, ["restored /a", "restored /b", "restored /c"]);
    assert_eq!(summary["files_restored"], 3);
    rig.write("t/b", b"of the user");
    rig.write("t/more", b"");
    let changed = ["--overwrite", "if-changed", "--delete"];
    let (dry, _) = restore(&[&changed[..], &["--dry-run"]].concat());
    let (real, summary) = restore(&changed);
    let expected = [
        "deleted /more",
        "unchanged /a",
        "unchanged /c",
        "updated /b",
    ];
    assert_eq!(
        (&real[..], &dry[..]),
        (&expected.map(String::from)[..], &real[..])
    );
    assert_eq!(
        (
            &summary["files_skipped"],
            &summary["bytes_skipped"],
            &summary["files_deleted"]
        ),
        (&2.into(), &10.into(), &1.into())
    );
}

#[test]
fn a_tree_has_the_same_id_wherever_it_comes_up() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    rig.backup("s");
    rig.run(["tag", "--add", "other", "latest"]).ends(0);
    let first = rig.run(["snapshots", "--json"]).ends(0).last();
    rig.run(["tag", "--add", "another", "latest"]).ends(0);
    rig.write("s/a", b"y");
    rig.backup("s");
    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    assert_eq!(first[0]["tree"].as_str().map(str::len), Some(64));
    assert_eq!(first[0]["tree"], list[0]["tree"], "{list}");
    assert_ne!(list[0]["tree"], list[1]["tree"], "{list}");
}

#[test]
fn a_comparison_counts_chunks() {
    let rig = Rig::open();
    let bytes = Random(2).bytes(600_000);
    rig.write("s/big", &bytes);
    let first = rig.backup("s");
    rig.write("s/big", &[&bytes[..], b"and more"].concat());
    rig.write("s/new", b"new");
    let second = rig.backup("s");
    let counts = rig.run(["diff", &first, &second, "--json"]).ends(0).last();
    let (added, removed) = (&counts["added"], &counts["removed"]);
    // The last chunk of one, and a file.
    assert_eq!(
        (&added["data_blobs"], &removed["data_blobs"]),
        (&2.into(), &1.into()),
        "{counts}"
    );
    assert!(added["tree_blobs"].as_u64() >= Some(1), "{counts}");
    // Only the difference of the changed file counts.
    let of = |side: &Value| side["bytes"].as_u64().expect("bytes");
    assert_eq!(of(added) - of(removed), 11, "{counts}");
    assert!(of(removed) < 300_000, "{counts}");
    let none = rig.run(["diff", &first, &first, "--json"]).ends(0).last();
    assert_eq!(
        (&none["added"]["data_blobs"], &none["added"]["tree_blobs"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn statistics_have_restics_modes() {
    let rig = Rig::open();
    rig.write("s/a", b"same");
    rig.write("s/b", b"same");
    rig.write("s/c", b"other one");
    rig.backup("s");
    rig.write("s/c", b"changed");
    rig.backup("s");
    let stats = |mode: &str| rig.run(["stats", "--json", "--mode", mode]).ends(0).last();
    let by_contents = stats("files-by-contents");
    assert_eq!(
        (&by_contents["total_file_count"], &by_contents["total_size"]),
        (&3.into(), &20.into())
    );
    let per_file = stats("blobs-per-file");
    assert_eq!(
        (
            &per_file["total_file_count"],
            &per_file["total_blob_count"],
            &per_file["total_size"]
        ),
        (&4.into(), &4.into(), &24.into())
    );
    let raw = stats("raw-data");
    assert!(raw["compression_space_saving"].is_f64() && raw["compression_progress"] == 100);
}

#[test]
fn listings_are_sorted_as_asked() {
    let rig = Rig::open();
    for (name, len) in [("a.z", 3), ("b.y", 1), ("c", 2)] {
        rig.write(&format!("s/{name}"), &vec![0; len]);
    }
    rig.backup("s");
    let at = rig.path("s").display().to_string();
    let names = |more: &[&str]| -> Vec<String> {
        let args = ["ls", "latest", &at, "-q"];
        let ran = rig.run(args.iter().chain(more)).ends(0);
        let names = ran
            .out
            .lines()
            .filter_map(|line| line.strip_prefix(&at)?.strip_prefix('/'));
        names.map(str::to_owned).collect()
    };
    assert_eq!(names(&["--sort", "size"]), ["b.y", "c", "a.z"]);
    assert_eq!(names(&["-s", "size", "--reverse"]), ["a.z", "c", "b.y"]);
    assert_eq!(names(&["--sort", "extension"]), ["c", "b.y", "a.z"]);
    assert_eq!(names(&["--reverse"]), ["c", "b.y", "a.z"]);
    assert_eq!(names(&["--sort", "time"]).len(), 3);
    let lines = rig
        .run(["ls", "latest", "--json", "--sort", "size", "--reverse"])
        .ends(0)
        .lines();
    assert_eq!(
        (&lines[0]["struct_type"], &lines[1]["name"]),
        (&"snapshot".into(), &"a.z".into())
    );
    assert_eq!(lines[1]["atime"], lines[1]["mtime"]);
    rig.run(["ls", "latest", "--sort", "colour"]).ends(2);
}

/// All paths of what `ncdu` reads; those of folders end with `/`.
fn paths(at: &str, node: &Value, found: &mut BTreeSet<String>) {
    match node.as_array() {
        None => drop(found.insert(format!("{at}/{}", node["name"].as_str().expect("a name")))),
        Some(folder) => {
            let name = folder[0]["name"]
                .as_str()
                .expect("a name")
                .trim_matches('/');
            let here = if name.is_empty() {
                at.into()
            } else {
                format!("{at}/{name}")
            };
            found.insert(format!("{here}/"));
            folder[1..]
                .iter()
                .for_each(|node| paths(&here, node, found));
        }
    }
}

#[test]
fn ncdu_gets_nested_folders() {
    let rig = Rig::open();
    rig.write("s/deep/er/f", &[1; 1000]);
    rig.write("s/g", b"");
    for empty in ["s/empty", "s/deep/none", "s/zero"] {
        fs::create_dir(rig.path(empty)).expect("made");
    }
    let id = rig.backup("s");
    let ran = rig.run(["ls", "latest", "--ncdu"]).ends(0);
    let whole: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(
        (&whole[0], &whole[1], &whole[2]["snapshot"]["id"]),
        (&1.into(), &2.into(), &id.into())
    );
    let mut found = BTreeSet::new();
    paths("", &whole[3], &mut found);
    let base = rig.path("s").display().to_string();
    let in_source: Vec<_> = found
        .iter()
        .filter_map(|path| path.strip_prefix(&base))
        .collect();
    let expected = [
        "/",
        "/deep/",
        "/deep/er/",
        "/deep/er/f",
        "/deep/none/",
        "/empty/",
        "/g",
        "/zero/",
    ];
    assert_eq!(in_source, expected);
}

#[test]
fn a_search_begins_with_the_newest() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let ids = [rig.backup("s"), rig.backup("s")];
    let order = |more: &[&str]| {
        let found = rig
            .run(["find", "a", "--json"].iter().chain(more))
            .ends(0)
            .last();
        [0, 1].map(|i| found[i]["snapshot"].as_str().expect("an id").to_owned())
    };
    assert_eq!(order(&["--reverse"]), ids);
    assert_eq!(order(&[]), [ids[1].clone(), ids[0].clone()]);
}

/// More than are kept in RAM: the rest is read again.
#[test]
fn ncdu_gets_all_of_very_many_folders() {
    let rig = Rig::open();
    let mut expected = BTreeSet::from(["/".to_owned()]);
    for number in 0..2500 {
        let folder = format!("s/{number:04}");
        fs::create_dir_all(rig.path(&folder)).expect("made");
        expected.insert(format!("{}/", &folder[1..]));
        if number % 7 == 0 {
            rig.write(&format!("{folder}/f"), b"");
            expected.insert(format!("{}/f", &folder[1..]));
        }
    }
    rig.backup("s");
    let base = rig.path("s").display().to_string();
    let listed = |args: &[&str]| {
        let ran = rig.run([args, &["--ncdu"]].concat()).ends(0);
        let whole: Value = serde_json::from_str(&ran.out).expect("JSON");
        let mut found = BTreeSet::new();
        paths("", &whole[3], &mut found);
        found
    };
    let of_base = |found: BTreeSet<String>| -> BTreeSet<String> {
        let paths = found.iter().filter_map(|path| path.strip_prefix(&base));
        paths.map(String::from).collect()
    };
    assert_eq!(of_base(listed(&["ls", "latest"])), expected);
    assert_eq!(listed(&["ls", &format!("latest:{base}")]), expected);
    let some = of_base(listed(&["ls", "latest", &format!("{base}/2408")]));
    assert_eq!(Vec::from_iter(some), ["/", "/2408/", "/2408/f"]);
}
