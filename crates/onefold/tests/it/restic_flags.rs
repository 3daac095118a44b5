//! restic's flags where they mean the same here, each once: scripts written for it are to work.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, XattrFlags, flock, lsetxattr};
use serde_json::Value;

use crate::rig::{Random, Rig, files, id_of};
use crate::wait::Opens;

#[test]
fn sources_come_from_globs_in_a_file() {
    let rig = Rig::open();
    for name in [
        "s/one/a.txt",
        "s/two/b.txt",
        "s/two/c.bin",
        "s/three",
        "[x]",
    ] {
        rig.write(name, b"x");
    }
    rig.write(
        "list",
        b"# what to keep\n\n  s/*/*.txt  \ns/thr?e\n\\[x\\]\nnowhere/*\n",
    );
    let ran = rig
        .run(["backup", "--files-from", "list", "--json"])
        .ends(0);
    assert!(ran.err.contains("nowhere/* matches nothing"), "{}", ran.err);
    let list = rig.run(["snapshots", "--json"]).ends(0).last();
    let paths: Vec<_> = list[0]["paths"].as_array().expect("paths").iter().collect();
    let expected = ["[x]", "s/one/a.txt", "s/three", "s/two/b.txt"];
    let expected = expected.map(|name| Value::from(rig.path(name).display().to_string()));
    assert_eq!(paths, expected.iter().collect::<Vec<_>>());
    rig.write("none", b"nowhere/*\n");
    rig.run(["backup", "--files-from", "none"]).ends(2);
}

#[test]
fn a_restore_takes_patterns_from_files() {
    let rig = Rig::open();
    for name in ["s/a.txt", "s/b.TXT", "s/c.bin", "s/sub/d.txt"] {
        rig.write(name, name.as_bytes());
    }
    rig.backup("s");
    rig.write("txt", b"# texts\n*.txt\n");
    rig.write("none", b"# nothing\n");
    let spec = format!("latest:{}", rig.path("s").display());
    let restored = |target: &str, more: &[&str]| -> Vec<PathBuf> {
        let args = ["restore", &spec, "--target", target];
        rig.run(args.iter().chain(more)).ends(0);
        files(&rig.path(target)).into_keys().collect()
    };
    let is = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(
        restored("t1", &["--include-file", "txt"]),
        is(&["a.txt", "sub/d.txt"])
    );
    assert_eq!(
        restored("t2", &["--iinclude-file", "txt"]),
        is(&["a.txt", "b.TXT", "sub/d.txt"])
    );
    assert_eq!(
        restored("t3", &["--exclude-file", "txt"]),
        is(&["b.TXT", "c.bin"])
    );
    assert_eq!(restored("t4", &["--iexclude-file", "txt"]), is(&["c.bin"]));
    // A file without patterns must not mean everything.
    rig.run(["restore", &spec, "--target", "t5", "--include-file", "none"])
        .ends(2);
    rig.run([
        "restore",
        &spec,
        "--target",
        "t5",
        "--include-file",
        "missing",
    ])
    .ends(1);
}

#[test]
fn a_restore_is_read_back() {
    let rig = Rig::open();
    for n in 0..20 {
        rig.write(&format!("s/{n}"), &Random(n).bytes(40_000 * n as usize));
    }
    rig.write("s/holes", &[0; 3 << 20]);
    rig.backup("s");
    let args = [
        "restore", "latest", "--target", "t", "--verify", "--sparse", "--json",
    ];
    assert_eq!(rig.run(args).ends(0).last()["files_verified"], 21);
    // Only what was restored is read back.
    let args = [
        "restore",
        "latest",
        "--target",
        "t",
        "--verify",
        "--overwrite",
        "never",
    ];
    let ran = rig.run(args).ends(0);
    assert!(ran.out.contains("read back 0 files"), "{}", ran.out);
}

#[test]
fn attributes_are_restored_by_pattern() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let put = |name: &str| lsetxattr(rig.path("s/f"), name, b"v", XattrFlags::empty()).is_ok();
    if !(put("user.keep") && put("user.other")) {
        crate::untested::not_tested("the file system for tests has no attributes");
        return;
    }
    rig.backup("s");
    let spec = format!("latest:{}", rig.path("s").display());
    let names = |target: &str, more: &[&str]| {
        let args = ["restore", &spec, "--target", target];
        rig.run(args.iter().chain(more)).ends(0);
        let mut buffer = [0; 4096];
        let len = rustix::fs::llistxattr(rig.path(target).join("f"), &mut buffer).expect("listed");
        let names = String::from_utf8_lossy(&buffer[..len]).into_owned();
        let ours = names.split('\0').filter(|name| name.starts_with("user."));
        ours.map(str::to_owned)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(names("t1", &[]), ["user.keep", "user.other"]);
    assert_eq!(names("t2", &["--include-xattr", "user.k*"]), ["user.keep"]);
    assert_eq!(names("t3", &["--exclude-xattr", "user.k*"]), ["user.other"]);
    assert!(names("t4", &["--no-xattrs"]).is_empty());
}

#[test]
fn a_check_reads_about_so_many_bytes() {
    let rig = Rig::open();
    rig.write("s/f", &Random(5).bytes(100_000));
    rig.backup("s");
    for subset in ["1G", "100%", "1/1"] {
        let ran = rig.run(["check", "--read-data-subset", subset]).ends(0);
        assert!(ran.out.contains("chunks verified"), "{subset}: {}", ran.out);
    }
    rig.run(["check", "--read-data-subset", "1", "--with-cache"])
        .ends(0);
    // One container is read, however small the part.
    for subset in ["1", "2.5%", "1B"] {
        let checked = rig
            .run(["check", "--json", "--read-data-subset", subset])
            .ends(0);
        assert_ne!(checked.last()["chunks_read"], 0, "{subset}");
    }
    for wrong in ["0", "3/2", "0%", "-5G", "x"] {
        rig.run(["check", &format!("--read-data-subset={wrong}")])
            .ends(2);
    }
}

/// Three snapshots whose first files are gone, so that containers are partly unused.
fn with_waste() -> Rig {
    let rig = Rig::open();
    for round in 0..3 {
        for n in 0..4 {
            rig.write(&format!("s/{n}"), &Random(round * 10 + n).bytes(300_000));
        }
        rig.write(
            &format!("s/kept{round}"),
            &Random(100 + round).bytes(900_000),
        );
        rig.backup("s");
    }
    rig.run(["forget", "--keep-last", "1"]).ends(0);
    rig
}

#[test]
fn a_prune_stops_where_it_is_told_to() {
    let rig = with_waste();
    let expected = files(&rig.path("s"));
    let dry = |more: &[&str]| {
        let args = ["prune", "--dry-run", "--json"];
        rig.run(args.iter().chain(more)).ends(0).last()
    };
    let rewritten = |more: &[&str]| {
        dry(more)["rewritten_containers"]
            .as_u64()
            .expect("a number")
    };
    assert_eq!(rewritten(&["--max-unused", "unlimited"]), 0);
    assert_eq!(rewritten(&["--max-unused", "100M"]), 0);
    let all = rewritten(&["--max-unused", "0"]);
    assert!(all >= 2, "{all}");
    assert!(rewritten(&["--max-unused", "30%"]) < all);
    assert_eq!(
        rewritten(&["--max-unused", "0", "--max-repack-size", "0"]),
        0
    );
    assert!(rewritten(&["--max-unused", "0", "--max-repack-size", "2300K"]) < all);
    rig.run(["prune", "--max-unused", "5", "--compact-below", "50%"])
        .ends(2);
    rig.run(["prune", "--max-unused", "0%"]).ends(0);
    assert_eq!(dry(&["--max-unused", "0"])["unused_bytes_left"], 0);
    assert_eq!(rig.restored("latest", "s"), expected);
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn small_containers_are_made_one() {
    let rig = Rig::open();
    for n in 0..5 {
        rig.write(&format!("s/{n}"), &Random(n).bytes(20_000));
        rig.backup("s");
    }
    let expected = files(&rig.path("s"));
    let containers = || rig.run(["list", "packs"]).ends(0).out.lines().count();
    assert_eq!(containers(), 10);
    rig.run(["prune", "--repack-smaller-than", "1M"]).ends(0);
    // One of contents, one of metadata; and there is nothing left to be made one.
    assert_eq!(containers(), 2);
    let again = rig
        .run(["prune", "--repack-smaller-than", "1M", "--json"])
        .ends(0)
        .last();
    assert_eq!(again["rewritten_containers"], 0);
    assert_eq!(rig.restored("latest", "s"), expected);
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn a_lock_is_waited_for_as_long_as_said() {
    let rig = Rig::open();
    let folder = rig.repo().join("locks");
    fs::create_dir_all(&folder).expect("made");
    let file = fs::File::create(folder.join("sweep")).expect("made");
    flock(&file, FlockOperation::LockExclusive).expect("locked");
    rig.run(["prune"]).ends(11);
    rig.run(["prune", "--retry-lock", "300s"].map(|arg| arg.replace("300s", "0s")))
        .ends(11);
    rig.run(["repair", "--retry-lock", "1x"]).ends(2);
    let began = Instant::now();
    rig.run(["prune", "--retry-lock", "1s"]).ends(11);
    assert!(began.elapsed() >= Duration::from_secs(1));
    let mut waiting = rig
        .command(["prune", "--retry-lock", "1m"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut err = BufReader::new(waiting.stderr.take().expect("piped"));
    let mut told = String::new();
    err.read_line(&mut told).expect("text");
    let rest = told.strip_prefix("waiting at most ");
    let rest = rest.and_then(|rest| rest.split_once(" s more for another: "));
    // Two seconds and a bit have passed, or more where the machine is slow.
    let seconds = rest.and_then(|(seconds, _)| seconds.parse().ok());
    assert!((1..=58).contains(&seconds.unwrap_or(0)), "{told}");
    Opens::of(&folder.join("sweep")).wait_for_a_second_try();
    drop(file);
    let mut more = String::new();
    err.read_to_string(&mut more).expect("text");
    assert!(!more.contains("waiting"), "it is told once: {more}");
    assert_eq!(waiting.wait().expect("ends").code(), Some(0));
}

#[test]
fn small_objects_are_listed_and_shown() {
    let rig = Rig::new();
    rig.write("s/a", b"x");
    let id = rig.backup("s");
    assert_eq!(
        rig.run(["list", "snapshots"]).ends(0).out,
        format!("{id}\n")
    );
    assert_eq!(rig.run(["list", "keys"]).ends(0).out.lines().count(), 1);
    assert_eq!(rig.run(["list", "packs"]).ends(0).out.lines().count(), 2);
    assert_eq!(rig.run(["list", "locks"]).ends(0).out, "");
    let config: Value =
        serde_json::from_str(&rig.run(["cat", "config"]).ends(0).out).expect("JSON");
    assert_eq!(config["encryption"], "aes256gcm");
    let shown = rig.run(["cat", "snapshot", &id[..8]]).ends(0).out;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["id"], id.as_str());
    rig.run(["list", "index"]).ends(2);
    rig.run(["cat", "snapshot", "ffffffff"]).ends(1);
    let ran = rig.run(["unlock", "--remove-all"]).ends(0);
    assert!(ran.out.contains("nothing is locked"), "{}", ran.out);
    let version = rig.run(["version", "--json"]).ends(0).last();
    assert_eq!(
        (&version["message_type"], &version["version"]),
        (&"version".into(), &env!("CARGO_PKG_VERSION").into())
    );
    assert!(rig.run(["version"]).ends(0).out.starts_with("onefold "));
}

#[test]
fn all_snapshots_of_a_tag_may_be_dropped_and_of_everything_may_not() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    for tag in ["one", "one", "two"] {
        rig.run(["backup", "s", "--tag", tag]).ends(0);
    }
    rig.run(["forget", "--tag", "one"]).ends(2);
    rig.run(["forget", "--unsafe-allow-remove-all"]).ends(2);
    rig.run(["forget", "--tag", "one", "--unsafe-allow-remove-all"])
        .ends(0);
    let left = rig.run(["snapshots", "--json"]).ends(0).last();
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
    assert_eq!(left[0]["tags"][0], "two");
}

#[test]
fn what_is_always_so_may_be_asked_for() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let mut args = vec!["backup", "s", "--no-lock", "--no-cache", "--cleanup-cache"];
    args.extend([
        "--cache-dir",
        "c",
        "--key-hint",
        "k",
        "--no-extra-verify",
        "--retry-lock",
        "5m",
    ]);
    rig.run(args).ends(0);
    assert!(!rig.path("c").exists());
    let levels: [&[&str]; 4] = [&[], &["-v"], &["-vv"], &["--verbose=2"]];
    let lines = levels.map(|level| {
        let args = ["backup", "s", "--force"];
        let ran = rig.run(args.iter().chain(level)).ends(0);
        // Where others change a folder above, something is new, and nothing is said of what is known.
        let lines = ran.out.lines();
        lines.filter(|line| !line.starts_with("dedup ")).count()
    });
    assert!(lines[0] < lines[1], "{lines:?}");
    assert_eq!(lines[1..], [lines[1]; 3]);
    rig.run(["backup", "s", "--verbose=x"]).ends(2);
}

#[test]
fn the_host_may_come_from_the_environment() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let on = |host: &str, args: &[&str]| -> crate::rig::Ran {
        let mut command = rig.command(args);
        command
            .env("ONEFOLD_HOST", host)
            .output()
            .expect("runs")
            .into()
    };
    on("mars", &["backup", "s"]).ends(0);
    on("venus", &["backup", "s"]).ends(0);
    let count = |ran: crate::rig::Ran| ran.ends(0).last().as_array().map(Vec::len);
    assert_eq!(count(on("mars", &["snapshots", "--json"])), Some(1));
    assert_eq!(
        count(on("mars", &["snapshots", "--json", "--host", ""])),
        Some(2)
    );
    assert_eq!(count(rig.run(["snapshots", "--json"])), Some(2));
}

#[test]
fn the_parent_is_of_the_same_group() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let first = rig
        .run(["backup", "s", "--host", "mars", "--tag", "t", "--json"])
        .ends(0);
    let parent = |more: &[&str]| {
        let ran = rig
            .run(["backup", "s", "--json"].iter().chain(more))
            .ends(0);
        let list = rig.run(["cat", "snapshot", &id_of(&ran)]).ends(0).out;
        let parent = serde_json::from_str::<Value>(&list).expect("JSON")["parent"].take();
        rig.run(["forget", &id_of(&ran)]).ends(0);
        parent
    };
    assert!(parent(&[]).is_null());
    assert_eq!(parent(&["--group-by", "paths"]), id_of(&first).as_str());
    assert_eq!(
        parent(&["--group-by", "tags", "--tag", "t"]),
        id_of(&first).as_str()
    );
    assert!(parent(&["--group-by", "tags"]).is_null());
    rig.run(["backup", "s", "--group-by", "colour"]).ends(2);
}

/// A copy of the same file has another inode number and ctime.
#[test]
fn a_new_inode_alone_may_be_ignored() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    // A file that was written a moment before a backup is read again by the next one.
    let mtime = SystemTime::now() - Duration::from_secs(100);
    let file = fs::File::options().write(true).open(rig.path("s/a"));
    file.expect("opened").set_modified(mtime).expect("set");
    rig.backup("s");
    let renew = || {
        fs::copy(rig.path("s/a"), rig.path("s/copy")).expect("copied");
        fs::rename(rig.path("s/copy"), rig.path("s/a")).expect("renamed");
        let new = fs::File::options()
            .write(true)
            .open(rig.path("s/a"))
            .expect("opened");
        new.set_modified(mtime).expect("set");
    };
    renew();
    let ran = rig.run(["backup", "s", "--json", "--ignore-inode"]).ends(0);
    assert_eq!(ran.last()["bytes_read"], 0);
    renew();
    let mut command = rig.command(["backup", "s", "--json"]);
    let ran: crate::rig::Ran = command
        .env("ONEFOLD_IGNORE_INODE", "true")
        .output()
        .expect("runs")
        .into();
    assert_eq!(ran.ends(0).last()["bytes_read"], 0);
    renew();
    let ran = rig.run(["backup", "s", "--json"]).ends(0);
    assert_eq!(ran.last()["bytes_read"], 1);
}

/// Days are those of the place where `forget` runs, as TZ says it.
#[test]
fn days_begin_at_local_midnight() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    // One day in UTC, two in Tokyo (UTC+9): midnight there is 15:00 UTC.
    for time in [
        "2026-03-01T10:00:00Z",
        "2026-03-01T14:30:00Z",
        "2026-03-01T15:30:00Z",
    ] {
        rig.run(["backup", "s", "--time", time]).ends(0);
    }
    let kept = |zone: &str| {
        let mut command = rig.command(["forget", "--keep-daily", "9", "--dry-run", "--json"]);
        let ran: crate::rig::Ran = command.env("TZ", zone).output().expect("runs").into();
        let groups = ran.ends(0).last();
        groups[0]["keep"].as_array().expect("a list").len()
    };
    // The oldest is kept too, as long as there are fewer days than asked for.
    assert_eq!((kept("UTC"), kept("Asia/Tokyo")), (2, 3));
    // A zone of rules, which needs no table of the machine's.
    assert_eq!(kept("JST-9"), 3);
}

#[test]
fn what_is_about_storage_elsewhere_is_taken() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let flags = "-o sftp.args=-oBatchMode=yes --option s3.region=x --cacert ca --tls-client-cert c --insecure-tls --http-user-agent me \
                 --stuck-request-timeout 5m --pack-size 64 --no-lock --retry-lock 1s";
    let args = ["backup", "s"].into_iter().chain(flags.split_whitespace());
    rig.run(args).ends(0);
}

#[test]
fn a_misused_command_line_is_told_in_json_where_that_is_asked_for() {
    let rig = Rig::open();
    let ran = rig.run(["backup", "--froce", "--json"]).ends(2);
    let told: serde_json::Value = serde_json::from_str(ran.err.trim()).expect("one line of JSON");
    assert_eq!(
        (&told["message_type"], &told["code"]),
        (&"exit_error".into(), &2.into())
    );
    assert!(
        told["message"]
            .as_str()
            .is_some_and(|what| what.contains("--froce")),
        "{told}"
    );
    let ran = rig.run(["backup", "--froce"]).ends(2);
    assert!(ran.err.contains("Usage:"), "{}", ran.err);
}
