//! The suite of engines: batches of chunks, discards, commits and collection, against an array of contents.

use std::collections::BTreeSet;

use onefold_chunk::Fingerprint;
use onefold_io::Random;

use crate::{
    ChunkContent, ChunkRead, Effort, Engine, ExtentKind, HashedChunk, HeadChange, HeadId, Lbn,
};

/// How much the suite does, and with which random numbers.
#[derive(Clone, Copy, Debug)]
pub struct EngineTrial {
    /// The random numbers.
    pub seed: u64,
    /// How many steps it makes.
    pub steps: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// Chunks of the volume.
    pub lbns: u64,
    /// How many different contents there are. With more than the data device has room for, it runs full.
    pub contents: u64,
}

/// Runs the suite on head 0. `open` gives the engine, for the first time and whenever it was closed; what was written
/// before must still be there. The volume is all zeros at first.
pub fn engine(trial: EngineTrial, open: &mut dyn FnMut() -> Box<dyn Engine>) {
    let mut suite = EngineSuite {
        trial,
        engine: open(),
        twin: vec![0; trial.lbns as usize],
        ever: BTreeSet::new(),
        frozen: Vec::new(),
        snapshots: 0,
    };
    let mut random = Random(trial.seed);
    for _ in 0..trial.steps {
        match random.below(32) {
            0..14 => suite.write(&mut random),
            14..20 => suite.read(&mut random),
            20..23 => suite.discard(&mut random),
            23..26 => suite.engine.commit().expect("a commit"),
            26 => suite.engine.checkpoint().expect("a checkpoint"),
            27..29 => suite.collect(&mut random),
            29 => suite.check_extents(&mut random),
            30 => suite.check_space(),
            _ if random.one_in(2) => suite.change_heads(&mut random),
            _ if random.one_in(2) => {
                suite.engine.close().expect("the engine can be closed");
                suite.engine = open();
                suite.check(0, trial.lbns);
                suite.check_frozen();
            }
            _ => {}
        }
    }
    suite.check(0, trial.lbns);
    suite.collect(&mut random);
    suite.check(0, trial.lbns);
    suite.check_frozen();
}

struct EngineSuite {
    trial: EngineTrial,
    engine: Box<dyn Engine>,
    /// The content of each LBN, by its number; 0 is zeros.
    twin: Vec<u64>,
    /// Contents that were stored once: they may be known.
    ever: BTreeSet<u64>,
    /// Snapshots and clones, and what they hold.
    frozen: Vec<(HeadId, Vec<u64>)>,
    /// How many were made.
    snapshots: u64,
}

/// Snapshots at once.
const SNAPSHOTS_MAX: usize = 4;

const HEAD: HeadId = HeadId(0);

/// A content: half of them do not compress, others do more or less.
fn some_bytes(content: u64, chunk_bytes: usize) -> Vec<u8> {
    let noise = match content % 2 {
        0 => chunk_bytes,
        _ => 16 + content as usize % (chunk_bytes * 2 / 3),
    };
    let mut bytes = Random(content).bytes(noise);
    bytes.resize(chunk_bytes, 0);
    bytes
}

impl EngineSuite {
    fn bytes(&self, content: u64) -> Vec<u8> {
        match content {
            0 => vec![0; self.trial.chunk_bytes],
            content => some_bytes(content, self.trial.chunk_bytes),
        }
    }

    /// A batch of neighbours and others, with repetitions of LBNs and contents.
    fn write(&mut self, random: &mut Random) {
        let longest = [1, 8, 64][random.below(3) as usize];
        let count = 1 + random.below(longest);
        let mut lbn = random.below(self.trial.lbns);
        let mut batch = Vec::new();
        for _ in 0..count {
            let content = random.below(self.trial.contents);
            let is_dedup = !random.one_in(6);
            let has_page = !random.one_in(12);
            batch.push((lbn, content, self.bytes(content), is_dedup, has_page));
            lbn = match random.below(4) {
                0 => random.below(self.trial.lbns),
                1 => lbn,
                _ => (lbn + 1) % self.trial.lbns,
            };
        }
        let chunks: Vec<_> = batch
            .iter()
            .map(|(lbn, content, bytes, is_dedup, has_page)| HashedChunk {
                head: HEAD,
                lbn: Lbn(*lbn),
                content: match (*content, *is_dedup) {
                    (0, _) => ChunkContent::Zero,
                    (_, true) => ChunkContent::Fingerprinted(Fingerprint::of(bytes), bytes),
                    (_, false) => ChunkContent::NoDedup(bytes),
                },
                has_page: *has_page,
                is_metadata: false,
                is_incompressible: false,
            })
            .collect();
        let before = self.engine.free_space();
        let refused = self.engine.write(&chunks).expect("a write");
        assert!(refused.is_sorted_by(|a, b| a < b) && refused.iter().all(|at| *at < batch.len()));
        let refused: BTreeSet<_> = refused.into_iter().collect();
        let pages_wanted = batch.iter().filter(|(.., has_page)| *has_page).count() as u64;
        let is_roomy = before.free >= before.reserved + pages_wanted;
        for (at, (lbn, content, _, _, has_page)) in batch.into_iter().enumerate() {
            if !refused.contains(&at) {
                self.twin[lbn as usize] = content;
                self.ever.insert(content);
                continue;
            }
            assert_ne!(content, 0, "{:?}: zeros need no page", self.trial);
            assert!(!(has_page && is_roomy), "{:?}: a page was left", self.trial);
        }
        if random.one_in(3) {
            self.check(lbn, 1);
        }
    }

    /// Makes or deletes a snapshot or clone, of engines that keep some, and looks at the others.
    fn change_heads(&mut self, random: &mut Random) {
        if self.engine.heads().is_empty() {
            return;
        }
        if self.frozen.len() == SNAPSHOTS_MAX || !self.frozen.is_empty() && random.one_in(3) {
            let at = random.below(self.frozen.len() as u64) as usize;
            let (head, _) = self.frozen.swap_remove(at);
            let deleted = self.engine.change_heads(&HeadChange::Delete { head });
            assert_eq!(deleted.expect("it can be deleted"), head);
        } else {
            self.snapshots += 1;
            let is_writable = random.one_in(3);
            let name = if is_writable {
                format!("clone{}", self.snapshots)
            } else {
                format!("main@{}", self.snapshots)
            };
            let copied = self.engine.change_heads(&HeadChange::Copy {
                from: HEAD,
                name,
                is_writable,
                created: self.snapshots,
            });
            let head = copied.expect("a copy");
            self.frozen.push((head, self.twin.clone()));
        }
        self.check_frozen();
    }

    fn check_frozen(&mut self) {
        self.engine.write_out().expect("the device takes it");
        let reader = self.engine.reader();
        for (head, contents) in &self.frozen {
            let mut buffer = vec![0xEE; contents.len() * self.trial.chunk_bytes];
            let lbn = Lbn(0);
            let mut reads = [ChunkRead {
                lbn,
                buffer: &mut buffer,
            }];
            reader.read(*head, &mut reads).expect("a read");
            for (found, (lbn, content)) in buffer
                .chunks(self.trial.chunk_bytes)
                .zip(contents.iter().enumerate())
            {
                assert!(
                    found == self.bytes(*content),
                    "{:?}: chunk {lbn} of {head:?} does not hold content {content}",
                    self.trial
                );
            }
        }
    }

    fn read(&mut self, random: &mut Random) {
        let first = random.below(self.trial.lbns);
        let count = 1 + random.below((self.trial.lbns - first).min(40));
        self.check(first, count);
    }

    /// Reads chunks in one call: some by themselves, some together.
    fn check(&mut self, first: u64, count: u64) {
        self.engine.write_out().expect("the device takes it");
        let mut memory = vec![0xEE; count as usize * self.trial.chunk_bytes];
        let mut reads = Vec::new();
        let mut rest = &mut memory[..];
        let mut lbn = first;
        for step in [1, 3, 2, 7, 1, 12].into_iter().cycle() {
            let chunks = step.min(first + count - lbn);
            let (now, later) = rest.split_at_mut(chunks as usize * self.trial.chunk_bytes);
            rest = later;
            reads.push(ChunkRead {
                lbn: Lbn(lbn),
                buffer: now,
            });
            lbn += chunks;
            if lbn == first + count {
                break;
            }
        }
        // Chunks that are remembered may be written anew, freed or moved before its content comes again.
        let name = |chunks: &[&[u8]]| chunks.iter().copied().map(Fingerprint::of).collect();
        let reader = self.engine.reader();
        let done = if first.is_multiple_of(2) {
            reader.read_and_remember(HEAD, &mut reads, &name)
        } else {
            reader.read(HEAD, &mut reads)
        };
        done.expect("a read");
        drop(reads);
        for (found, lbn) in memory.chunks(self.trial.chunk_bytes).zip(first..) {
            let expected = self.twin[lbn as usize];
            assert!(
                found == self.bytes(expected),
                "{:?}: chunk {lbn} does not hold content {expected}",
                self.trial
            );
        }
    }

    fn discard(&mut self, random: &mut Random) {
        let first = random.below(self.trial.lbns);
        let left = self.trial.lbns - first;
        let longest = left.min([3, 60, left][random.below(3) as usize]);
        let count = 1 + random.below(longest);
        self.engine
            .discard(HEAD, first..first + count)
            .expect("a discard");
        self.twin[first as usize..(first + count) as usize].fill(0);
    }

    fn collect(&mut self, random: &mut Random) {
        let effort = if random.one_in(2) {
            Effort::Whole
        } else {
            Effort::Step
        };
        self.engine.write_out().expect("the device takes it");
        let before = self.engine.free_space();
        let done = self.engine.collect(effort).expect("a collection");
        let after = self.engine.free_space();
        assert!(
            after.free >= before.free,
            "{:?}: {before:?}, {done:?}, {after:?}",
            self.trial
        );
        if effort == Effort::Whole {
            assert!(!done.is_more);
            // Now every engine has looked at all of its map.
            let frozen = self.frozen.iter().flat_map(|(_, contents)| contents);
            let all = self.twin.iter().chain(frozen);
            let mapped = all.filter(|content| **content != 0).count() as u64;
            assert_eq!(self.engine.stats().mapped_lbns, mapped, "{:?}", self.trial);
        }
    }

    fn check_extents(&mut self, random: &mut Random) {
        self.engine.write_out().expect("the device takes it");
        let first = random.below(self.trial.lbns);
        let end = first + 1 + random.below(self.trial.lbns - first);
        let mut at = first;
        let visit = &mut |lbns: std::ops::Range<u64>, kind| {
            assert_eq!(lbns.start, at);
            assert!(lbns.end > at && lbns.end <= end);
            for lbn in lbns.clone() {
                let is_zero = self.twin[lbn as usize] == 0;
                assert!(
                    kind == ExtentKind::Data || is_zero,
                    "{:?}: a hole at {lbn}",
                    self.trial
                );
            }
            at = lbns.end;
            true
        };
        self.engine
            .reader()
            .extents(HEAD, first..end, visit)
            .expect("extents");
        assert_eq!(at, end);
    }

    /// Stored and free pages together are at most all pages.
    fn check_space(&mut self) {
        self.engine.write_out().expect("the device takes it");
        let (space, stats) = (self.engine.free_space(), self.engine.stats());
        assert!(space.free <= space.total && space.reserved <= space.total);
        assert!(space.reclaimable <= stats.stored_chunks);
        assert!(stats.stored_chunks + space.free <= space.total);
    }
}
