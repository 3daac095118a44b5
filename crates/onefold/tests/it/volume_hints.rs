//! `onefold volume hint`, `unhint`, `dd` and `cp`: over NBD by ranges, and through a file system on a loop device.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::devices::{AttachedDepot, can_attach, unmount};
use crate::rig::{Random, Rig};
use crate::untested::has;
use crate::volume::{Serving, qemu_io, succeeds};

const MIB: usize = 1 << 20;

fn create(rig: &Rig, backend: &str) {
    let args = ["-q", "volume", "create", "depot", "--size", "192M"];
    rig.run(args.into_iter().chain(["--backend", backend]))
        .ends(0);
}

fn stats(rig: &Rig) -> Value {
    rig.run(["--json", "volume", "stats", "depot"])
        .ends(0)
        .last()
}

fn number(stats: &Value, name: &str) -> u64 {
    stats.pointer(name).and_then(Value::as_u64).expect(name)
}

#[test]
fn a_range_or_an_export_is_hinted_while_the_depot_is_served() {
    if !has("qemu-io") {
        return;
    }
    let rig = Rig::empty();
    create(&rig, "log");
    let lacking = rig.run(["volume", "hint", "depot", "nodedup"]).ends(1);
    assert!(lacking.err.contains("attach or serve"), "{}", lacking.err);
    let serving = Serving::start(&rig, &["depot", "--unix", "socket"]);
    let hint = ["volume", "hint", "depot", "nodedup", "--range"];
    let said = rig.run(hint.into_iter().chain(["1M..2M", "--for", "1h"]));
    assert!(said.ends(0).out.contains("1.00 MiB"), "says what it hints");
    for at in ["0", "1M", "2M"] {
        qemu_io(&serving.uri, &[&format!("write -P 5 {at} 1M"), "flush"]);
    }
    let now = stats(&rig);
    assert_eq!(number(&now, "/nodedup_writes/by_range"), 256);
    assert_eq!(number(&now, "/unique_writes"), 257);
    assert_eq!(number(&now, "/hinted_ranges"), 1);
    rig.run(["-q", "volume", "unhint", "depot", "--range", "1M..2M"])
        .ends(0);
    assert_eq!(number(&stats(&rig), "/hinted_ranges"), 0);
    // A hint ends by itself.
    rig.run(hint.into_iter().chain(["1M..2M", "--for", "1s"]))
        .ends(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(number(&stats(&rig), "/hinted_ranges"), 0);
    // An export by its name and a hint: in a URI, # is written as %23.
    let hinted = serving.uri.replace("/main?", "/main%23nodedup?");
    qemu_io(&hinted, &["write -P 5 4M 1M", "flush"]);
    assert_eq!(number(&stats(&rig), "/nodedup_writes/by_request"), 256);
    // A volume that was made with a hint.
    let create = ["-q", "volume", "create", "depot:scratch", "--size", "8M"];
    rig.run(create.into_iter().chain(["--hint", "nodedup"]))
        .ends(0);
    let scratch = serving.uri.replace("/main?", "/scratch?");
    qemu_io(&scratch, &["write -P 5 0 1M", "flush"]);
    assert_eq!(number(&stats(&rig), "/nodedup_writes/by_request"), 512);
    for (wrong, code, word) in [
        ("190M..200M", 2, "none of volume"),
        ("2M..1M", 2, "no range"),
    ] {
        let refused = rig.run(hint.into_iter().chain([wrong])).ends(code);
        assert!(refused.err.contains(word), "{}", refused.err);
    }
    let file = rig.path("file");
    std::fs::write(&file, "elsewhere").expect("write");
    let refused = rig
        .run(["volume", "hint", "depot", "nodedup", "--file", "file"])
        .ends(2);
    assert!(refused.err.contains("--device"), "{}", refused.err);
    serving.stop();
    rig.run(create.into_iter().chain(["--hint", "fast"]))
        .ends(2);
    rig.run(["-q", "volume", "delete", "depot", "--yes"])
        .ends(0);
    assert!(!rig.path("depot").exists(), "nothing of it is left");
}

fn attach(rig: &Rig) -> String {
    let ran = rig.run(["--json", "volume", "attach", "depot"]).ends(0);
    let device = ran.last()["device"].as_str().expect("a device").to_owned();
    std::fs::create_dir(rig.path("mnt")).expect("a folder");
    succeeds(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", &device]));
    mount(rig, &device);
    device
}

fn mount(rig: &Rig, device: &str) {
    succeeds(Command::new("mount").arg(device).arg(rig.path("mnt")));
}

fn same(a: &Path, b: &Path) -> bool {
    std::fs::read(a).expect("read") == std::fs::read(b).expect("read")
}

/// A file that is written by `dd` is not deduplicated, though its content is known; the file that is hinted by its name
/// is not, either; and a copy with PREFETCH asks the index for none of its chunks.
#[test]
fn files_are_hinted_through_a_file_system() {
    if !can_attach() {
        return;
    }
    let rig = Rig::empty();
    create(&rig, "inram-saved");
    let device = attach(&rig);
    let attached = AttachedDepot(&rig);
    let content = Random(7).bytes(8 * MIB);
    std::fs::write(rig.path("content"), &content).expect("write");
    std::fs::write(rig.path("mnt/plain"), &content).expect("write");
    let mnt = rig.path("mnt");
    succeeds(Command::new("sync").arg("--file-system").arg(&mnt));
    let before = stats(&rig);

    let dd = [
        "volume",
        "dd",
        "hint=nodedup",
        "if=content",
        "of=mnt/big",
        "bs=64K",
    ];
    rig.run(dd).ends(0);
    let after_dd = stats(&rig);
    let grew = |name: &str, from: &Value, to: &Value| number(to, name) - number(from, name);
    let chunks = content.len() as u64 / 4096;
    assert!(grew("/nodedup_writes/by_range", &before, &after_dd) >= chunks);
    assert_eq!(number(&after_dd, "/hinted_ranges"), 0);
    assert!(same(&rig.path("content"), &rig.path("mnt/big")));

    let cp = [
        "volume",
        "cp",
        "--hint",
        "prefetch",
        "mnt/plain",
        "mnt/copy",
    ];
    rig.run(cp).ends(0);
    let after_cp = stats(&rig);
    assert!(grew("/prefetch_reads", &after_dd, &after_cp) >= chunks);
    let hits = grew("/counters/prefetch_hits", &after_dd, &after_cp);
    assert!(hits >= chunks, "{hits} of {chunks} chunks");
    assert!(grew("/duplicate_writes", &after_dd, &after_cp) >= chunks);
    assert_eq!(number(&after_cp, "/hinted_ranges"), 0);

    rig.run(["volume", "hint", "depot", "nodedup", "--file", "mnt/copy"])
        .ends(0);
    assert!(number(&stats(&rig), "/hinted_ranges") > 0);
    rig.run(["volume", "unhint", "depot", "--file", "mnt/copy"])
        .ends(0);
    assert_eq!(number(&stats(&rig), "/hinted_ranges"), 0);
    let elsewhere = rig
        .run(["volume", "dd", "hint=nodedup", "if=content", "of=content2"])
        .ends(2);
    assert!(elsewhere.err.contains("attached") || elsewhere.err.contains("--range"));

    // The device holds what was written, also once the page cache knows nothing of it.
    unmount(&rig, &device);
    mount(&rig, &device);
    assert!(same(&rig.path("content"), &rig.path("mnt/big")));
    assert!(same(&rig.path("content"), &rig.path("mnt/copy")));
    unmount(&rig, &device);
    rig.run(["-q", "volume", "detach", "depot"]).ends(0);
    drop(attached);
    rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
}

#[test]
fn a_file_is_not_copied_over_itself() {
    let rig = Rig::empty();
    std::fs::write(rig.path("file"), [7; 5000]).expect("write");
    std::fs::hard_link(rig.path("file"), rig.path("link")).expect("a link");
    for args in [
        &["volume", "dd", "if=file", "of=link"][..],
        &["volume", "cp", "--hint", "nodedup", "file", "link"],
    ] {
        let refused = rig.run(args).ends(2);
        assert!(refused.err.contains("source itself"), "{}", refused.err);
        assert_eq!(std::fs::read(rig.path("file")).expect("read"), [7; 5000]);
    }
}
