//! Log files of an index after a sweep.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata};
use onefold_io::{CountedDir, Counters, Dir, MemDir};

use crate::conformance::options;
use crate::history::key;

/// Ten containers of a thousand chunks; seven are retired; some chunks of the others were superseded or removed before.
#[test]
fn log_files_of_retired_containers_give_back_their_space() {
    let dir = MemDir::new();
    let mut index = Strata::open(Arc::new(dir.clone()), options(1, 3 << 19)).expect("open");
    let at = |container| Location {
        container: ContainerId(container),
    };
    index
        .insert(
            &(0..10_000)
                .map(|number| (key(number), at(number / 1000)))
                .collect::<Vec<_>>(),
        )
        .expect("insert");
    index.checkpoint().expect("checkpoint");
    index
        .insert(&[(key(7500), at(50)), (key(7501), at(6))])
        .expect("insert");
    index.remove(&[key(8500)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    let before = index.stats().disk_bytes;
    index
        .retire(&(0..7).map(ContainerId).collect::<Vec<_>>())
        .expect("retire");
    index.checkpoint().expect("checkpoint");
    index.merge_all().expect("merge");
    let after = index.stats().disk_bytes;
    assert!(after < before / 2, "{after} of {before} bytes");
    for index in [
        index,
        Strata::open(Arc::new(dir), options(2, 1 << 20)).expect("open"),
    ] {
        let keys: Vec<Fingerprint> = (0..10_000).map(key).collect();
        let mut found = vec![None; keys.len()];
        index.lookup(&keys, &mut found).expect("lookup");
        for (number, found) in (0u64..).zip(found) {
            let expected = match number {
                0..7000 | 8500 => None,
                7500 => Some(at(50)),
                // the newest location was retired: the older one is right again, or none
                7501 => found.and(Some(at(7))),
                _ => Some(at(number / 1000)),
            };
            assert_eq!(found, expected, "key {number}");
        }
    }
}

/// Each log file has a page that speaks of the container; no other file does.
#[test]
fn while_a_container_is_retired_a_checkpoint_reads_each_log_file_s_footer_once_for_each_change() {
    const LOGS: u64 = 60;
    const CHECKPOINTS: u64 = 10;
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let at = |container| Location {
        container: ContainerId(container),
    };
    for log in 0..LOGS {
        let mut index = Strata::open(Arc::clone(&dir), options(log, 1 << 20)).expect("open");
        let own = (0..400).map(|i| (key(log << 20 | i), at(100 + log)));
        let common = (400..420).map(|i| (key(log << 20 | i), at(7)));
        let entries: Vec<_> = own.chain(common).collect();
        index.insert(&entries).expect("insert");
        index.checkpoint().expect("checkpoint");
    }
    let counters = Counters::new();
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(dir, Arc::clone(&counters)));
    let mut index = Strata::open(counted, options(LOGS, 1 << 20)).expect("open");
    index.retire(&[ContainerId(7)]).expect("retire");
    index.checkpoint().expect("checkpoint");
    index.merge_all().expect("merge");
    let before = counters.counts().reads;
    for i in 0..CHECKPOINTS {
        index.insert(&[(key(1 << 40 | i), at(9))]).expect("insert");
        index.checkpoint().expect("checkpoint");
    }
    let reads = (counters.counts().reads - before) / CHECKPOINTS;
    // some checkpoints merge, and look again; manifests and runs are read besides
    assert!(reads < LOGS * 2, "{reads} reads a checkpoint");
}
