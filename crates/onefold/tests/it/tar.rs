//! Tar streams: an archive of files that are stored already costs its headers. The archives are made by the system's
//! `tar`.

use crate::rig::Rig;

/// Bytes that do not repeat and do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Files of 0 to 120 KB, 2.4 MB in all.
fn folder() -> Rig {
    let rig = Rig::open();
    for i in 0..40 {
        rig.write(
            &format!("s/{}/{i}", i % 7),
            &noise(i as u64, i * i * 75 + i),
        );
    }
    rig
}

/// Backs up what `tar` prints, and gives how many bytes it added.
fn archive(rig: &Rig, how: &[&str], tar: &[&str]) -> u64 {
    let args = ["backup", "--json", "--stdin-from-command"];
    let command = ["--", "tar"];
    let all = args.iter().chain(how).chain(&command).chain(tar);
    rig.run(all).ends(0).last()["data_added"]
        .as_u64()
        .expect("a number")
}

#[test]
fn a_tar_of_stored_files_adds_little_but_its_headers() {
    let rig = folder();
    rig.backup("s");
    for format in ["--format=gnu", "--format=pax", "--format=ustar"] {
        let tar = ["-c", format, "--sort=name", "s"];
        let added = archive(&rig, &[], &tar);
        // 48 members; pax has three blocks for each.
        assert!(added < 120_000, "{format}: {added} bytes added");
    }
    let v7 = ["-c", "--format=v7", "s"];
    let as_any_stream = archive(&rig, &[], &v7);
    assert!(as_any_stream > 400_000, "{as_any_stream} bytes added");
}

#[test]
fn archives_that_are_files_are_known_too() {
    let rig = folder();
    rig.backup("s");
    let status = std::process::Command::new("tar")
        .current_dir(rig.path(""))
        .args(["-c", "-f", "a.tar", "s"])
        .status();
    assert!(status.expect("tar runs").success());
    let added = |how: &[&str]| {
        let args = ["backup", "a.tar", "--json", "--force"];
        let ran = rig.run(args.iter().chain(how)).ends(0).last();
        ran["data_added"].as_u64().expect("a number")
    };
    let refused = added(&["--no-tar-aware"]);
    assert!(refused > 400_000, "{refused} bytes added");
    let known = added(&[]);
    assert!(known < 120_000, "{known} bytes added");
}

#[test]
fn whether_a_stream_is_a_tar_can_be_said() {
    let rig = folder();
    rig.backup("s");
    let v7 = ["-c", "--format=v7", "s"];
    let asked_for = archive(&rig, &["--tar-aware"], &v7);
    assert!(asked_for < 100_000, "{asked_for} bytes added");
    let refused = archive(&rig, &["--no-tar-aware"], &["-c", "s"]);
    assert!(refused > 400_000, "{refused} bytes added");
    rig.run(["backup", "--stdin", "--tar-aware", "--no-tar-aware"])
        .ends(2);
}

#[test]
fn an_archive_comes_back_as_it_was() {
    let rig = folder();
    let file = rig.path("archive.tar");
    let status = std::process::Command::new("tar")
        .args(["-c", "-f"])
        .arg(&file)
        .arg("-C")
        .arg(rig.path(""))
        .arg("s")
        .status();
    assert!(status.expect("tar runs").success());
    let stream = std::fs::File::open(&file).expect("made");
    let mut backup = rig.command(["backup", "--stdin", "--stdin-filename", "a.tar"]);
    assert!(
        backup
            .stdin(stream)
            .output()
            .expect("runs")
            .status
            .success()
    );
    let dumped = rig.command(["dump", "latest", "a.tar"]).output();
    let expected = std::fs::read(&file).expect("made");
    assert!(dumped.expect("runs").stdout == expected, "other bytes");
}
