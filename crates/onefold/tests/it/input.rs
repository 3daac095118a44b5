//! Wrong and odd input: nothing panics, nothing leaks, everything is said.

use std::ffi::OsStr;
use std::fs;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::rig::{Ran, Rig};

#[test]
fn no_password_leaks() {
    let rig = Rig::new();
    rig.write("s/f", b"x");
    for args in [
        &["--help"][..],
        &["backup", "--help"],
        &["backup", "s", "-vvv"],
        &["snapshots", "--json"],
        &["ls", "nope"],
        &["check", "-vvvv"],
        &["key", "list"],
        &["restore", "latest", "--target", "/proc/no"],
        &["--no-such"],
    ] {
        let ran = rig.run(args);
        for text in [&ran.out, &ran.err] {
            assert!(
                !text.contains("horse"),
                "{args:?} prints the password:\n{text}"
            );
        }
    }
    let ran: Ran = rig
        .command(["snapshots"])
        .env("ONEFOLD_PASSWORD", "wrong-horse")
        .output()
        .expect("runs")
        .into();
    assert!(!ran.err.contains("horse"), "{}", ran.err);
    // Commands that the program starts do not get it either.
    let ran: Ran = rig
        .command([
            "backup",
            "--stdin-from-command",
            "--",
            "sh",
            "-c",
            "echo \"[$ONEFOLD_PASSWORD]\"",
        ])
        .output()
        .expect("runs")
        .into();
    ran.ends(0);
    assert_eq!(rig.run(["dump", "latest", "stdin"]).ends(0).out, "[]\n");
}

#[test]
fn names_of_any_bytes_come_back() {
    let rig = Rig::open();
    let names: [&[u8]; 5] = [
        b"caf\xe9",
        b"new\nline",
        b"esc\x1b[31m",
        b" space ",
        "\u{1f600}".as_bytes(),
    ];
    fs::create_dir(rig.path("s")).expect("a folder");
    for name in names {
        fs::write(rig.path("s").join(OsStr::from_bytes(name)), name).expect("a file");
    }
    rig.backup("s");
    assert_eq!(rig.restored("latest", "s").len(), names.len());
    let listed = rig.run(["ls", "latest"]).ends(0).out;
    assert!(
        !listed.contains('\x1b') && listed.contains("caf\\xe9"),
        "{listed}"
    );
    rig.run(["ls", "latest", "--json"]).ends(0).lines();
    rig.run(["find", "*", "--json"]).ends(0).lines();
}

#[test]
fn a_repository_of_rubbish_is_damaged_not_a_panic() {
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("short", b"1F"),
        ("rubbish", &[0xff; 5000]),
        ("zeros", &[0; 5000]),
    ] {
        let rig = Rig::open();
        fs::write(rig.repo().join("config"), bytes).expect("written");
        let ran = rig.run(["snapshots"]).ends(0);
        assert!(ran.err.contains("repair"), "{name}: {}", ran.err);
        fs::write(rig.repo().join("config.copy"), bytes).expect("written");
        let ran = rig.run(["snapshots"]);
        assert_eq!(ran.code, Some(13), "{name}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{name}: {}", ran.err);
    }
}

#[test]
fn rubbish_in_its_folders_harms_nothing() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    rig.backup("s");
    for folder in ["containers", "snapshots", "sessions", "index", "locks"] {
        rig.write(&format!("repo/{folder}/rubbish"), b"rubbish");
    }
    rig.backup("s");
    assert_eq!(rig.snapshots().len(), 2);
    rig.run(["prune"]).ends(0);
    assert_eq!(rig.restored("latest", "s").len(), 1);
}

#[test]
fn the_index_is_advice() {
    let rig = Rig::open();
    rig.write("s/f", &crate::rig::Random(2).bytes(400_000));
    rig.backup("s");
    fs::remove_dir_all(rig.repo().join("index")).expect("removed");
    let ran = rig.run(["backup", "s", "--force", "--json"]).ends(0);
    assert_eq!(ran.last()["data_blobs"], 0, "known data is found again");
    rig.run(["check", "--read-data"]).ends(0);
}

#[test]
fn an_ambiguous_id_is_refused() {
    let rig = Rig::open();
    rig.write("s/f", b"x");
    let ids: Vec<_> = (0..17).map(|_| rig.backup("s")).collect();
    let first = ids
        .iter()
        .find(|a| ids.iter().filter(|b| a[..1] == b[..1]).count() > 1)
        .expect("17 ids, 16 digits");
    let ran = rig.run(["ls", &first[..1]]).ends(1);
    assert!(ran.err.contains("snapshots"), "{}", ran.err);
}

/// Whatever leads to it, and whatever it is called: the walk knows it when it meets it.
#[test]
fn the_repository_is_left_out_behind_links_and_under_odd_names() {
    let rig = Rig::empty();
    rig.write("disk/x/f", b"x");
    std::os::unix::fs::symlink("disk", rig.path("data")).expect("link");
    let odd = OsStr::from_bytes(b"repo-\xff[a]");
    for (source, folder) in [
        ("data/x", "disk/x"),
        ("disk/x", "data/x"),
        ("data/x", "data/x"),
    ] {
        let place = rig.path(folder).join(odd);
        let ran: Ran = rig
            .command(["backup", "--init", "--encryption", "none", source])
            .env("ONEFOLD_REPOSITORY", &place)
            .output()
            .expect("runs")
            .into();
        let ran = ran.ends(0);
        let told = ran.out.contains("the repository itself is left out");
        assert!(told, "{source} {folder}: {}", ran.out);
        let listed: Ran = rig
            .command(["ls", "latest", "--encryption", "none"])
            .env("ONEFOLD_REPOSITORY", &place)
            .output()
            .expect("runs")
            .into();
        let listed = listed.ends(0).out;
        assert!(listed.contains("/x/f"), "{listed}");
        assert!(!listed.contains("repo-"), "{source} {folder}: {listed}");
        fs::remove_dir_all(&place).expect("remove");
    }
}

/// Linux knows bytes, not letters: what is typed or stands in a file of patterns matches them as they are.
#[test]
fn patterns_that_are_not_utf8_match_the_names_that_they_say() {
    let rig = Rig::open();
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let names = [name(b"a\xff"), name(b"a\xfe"), name("a\u{fffd}".as_bytes())];
    fs::create_dir(rig.path("s")).expect("make");
    for name in &names {
        fs::write(rig.path("s").join(name), b"x").expect("write");
    }
    fs::write(rig.path("lines"), b"a\xff\n").expect("write");
    let rest = [&names[1], &names[2]].map(std::path::PathBuf::from);
    let [pattern, ..] = &names;
    let typed = [name(b"-e"), pattern.clone()];
    let listed = [name(b"--exclude-file"), name(b"lines")];
    for args in [&typed, &listed] {
        rig.run([name(b"backup"), name(b"s")].iter().chain(args))
            .ends(0);
        let kept: Vec<std::path::PathBuf> = rig.restored("latest", "s").into_keys().collect();
        let mut expected = rest.clone().to_vec();
        expected.sort();
        assert_eq!(kept, expected);
    }
    rig.backup("s");
    for args in [
        [name(b"-i"), pattern.clone()],
        [name(b"--include-file"), name(b"lines")],
    ] {
        let head = ["restore", "latest", "-t", "t"].map(|word| name(word.as_bytes()));
        rig.run(head.iter().chain(&args)).ends(0);
        let restored: Vec<_> = crate::rig::files(&rig.path("t")).into_keys().collect();
        assert!(
            restored.len() == 1 && restored[0].ends_with(pattern),
            "{restored:?}"
        );
        fs::remove_dir_all(rig.path("t")).expect("ours");
    }
    let found = rig
        .run([name(b"find"), pattern.clone(), name(b"--json")])
        .ends(0);
    assert_eq!(found.last()[0]["hits"], 1);
    let ran = rig.run(["restore", "latest", "-t", "t", "--include-file", "none"]);
    assert_ne!(ran.code, Some(0));
    fs::write(rig.path("none"), b"b\xff\n").expect("write");
    let ran = rig
        .run(["restore", "latest", "-t", "t", "--include-file", "none"])
        .ends(0);
    assert!(ran.err.contains("matches the patterns"), "{}", ran.err);
}

/// A slash says that the folder is meant, to every program.
#[test]
fn a_link_with_a_slash_behind_it_is_the_folder_that_it_leads_to() {
    let rig = Rig::open();
    rig.write("real/file", b"x");
    std::os::unix::fs::symlink("real", rig.path("link")).expect("link");
    for (given, stored) in [("link", 0), ("link/", 1), ("link/.", 1)] {
        let ran = rig.run(["backup", "--json", given]).ends(0);
        assert_eq!(ran.last()["total_files_processed"], stored, "{given}");
        let is_told = ran.err.contains("the link is stored, not what it leads to");
        assert_eq!(is_told, stored == 0, "{given}: {}", ran.err);
    }
}

/// A folder whose disk is not mounted, behind a link: a backup of the link alone would be taken for one of the folder.
#[test]
fn what_a_slash_or_dots_make_of_a_path_is_what_the_system_makes_of_it() {
    let rig = Rig::open();
    rig.write("real/deep/file", b"x");
    let links = [
        ("real/deep", "link"),
        ("gone", "hop"),
        ("hop", "dangling"),
        ("self", "self"),
    ];
    for (target, link) in links {
        std::os::unix::fs::symlink(target, rig.path(link)).expect("link");
    }
    for (given, code, told) in [
        ("dangling/", 1, "/gone does not exist"),
        ("self/", 1, "symbolic links"),
        ("real/nope/..", 1, "real/nope/..: No such file"),
        ("link/..", 2, "name the one that is meant"),
        ("link/../other", 1, "/other does not exist"),
        ("real/deep/..", 0, ""),
        ("real/../link/", 0, ""),
        ("link/../deep/", 2, "name the one that is meant"),
    ] {
        let ran = rig.run(["backup", given]).ends(code);
        assert!(ran.err.contains(told), "{given}: {}", ran.err);
    }
    // The root, whatever it is called, and nothing in it.
    for given in ["/", "//", "/.", "/..", "/tmp/../.."] {
        let args = ["backup", "--dry-run", "--json", "-e", "/*", given];
        let ran = rig.run(args).ends(0);
        assert_eq!(ran.last()["total_files_processed"], 0, "{given}");
    }
    let ran = rig.run(["backup", "dangling/", "real"]).ends(3);
    assert!(ran.err.contains("/gone: "), "{}", ran.err);
}

#[test]
fn the_repository_and_what_is_in_it_are_no_sources_whatever_they_are_called() {
    let rig = Rig::new();
    rig.write("other/file", b"x");
    std::os::unix::fs::symlink("repo", rig.path("link")).expect("link");
    std::os::unix::fs::symlink("repo/containers", rig.path("deep")).expect("link");
    std::fs::create_dir_all(rig.path("repo/containers/00")).expect("a folder");
    let inside = ["repo/containers", "repo/config", "link/keys", "deep/00"];
    for given in ["repo", "link/"].into_iter().chain(inside) {
        let ran = rig.run(["backup", "--json", given, "other"]).ends(3);
        assert!(
            ran.err
                .contains("a repository is not backed up into itself"),
            "{given}: {}",
            ran.err
        );
        assert_eq!(ran.last()["total_files_processed"], 1, "{given}");
    }
    // With a folder that holds both, too.
    let ran = rig.run(["backup", ".", "repo/snapshots"]).ends(3);
    let told = "repo/snapshots: a repository is not backed up into itself";
    assert!(ran.err.contains(told), "{}", ran.err);
    let listed = rig.run(["ls", "latest"]).ends(0).out;
    assert!(
        listed.contains("/other/file") && !listed.contains("/repo/snapshots\n"),
        "{listed}"
    );
}

#[test]
fn a_value_below_zero_is_wrong_by_its_own_name() {
    let rig = Rig::open();
    for args in [
        &["backup", "--exclude-larger-than", "-1", "s"][..],
        &["snapshots", "--latest", "-1"],
        &["prune", "--wait", "-1"],
    ] {
        let ran = rig.run(args).ends(2);
        assert!(ran.err.contains(args[1]), "{}", ran.err);
        assert!(!ran.err.contains("tip:"), "{}", ran.err);
    }
    rig.write("s/f", b"x");
    rig.run(["backup", "--json=true", "--dry-run=false", "s"])
        .ends(0);
    assert_eq!(rig.snapshots().len(), 1);
}

#[test]
fn a_stream_of_nothing_is_no_backup() {
    let rig = Rig::open();
    for args in [
        &["backup", "--stdin"][..],
        &["backup", "--stdin-from-command", "--", "true"],
    ] {
        let said = rig.run(args).ends(1).err;
        assert!(
            said.contains("no data came: no snapshot was made"),
            "{said}"
        );
    }
    assert_eq!(rig.snapshots().len(), 0);
}

/// A snapshot names them all, and is read whole.
#[test]
fn more_paths_than_ram_is_meant_for_are_refused() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let long = [&b"/"[..], &[b'n'; 4000], b"\n"].concat();
    for list in [long.repeat(11_000), b"/n\n".repeat(1_300_000)] {
        rig.write("list", &list);
        let ran = rig
            .run(["backup", "s", "--files-from-verbatim", "list"])
            .ends(2);
        assert!(ran.err.contains("--files-from"), "{}", ran.err);
    }
    assert_eq!(rig.snapshots().len(), 0);
}

/// A pipe in which there is no room.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("flags");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("set");
    while writer.write(&[0; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).expect("set");
    (reader, writer)
}

/// Some 300 bytes a path beside what a list costs whatever its length; a peak differs by five MiB from run to run.
#[test]
fn long_lists_of_paths_take_little_ram() {
    const SHORT: usize = 10_000;
    const LONG: usize = 100_000;
    let rig = Rig::open();
    let mut list = Vec::new();
    for number in 0..LONG {
        let name = format!("s/{}/file-with-a-name-{number:06}", number / 1000);
        rig.write(&name, b"");
        list.extend_from_slice(format!("{name}\n").as_bytes());
        if number + 1 == SHORT {
            rig.write("short", &list);
        }
    }
    rig.write("long", &list);
    let count = |folder: &str| {
        let entries = fs::read_dir(rig.repo().join(folder)).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let is_whole = |name: &std::ffi::OsString| !name.to_string_lossy().contains("tmp-");
        names.filter(is_whole).count()
    };
    // The backup cannot end before its peak is read: nobody takes its summary, and there is no room for it.
    let peak_kib = |list: &str| {
        let before = count("snapshots");
        let (mut summary, full) = full_pipe();
        let mut child = rig
            .command(["backup", "--files-from-verbatim", list])
            .stdout(full)
            .spawn()
            .expect("starts");
        while count("snapshots") == before || count("sessions") > 0 {
            let ended = child.try_wait().expect("waits");
            assert_eq!(ended, None, "it ends without a snapshot");
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.expect("it waits");
        let line = (status.lines()).find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        std::io::copy(&mut summary, &mut std::io::sink()).expect("read");
        assert!(child.wait().expect("waits").success());
        kib.expect("a number")
    };
    let (short, long): (usize, usize) = (peak_kib("short"), peak_kib("long"));
    let each = long.saturating_sub(short) * 1024 / (LONG - SHORT);
    // One peak is five MiB above another at times, which is 60 bytes a path.
    assert!(each < 600, "{each} bytes a path: {short} and {long} KiB");
    assert_eq!(rig.snapshots().len(), 2);
}

#[test]
fn a_source_that_lies_too_deep_is_refused() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    let deep = "/a".repeat(1_000_000);
    rig.write("list", format!("{deep}\n{deep}/b\n").as_bytes());
    let said = rig
        .run(["backup", "s", "--files-from-verbatim", "list"])
        .ends(2)
        .err;
    assert!(said.contains("4096 folders"), "{said}");
    assert!(said.len() < 400, "{said}");
    let just = "/a".repeat(4096);
    rig.write("list", format!("{just}\n{just}b\n").as_bytes());
    rig.run(["backup", "s", "--files-from-verbatim", "list"])
        .ends(3);
}

#[test]
fn a_list_of_sources_may_have_a_mark_and_must_have_its_end() {
    let rig = Rig::open();
    rig.write("s/a", b"x");
    rig.write("s/b", b"y");
    let [a, b] = ["s/a", "s/b"].map(|name| rig.path(name).into_os_string().into_encoded_bytes());
    let marked = [b"\xef\xbb\xbf", &a[..], b"\n", &b, b"\n"].concat();
    rig.write("marked", &marked);
    for flag in ["--files-from", "--files-from-verbatim"] {
        let ran = rig.run(["backup", "--json", flag, "marked"]).ends(0);
        assert_eq!(ran.last()["total_files_processed"], 2, "{flag}");
    }
    for (bytes, code) in [
        ([&a[..], b"\0", &b, b"\0"].concat(), 0),
        ([&a[..], b"\0", &b].concat(), 2),
        ([&a[..], b"\0\0", &b, b"\0"].concat(), 2),
    ] {
        rig.write("raw", &bytes);
        rig.run(["backup", "--files-from-raw", "raw"]).ends(code);
    }
    for none in ["", ":header"] {
        rig.run(["backup", "s", "--exclude-if-present", none])
            .ends(2);
    }
}

#[test]
fn a_password_has_no_blanks_around_it_and_is_not_nothing() {
    let rig = Rig::new();
    rig.write("s/a", b"x");
    rig.run(["backup", "s"]).ends(0);
    let with = |file: &str| {
        let mut command = rig.command(["snapshots", "--password-file", file]);
        let output = command.output().expect("starts");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let password = crate::rig::PASSWORD;
    for around in [
        ["\u{feff}", "\n"],
        ["  ", " \r\n"],
        ["\n\n", "\nsecond line"],
    ] {
        let [before, behind] = around;
        rig.write("password", format!("{before}{password}{behind}").as_bytes());
        let (code, said) = with("password");
        assert_eq!(code, Some(0), "{around:?}: {said}");
    }
    for nothing in ["", " \n", "\u{feff}"] {
        rig.write("password", nothing.as_bytes());
        let (code, said) = with("password");
        assert_eq!(code, Some(12), "{said}");
        assert!(said.contains("--insecure-no-password"), "{said}");
    }
}
