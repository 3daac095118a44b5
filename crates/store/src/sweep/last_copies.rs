//! Whether what is to go is the last good copy of what roots refer to elsewhere: two containers may hold a chunk, and the one that is referred to may be damaged.
//!
//! What always holds: before a container goes, each chunk of it that roots refer to in another one is read and verified there; where that fails, the container
//! stays. RAM is the same whatever there is: a filter of some millions of chunks of what goes, and so many references at a time. What has no other copy costs a
//! look at a table, and for each such million a look at all references.

use std::collections::HashSet;
use std::ops::Range;

use onefold_chunk::Fingerprint;
use onefold_index::filters::BlockedBloom;
use onefold_index::{ContainerId, Filter};

use super::choose::Live;
use super::judge::Verdict;
use super::{Progress, SweepObserver};
use crate::Result;
use crate::marks::{ContainerMarks, Marks};
use crate::reader::ChunkReader;

/// Of the filter for each chunk that goes: it errs about one in two thousand. Were it fuller, nearly all references of a
/// large repository would be looked for, and the tables of what goes read again for every [`SUSPECTS`] of them.
const FILTER_BYTES_A_CHUNK: usize = 2;
const FILTER_BYTES_MAX: usize = 16 << 20;
/// Chunks of what goes that are in the filter at once.
const CHUNKS_AT_ONCE: u64 = (FILTER_BYTES_MAX / FILTER_BYTES_A_CHUNK) as u64;
/// References that are looked for at once in what goes: of 56 bytes.
const SUSPECTS: usize = 1 << 17;

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
    /// Chunks of those.
    filter: BlockedBloom,
    suspects: Vec<Suspect>,
    staying: &'a mut HashSet<ContainerId>,
}

/// Of the containers that are to go, those that must not: one that is referred to should hold a chunk of theirs, and does not give it.
pub(super) fn last_copies(
    reader: &mut ChunkReader,
    verdict: &Verdict,
    marks: &mut Marks,
    observer: &mut dyn SweepObserver,
) -> Result<HashSet<ContainerId>> {
    let dead = verdict.dead.iter().map(|id| (*id, None));
    let compact = verdict.compact.iter().map(|one| (one.id, Some(&one.live)));
    let going: Vec<Going<'_>> = dead.chain(compact).collect();
    let (mut staying, mut rest, mut done) = (HashSet::new(), &going[..], 0);
    while !rest.is_empty() {
        let (count, chunks) = at_once(reader, rest);
        let (going, later) = rest.split_at(count);
        rest = later;
        let mut copies = LastCopies {
            filter: filter_of(reader, going, chunks)?,
            reader: &mut *reader,
            going,
            suspects: Vec::new(),
            staying: &mut staying,
        };
        marks.for_each(&mut |marks| {
            done += 1;
            observer.progress(Progress {
                stage: "looking for last copies",
                done,
                total: 0,
            });
            copies.suspect(&marks)
        })?;
        copies.settle()?;
    }
    Ok(staying)
}

/// How many of `going`, which are some, are looked at together, and the chunks in them.
fn at_once(reader: &ChunkReader, going: &[Going<'_>]) -> (usize, u64) {
    let mut chunks = reader.chunks_in(going[0].0);
    let fit = going[1..].iter().take_while(|(id, _)| {
        let with = chunks + reader.chunks_in(*id);
        let fits = with <= CHUNKS_AT_ONCE;
        chunks = if fits { with } else { chunks };
        fits
    });
    let count = 1 + fit.count();
    (count, chunks)
}

/// A filter for so many chunks.
fn filter_for(chunks: u64) -> Result<BlockedBloom> {
    let bytes = (chunks as usize * FILTER_BYTES_A_CHUNK).clamp(1 << 10, FILTER_BYTES_MAX);
    Ok(BlockedBloom::with_bytes(bytes, chunks.max(1))?)
}

/// A filter of what goes, of so many `chunks`.
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
            let keys: Vec<_> = prefixes.iter().map(|prefix| key(*prefix)).collect();
            let mut is_there = vec![false; keys.len()];
            self.filter.may_contain(&keys, &mut is_there)?;
            let met = prefixes.iter().zip(is_there).filter(|(_, met)| *met);
            self.suspects.extend(met.map(|(prefix, _)| Suspect {
                prefix: *prefix,
                holder: marks.id,
                twin: None,
            }));
        }
        match self.suspects.len() >= SUSPECTS {
            true => self.settle(),
            false => Ok(()),
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
        let read = self
            .reader
            .read_container(first.holder, &wanted, &mut |_, _| Ok(()));
        match read {
            Err(error) if error.is_loss() || error.is_other_version() => {
                tracing::warn!("{error}: other copies of what is there stay");
                Ok(false)
            }
            other => Ok(other?.is_empty()),
        }
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

/// A prefix as the filter takes keys: little-endian words, of which it goes by the highest bits, where a product has all
/// bits of its factors.
fn key(prefix: u64) -> Fingerprint {
    let mut key = [0; 32];
    // 2⁶⁴ ÷ φ, and an odd number of as many ones as zeros.
    let words = [1, 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93_u64];
    for (bytes, factor) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&prefix.wrapping_mul(factor).to_le_bytes());
    }
    Fingerprint(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_does_not_go_the_filter_tells_nearly_all_apart() {
        for chunks in [100, 4_000, 62_000, 1_000_000] {
            let mut filter = filter_for(chunks).unwrap();
            let key = |number: u64| key(Fingerprint::of(&number.to_le_bytes()).prefix());
            let keys: Vec<_> = (0..chunks).map(key).collect();
            filter.insert(&keys).unwrap();
            let absent: Vec<_> = (chunks..chunks + 10_000).map(key).collect();
            let mut met = vec![false; absent.len()];
            filter.may_contain(&absent, &mut met).unwrap();
            let met = met.iter().filter(|met| **met).count();
            assert!(met < 50, "{met} of 10,000 beside {chunks} chunks");
        }
    }
}
