//! `onefold volume create --metadata`: the metadata of `dtb` and `cbt` on a file of its own, through the program.

use std::fs::File;

use crate::rig::{Ran, Rig};
use crate::untested::{has, not_tested};
use crate::volume::{Serving, qemu_io};

const MIB: u64 = 1 << 20;

fn create(rig: &Rig, depot: &str, backend: &str) -> Ran {
    let args = ["-q", "volume", "create", depot, "--size", "64M"];
    let devices = ["--data", "data.img", "--metadata", "meta.img"];
    rig.run(args.iter().chain(&["--backend", backend]).chain(&devices))
}

fn serve(rig: &Rig) -> Serving {
    Serving::start(rig, &["depot", "--unix", "socket"])
}

#[test]
fn metadata_on_a_file_of_its_own_is_there_after_each_opening() {
    if !has("qemu-io") {
        not_tested("metadata devices");
        return;
    }
    for backend in ["dtb:cache=1M", "cbt:cache=1M,transaction=100"] {
        let rig = Rig::empty();
        for (name, mib) in [("data.img", 100), ("meta.img", 8)] {
            let file = File::create_new(rig.path(name)).expect("a file");
            file.set_len(mib * MIB).expect("room");
        }
        create(&rig, "depot", backend).ends(0);
        for mib in 0..4 {
            let serving = serve(&rig);
            let (at, pattern) = (format!("{mib}M 1M"), mib + 1);
            qemu_io(
                &serving.uri,
                &[&format!("write -P {pattern} {at}"), "flush"],
            );
            let reads: Vec<String> = (0..=mib)
                .map(|mib| format!("read -P {} {mib}M 1M", mib + 1))
                .collect();
            qemu_io(
                &serving.uri,
                &reads.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            match mib {
                // Whatever was flushed survives a kill with cbt.
                2 if backend.starts_with("cbt") => serving.kill(),
                _ => serving.stop(),
            }
            rig.run(["volume", "check", "depot", "--read-data"]).ends(0);
        }
        for name in ["meta", "data"] {
            assert!(!rig.path("depot").join(name).exists(), "{name} is there");
        }
        let stats = rig.run(["--json", "volume", "stats", "depot"]).ends(0);
        assert_eq!(stats.last()["mapped_bytes"], 4 * MIB, "{}", stats.out);

        let taken = create(&rig, "other", backend);
        assert_ne!(taken.code, Some(0), "the devices are taken");
        rig.run(["volume", "delete", "depot", "--yes"]).ends(0);
        create(&rig, "other", backend).ends(0);
    }
}

#[test]
fn without_its_metadata_file_a_depot_is_refused_in_words() {
    let rig = Rig::empty();
    for (name, mib) in [("data.img", 100), ("meta.img", 8)] {
        let file = File::create_new(rig.path(name)).expect("a file");
        file.set_len(mib * MIB).expect("room");
    }
    create(&rig, "depot", "cbt").ends(0);
    std::fs::rename(rig.path("meta.img"), rig.path("elsewhere")).expect("it is there");
    let refused = rig.run(["volume", "check", "depot"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("meta.img"), "{}", refused.err);
    std::fs::rename(rig.path("elsewhere"), rig.path("meta.img")).expect("it is there");
    rig.run(["volume", "check", "depot"]).ends(0);
}
