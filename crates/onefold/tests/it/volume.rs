//! `onefold volume`: NBD clients of others, a block device with a file system, and how both end.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::devices::{AttachedDepot, can_attach, unmount, unmount_dead};
use crate::rig::{Ran, Rig, program};
use crate::untested::has;

/// A server that has said where it listens.
pub struct Serving {
    child: Child,
    pub uri: String,
}

impl Serving {
    pub fn start(rig: &Rig, args: &[&str]) -> Self {
        let mut child = program()
            .current_dir(rig.dir.path())
            .args(["volume", "serve", "--json"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it says where");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(said["message_type"], "serving");
        let uri = said["uris"][0].as_str().expect("a URI").to_owned();
        Self { child, uri }
    }

    /// Ends it as the kernel does when memory runs out.
    pub fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it ends");
    }

    /// Ends it as `systemctl stop` does.
    pub fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }
}

/// Runs commands of `qemu-io` on the export at `uri`; all must succeed.
pub fn qemu_io(uri: &str, commands: &[&str]) {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let mut qemu_io = Command::new("qemu-io");
    let said = succeeds(
        qemu_io
            .args(["-f", "raw", "-d", "unmap", uri])
            .args(commands),
    );
    assert!(!said.contains("failed"), "{said}");
}

fn disk(rig: &Rig, mib: u64) -> PathBuf {
    let path = rig.path("disk.img");
    File::create(&path)
        .and_then(|file| file.set_len(mib << 20))
        .expect("a file");
    path
}

#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let ran = Ran::from(command.output().expect("it starts"));
    assert_eq!(ran.code, Some(0), "{command:?}\n{}{}", ran.out, ran.err);
    ran.out
}

#[test]
fn clients_of_others_write_and_read_and_what_they_wrote_is_in_the_file() {
    if !has("nbdinfo") || !has("nbdcopy") || !has("qemu-io") {
        return;
    }
    let rig = Rig::empty();
    let disk = disk(&rig, 32);
    let serving = Serving::start(&rig, &["--raw", "disk.img", "--unix", "socket"]);
    let uri = serving.uri.clone();
    assert_eq!(
        succeeds(Command::new("nbdinfo").args(["--size", &uri])).trim(),
        (32u64 << 20).to_string()
    );
    for ability in [
        "write",
        "fua",
        "trim",
        "zero",
        "multi-conn",
        "structured-reply",
        "df",
    ] {
        succeeds(Command::new("nbdinfo").args(["--can", ability, &uri]));
    }
    let said = succeeds(Command::new("qemu-io").args(["-f", "raw", &uri]).args([
        "-c",
        "write -P 0xa5 0 64k",
        "-c",
        "write -f -P 0x5a 8k 4k",
        "-c",
        "flush",
        "-c",
        "read -P 0xa5 0 8k",
        "-c",
        "read -P 0x5a 8k 4k",
        "-c",
        "write -z 16k 8k",
        "-c",
        "read -P 0 16k 8k",
        "-c",
        "discard 32k 4k",
        "-c",
        "write -P 3 4093 7",
        "-c",
        "read -P 3 4093 7",
    ]));
    assert!(
        !said.contains("failed") && !said.contains("error"),
        "{said}"
    );
    let map = succeeds(Command::new("nbdinfo").args(["--map", &uri]));
    assert!(map.contains("data") && map.contains("hole"), "{map}");
    let copy = rig.path("copy");
    succeeds(Command::new("nbdcopy").arg(&uri).arg(&copy));
    serving.stop();
    assert!(!rig.path("socket").exists());
    let (disk, copy) = (
        std::fs::read(disk).expect("read"),
        std::fs::read(copy).expect("read"),
    );
    assert_eq!(disk[4093..4100], [3; 7]);
    assert!(disk == copy, "the copy is not what is in the file");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_served() {
    let rig = Rig::empty();
    disk(&rig, 1);
    let open = rig
        .run(["volume", "serve", "--raw", "disk.img", "--tcp", "0.0.0.0:0"])
        .ends(2);
    assert!(open.err.contains("--tls-cert"), "{}", open.err);
    rig.run(["volume", "serve", "--raw", "disk.img"]).ends(2);
    let none = rig
        .run(["volume", "serve", "--raw", "nothing", "--unix", "socket"])
        .ends(1);
    assert!(none.err.contains("nothing"), "{}", none.err);
    let pem = rig.run([
        "volume",
        "serve",
        "--raw",
        "disk.img",
        "--tcp",
        "0.0.0.0:0",
        "--tls-cert",
        "disk.img",
        "--tls-key",
        "disk.img",
    ]);
    assert!(pem.ends(2).err.contains("disk.img"));
    let serving = Serving::start(&rig, &["--raw", "disk.img", "--unix", "socket"]);
    let second = rig
        .run(["volume", "serve", "--raw", "disk.img", "--unix", "socket"])
        .ends(11);
    assert!(second.err.contains("in use"), "{}", second.err);
    serving.stop();
}

/// Ends what a failed test leaves.
struct Attached<'a>(&'a Rig);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path("mnt"))
            .output();
        let _ = self.0.run(["volume", "detach", "--raw", "disk.img"]);
    }
}

#[test]
fn a_file_system_on_an_attached_device_is_there_again_after_detach_and_after_a_kill() {
    if !can_attach() {
        return;
    }
    let rig = Rig::empty();
    disk(&rig, 64);
    std::fs::create_dir(rig.path("mnt")).expect("a folder");
    let attach = || {
        let ran = rig
            .run(["--json", "volume", "attach", "--raw", "disk.img"])
            .ends(0);
        let said = ran.last();
        let text = said["device"].as_str().expect("a device").to_owned();
        (text, said["process"].as_i64().expect("a process") as i32)
    };
    let (device, _) = attach();
    let _guard = Attached(&rig);
    let mount = |device: &str| {
        succeeds(
            Command::new("mount")
                .args(["-o", "discard", device])
                .arg(rig.path("mnt")),
        );
    };
    succeeds(Command::new("mkfs.ext4").args(["-q", "-F", &device]));
    mount(&device);
    std::fs::write(rig.path("mnt/kept"), "hello".repeat(10_000)).expect("write");

    // In use, a second one, and the list of what there is.
    let refused = rig.run(["volume", "detach", "--raw", "disk.img"]).ends(11);
    assert!(refused.err.contains("unmount it"), "{}", refused.err);
    let second = rig.run(["volume", "attach", "--raw", "disk.img"]).ends(11);
    assert!(second.err.contains(&device), "{}", second.err);
    assert!(rig.run(["volume", "list"]).ends(0).out.contains(&device));
    unmount(&rig, &device);
    // Afterwards another test may have the same device, so the list says nothing of this one.
    rig.run(["volume", "detach", "--raw", "disk.img"]).ends(0);
    rig.run(["volume", "detach", "--raw", "disk.img"]).ends(1);
    let unknown = rig.run(["volume", "detach", "/dev/loop-control"]);
    assert_ne!(unknown.code, Some(0), "{}", unknown.out);

    let (device, process) = attach();
    mount(&device);
    let kept = std::fs::read_to_string(rig.path("mnt/kept")).expect("read");
    assert_eq!(kept, "hello".repeat(10_000));
    std::fs::write(rig.path("mnt/synced"), "synced").expect("write");
    File::open(rig.path("mnt/synced"))
        .and_then(|file| file.sync_all())
        .expect("sync");
    let pid = rustix::process::Pid::from_raw(process).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
    unmount_dead(&rig, &device);
    let cleaned = rig.run(["volume", "detach", "--raw", "disk.img"]).ends(0);
    assert!(cleaned.err.contains("killed"), "{}", cleaned.err);

    let (device, _) = attach();
    mount(&device);
    assert_eq!(
        std::fs::read_to_string(rig.path("mnt/synced")).expect("read"),
        "synced"
    );
    unmount(&rig, &device);
    succeeds(Command::new("e2fsck").args(["-f", "-n", &device]));
    // By the name that `attach` printed.
    let detached = rig.run(["volume", "detach", &device]).ends(0);
    assert!(detached.out.contains(&device), "{}", detached.out);
    rig.run(["volume", "detach", "--raw", "disk.img"]).ends(1);
}

#[test]
fn a_file_that_is_copied_twice_onto_a_depot_is_stored_once_and_is_there_after_detach() {
    if can_attach() {
        copied_twice("log");
        copied_twice("inram");
        copied_twice("dtb:cache=1M");
        copied_twice("cbt:cache=1M,transaction=100");
    }
}

/// A depot that is attached and mounted again and again.
struct Depot {
    rig: Rig,
}

impl Depot {
    fn create(backend: &str) -> Self {
        let rig = Rig::empty();
        let create = [
            "volume",
            "create",
            "depot",
            "--size",
            "64M",
            "--backend",
            backend,
        ];
        let created = rig.run(create).ends(0);
        let name = backend.split(':').next().unwrap_or(backend);
        for warned in ["inram", "dtb"] {
            let is_warned = created.err.contains(warned);
            assert_eq!(is_warned, name == warned, "{}", created.err);
        }
        rig.run(create).ends(1);
        std::fs::create_dir(rig.path("mnt")).expect("a folder");
        Self { rig }
    }

    fn attach(&self) -> String {
        let attach = ["--json", "volume", "attach", "depot"];
        let ran = self.rig.run(attach).ends(0);
        ran.last()["device"].as_str().expect("a device").to_owned()
    }

    fn mount(&self, device: &str) {
        let mount = &mut Command::new("mount");
        succeeds(mount.args(["-o", "discard", device]).arg(self.mounted()));
    }

    fn mounted(&self) -> std::path::PathBuf {
        self.rig.path("mnt")
    }

    fn stats(&self) -> Value {
        let stats = ["--json", "volume", "stats", "depot"];
        self.rig.run(stats).ends(0).last()
    }
}

fn copied_twice(backend: &str) {
    let depot = Depot::create(backend);
    let rig = &depot.rig;
    let _guard = AttachedDepot(rig);
    let device = depot.attach();
    rig.run(["volume", "attach", "depot"]).ends(11);
    succeeds(Command::new("mkfs.ext4").args(["-q", "-F", &device]));
    depot.mount(&device);
    let before = depot.stats();
    let content = crate::rig::Random(7).bytes(8 << 20);
    for name in ["one", "two"] {
        std::fs::write(depot.mounted().join(name), &content).expect("write");
    }
    succeeds(&mut Command::new("sync"));
    let after = depot.stats();
    let grown = |name: &str| {
        let of = |stats: &Value| stats[name].as_u64().expect("a number");
        of(&after) - of(&before)
    };
    let (mapped, stored) = (grown("mapped_bytes"), grown("stored_bytes"));
    assert!(
        mapped >= 16 << 20 && stored < 9 << 20,
        "{mapped} mapped, {stored} stored"
    );
    let refused = rig.run(["volume", "detach", "depot"]).ends(11);
    assert!(refused.err.contains("unmount it"), "{}", refused.err);
    unmount(rig, &device);
    rig.run(["volume", "detach", "depot"]).ends(0);

    let device = depot.attach();
    depot.mount(&device);
    for name in ["one", "two"] {
        let there = std::fs::read(depot.mounted().join(name)).expect("read");
        assert!(there == content, "{name} is another");
        std::fs::remove_file(depot.mounted().join(name)).expect("remove");
    }
    // fstrim passes over blocks whose removal is not committed yet, and an unmount drops discards that still wait.
    succeeds(&mut Command::new("sync"));
    succeeds(Command::new("fstrim").arg(depot.mounted()));
    unmount(rig, &device);
    succeeds(Command::new("e2fsck").args(["-f", "-n", &device]));
    rig.run(["volume", "collect", "depot"]).ends(0);
    let left = depot.stats()["stored_bytes"].as_u64().expect("a number");
    assert!(backend == "log" || left < 4 << 20, "{left} bytes are left");
    rig.run(["volume", "detach", "depot"]).ends(0);
    rig.run(["volume", "detach", "depot"]).ends(1);
    rig.run(["volume", "stats", "nothing"]).ends(10);
}

#[test]
fn a_depot_is_served_over_nbd_and_has_one_owner() {
    if !has("qemu-io") || !has("nbdinfo") {
        return;
    }
    let rig = Rig::empty();
    rig.run([
        "-q",
        "volume",
        "create",
        "depot",
        "--size",
        "16M",
        "--volume",
        "vm",
        "--backend",
        "inram-saved",
    ])
    .ends(0);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    assert!(serving.uri.contains(":///vm?"), "{}", serving.uri);
    let uri = serving.uri.clone();
    qemu_io(&uri, &["write -P 5 0 1M", "flush"]);
    rig.run(["volume", "serve", "depot", "--unix", "other"])
        .ends(11);
    let map = succeeds(Command::new("nbdinfo").args(["--map", &uri]));
    assert!(map.contains("hole"), "{map}");
    let refused = rig.run(["volume", "detach", "depot"]).ends(11);
    assert!(refused.err.contains("not attached"), "{}", refused.err);
    let stats = rig
        .run(["--json", "volume", "stats", "depot"])
        .ends(0)
        .last();
    assert_eq!(stats["unique_writes"], 1, "256 equal chunks: {stats}");
    serving.stop();
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    qemu_io(&serving.uri, &["read -P 5 0 1M"]);
    serving.stop();
}

#[test]
fn a_detached_depot_is_free_at_once() {
    if !can_attach() {
        return;
    }
    let rig = Rig::empty();
    rig.run(["volume", "create", "depot", "--size", "64M"])
        .ends(0);
    let _guard = AttachedDepot(&rig);
    for next in [["check", "depot"].as_slice(), &["delete", "depot", "--yes"]] {
        let attach = ["--json", "volume", "attach", "depot"];
        let process = rig.run(attach).ends(0).last()["process"].clone();
        rig.run(["volume", "detach", "depot"]).ends(0);
        // Nobody may have fetched its exit status yet.
        let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
        rig.run([&["volume"], next].concat()).ends(0);
    }
}

#[test]
fn what_was_synced_onto_a_depot_is_there_after_a_kill() {
    if !can_attach() {
        return;
    }
    let rig = Rig::empty();
    rig.run(["volume", "create", "depot", "--size", "64M"])
        .ends(0);
    std::fs::create_dir(rig.path("mnt")).expect("a folder");
    let _guard = AttachedDepot(&rig);
    let attach = || {
        let said = rig
            .run(["--json", "volume", "attach", "depot"])
            .ends(0)
            .last();
        let device = said["device"].as_str().expect("a device").to_owned();
        (device, said["process"].as_i64().expect("a process") as i32)
    };
    let (device, process) = attach();
    succeeds(Command::new("mkfs.ext4").args(["-q", "-F", &device]));
    let mount = |device: &str| {
        succeeds(Command::new("mount").arg(device).arg(rig.path("mnt")));
    };
    mount(&device);
    let content = crate::rig::Random(9).bytes(3 << 20);
    std::fs::write(rig.path("mnt/synced"), &content).expect("write");
    File::open(rig.path("mnt/synced"))
        .and_then(|file| file.sync_all())
        .expect("sync");
    let pid = rustix::process::Pid::from_raw(process).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
    unmount_dead(&rig, &device);
    rig.run(["volume", "detach", "depot"]).ends(0);
    let (device, _) = attach();
    mount(&device);
    assert!(std::fs::read(rig.path("mnt/synced")).expect("read") == content);
    unmount(&rig, &device);
    succeeds(Command::new("e2fsck").args(["-f", "-n", &device]));
    rig.run(["volume", "detach", "depot"]).ends(0);
}
