//! Parameters of the papers behind the names of indexes and chunkers.

use onefold_papers::KINDS;

use crate::rig::{Random, Rig, files};

fn write_source(rig: &Rig) {
    for number in 0..40 {
        let mut random = Random(number);
        let words = (0..2500).flat_map(|_| random.next().to_le_bytes());
        rig.write(&format!("src/{number}"), &words.collect::<Vec<u8>>());
    }
}

#[test]
fn parameters_of_the_papers_are_kept_with_the_repository() {
    for (flag, value) in [
        ("--index", "chunkstash:sample=10"),
        (
            "--index",
            "bloomstore:chain=128,filter=128,prefilter=2.5,timeout=1,garbage=0.5",
        ),
        ("--index", "skimpystash:bucket=20"),
        ("--index", "tablets:tablet-kib=64,policy=linear"),
        ("--index", "tablets:policy=single"),
        ("--chunker", "rabin:bits=12,min=1024,max=32768"),
        ("--chunker", "inc-k:bits=11"),
        (
            "--chunker",
            "fbc:threshold=9,filters=2,modulo=64,resample=0.5,ratio=8",
        ),
    ] {
        let rig = Rig::empty();
        rig.run(["init", "--encryption", "none", flag, value])
            .ends(0);
        write_source(&rig);
        rig.run(["backup", "src"]).ends(0);
        let again = rig
            .run(["backup", "src", "--force", "--json"])
            .ends(0)
            .last();
        assert_eq!(
            again["data_added"].as_u64().map(|new| new < 20_000),
            Some(true),
            "{value}"
        );
        let config = rig.run(["cat", "config"]).ends(0).out;
        assert!(config.contains(value), "{config}");
        assert_eq!(rig.restored("latest", "src"), files(&rig.path("src")));
        rig.run(["check", "--read-data"]).ends(0);
    }
}

#[test]
fn wrong_parameters_are_refused_with_what_can_be() {
    for (flag, value, told) in [
        ("--index", "chunkstash:sample=0", "sample is 1 to 1000000"),
        ("--index", "bloomstore:chain=5000", "chain is 1 to 4095"),
        ("--index", "bloomstore:garbage=2", "garbage is 0.01 to 1"),
        (
            "--index",
            "tablets:policy=fifo",
            "policy is single, linear, lru, lru-prefetch",
        ),
        ("--index", "tablets:size=4", "there are tablet-kib, policy"),
        ("--index", "strata:sample=2", "strata has no parameters"),
        ("--index", "chunkstash:sample", "expected key=value"),
        ("--index", "bloomstore:", "nothing stands behind the colon"),
        ("--chunker", "rabin:", "nothing stands behind the colon"),
        ("--chunker", "rabin:bits=40", "bits is 1 to 31"),
        (
            "--chunker",
            "rabin:min=4096,max=2048",
            "min is less than max",
        ),
        ("--chunker", "sieve:bits=13", "sieve has no parameters"),
        ("--chunker", "fbc:threshold=0", "threshold is 1 to 1000000"),
        ("--chunker", "fbc:filters=17", "filters is 1 to 16"),
        (
            "--chunker",
            "fbc:modulo=33",
            "modulo is a power of two, 1 to 4096",
        ),
        ("--chunker", "fbc:resample=0", "resample is 0.001 to 1"),
        ("--chunker", "fbc:ratio=1", "ratio is 2 to 256"),
    ] {
        let rig = Rig::empty();
        let refused = rig.run(["init", "--encryption", "none", flag, value]);
        let refused = refused.ends(2);
        assert!(refused.err.contains(told), "{value}: {}", refused.err);
        assert!(!rig.repo().exists(), "{value}");
    }
}

#[test]
fn the_help_of_init_lists_all_parameters_with_the_values_of_the_papers() {
    let help = Rig::empty().run(["init", "--help"]).ends(0).out;
    let of_chunkers = onefold_chunk::names().iter();
    let of_chunkers = of_chunkers.map(|name| (*name, onefold_chunk::knobs_of(name)));
    let of_indexes = KINDS.iter().map(|kind| (kind.name, kind.knobs));
    for (name, knobs) in of_chunkers.chain(of_indexes) {
        for knob in knobs {
            let shown = format!("{name}:{}={}", knob.key, knob.default);
            assert!(help.contains(&shown), "{shown}: {help}");
        }
    }
}

/// The key metric of the papers.
#[test]
fn every_index_says_how_much_ram_it_holds() {
    for kind in KINDS {
        let rig = Rig::empty();
        let init = ["init", "--encryption", "none", "--index", kind.name];
        rig.run(init).ends(0);
        write_source(&rig);
        rig.run(["backup", "src"]).ends(0);
        let stats = ["stats", "--mode", "raw-data", "--json"];
        let ram = rig.run(stats).ends(0).last()["index_ram_bytes"].as_u64();
        assert!(ram.is_some_and(|ram| ram > 1000), "{kind:?}: {ram:?}");
    }
}

/// Twelve pieces that come again in another order each time: with a lower threshold they are split out early and stored
/// once more seldom. The next backup goes on with what the first has counted.
#[test]
fn the_threshold_of_fbc_decides_what_is_split() {
    let added = [2, 1000].map(|threshold| {
        let rig = Rig::empty();
        let chunker = format!("fbc:threshold={threshold},filters=1");
        rig.run(
            ["init", "--encryption", "none", "--chunk-size", "1k"]
                .into_iter()
                .chain(["--chunker", &chunker]),
        )
        .ends(0);
        let mut random = Random(7);
        let mut piece =
            || -> Vec<u8> { (0..300).flat_map(|_| random.next().to_le_bytes()).collect() };
        let pieces: Vec<Vec<u8>> = (0..12).map(|_| piece()).collect();
        let mut order = Random(8);
        let mut added = Vec::new();
        for backup in 0..2 {
            let content: Vec<u8> = (0..200)
                .flat_map(|_| pieces[(order.next() % 12) as usize].clone())
                .collect();
            rig.write(&format!("src/{backup}"), &content);
            let ran = rig.run(["backup", "src", "--json"]).ends(0);
            assert!(!ran.err.contains("sketch"), "{}", ran.err);
            added.push(ran.last()["data_added"].as_u64().expect("a number"));
        }
        assert_eq!(rig.restored("latest", "src"), files(&rig.path("src")));
        added
    });
    let [low, high] = &added;
    assert!(low[0] * 2 < high[0] && low[1] * 4 < high[1], "{added:?}");
}
