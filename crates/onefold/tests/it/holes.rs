//! `dump` of files with holes as a tar, as the programs that people have read it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::rig::{Random, Rig, files};
use crate::untested::{has, not_tested};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// A file of `len` bytes with data of some lengths at these places.
fn sparse(path: &Path, len: u64, data: &[(u64, usize)]) {
    let file = File::create(path).expect("create");
    file.set_len(len).expect("set the length");
    for (n, (offset, len)) in data.iter().enumerate() {
        let bytes = Random(n as u64 + 1).bytes(*len);
        file.write_all_at(&bytes, *offset).expect("write");
    }
}

/// Every place where holes can be, in names that headers have room for and others, and what follows.
fn rig() -> Rig {
    let rig = Rig::open();
    rig.write("s/a-first", b"before");
    rig.write("s/z-last", b"behind");
    let at = |name: &str| rig.path("s").join(name);
    sparse(&at("hole"), 3 * MIB, &[]);
    sparse(&at("hole-behind"), 3 * MIB + 17, &[(0, 70_001)]);
    sparse(&at("hole-before"), 3 * MIB, &[(2 * MIB, MIB as usize)]);
    let many: Vec<_> = (0..600).map(|n| (n * 65_536, 4096)).collect();
    sparse(&at("many"), 600 * 65_536, &many);
    fs::hard_link(at("many"), at("many-again")).expect("link");
    let long = "größe".repeat(24);
    sparse(&at(&long), 2 * MIB, &[(MIB, 5000)]);
    sparse(&at("none"), 20_000, &[(0, 20_000)]);
    rig
}

/// Programs that unpack `a.tar` into a folder.
const UNPACK: [(&str, &[&str]); 3] = [
    ("tar", &["-xf", "a.tar", "-C"]),
    ("bsdtar", &["-xf", "a.tar", "-C"]),
    ("python3", &["-c", BY_PYTHON]),
];
const BY_PYTHON: &str = "import sys, tarfile; tarfile.open('a.tar').extractall(sys.argv[1])";

/// Unpacks it by each program that is here, and has the folder looked at.
fn unpack_by_each(rig: &Rig, look: impl Fn(&str, &Path)) {
    for (program, how) in UNPACK {
        if !has(program) {
            continue;
        }
        let folder = rig.path(program);
        fs::create_dir(&folder).expect("a folder");
        let ran = Command::new(program)
            .current_dir(rig.dir.path())
            // By itself bsdtar refuses names that the user's locale has no letters for.
            .env("LC_ALL", "C.UTF-8")
            .args(how)
            .arg(&folder)
            .output()
            .expect("it is there");
        let err = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{program}: {err}");
        look(program, &folder);
    }
}

fn dump(rig: &Rig) {
    let spec = format!("latest:{}", rig.path("s").display());
    let ran = rig.run(["dump", &spec, "/", "--target", "a.tar"]).ends(0);
    assert_eq!(ran.err, "");
}

#[test]
fn a_tar_of_files_with_holes_is_read_as_it_was_by_everybody() {
    let rig = rig();
    if fs::metadata(rig.path("s/hole")).expect("stat").blocks() > 0 {
        return not_tested("files with holes, of which this file system has none");
    }
    rig.backup("s");
    dump(&rig);
    let archive = fs::metadata(rig.path("a.tar")).expect("stat").len();
    let data = 70_001 + MIB + 600 * 4096 + 5000 + 20_000;
    let holes = [3 * MIB, 2 * MIB, 600 * 60_000];
    assert!(
        archive < data + 100_000,
        "{archive} of {data} and {holes:?}"
    );
    let expected = files(&rig.path("s"));
    unpack_by_each(&rig, |program, folder| {
        let unpacked = files(folder);
        let names: Vec<_> = unpacked.keys().collect();
        assert_eq!(names, expected.keys().collect::<Vec<_>>(), "{program}");
        for (name, content) in &unpacked {
            assert!(*content == expected[name], "{program}: {}", name.display());
        }
        let of = |name: &str| fs::metadata(folder.join(name)).expect("stat");
        assert_eq!(of("many").ino(), of("many-again").ino(), "{program}");
        for name in ["hole", "hole-behind", "hole-before", "many"] {
            let there = of(name);
            assert!(there.blocks() * 512 < there.len(), "{program}: {name}");
        }
    });
}

/// Nobody can read it to its end.
#[test]
fn a_hole_of_a_terabyte_takes_nothing_in_a_tar() {
    let rig = Rig::open();
    rig.write("s/a", b"");
    rig.write("s/z-behind", b"behind");
    let path = rig.path("s/a");
    let file = File::create(&path).expect("create");
    if file.set_len(TIB + 5).is_err() {
        return not_tested("a file of a terabyte, which this file system does not take");
    }
    file.write_all_at(b"in the middle", TIB / 2).expect("write");
    rig.backup("s");
    dump(&rig);
    let archive = fs::metadata(rig.path("a.tar")).expect("stat").len();
    assert!(archive < 100_000, "{archive}");
    unpack_by_each(&rig, |program, folder| {
        let there = File::open(folder.join("a")).expect("unpacked");
        assert_eq!(there.metadata().expect("stat").len(), TIB + 5, "{program}");
        let mut middle = [0; 13];
        there.read_exact_at(&mut middle, TIB / 2).expect("read");
        assert_eq!(&middle, b"in the middle", "{program}");
        let behind = fs::read(folder.join("z-behind")).expect("unpacked");
        assert_eq!(behind, b"behind", "{program}");
    });
}

/// Short holes, and those of small files, cost less as zeros than a map does.
#[test]
fn files_without_holes_are_as_every_tar_has_them() {
    let rig = Rig::open();
    rig.write("s/a", &Random(1).bytes(300_000));
    sparse(&rig.path("s/short"), 1000, &[]);
    rig.backup("s");
    dump(&rig);
    let archive = fs::read(rig.path("a.tar")).expect("read");
    let has = |what: &[u8]| archive.windows(what.len()).any(|there| there == what);
    assert!(has(b"short\0") && !has(b"GNU.sparse"));
}

/// The file itself, with its holes in front, in between and behind, where a target is named. A pipe gets zeros.
#[test]
fn a_file_that_is_dumped_into_a_file_has_its_holes_there() {
    let rig = rig();
    if fs::metadata(rig.path("s/hole")).expect("stat").blocks() > 0 {
        return not_tested("files with holes, of which this file system has none");
    }
    rig.backup("s");
    for name in ["hole", "hole-behind", "hole-before", "many", "none"] {
        let path = rig.path("s").join(name).display().to_string();
        rig.run(["dump", "latest", &path, "--target", name]).ends(0);
        let (source, dumped) = (fs::read(&path), fs::read(rig.path(name)));
        let source = source.expect("read");
        assert!(dumped.expect("read") == source, "{name}");
        let of = |path: &Path| fs::metadata(path).expect("stat").blocks();
        let (blocks, expected) = (of(&rig.path(name)), of(Path::new(&path)));
        assert!(blocks <= expected + 8, "{name}: {blocks} of {expected}");
        let piped = rig.command(["dump", "latest", &path]).output();
        assert!(piped.expect("runs").stdout == source, "{name}");
    }
}
