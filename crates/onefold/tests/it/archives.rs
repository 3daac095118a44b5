//! `dump` of a folder: what other programs make of a zip, and what an archive has no place for.

use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::rig::{Random, Rig};
use crate::untested::has;

/// Returns name, mode, length and first bytes of each entry of an archive, as Python's zipfile, which checks every sum,
/// reads them.
fn read_by_python(rig: &Rig, archive: &str) -> Option<Vec<String>> {
    const READ: &str = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    assert z.testzip() is None
    for i in z.infolist():
        print(repr(i.filename), oct(i.external_attr >> 16), i.file_size, z.read(i)[:6], i.date_time)
"#;
    if !has("python3") {
        return None;
    }
    let ran = Command::new("python3")
        .args(["-c", READ])
        .arg(rig.path(archive))
        .output()
        .expect("it is there");
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{err}");
    Some(out.lines().map(str::to_owned).collect())
}

#[test]
fn a_folder_comes_as_a_zip() {
    let rig = Rig::open();
    rig.write("s/sub/text", "hello ".repeat(10_000).as_bytes());
    rig.write("s/empty", b"");
    rig.write("s/noise", &Random(1).bytes(700_000));
    rig.write("s/größe", b"utf-8");
    let odd = std::ffi::OsString::from_vec(b"od\xffd".to_vec());
    std::fs::write(rig.path("s").join(odd), b"raw").expect("write");
    std::os::unix::fs::symlink("sub/text", rig.path("s/link")).expect("symlink");
    drop(std::os::unix::net::UnixListener::bind(rig.path("s/sock")).expect("socket"));
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(951_827_696);
    let text = std::fs::File::options()
        .write(true)
        .open(rig.path("s/sub/text"));
    text.and_then(|file| file.set_modified(old)).expect("time");
    rig.backup("s");
    let spec = format!("latest:{}", rig.path("s").display());
    let ran = rig.run(["dump", &spec, "/", "--archive", "zip", "--target", "a.zip"]);
    let ran = ran.ends(0);
    assert!(ran.err.contains("left out 1 path"), "{}", ran.err);
    rig.run(["dump", &spec, "/", "-a", "rar"]).ends(2);
    let Some(read) = read_by_python(&rig, "a.zip") else {
        return;
    };
    let is = |start: &str, end: &str| {
        let mut lines = read.iter();
        assert!(
            lines.any(|line| line.starts_with(start) && line.contains(end)),
            "{start} {end}: {read:#?}"
        );
    };
    assert_eq!(read.len(), 7, "{read:#?}");
    is("'sub/' 0o40755 0 b''", "");
    is(
        "'sub/text' 0o100644 60000 b'hello '",
        "(2000, 2, 29, 12, 34, 56)",
    );
    is("'empty' 0o100644 0 b''", "");
    is("'noise' 0o100644 700000", "");
    is("'größe' 0o100644 5 b'utf-8'", "");
    is("'link' 0o120777 8 b'sub/te'", "");
    is("'od", "3 b'raw'");
}

#[test]
fn what_an_archive_cannot_hold_is_told() {
    let rig = Rig::open();
    rig.write("s/file", b"x");
    for name in ["s/sock", "s/other"] {
        drop(std::os::unix::net::UnixListener::bind(rig.path(name)).expect("socket"));
    }
    let fifo = Command::new("mkfifo").arg(rig.path("s/fifo")).status();
    assert!(fifo.expect("mkfifo").success());
    rig.backup("s");
    for (archive, told) in [
        ("tar", "left out 2 paths: no tar can hold sockets\n"),
        (
            "zip",
            "left out 3 paths: no zip can hold pipes, sockets and devices\n",
        ),
    ] {
        let args = ["dump", "latest", "-a", archive, "--target", archive];
        assert_eq!(rig.run(args).ends(0).err, told);
    }
}

#[test]
fn a_zip_of_one_file_is_a_zip_and_tells_what_it_drops() {
    let rig = Rig::open();
    rig.write("s/file", b"content");
    rig.write("s/other", b"other");
    let set = Command::new("setfattr")
        .args(["-n", "user.note", "-v", "x"])
        .arg(rig.path("s/file"))
        .status();
    let has_attributes = set.is_ok_and(|status| status.success());
    rig.backup("s");
    let file = rig.path("s/file");
    let file = file.to_str().expect("UTF-8");
    let ran = rig.run(["dump", "latest", file, "-a", "zip", "-t", "one.zip"]);
    let ran = ran.ends(0);
    let told = "left out the extended attributes and ACLs of 1 path: no zip can hold them";
    assert_eq!(ran.err.contains(told), has_attributes, "{}", ran.err);
    if let Some(read) = read_by_python(&rig, "one.zip") {
        assert_eq!(read.len(), 1, "{read:?}");
        assert!(
            read[0].starts_with("'file' 0o100644 7 b'conten'"),
            "{read:?}"
        );
    }
    // Without a word, and with restic's default, a file comes as it is.
    for args in [
        &["dump", "latest", file][..],
        &["dump", "latest", file, "-a", "tar"],
    ] {
        assert_eq!(rig.run(args).ends(0).out, "content");
    }
}
