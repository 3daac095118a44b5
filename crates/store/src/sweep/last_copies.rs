//! Whether a container that is to go has the last good copy of a chunk that roots refer to in another container: two
//! containers may hold a chunk, and the one that is referred to may be damaged.
//!
//! Invariant: before a container goes, each chunk of it that roots refer to in another one is read and verified there;
//! where that fails, the container stays. RAM does not grow with the repository: it is a filter of some millions of
//! chunks that go, and a bounded list of references. A reference to a chunk that has no other copy costs two looks at a
//! table. Where more chunks go than the filter holds, references are sifted first, by one look at all of them (`sift`);
//! only where there is no room for that, each filter's worth of chunks costs a look at all of them.

use std::collections::HashSet;
use std::ops::Range;

use onefold_chunk::Fingerprint;
use onefold_index::filters::BlockedBloom;
use onefold_index::{ContainerId, Filter};

use super::chunk_filter::{CHUNKS_AT_ONCE, filter_for, key, met};
use super::plan::{Live, SweepPlan};
use super::sift::sift;
use super::{StageProgress, SweepObserver};
use crate::Result;
use crate::error::tolerate;
use crate::reader::ChunkReader;
use crate::sweep::marks::{ContainerMarks, Marks};

/// References that are looked for at once in what goes: of 56 bytes.
const SUSPECTS: usize = 1 << 17;

/// Numbers of chunks and references that are looked for together.
#[derive(Clone, Copy)]
struct LookLimits {
    /// Chunks of what goes.
    chunks_at_once: u64,
    /// Largest number of references that are looked for in all containers that go, without a filter.
    few: u64,
}

const LIMITS: LookLimits = LookLimits {
    chunks_at_once: CHUNKS_AT_ONCE,
    few: SUSPECTS as u64,
};

/// A container that is to go, and which of its chunks are copied before.
type Going<'a> = (ContainerId, Option<&'a Live>);

/// A chunk of a container that roots refer to, which one that goes may hold, too.
struct Suspect {
    prefix: u64,
    holder: ContainerId,
    /// The chunk, where one that goes does hold it.
    twin: Option<Fingerprint>,
}

/// Finds what must stay.
struct LastCopies<'a> {
    reader: &'a mut ChunkReader,
    /// Some of those that are to go.
    going: &'a [Going<'a>],
    /// Chunks of those; none where references are so few that all are looked for.
    filter: Option<BlockedBloom>,
    suspects: Vec<Suspect>,
    staying: &'a mut HashSet<ContainerId>,
}

/// Returns the containers that were to go and must not: a container that is referred to should hold one of their
/// chunks, and does not give it.
pub(super) fn last_copies(
    reader: &mut ChunkReader,
    plan: &SweepPlan,
    marks: &mut Marks,
    observer: &mut dyn SweepObserver,
) -> Result<HashSet<ContainerId>> {
    let dead = plan.dead.iter().map(|id| (*id, None));
    let compact = plan.compact.iter().map(|one| (one.id, Some(&one.live)));
    let going: Vec<Going<'_>> = dead.chain(compact).collect();
    let mut looked = 0;
    let mut look = || {
        looked += 1;
        observer.progress(StageProgress {
            stage: "looking for last copies",
            done: looked,
            total: 0,
        });
    };
    find(reader, &going, marks, LIMITS, &mut look)
}

/// Finds the last copies within `limits`.
fn find(
    reader: &mut ChunkReader,
    going: &[Going<'_>],
    marks: &mut Marks,
    limits: LookLimits,
    look: &mut dyn FnMut(),
) -> Result<HashSet<ContainerId>> {
    let counts: Vec<u64> = going.iter().map(|(id, _)| reader.chunks_in(*id)).collect();
    let all: u64 = counts.iter().sum();
    let mut sifted = match marks.file() {
        Some(file) if all > limits.chunks_at_once => sift(
            &file,
            (all, limits.chunks_at_once),
            &mut |visit| for_each_chunk(reader, going, &mut |_, one| visit(one.prefix())),
            &mut |visit| {
                marks.for_each(&mut |marks| {
                    look();
                    visit(marks)
                })
            },
        )?,
        _ => None,
    };
    let are_few = sifted
        .as_ref()
        .is_some_and(|sifted| sifted.references <= limits.few);
    let marks = sifted.as_mut().map_or(marks, |sifted| &mut sifted.marks);
    let (mut staying, mut done) = (HashSet::new(), 0);
    while done < going.len() {
        let (count, chunks) = if are_few {
            (going.len(), all)
        } else {
            at_once(&counts[done..], limits.chunks_at_once)
        };
        let lot = &going[done..done + count];
        done += count;
        let mut copies = LastCopies {
            filter: if are_few {
                None
            } else {
                Some(filter_of(reader, lot, chunks)?)
            },
            reader: &mut *reader,
            going: lot,
            suspects: Vec::new(),
            staying: &mut staying,
        };
        marks.for_each(&mut |marks| {
            look();
            copies.suspect(&marks)
        })?;
        copies.settle()?;
    }
    Ok(staying)
}

/// Returns the number of containers that are looked at together, and their chunks; `counts` are the chunks that are
/// left in each container.
fn at_once(counts: &[u64], chunks_at_once: u64) -> (usize, u64) {
    let mut chunks = 0;
    let fits = |count: &&u64| {
        let fits = chunks == 0 || chunks + **count <= chunks_at_once;
        chunks += if fits { **count } else { 0 };
        fits
    };
    let count = counts.iter().take_while(fits).count();
    (count.max(1), chunks)
}

/// Makes a filter of the chunks that go, `chunks` in number.
fn filter_of(reader: &mut ChunkReader, going: &[Going<'_>], chunks: u64) -> Result<BlockedBloom> {
    let mut filter = filter_for(chunks)?;
    for_each_chunk(reader, going, &mut |_, fingerprint| {
        Ok(filter.insert(&[key(fingerprint.prefix())])?)
    })?;
    Ok(filter)
}

impl LastCopies<'_> {
    /// Takes what is referred to in one container.
    fn suspect(&mut self, marks: &ContainerMarks) -> Result<()> {
        for prefixes in marks.prefixes.chunks(512) {
            let is_there = match &mut self.filter {
                Some(filter) => met(filter, prefixes)?,
                None => vec![true; prefixes.len()],
            };
            let met = prefixes.iter().zip(is_there).filter(|(_, met)| *met);
            self.suspects.extend(met.map(|(prefix, _)| Suspect {
                prefix: *prefix,
                holder: marks.id,
                twin: None,
            }));
        }
        if self.suspects.len() >= SUSPECTS {
            self.settle()
        } else {
            Ok(())
        }
    }

    /// Reads those that one that goes does hold, and keeps what holds those that cannot be read.
    fn settle(&mut self) -> Result<()> {
        let mut suspects = std::mem::take(&mut self.suspects);
        if suspects.is_empty() {
            return Ok(());
        }
        suspects.sort_unstable_by_key(|one| (one.prefix, one.holder));
        for_each_chunk(self.reader, self.going, &mut |id, fingerprint| {
            let same = range(&suspects, fingerprint.prefix());
            for one in &mut suspects[same] {
                if one.holder != id {
                    one.twin = Some(*fingerprint);
                }
            }
            Ok(())
        })?;
        suspects.retain(|one| one.twin.is_some());
        suspects.sort_unstable_by_key(|one| one.holder);
        let mut lost = HashSet::new();
        for held in suspects.chunk_by(|a, b| a.holder == b.holder) {
            if !self.gives(held)? {
                lost.extend(held.iter().map(|one| one.prefix));
            }
        }
        if !lost.is_empty() {
            let staying = &mut *self.staying;
            for_each_chunk(self.reader, self.going, &mut |id, fingerprint| {
                if lost.contains(&fingerprint.prefix()) {
                    staying.insert(id);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether these chunks, of one container, can be read there: that a table names them is not enough.
    fn gives(&mut self, held: &[Suspect]) -> Result<bool> {
        let Some(first) = held.first() else {
            return Ok(true);
        };
        let wanted: Vec<_> = held.iter().filter_map(|one| one.twin).collect();
        // A copy of its table on this machine says nothing of what is there.
        self.reader.read_table_anew(first.holder);
        let read = self
            .reader
            .read_container(first.holder, &wanted, &mut |_, _| Ok(()));
        let lost = tolerate(read, |error| {
            tracing::warn!("{error}: other copies of what is there stay");
        })?;
        Ok(lost.is_some_and(|lost| lost.is_empty()))
    }
}

/// The suspects, which are sorted, of this prefix.
fn range(suspects: &[Suspect], prefix: u64) -> Range<usize> {
    let start = suspects.partition_point(|one| one.prefix < prefix);
    let more = suspects[start..].iter();
    start..start + more.take_while(|one| one.prefix == prefix).count()
}

/// Gives `visit` the chunks of what goes that are not copied before. What cannot be opened has nothing to give.
fn for_each_chunk(
    reader: &mut ChunkReader,
    going: &[Going<'_>],
    visit: &mut dyn FnMut(ContainerId, &Fingerprint) -> Result<()>,
) -> Result<()> {
    for (id, live) in going {
        let opened = match live {
            // Which of them live is told by their numbers in a table that is whole.
            Some(_) => reader.open(*id),
            None => reader.open_what_is_left(*id),
        };
        let opened = match opened {
            Err(error) if error.is_not_found() || error.is_loss() => continue,
            other => other?,
        };
        for (number, (fingerprint, _)) in (0..).zip(&opened.table.chunks) {
            if live.is_none_or(|live| !live.contains(number)) {
                visit(*id, fingerprint)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_io::Dir;
    use onefold_io::sim::{Faults, SimDir};

    use super::*;
    use crate::sweep::marks::MarkOrigin;
    use crate::{
        ChunkRef, Encryption, Entropy, InitOptions, OpenOptions, Repository, SessionKind,
        StreamKind, container,
    };

    const CHUNKS: u64 = 400;
    /// More than what filters let through in vain, besides.
    const FEW: u64 = 10_000;

    /// A repository with containers of some thirty chunks.
    fn repository(device: &SimDir) -> Repository {
        let dir: Arc<dyn Dir> = Arc::new(device.clone());
        let mut init = InitOptions::new("test", 1);
        init.encryption = Encryption::None;
        init.entropy = Entropy::seeded(1);
        Repository::init(Arc::clone(&dir), &init, None).unwrap();
        let options = OpenOptions {
            threads: 1,
            container_bytes: 16 << 10,
            block_bytes: Some(4 << 10),
            index_ram_bytes: 1 << 20,
            entropy: Entropy::seeded(2),
            ..OpenOptions::default()
        };
        Repository::open(dir, options, None).unwrap()
    }

    /// Stores the same chunks by two sessions that run at once; returns the references of each.
    fn stored_twice(repository: &Repository) -> [Vec<ChunkRef>; 2] {
        let sessions = [(); 2].map(|()| repository.session(SessionKind::Backup).unwrap());
        let mut writers = sessions
            .each_ref()
            .map(|session| session.writer(StreamKind::Data).unwrap());
        let mut refs = [const { Vec::new() }; 2];
        for i in 0..CHUNKS {
            let mut data = [0; 500];
            blake3::Hasher::new()
                .update(&i.to_le_bytes())
                .finalize_xof()
                .fill(&mut data);
            let named = [(repository.fingerprinter().fingerprint(&data), &data[..])];
            for (writer, refs) in writers.iter_mut().zip(&mut refs) {
                writer.write(&named, refs).unwrap();
            }
        }
        for writer in writers {
            writer.finish().unwrap();
        }
        refs
    }

    /// Makes marks of `refs` and of a million chunks that are nowhere, so that they are spilled.
    fn many_marks(device: &SimDir, refs: &[ChunkRef]) -> Marks {
        let mut marks = Marks::new(device).unwrap();
        for one in refs {
            marks
                .add(one.container, &one.fingerprint, MarkOrigin::Direct)
                .unwrap();
        }
        for i in 0..1_100_000 {
            let prefix = onefold_io::mix64(i);
            let origin = MarkOrigin::Direct;
            marks
                .add_prefix(ContainerId(i % 7), prefix, origin)
                .unwrap();
        }
        assert!(marks.file().is_some());
        marks
    }

    #[test]
    fn the_same_stays_however_few_chunks_are_looked_for_at_once() {
        let device = SimDir::new(1);
        let repository = repository(&device);
        let [kept, twice] = stored_twice(&repository);
        let mut going: Vec<ContainerId> = twice.iter().map(|one| one.container).collect();
        going.sort_unstable();
        going.dedup();
        let lost = kept[CHUNKS as usize / 2].container;
        assert!(!going.contains(&lost) && going.len() > 4);
        let flip = |bytes: &mut Vec<u8>| bytes[100] ^= 1;
        device.damage(&container::object_name(lost), flip).unwrap();
        // Those that hold what is in the block that cannot be read.
        let session = repository.session(SessionKind::Read).unwrap();
        let mut reader = session.reader().unwrap();
        let gives = |reader: &mut ChunkReader, one: &ChunkRef| {
            let wanted = [one.fingerprint];
            let read = reader.read_container(one.container, &wanted, &mut |_, _| Ok(()));
            matches!(read, Ok(missing) if missing.is_empty())
        };
        let both = kept.iter().zip(&twice);
        let lost = both.filter(|(one, _)| !gives(&mut reader, one));
        let expected: HashSet<_> = lost.map(|(_, twin)| twin.container).collect();
        assert!(!expected.is_empty() && expected.len() < going.len());

        let all: Vec<Going<'_>> = going.iter().map(|id| (*id, None)).collect();
        let mut marks = many_marks(&device, &kept);
        let reader = &mut reader;
        let mut look_within = |chunks_at_once, few| {
            let limits = LookLimits {
                chunks_at_once,
                few,
            };
            let mut looked = 0;
            let staying = find(reader, &all, &mut marks, limits, &mut || looked += 1).unwrap();
            assert_eq!(staying, expected, "{chunks_at_once} at once, {few} are few");
            looked
        };
        let once = look_within(CHUNKS_AT_ONCE, 0);
        for chunks_at_once in [100, 1] {
            // All of them once, and what came of it.
            let looked = look_within(chunks_at_once, FEW);
            assert!(looked <= 2 * once, "{looked}, all are {once}");
            look_within(chunks_at_once, 0);
        }
        device.inject(Faults {
            capacity_bytes: Some(0),
            ..Faults::default()
        });
        let looked = look_within(100, FEW);
        assert!(
            looked > 2 * once,
            "without room all are looked at for each lot"
        );
    }
}
