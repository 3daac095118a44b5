//! The papers' indexes after a write that failed: they know what they were told, and another try makes it durable.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Location};
use onefold_io::sim::{Faults, SimDir, When};

use crate::history::{History, key};
use crate::papers::INDEXES;

const KEYS: u64 = 1500;
/// Keys between two checkpoints.
const ROUND: u64 = 130;

/// A writer that tries again what failed, once.
struct Again {
    failures: u64,
}

impl Again {
    fn try_twice(
        &mut self,
        index: &mut dyn ChunkIndex,
        act: impl Fn(&mut dyn ChunkIndex) -> onefold_index::Result<()>,
    ) {
        if act(index).is_err() {
            self.failures += 1;
            act(index).expect("another try");
        }
    }
}

fn check(index: &mut dyn ChunkIndex, history: &History, when: &str) {
    for number in 0..KEYS {
        let mut found = [None];
        index.lookup(&[key(number)], &mut found).expect("lookup");
        assert!(
            history.agrees(number, found[0]),
            "{when}: key {number}: {found:?}"
        );
    }
}

#[test]
fn an_index_that_could_not_write_once_loses_nothing_by_another_try() {
    // a database that could not write is to be opened again
    let others = INDEXES
        .iter()
        .filter(|(name, _)| !name.starts_with("btree"));
    for (name, open) in others {
        let mut failures = 0;
        for number in 0..40 {
            let dir = SimDir::new(number);
            let mut index = open(Arc::new(dir.clone())).expect("open");
            let (mut history, mut again) = (History::default(), Again { failures: 0 });
            dir.inject(Faults {
                write_error: When::Once(number),
                ..Faults::default()
            });
            for i in 0..KEYS {
                let container = ContainerId(1 + i / 200);
                let entry = (key(i), Location { container });
                again.try_twice(&mut *index, |index| index.insert(&[entry]));
                history.insert(i, container);
                if i % ROUND == ROUND - 1 {
                    // some of an earlier round move, and one goes
                    let moved = (i - ROUND / 2..i - ROUND / 2 + 20).map(key);
                    let container = ContainerId(1000 + i);
                    let entries: Vec<_> = moved.map(|key| (key, Location { container })).collect();
                    again.try_twice(&mut *index, |index| index.insert(&entries));
                    (i - ROUND / 2..i - ROUND / 2 + 20)
                        .for_each(|number| history.insert(number, container));
                    again.try_twice(&mut *index, |index| index.remove(&[key(i)]));
                    history.remove(i);
                    again.try_twice(&mut *index, |index| index.checkpoint());
                }
            }
            let when = format!("{name}, write {number}");
            check(&mut *index, &history, &when);
            again.try_twice(&mut *index, |index| index.checkpoint());
            drop(index);
            let image = dir.crash_image(0);
            let mut index = open(Arc::new(image)).expect("open again");
            check(&mut *index, &history, &format!("{when}, opened again"));
            failures += again.failures;
        }
        assert!(failures > 5, "{name}: {failures}");
    }
}
