//! A full disk: exit code 14, and everything acknowledged before is intact.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::mount::Mount;
use crate::rig::{Ran, Random, Rig, files};

#[test]
fn a_full_disk_ends_with_14_and_loses_nothing() {
    let rig = Rig::empty();
    let Some(_mount) = Mount::new(&rig.path("disk"), 12) else {
        return;
    };
    let run = |args: &[&str]| -> Ran {
        rig.run([&["-r", "disk/repo", "--encryption", "none"], args].concat())
    };
    run(&["init"]).ends(0);
    let mut random = Random(5);
    rig.write("s/first", &random.bytes(3 << 20));
    run(&["backup", "s"]).ends(0);
    let expected = files(&rig.path("s"));
    for n in 0..6 {
        rig.write(&format!("s/more{n}"), &random.bytes(3 << 20));
    }
    let ran = run(&["backup", "s"]).ends(14);
    assert!(ran.err.contains("space"), "{}", ran.err);
    fill(&rig.path("disk/filler"));
    run(&["check", "--read-data"]).ends(0);
    run(&[
        "restore",
        &format!("latest:{}", rig.path("s").display()),
        "--target",
        "t",
    ])
    .ends(0);
    assert_eq!(files(&rig.path("t")), expected);
    run(&["forget", "--keep-last", "1"]).ends(0);
    // A sweep works though not one byte is free, and gives back what the failed backup left.
    run(&["prune"]).ends(0);
    std::fs::remove_file(rig.path("disk/filler")).expect("remove");
    for n in 0..6 {
        rig.write(&format!("s/more{n}"), b"small");
    }
    run(&["backup", "s"]).ends(0);
    run(&["check", "--read-data"]).ends(0);
}

/// Takes the last byte of the file system.
fn fill(path: &std::path::Path) {
    let mut file = std::fs::File::create(path).expect("create");
    while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
}

#[test]
fn a_full_target_ends_a_restore_with_14() {
    let rig = Rig::open();
    rig.write("s/f", &Random(6).bytes(4 << 20));
    rig.backup("s");
    let Some(_mount) = Mount::new(&rig.path("disk"), 1) else {
        return;
    };
    let ran = rig
        .run(["restore", "latest", "--target", "disk/t"])
        .ends(14);
    assert!(ran.err.contains("space"), "{}", ran.err);
}

/// Files that fit are restored, and nobody reads the same line for each path of thousands.
#[test]
fn a_full_target_is_told_in_few_lines() {
    let rig = Rig::open();
    rig.write("s/0-large", &Random(6).bytes(4 << 20));
    for n in 0..400 {
        rig.write(&format!("s/{n}"), &Random(n).bytes(5_000));
    }
    rig.backup("s");
    let Some(_mount) = Mount::new(&rig.path("disk"), 1) else {
        return;
    };
    let restore = |target: &str, more: &[&str]| -> Ran {
        let args = ["restore", "latest", "--target", target];
        rig.run([&args[..], more].concat()).ends(14)
    };
    let ran = restore("disk/t", &[]);
    let told = ran.err.matches("No space left on device").count();
    assert_eq!(told, 10, "{}", ran.err);
    assert!(ran.err.lines().count() < 15, "{}", ran.err);
    let more = ran.err.lines().find(|line| line.contains(" more, "));
    let more = more.unwrap_or_else(|| panic!("{}", ran.err));
    let count: usize = more
        .split(' ')
        .find_map(|word| word.parse().ok())
        .expect("a count");
    let all = restore("disk/t2", &["-v"]).err;
    assert!(
        all.matches("No space left on device").count() > 10 + count,
        "{all}"
    );
    assert!(!all.contains(" more, "), "{all}");
}

#[test]
fn a_size_limit_ends_with_14() {
    let rig = Rig::open();
    rig.write("s/first", b"x");
    rig.backup("s");
    rig.write("s/second", &Random(7).bytes(4 << 20));
    let program = env!("CARGO_BIN_EXE_onefold");
    // In blocks of 512 bytes: one megabyte a file.
    let script = format!("ulimit -f 2048; exec {program} -r repo backup s");
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(rig.dir.path())
        .output()
        .expect("runs");
    assert_eq!(output.status.signal(), None, "SIGXFSZ must not end it");
    Ran::from(output).ends(14);
    rig.run(["check", "--read-data"]).ends(0);
    rig.backup("s");
    assert_eq!(rig.restored("latest", "s"), files(&rig.path("s")));
}

/// Half of each container is needed no more, and there is room to rewrite one at a time.
#[test]
fn a_prune_of_a_disk_that_is_nearly_full_makes_its_own_room() {
    let rig = Rig::empty();
    let Some(_mount) = Mount::new(&rig.path("disk"), 150) else {
        return;
    };
    let run = |args: &[&str]| -> Ran {
        rig.run([&["-r", "disk/repo", "--encryption", "none"], args].concat())
    };
    run(&["init"]).ends(0);
    let mut random = Random(8);
    for n in 0..96 {
        let file = random.bytes(1 << 20);
        let name = if n % 3 == 0 { "kept" } else { "goes" };
        rig.write(&format!("s/{n:02}-{name}"), &file);
    }
    run(&["backup", "s"]).ends(0);
    let all = run(&["snapshots", "--json"]).ends(0).last();
    let first = all[0]["id"].as_str().expect("an id").to_owned();
    for file in std::fs::read_dir(rig.path("s")).expect("list") {
        let path = file.expect("a file").path();
        if path.to_string_lossy().ends_with("goes") {
            std::fs::remove_file(path).expect("remove");
        }
    }
    run(&["backup", "s"]).ends(0);
    run(&["forget", &first]).ends(0);
    // Room for one container, not for a third of them all.
    let filler = std::fs::File::create(rig.path("disk/filler")).expect("create");
    let about = rustix::fs::statvfs(rig.path("disk")).expect("statvfs");
    let free = about.f_bavail * about.f_frsize;
    assert!(free > 20 << 20, "{free}");
    let room = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&filler, room, 0, free - (20 << 20)).expect("allocate");
    let ran = run(&["prune"]).ends(0);
    let about = rustix::fs::statvfs(rig.path("disk")).expect("statvfs");
    let now = about.f_bavail * about.f_frsize;
    assert!(
        now > 70 << 20,
        "{now} of 20 and 64 MiB: {} {}",
        ran.out,
        ran.err
    );
    run(&["check", "--read-data"]).ends(0);
    let target = rig.path("t");
    let spec = format!("latest:{}", rig.path("s").display());
    run(&["restore", &spec, "--target", &target.to_string_lossy()]).ends(0);
    assert_eq!(files(&target), files(&rig.path("s")));
}

/// Not the repository is full, and what is half written neither stays nor is taken for the whole.
#[test]
fn a_full_target_is_named_and_is_not_the_repository() {
    let rig = Rig::open();
    rig.write("s/d/f", &Random(8).bytes(4 << 20));
    let full = || fs::File::create("/dev/full").expect("open");
    let saved: Ran = rig
        .command(["backup", "s"])
        .stdout(full())
        .output()
        .expect("runs")
        .into();
    let saved = saved.ends(14).err;
    let id = &rig.snapshots()[0];
    assert!(
        saved.contains(&format!("snapshot {} is saved", &id[..8])),
        "{saved}"
    );
    let dumped: Ran = rig
        .command(["dump", "latest", "/"])
        .stdout(full())
        .output()
        .expect("runs")
        .into();
    let program = env!("CARGO_BIN_EXE_onefold");
    let limited = |args: &str| -> Ran {
        let script = format!("ulimit -f 2048; exec {program} -r repo {args}");
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(rig.dir.path())
            .output();
        output.expect("runs").into()
    };
    let to_file = limited("dump latest / -t out");
    for (ran, name) in [
        (dumped, "write to standard output"),
        (to_file, "write to out"),
    ] {
        let err = ran.ends(14).err;
        assert!(err.contains(name), "{err}");
        assert!(err.contains("the repository is not what is full"), "{err}");
    }
    assert!(!rig.path("out").exists());
    let restored = limited("restore latest -t t").ends(14);
    let place = rig
        .path("t")
        .join(rig.path("s/d/f").strip_prefix("/").expect("absolute"));
    let place = place.display().to_string();
    assert!(restored.err.contains(&place), "{}", restored.err);
    assert!(
        restored.out.contains("restored 0 files"),
        "{}",
        restored.out
    );
}

#[test]
fn what_could_not_be_made_is_not_counted_as_restored() {
    let rig = Rig::open();
    fs::create_dir_all(rig.path("s/d")).expect("make");
    rig.backup("s");
    rig.write("t/d", b"in the way");
    let spec = format!("latest:{}", rig.path("s").display());
    let args = ["restore", &spec, "-t", "t", "--overwrite", "never"];
    let ran = rig.run(args).ends(3);
    assert!(
        ran.out.contains("restored 0 files, 0 folders"),
        "{}",
        ran.out
    );
    let place = rig.path("t/d").display().to_string();
    assert!(ran.err.contains(&place), "{}", ran.err);
}
