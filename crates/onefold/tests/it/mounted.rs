//! `mount`: what a folder of snapshots shows is what a restore makes, read in any order, while snapshots come and go.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;
use rustix::process::{Pid, Signal, kill_process};

use crate::everything::{assert_same, generate, look, silently, sparse};
use crate::rig::{Random, Rig, files, seeded};
use crate::untested::{has, is_root, not_tested};

const MIB: usize = 1 << 20;

/// Whether something can be mounted here.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists();
    if !can {
        not_tested("there is no /dev/fuse here");
    }
    // Others need a program for it, and cannot make all kinds of files.
    can && is_root()
}

/// Snapshots at `mnt`, served by a process of ours. Unmounted when dropped.
pub struct Mounted {
    child: Child,
    pub folder: PathBuf,
}

impl Mounted {
    fn new(rig: &Rig, args: &[&str]) -> Self {
        let folder = rig.path("mnt");
        fs::create_dir_all(&folder).expect("a folder");
        let mut command = rig.command(["mount", "mnt", "-f", "--json"]);
        command.args(args);
        Self::by(command, folder)
    }

    /// The same by a command that mounts at `folder`.
    pub fn by(mut command: Command, folder: PathBuf) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        if !line.contains("mounted") {
            let mut said = String::new();
            let mut stderr = child.stderr.take().expect("piped");
            stderr.read_to_string(&mut said).expect("text");
            panic!("{line}{said}");
        }
        Self { child, folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Where the source is in the newest snapshot.
    fn latest(&self, source: &Path) -> PathBuf {
        self.at("latest")
            .join(source.strip_prefix("/").expect("absolute"))
    }

    /// The most RAM that the process has had.
    fn peak_rss_bytes(&self) -> usize {
        let status = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(status).expect("a process");
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        kib.map_or(0, |kib: usize| kib << 10)
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(process, signal).expect("it lives");
    }

    /// Ends it by a signal, and gives what it said.
    pub fn stop(mut self, signal: Signal) -> String {
        self.signal(signal);
        self.child.wait().expect("it ends");
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        stderr.read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.folder).output();
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Until it is so: others do it.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(600), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_mount_shows_what_a_restore_makes() {
    if !can_mount() {
        return;
    }
    let mut random = seeded("mounted");
    let rig = Rig::new();
    let source = rig.path("source");
    fs::create_dir(&source).expect("folder");
    generate(&source, &mut random);
    rig.run(["backup", "source"]).ends(0);
    let spec = format!("latest:{}", source.display());
    rig.run(["restore", &spec, "--target", "target"]).ends(0);
    let mounted = Mounted::new(&rig, &[]);
    let shown = mounted.latest(&source);
    assert_same(&look(&shown), &look(&rig.path("target")));
    silently(
        Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([shown.join("plain"), rig.path("target/plain")]),
    );
    // A copy has the holes and the hard links, too.
    silently(
        Command::new("cp")
            .arg("-a")
            .args([shown.join("plain"), rig.path("copied")]),
    );
    assert_same(&look(&rig.path("copied")), &look(&source.join("plain")));
    assert!(fs::write(shown.join("plain/new"), b"").is_err());
    assert_eq!(mounted.stop(Signal::INT), "");
    assert!(names(&rig.path("mnt")).is_empty(), "it is unmounted");
}

#[test]
fn snapshots_stand_where_people_look_for_them_and_new_ones_appear() {
    if !can_mount() {
        return;
    }
    let rig = Rig::open();
    rig.write("source/file", b"one");
    let backup = |host: &str, more: &[&str]| {
        let args = [&["backup", "source", "--host", host][..], more].concat();
        rig.run(args).ends(0);
    };
    backup("web", &["--time", "2026-02-02 04:05:06", "--tag", "old"]);
    let mounted = Mounted::new(&rig, &[]);
    assert_eq!(
        names(&mounted.folder),
        ["hosts", "ids", "latest", "snapshots", "tags"]
    );
    let first = "2026-02-02_04-05-06";
    assert_eq!(names(&mounted.at("snapshots")), [first]);
    assert_eq!(names(&mounted.at("hosts/web")), [first, "latest"]);
    assert_eq!(names(&mounted.at("tags/old")), [first, "latest"]);
    assert_eq!(names(&mounted.at("ids")), [&rig.snapshots()[0][..8]]);
    let file = |folder: &str| {
        let path = mounted
            .at(folder)
            .join(rig.path("source/file").strip_prefix("/").unwrap());
        fs::read_to_string(path).unwrap_or_default()
    };
    for folder in ["latest", "hosts/web/latest", &format!("tags/old/{first}")] {
        assert_eq!(file(folder), "one", "{folder}");
    }
    rig.write("source/file", b"two!");
    backup("web", &["--time", "2026-02-02 04:05:06"]);
    until("a new snapshot appears", || file("latest") == "two!");
    let both = names(&mounted.at("snapshots"));
    assert!(both.len() == 2 && both[1].starts_with(&format!("{first}_")));
    assert_eq!(file(&format!("snapshots/{first}")), "one");
    rig.run(["forget", "--keep-tag", "old"]).ends(0);
    until("a forgotten one goes", || file("latest") == "one");
    drop(mounted);
    backup("mail", &["--time", "2026-03-03"]);
    let mounted = Mounted::new(&rig, &["--tag", "old"]);
    assert_eq!(names(&mounted.at("hosts")), ["web"]);
    drop(mounted);
    let mounted = Mounted::new(&rig, &["--host", "mail"]);
    assert_eq!(names(&mounted.at("snapshots")).len(), 1);
}

/// A file of several kinds of content: long chunks, short ones, some that come again, and holes.
fn large(rig: &Rig, random: &mut Random) -> Vec<u8> {
    let text: Vec<u8> = (0..400_000)
        .flat_map(|n: u32| format!("line {n}\n").into_bytes())
        .collect();
    let mut bytes = random.bytes(9 * MIB);
    bytes.extend(&text);
    bytes.extend(vec![0; 3 * MIB]);
    bytes.extend_from_within(MIB..5 * MIB);
    bytes.extend(&text);
    rig.write("source/large", &bytes);
    bytes
}

#[test]
fn reads_in_any_order_give_the_content() {
    if !can_mount() {
        return;
    }
    let mut random = seeded("reads of a mount");
    let rig = Rig::new();
    let bytes = large(&rig, &mut random);
    sparse(&rig.path("source/sparse"), &mut random);
    rig.run(["backup", "source"]).ends(0);
    let mounted = Mounted::new(&rig, &[]);
    let folder = mounted.latest(&rig.path("source"));
    let all = File::open(folder.join("large")).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (all, bytes, mut random) = (&all, &bytes, Random(random.below(1 << 40) + thread));
            scope.spawn(move || {
                for _ in 0..60 {
                    let at = random.below(bytes.len() as u64) as usize;
                    let len = 1 + random.below(300_000) as usize;
                    let mut found = vec![0; len.min(bytes.len() - at)];
                    all.read_exact_at(&mut found, at as u64).expect("read");
                    assert!(found == bytes[at..at + found.len()], "{len} at {at}");
                }
            });
        }
    });
    assert!(fs::read(folder.join("large")).expect("read") == bytes);
    let peak = mounted.peak_rss_bytes();
    assert!(peak < 200 * MIB, "{peak} bytes of RAM");
    let (shown, source) = (folder.join("sparse"), rig.path("source/sparse"));
    assert_eq!(extents(&shown), extents(&source));
}

/// By a program that wrote its own checksums into every block.
#[test]
fn fio_verifies_what_it_wrote_in_random_order() {
    if !can_mount() || !has("fio") {
        return;
    }
    let rig = Rig::open();
    fs::create_dir_all(rig.path("source")).expect("a folder");
    let fio = |file: &Path, args: &[&str]| {
        let mut command = Command::new("fio");
        command
            .current_dir(rig.dir.path())
            .args(["--name=blocks", "--size=24m", "--bs=4k"])
            .args(["--verify=crc32c", "--verify_state_save=0"])
            .arg(format!("--filename={}", file.display()))
            .args(args);
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
    };
    let file = rig.path("source/blocks");
    fio(&file, &["--rw=write", "--do_verify=0"]);
    rig.backup("source");
    let mounted = Mounted::new(&rig, &[]);
    let seen = mounted.latest(&rig.path("source")).join("blocks");
    let reads = ["--rw=randread", "--readonly", "--verify_fatal=1"];
    fio(&seen, &[&reads[..], &["--allow_file_create=0"]].concat());
}

#[test]
fn a_folder_of_very_many_names_is_listed_whole() {
    if !can_mount() {
        return;
    }
    let rig = Rig::open();
    let source = rig.path("source");
    // Several leaves, and many answers to the kernel.
    fs::create_dir_all(source.join("many")).expect("a folder");
    for n in 0..6_000 {
        fs::write(source.join(format!("many/name-{n}")), vec![7; n % 12]).expect("write");
    }
    rig.write("source/z/last", b"behind");
    rig.run(["backup", "source"]).ends(0);
    let mounted = Mounted::new(&rig, &[]);
    let shown = mounted.latest(&source);
    for _ in 0..2 {
        assert_eq!(names(&shown.join("many")), names(&source.join("many")));
    }
    assert_eq!(names(&shown), ["many", "z"]);
    let sizes = |root: &Path| {
        let of = |name: String| {
            fs::metadata(root.join("many").join(name))
                .expect("there")
                .len()
        };
        names(&root.join("many")).into_iter().map(of).sum::<u64>()
    };
    assert_eq!(sizes(&shown), sizes(&source));
}

#[test]
fn what_is_shown_no_prune_takes_away_or_waits_for() {
    if !can_mount() {
        return;
    }
    let rig = Rig::open();
    let bytes = Random(5).bytes(4 * MIB);
    rig.write("source/file", &bytes);
    let gone = rig.backup("source");
    fs::remove_dir_all(rig.path("source")).expect("ours");
    rig.write("source/other", b"other");
    rig.backup("source");
    let stored = || files(&rig.repo().join("containers")).len();
    let before = stored();
    let mounted = Mounted::new(&rig, &[]);
    let file = mounted.at(&format!("ids/{}", &gone[..8]));
    let file = file.join(rig.path("source/file").strip_prefix("/").unwrap());
    let mut open = File::open(file).expect("open");
    rig.run(["forget", &gone]).ends(0);
    rig.run(["prune"]).ends(0);
    let shown = mounted.at("snapshots");
    until("it is shown no more", || names(&shown).len() == 1);
    rig.run(["prune"]).ends(0);
    let mut found = Vec::new();
    open.read_to_end(&mut found).expect("read");
    assert!(found == bytes);
    assert_eq!(stored(), before);
    drop(open);
    mounted.stop(Signal::TERM);
    rig.run(["prune"]).ends(0);
    assert!(stored() < before);
}

/// Where data begins and ends.
fn extents(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).expect("open");
    let (mut extents, mut at) = (Vec::new(), 0);
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(data)).expect("a hole");
        extents.push((data, at));
    }
    extents
}

#[test]
fn damage_hurts_the_file_that_it_is_in_and_is_told_once() {
    if !can_mount() {
        return;
    }
    let rig = Rig::open();
    let containers = || files(&rig.repo().join("containers"));
    rig.write("a/hurt", &Random(1).bytes(300_000));
    rig.backup("a");
    let before = containers();
    rig.write("a/well", &Random(2).bytes(300_000));
    rig.backup("a");
    let largest = before.iter().max_by_key(|(_, bytes)| bytes.len());
    let data = rig.repo().join("containers").join(largest.expect("some").0);
    let len = fs::metadata(&data).expect("a container").len();
    fs::write(&data, vec![7; len as usize]).expect("ours");
    let log = rig.path("log");
    let mounted = Mounted::new(&rig, &["--log", log.to_str().expect("UTF-8")]);
    let folder = mounted.latest(&rig.path("a"));
    for _ in 0..2 {
        let error = fs::read(folder.join("hurt")).expect_err("damaged");
        assert_eq!(error.raw_os_error(), Some(5));
        assert_eq!(fs::read(folder.join("well")).expect("read").len(), 300_000);
    }
    drop(mounted);
    let told = fs::read_to_string(log).expect("a log");
    let lines: Vec<_> = told.lines().collect();
    assert!(lines.len() == 1 && lines[0].contains("/a/hurt: "), "{told}");
}

#[test]
fn in_the_background_it_ends_when_it_is_unmounted() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    rig.write("source/file", b"here");
    rig.backup("source");
    fs::create_dir(rig.path("mnt")).expect("a folder");
    let at = |mount: &str| {
        let path = rig.path("source/file");
        rig.path(mount)
            .join("latest")
            .join(path.strip_prefix("/").unwrap())
    };
    let start = || {
        let ran = rig.run(["mount", "mnt", "--json"]).ends(0);
        assert_eq!(fs::read(at("mnt")).expect("there at once"), b"here");
        let process = ran.last()["process"].as_i64().expect("a process") as i32;
        Pid::from_raw(process).expect("a process")
    };
    // One that nobody has waited for has ended, too.
    let is_gone = |process: Pid| {
        let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
        fs::read_to_string(stat).map_or(true, |stat| stat.contains(") Z "))
    };
    let unmount = |how: &[&str]| {
        let done = Command::new("umount")
            .args(how)
            .arg(rig.path("mnt"))
            .status();
        assert!(done.expect("umount").success());
    };
    let process = start();
    unmount(&[]);
    until("it ends", || is_gone(process));
    let process = start();
    let twice = rig.run(["mount", "mnt"]).ends(2);
    assert!(twice.err.contains("umount -l"), "{}", twice.err);
    kill_process(process, Signal::KILL).expect("it lives");
    until("it is gone", || is_gone(process));
    assert!(fs::read(at("mnt")).is_err());
    let left = rig.run(["mount", "mnt"]).ends(2);
    assert!(left.err.contains("umount -l"), "{}", left.err);
    unmount(&["-l"]);
    // Somebody uses it: it is taken away all the same.
    let process = start();
    kill_process(process, Signal::TERM).expect("it lives");
    until("it ends", || is_gone(process));
    assert!(names(&rig.path("mnt")).is_empty());
    let missing = rig.run(["mount", "nowhere"]).ends(1);
    assert!(missing.err.contains("nowhere"), "{}", missing.err);
    rig.write("plain", b"x");
    let refused = rig.run(["mount", "plain"]).ends(2);
    assert!(refused.err.contains("no folder"), "{}", refused.err);
    let refused = rig.run(["mount", "."]).ends(2);
    assert!(
        refused.err.contains("holds the repository"),
        "{}",
        refused.err
    );
    let wrong = rig
        .command(["mount", "mnt"])
        .env("ONEFOLD_PASSWORD", "no")
        .output();
    assert_eq!(wrong.expect("it runs").status.code(), Some(12));
}
