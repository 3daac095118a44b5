//! `onefold volume dump`: each structure of each backend, as text and as JSON, and what it says of damage.

use serde_json::Value;

use crate::rig::{Ran, Random, Rig};
use crate::untested::has;
use crate::volume_care::copy_in;

const MIB: usize = 1 << 20;
/// Chunks of the content, all different; it is written twice.
const CHUNKS: u64 = 256;

/// A depot that is closed and holds 1 MiB twice.
fn depot(backend: &str) -> Option<Rig> {
    if !has("nbdcopy") {
        return None;
    }
    let rig = Rig::empty();
    let create = ["-q", "volume", "create", "depot", "--size", "64M"];
    rig.run([create.as_slice(), &["--backend", backend]].concat())
        .ends(0);
    copy_in(&rig, &Random(11).bytes(MIB).repeat(2));
    Some(rig)
}

fn dump(rig: &Rig, what: &[&str]) -> Ran {
    rig.run([&["volume", "dump", "depot"], what].concat())
}

#[track_caller]
fn json(rig: &Rig, what: &[&str]) -> Value {
    let all = [&["--json", "volume", "dump", "depot"], what].concat();
    rig.run(all).ends(0).last()
}

/// Flips a bit of a file of the depot.
fn flip(rig: &Rig, file: &str, at: usize) {
    let path = rig.path("depot").join(file);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[at] ^= 4;
    std::fs::write(&path, &bytes).expect("write");
}

#[test]
fn every_structure_of_a_log_is_shown_as_text_and_json() {
    let Some(rig) = depot("log") else { return };
    let config = dump(&rig, &["config"]).ends(0).out;
    assert!(config.contains("backend: log\n"), "{config}");
    assert!(config.contains("volume_bytes: 67108864\n"), "{config}");
    assert_eq!(json(&rig, &["config"])["volume"], "main");

    let manifest = json(&rig, &["manifest"]);
    assert!(manifest["generation"].as_u64() > Some(0), "{manifest}");
    let base = &manifest["maps"][0];
    assert_eq!(base["volume"], 0, "{manifest}");
    let text = dump(&rig, &[]).ends(0).out;
    assert_eq!(text, dump(&rig, &["manifest"]).ends(0).out);
    let line = format!("generation: {}\n", manifest["generation"]);
    assert!(text.starts_with(&line), "{text}");

    let zones = json(&rig, &["zones"]);
    let zones = zones.as_array().expect("a list");
    assert_eq!(manifest["zones_in_use"], zones.len());
    let lines = dump(&rig, &["zones"]).ends(0).out;
    assert_eq!(lines.lines().count(), zones.len(), "{lines}");
    assert!(lines.starts_with("place "), "{lines}");

    let (mut pages, mut mapped) = (0, 0);
    for listed in zones {
        let place = listed["place"].to_string();
        let zone = json(&rig, &["zone", &place]);
        assert_eq!(zone["header"]["zone"], listed["zone"], "{zone}");
        let groups = zone["groups"].as_array().expect("a journal");
        for group in groups {
            pages += group["data_pages"].as_u64().expect("a number");
            let entries = group["entries"].as_array().expect("a list").iter();
            mapped += entries
                .filter(|entry| !entry["page"].is_null())
                .map(|entry| entry["chunks"].as_u64().expect("a number"))
                .sum::<u64>();
        }
        let text = dump(&rig, &["zone", &place]).ends(0).out;
        assert!(text.contains("header:\n") && text.contains("groups:\n"));
    }
    assert_eq!((pages, mapped), (CHUNKS, 2 * CHUNKS));
}

#[test]
fn the_metadata_of_other_backends_is_shown_with_its_sizes() {
    for backend in ["inram", "inram-saved", "dtb:cache=1M", "cbt:cache=1M"] {
        let Some(rig) = depot(backend) else { return };
        let metadata = json(&rig, &["metadata"]);
        let state = match metadata["superblocks"].as_array() {
            None => &metadata,
            Some(both) => {
                let last = &metadata["last_transaction"];
                let is_last = |one: &&Value| one["transaction"] == *last;
                both.iter().find(is_last).expect("it is one of them")
            }
        };
        assert_eq!(state["blocks_used"], CHUNKS, "{backend}: {metadata}");
        let entries = |kind: &str| {
            let stores = state["stores"].as_array().expect("a list");
            let store = stores.iter().find(|store| store["kind"] == kind);
            store.expect("it is there")["entries"].as_u64()
        };
        assert_eq!(entries("linear"), Some(2 * CHUNKS), "{backend}: {metadata}");
        assert_eq!(entries("sparse"), Some(CHUNKS), "{backend}: {metadata}");
        let text = dump(&rig, &[]).ends(0).out;
        assert!(text.contains("blocks_used: 256\n"), "{backend}: {text}");
        assert!(text.contains("kind sparse"), "{backend}: {text}");
        let name = backend.split(':').next().unwrap_or(backend);
        assert_eq!(json(&rig, &["config"])["backend"], name);
        for absent in [["manifest"].as_slice(), &["zones"], &["zone", "0"]] {
            let refused = dump(&rig, absent).ends(2);
            assert!(
                refused.err.contains("config and metadata"),
                "{}",
                refused.err
            );
        }
    }
}

#[test]
fn an_argument_that_names_no_structure_is_refused() {
    let Some(rig) = depot("log") else { return };
    for (what, word) in [
        (["zone"].as_slice(), "PLACE"),
        (&["zone", "x"], "invalid digit"),
        (&["zone", "100000"], "there is no place 100000"),
        (&["zones", "3"], "a place is that of a zone"),
        (&["tables"], "possible values"),
        (&["metadata"], "config, manifest, zones"),
    ] {
        let refused = dump(&rig, what).ends(2);
        assert!(refused.err.contains(word), "{what:?}: {}", refused.err);
    }
    rig.run(["volume", "dump", "nothing"]).ends(10);
    std::fs::create_dir(rig.path("empty")).expect("a folder");
    rig.run(["volume", "dump", "empty"]).ends(10);
}

#[test]
fn damage_of_a_log_is_told_with_its_place() {
    let Some(rig) = depot("log") else { return };
    let place = json(&rig, &["zones"])[0]["place"].clone();
    let zone = ["zone", &place.to_string()];
    let offset = json(&rig, &zone)["offset"].as_u64().expect("a number");
    flip(&rig, "data", offset as usize + 30);
    let hurt = json(&rig, &zone);
    let said = hurt["header"]["not_read"].as_str().expect("why");
    for word in ["data", &format!("offset {offset}"), "expected"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(dump(&rig, &zone).ends(0).out.contains("not_read: data"));

    flip(&rig, "manifest", 30);
    for what in [["manifest"].as_slice(), &["zones"], &zone] {
        let told = dump(&rig, what).ends(13);
        let is_told = ["manifest", "offset 0", "expected"];
        assert!(
            is_told.iter().all(|word| told.err.contains(word)),
            "{}",
            told.err
        );
    }
    dump(&rig, &["config"]).ends(0);
    flip(&rig, "config", 30);
    dump(&rig, &["config"]).ends(0);
    flip(&rig, "config.copy", 30);
    let told = dump(&rig, &["config"]).ends(13);
    assert!(told.err.contains("config"), "{}", told.err);
}

#[test]
fn damage_of_other_backends_is_told_with_its_place() {
    for backend in ["inram", "dtb:cache=1M"] {
        let Some(rig) = depot(backend) else { return };
        flip(&rig, "meta", 30);
        let told = dump(&rig, &["metadata"]).ends(13);
        let is_told = ["meta", "offset 0", "expected"];
        assert!(
            is_told.iter().all(|word| told.err.contains(word)),
            "{}",
            told.err
        );
        std::fs::remove_file(rig.path("depot/meta")).expect("remove");
        let told = dump(&rig, &["metadata"]).ends(13);
        assert!(told.err.contains("meta"), "{}", told.err);
    }
    let Some(rig) = depot("cbt:cache=1M") else {
        return;
    };
    let last = json(&rig, &[])["last_transaction"]
        .as_u64()
        .expect("a number");
    let place = (last % 2) as usize;
    flip(&rig, "meta", place * 4096 + 30);
    let hurt = json(&rig, &[]);
    assert_eq!(hurt["last_transaction"], last - 1, "{hurt}");
    let said = hurt["superblocks"][place]["not_read"]
        .as_str()
        .expect("why");
    assert!(said.contains(&format!("offset {}", place * 4096)), "{said}");
    flip(&rig, "meta", (1 - place) * 4096 + 30);
    let hurt = json(&rig, &[]);
    assert!(hurt["last_transaction"]["not_read"].is_string(), "{hurt}");
    std::fs::remove_file(rig.path("depot/meta")).expect("remove");
    dump(&rig, &[]).ends(13);
}
