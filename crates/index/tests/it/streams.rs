//! Long streams that come again, in order: whole, woven into each other, broken off, or with new keys between; after
//! parts of them were moved, removed and retired, by this opener of `strata` or by another. Each stream is longer than
//! several windows of the log, so that lookups go on from cached pages into those behind them, of which some are
//! superseded or dropped.

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata};
use onefold_io::MemDir;
use std::sync::Arc;

use crate::conformance::options;
use crate::history::{History, Random, key};

/// Keys of a stream: some fifty log pages.
const STREAM: u64 = 6_000;
const STREAMS: u64 = 4;
const CONTAINER: u64 = 700;

struct Scene {
    dir: MemDir,
    openers: Vec<Strata>,
    history: History,
    random: Random,
    containers: u64,
    /// The newest container of each key.
    newest: Vec<u64>,
}

impl Scene {
    fn new(seed: u64, budget: usize) -> Scene {
        let dir = MemDir::new();
        let open = |unique| Strata::open(Arc::new(dir.clone()), options(unique, budget));
        Scene {
            openers: (1..=2).map(|unique| open(unique).expect("open")).collect(),
            dir,
            history: History::default(),
            random: Random(seed),
            containers: 0,
            newest: vec![0; (STREAM * STREAMS) as usize],
        }
    }

    fn any_opener(&mut self) -> usize {
        self.random.below(self.openers.len() as u64) as usize
    }

    /// Checkpoints one opener and refreshes the others.
    fn settle(&mut self, by: usize) {
        self.openers[by].checkpoint().expect("checkpoint");
        if self.random.below(2) == 0 {
            self.openers[by].merge_all().expect("merge");
        }
        for opener in &mut self.openers {
            opener.refresh().expect("refresh");
        }
    }

    /// A piece of a stream.
    fn piece(&mut self) -> std::ops::Range<u64> {
        let first = self.random.below(STREAMS) * STREAM + self.random.below(STREAM);
        let end = (first / STREAM + 1) * STREAM;
        first..end.min(first + self.random.below(3_000))
    }

    fn store(&mut self, by: usize, numbers: impl Iterator<Item = u64>) {
        for (place, number) in (0..).zip(numbers) {
            self.containers += u64::from(place % CONTAINER == 0);
            let container = ContainerId(self.containers);
            let entry = (key(number), Location { container });
            self.openers[by].insert(&[entry]).expect("insert");
            self.history.insert(number, container);
            self.newest[number as usize] = container.0;
        }
    }

    fn change(&mut self) {
        let (by, piece) = (self.any_opener(), self.piece());
        match self.random.below(4) {
            0 => self.store(by, piece),
            1 => {
                let keys: Vec<Fingerprint> = piece.clone().map(key).collect();
                self.openers[by].remove(&keys).expect("remove");
                piece.for_each(|number| self.history.remove(number));
            }
            // as a sweep does: live chunks of a container are stored anew, then it goes
            2 => {
                let gone = self.newest[piece.start as usize];
                let living: Vec<u64> = (0..STREAM * STREAMS)
                    .filter(|number| self.newest[*number as usize] == gone && number % 3 > 0)
                    .collect();
                self.store(by, living.into_iter());
                self.retire(by, gone);
            }
            _ => (1..4).for_each(|_| {
                let gone = self.random.below(self.containers) + 1;
                self.retire(by, gone);
            }),
        }
        self.settle(by);
    }

    fn retire(&mut self, by: usize, container: u64) {
        let container = ContainerId(container);
        self.openers[by].retire(&[container]).expect("retire");
        self.history.retire(container);
    }

    /// Keys in the order in which a backup asks for them.
    fn repeat(&mut self) -> Vec<u64> {
        let one = self.random.below(STREAMS) * STREAM;
        let other = self.random.below(STREAMS) * STREAM;
        let absent = STREAM * STREAMS;
        let every = 2 + self.random.below(400);
        match self.random.below(5) {
            0 => (one..one + STREAM).collect(),
            1 => (0..STREAM)
                .map(|at| [one, other][usize::from(at / every % 2 == 1)] + at)
                .collect(),
            2 => (0..STREAM)
                .map(|at| if at % every == 0 { absent } else { one } + at)
                .collect(),
            3 => (0..STREAM).rev().map(|at| one + at).collect(),
            _ => (0..20)
                .flat_map(|_| self.piece().take(every as usize))
                .collect(),
        }
    }

    fn look(&mut self) {
        let (by, numbers) = (self.any_opener(), self.repeat());
        let mut rest = &numbers[..];
        while !rest.is_empty() {
            let most = rest.len().min(700) as u64;
            let (some, behind) = rest.split_at(self.random.below(most) as usize + 1);
            rest = behind;
            let keys: Vec<Fingerprint> = some.iter().map(|number| key(*number)).collect();
            let mut found = vec![None; keys.len()];
            self.openers[by].lookup(&keys, &mut found).expect("lookup");
            for (number, found) in some.iter().zip(found) {
                self.history.check(*number, found);
            }
        }
    }
}

#[test]
fn long_streams_that_come_again_are_answered_as_they_were_told() {
    // with the larger budget the cache takes the whole log in
    for (seed, budget) in [
        (1, 1 << 20),
        (2, 1 << 20),
        (3, 1 << 20),
        (4, 12 << 20),
        (5, 12 << 20),
    ] {
        let mut scene = Scene::new(seed, budget);
        for stream in 0..STREAMS {
            let by = scene.any_opener();
            scene.store(by, stream * STREAM..(stream + 1) * STREAM);
            scene.settle(by);
        }
        for _ in 0..12 {
            (0..3).for_each(|_| scene.look());
            scene.change();
        }
        // deleted while open, and begun anew: no cached page of before may answer
        Strata::delete(&scene.dir).expect("delete");
        scene.history = History::default();
        let by = scene.any_opener();
        scene.store(by, (0..STREAM * STREAMS).rev());
        scene.settle(by);
        (0..6).for_each(|_| scene.look());
    }
}
