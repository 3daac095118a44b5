//! JSON lines parse, and have restic's fields, so that front ends port.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::rig::{Random, Rig};

#[track_caller]
fn has(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(!value[*field].is_null(), "{field} is missing in {value}");
    }
}

#[test]
fn backup_tells_in_restics_words() {
    let rig = Rig::open();
    rig.write("s/a", &[1; 100_000]);
    let mut command = rig.command(["backup", "s", "--json", "-v", "--tag", "t"]);
    let ran: crate::rig::Ran = command
        .env("ONEFOLD_PROGRESS_FPS", "60")
        .output()
        .expect("runs")
        .into();
    let lines = ran.ends(0).lines();
    let of = |kind: &str| {
        lines
            .iter()
            .filter(|line| line["message_type"] == kind)
            .collect::<Vec<_>>()
    };
    for status in of("status") {
        has(
            status,
            &[
                "percent_done",
                "total_files",
                "files_done",
                "total_bytes",
                "bytes_done",
                "seconds_elapsed",
            ],
        );
    }
    assert!(of("verbose_status").iter().any(|line| {
        line["action"] == "new"
            && line["item"]
                .as_str()
                .is_some_and(|item| item.ends_with("/s/a"))
    }));
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["message_type"], "summary");
    has(
        summary,
        &[
            "files_new",
            "files_changed",
            "files_unmodified",
            "dirs_new",
            "dirs_changed",
            "dirs_unmodified",
            "data_blobs",
            "tree_blobs",
            "data_added",
            "data_added_packed",
            "total_files_processed",
            "total_bytes_processed",
            "total_duration",
            "backup_start",
            "backup_end",
            "snapshot_id",
        ],
    );
    assert_eq!(
        (&summary["files_new"], &summary["total_bytes_processed"]),
        (&Value::from(1), &Value::from(100_000))
    );
}

#[test]
fn a_source_that_is_missing_is_told_in_restics_words() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let ran = rig.run(["backup", "s", "missing", "--json"]).ends(3);
    let error: Value = serde_json::from_str(ran.err.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (error["message_type"].as_str(), error["during"].as_str()),
        (Some("error"), Some("archival"))
    );
    has(&error["error"], &["message"]);
    let end: Value = serde_json::from_str(ran.err.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        (&end["message_type"], &end["code"]),
        (&"exit_error".into(), &3.into())
    );
}

#[test]
fn restore_tells_in_restics_words() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    rig.backup("s");
    let restored = rig
        .run(["restore", "latest", "--target", "t", "--json"])
        .ends(0)
        .last();
    assert_eq!(restored["message_type"], "summary");
    has(
        &restored,
        &[
            "total_files",
            "files_restored",
            "total_bytes",
            "bytes_restored",
            "seconds_elapsed",
        ],
    );
}

/// A repository with two snapshots, and their ids: the second one has a file more, of two bytes.
fn two_backups() -> (Rig, String, String) {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let first = rig.backup("s");
    rig.write("s/b", b"yy");
    let second = rig.backup("s");
    (rig, first, second)
}

#[test]
fn snapshots_have_restics_fields() {
    let (rig, first, _) = two_backups();
    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    assert_eq!(list.as_array().expect("an array").len(), 2);
    has(
        &list[1],
        &[
            "time",
            "paths",
            "hostname",
            "username",
            "uid",
            "gid",
            "program_version",
            "summary",
            "id",
            "short_id",
            "parent",
        ],
    );
    assert_eq!(list[1]["parent"], first.as_str());
    let by_host = ["snapshots", "--json", "--group-by", "host"];
    let groups = rig.run(by_host).ends(0).last();
    has(&groups[0], &["group_key", "snapshots"]);
}

#[test]
fn entries_have_restics_fields() {
    let (rig, first, second) = two_backups();
    let lines = rig.run(["ls", "latest", "--json"]).ends(0).lines();
    assert_eq!(lines[0]["struct_type"], "snapshot");
    let file = lines.iter().find(|line| line["name"] == "b").expect("b");
    has(
        file,
        &[
            "struct_type",
            "name",
            "type",
            "path",
            "uid",
            "gid",
            "size",
            "mode",
            "permissions",
            "mtime",
            "ctime",
        ],
    );
    assert_eq!(
        (&file["size"], file["type"].as_str()),
        (&Value::from(2), Some("file"))
    );
    let none = rig.run(["find", "nowhere", "--json"]).ends(0).out;
    assert_eq!(none, "[]\n");
    let found = rig.run(["find", "b", "--json"]).ends(0);
    // Written as it is found: how many there are comes last.
    assert!(found.out.starts_with("[{\"matches\":["), "{}", found.out);
    let found = found.last();
    assert_eq!(
        (&found[0]["hits"], found[0]["snapshot"].as_str()),
        (&Value::from(1), Some(second.as_str()))
    );
    let of_a_match = ["path", "permissions", "type", "mtime", "size"];
    has(&found[0]["matches"][0], &of_a_match);
    let diff = rig.run(["diff", &first, &second, "--json"]).ends(0).lines();
    let is_addition = |line: &Value| line["message_type"] == "change" && line["modifier"] == "+";
    assert!(diff.iter().any(is_addition));
    has(
        diff.last().expect("statistics"),
        &[
            "source_snapshot",
            "target_snapshot",
            "changed_files",
            "added",
            "removed",
        ],
    );
}

#[test]
fn statistics_have_restics_fields() {
    let (rig, _, _) = two_backups();
    let of_all = ["total_size", "total_file_count", "snapshots_count"];
    has(&rig.run(["stats", "--json"]).ends(0).last(), &of_all);
    let raw = ["stats", "--mode", "raw-data", "--json"];
    has(
        &rig.run(raw).ends(0).last(),
        &[
            "total_size",
            "total_uncompressed_size",
            "compression_ratio",
            "total_blob_count",
        ],
    );
}

#[test]
fn raw_data_of_some_snapshots_is_not_compared_with_what_all_take() {
    let (rig, first, _) = two_backups();
    let raw = ["stats", "--mode", "raw-data"];
    for some in [&[first.as_str()][..], &["--tag", ""], &["latest"]] {
        let told = rig.run(raw.iter().chain(some).chain(&["--json"])).ends(0);
        let told = told.last();
        let of_them = ["total_uncompressed_size", "total_blob_count"];
        has(&told, &of_them);
        let fields = told.as_object().expect("an object");
        for of_all in ["total_size", "compression_ratio", "containers"] {
            assert!(!fields.contains_key(of_all), "{told}");
        }
        let said = rig.run(raw.iter().chain(some)).ends(0).out;
        assert!(
            said.contains("different") && !said.contains("stored  "),
            "{said}"
        );
    }
}

#[test]
fn upkeep_tells_in_restics_words() {
    let (rig, first, _) = two_backups();
    let forget = ["forget", "--keep-last", "1", "--json", "--dry-run"];
    let forgot = rig.run(forget).ends(0).last();
    has(&forgot[0], &["host", "paths", "keep", "remove", "reasons"]);
    assert_eq!(forgot[0]["remove"][0]["id"], first.as_str());
    has(&forgot[0]["reasons"][0], &["snapshot", "matches"]);
    for (verb, field) in [
        ("check", "num_errors"),
        ("prune", "freed_bytes"),
        ("repair", "num_errors"),
    ] {
        let told = rig.run([verb, "--json"]).ends(0).last();
        has(&told, &["message_type", field]);
    }
}

#[test]
fn failures_end_with_exit_error() {
    let rig = Rig::empty();
    let ran = rig.run(["snapshots", "--json"]).ends(10);
    let error: Value = serde_json::from_str(ran.err.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        (error["message_type"].as_str(), &error["code"]),
        (Some("exit_error"), &Value::from(10))
    );
    let made = rig.run(["init", "--json"]).ends(0).last();
    assert_eq!(made["message_type"], "initialized");
    has(&made, &["id", "repository"]);
}

#[test]
fn quiet_says_nothing() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    for args in [
        &["backup", "s", "-q"][..],
        &["check", "-q"],
        &["prune", "-q"],
        &["restore", "latest", "--target", "t", "-q"],
        &["forget", "--keep-last", "1", "-q"],
    ] {
        let ran = rig.run(args).ends(0);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{args:?}");
    }
}

#[test]
fn a_status_tells_what_is_read_and_what_is_stored() {
    let rig = Rig::open();
    let mut child = rig
        .command(["backup", "--stdin", "--json"])
        .env("ONEFOLD_PROGRESS_FPS", "60")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stream = child.stdin.take().expect("a pipe");
    // Half of it compresses away.
    let mut data = Random(9).bytes(24 << 20);
    data.resize(48 << 20, 7);
    stream.write_all(&data).expect("written");
    // The stream goes on until a container is stored and said to be.
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut all =
        lines.map(|line| -> Value { serde_json::from_str(&line.expect("a line")).expect("JSON") });
    let stored = |line: &Value| line["bytes_stored"].as_u64().unwrap_or(0);
    let fields = [
        "bytes_read",
        "bytes_new",
        "bytes_read_per_second",
        "bytes_stored_per_second",
    ];
    // Rates are of the last seconds: where storing takes long, reading may have been before.
    let mut most = [0; 4];
    let status = all.find(|line| {
        for (most, field) in most.iter_mut().zip(fields) {
            *most = line[field].as_u64().unwrap_or(0).max(*most);
        }
        stored(line) > 0 && most[3] > 0
    });
    let status = status.expect("a status");
    assert!(most.iter().all(|most| *most > 0), "{most:?}");
    drop(stream);
    let summary = all.last().expect("a summary");
    assert!(child.wait().expect("ends").success());
    let packed = summary["data_added_packed"].as_u64().expect("a number");
    assert!(stored(&status) <= packed && packed < 26 << 20, "{summary}");
}

#[test]
fn every_small_verb_prints_lines_of_json() {
    let rig = Rig::new();
    rig.write("s/a", b"one");
    let first = rig.backup("s");
    rig.write("new", b"another password");
    let last = |args: &[&str]| -> Value {
        let ran = rig.run([args, &["--json"]].concat()).ends(0);
        assert_eq!(ran.err, "", "{args:?}");
        ran.last()
    };
    let chunk = last(&["list", "blobs"]);
    assert!(
        chunk["id"].is_string() && chunk["type"].is_string(),
        "{chunk}"
    );
    assert!(last(&["list", "packs"])[0].is_string());
    assert_eq!(last(&["list", "locks"]), serde_json::json!([]));
    assert_eq!(last(&["cat", "config"])["chunker"], "sieve-adaptive");
    assert_eq!(last(&["cat", "snapshot", &first])["id"], first.as_str());
    assert_eq!(last(&["unlock"])["sessions"], serde_json::json!([]));
    let added = last(&["key", "add", "--new-password-file", "new"]);
    let key = added["added_key"].as_str().expect("an id");
    assert_eq!(last(&["key", "remove", key])["removed_key"], key);
    let dropped = last(&["forget", &first]);
    assert_eq!(dropped["removed_snapshots"], serde_json::json!([first]));
}
