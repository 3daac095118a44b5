//! Marks: which chunks of which containers the roots refer to, in bounded RAM.
//!
//! A mark is (container, first eight bytes of the fingerprint, how the reference came there). Marks gather in a buffer
//! of fixed size, are sorted and spilled to a file, and are merged in order of container. What is deleted hangs on
//! them, so each piece of the file has a checksum.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::{Dir, ErrorKind};

use crate::Result;
use crate::sweep::spilled::{CHECKSUM_BYTES, SCRATCH_FOLDER, SPILLED, Spilled, seal};

/// Marks in RAM before they are spilled: 17 bytes each.
const BUFFER_MARKS: usize = 1 << 20;
const MARK_BYTES: usize = 17;
/// Marks that are read back at once; behind them stands their checksum.
const PIECE_MARKS: usize = 4096;
/// A piece is longer only by its checksum.
const PIECE_BYTES: usize = PIECE_MARKS * MARK_BYTES + CHECKSUM_BYTES;

/// How a reference comes to a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MarkOrigin {
    /// The reference names the container.
    Direct = 0,
    /// The index led here, from a container that is gone, or may go.
    Followed = 1,
}

impl From<u8> for MarkOrigin {
    fn from(byte: u8) -> Self {
        match byte {
            0 => Self::Direct,
            _ => Self::Followed,
        }
    }
}

/// Container, fingerprint prefix, way there.
type Mark = (u64, u64, MarkOrigin);

/// Gathers marks.
pub struct Marks {
    /// Where they are spilled to; without, into a nameless file.
    folder: Option<Arc<dyn Dir>>,
    buffer: Vec<Mark>,
    spilled: Option<Arc<Spilled>>,
    /// Sorted runs, by where they lie there.
    runs: Vec<Range<u64>>,
}

/// References that roots have to one container.
pub struct ContainerMarks {
    /// The container.
    pub id: ContainerId,
    /// Prefixes of the fingerprints, sorted.
    pub prefixes: Vec<u64>,
    /// Whether any reference did not name it: then the presence of all must be proved.
    pub followed: bool,
}

impl Marks {
    /// No marks, which are spilled into the repository: only the holder of the sweep's lock may have any.
    pub fn new(root: &dyn Dir) -> Result<Self> {
        let folder = root.subdir(SCRATCH_FOLDER)?;
        match folder.remove(SPILLED) {
            Err(_) if folder.open_subdir(SPILLED).is_ok() => {
                tracing::warn!(
                    "{SCRATCH_FOLDER}/{SPILLED} is a folder, and none of ours: it stays, and a temporary file takes its place"
                );
                return Ok(Self::temporary());
            }
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut marks = Self::temporary();
        marks.folder = Some(folder);
        Ok(marks)
    }

    /// No marks, which are spilled into a temporary file: for whoever may only read the repository.
    pub fn temporary() -> Self {
        Self {
            folder: None,
            buffer: Vec::new(),
            spilled: None,
            runs: Vec::new(),
        }
    }

    /// No marks, which are spilled behind what is in the file of others.
    pub(crate) fn behind(file: &Arc<Spilled>) -> Self {
        let mut marks = Self::temporary();
        marks.spilled = Some(Arc::clone(file));
        marks
    }

    /// Returns the working file, if marks were spilled.
    pub(crate) fn file(&self) -> Option<Arc<Spilled>> {
        self.spilled.clone()
    }

    /// Adds a mark.
    pub fn add(
        &mut self,
        container: ContainerId,
        fingerprint: &Fingerprint,
        origin: MarkOrigin,
    ) -> Result<()> {
        self.add_prefix(container, fingerprint.prefix(), origin)
    }

    /// Adds a mark, of whose fingerprint the beginning is known.
    pub(crate) fn add_prefix(
        &mut self,
        container: ContainerId,
        prefix: u64,
        origin: MarkOrigin,
    ) -> Result<()> {
        self.buffer.push((container.0, prefix, origin));
        if self.buffer.len() >= BUFFER_MARKS {
            self.spill()?;
        }
        Ok(())
    }

    /// Returns a function that takes the marks of a [`Marker`].
    pub fn taker(&mut self) -> impl FnMut(ContainerId, &Fingerprint, MarkOrigin) -> Result<()> {
        |container, fingerprint, origin| self.add(container, fingerprint, origin)
    }

    fn settle(&mut self) {
        self.buffer.sort_unstable();
        self.buffer.dedup();
    }

    fn spill(&mut self) -> Result<()> {
        self.settle();
        if self.buffer.len() < BUFFER_MARKS / 2 {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity((self.buffer.len() / PIECE_MARKS + 1) * PIECE_BYTES);
        for piece in self.buffer.chunks(PIECE_MARKS) {
            let start = bytes.len();
            for (container, prefix, origin) in piece {
                bytes.extend_from_slice(&container.to_le_bytes());
                bytes.extend_from_slice(&prefix.to_le_bytes());
                bytes.push(*origin as u8);
            }
            seal(&mut bytes, start);
        }
        self.buffer.clear();
        let spilled = match &self.spilled {
            Some(spilled) => spilled,
            None => {
                let made = Spilled::create(self.folder.as_deref())?;
                self.spilled.insert(Arc::new(made))
            }
        };
        let start = spilled.append(&bytes)?;
        self.runs.push(start..start + bytes.len() as u64);
        Ok(())
    }

    /// Gives all marks, a container at a time, in order of container.
    pub fn for_each(&mut self, visit: &mut dyn FnMut(ContainerMarks) -> Result<()>) -> Result<()> {
        self.settle();
        let mut sources: Vec<MarkSource> = Vec::new();
        if let Some(spilled) = &self.spilled {
            sources.extend(self.runs.iter().map(|run| MarkSource {
                run: Some((spilled, run.clone())),
                ready: Cow::default(),
                at: 0,
            }));
        }
        sources.push(MarkSource {
            run: None,
            ready: Cow::Borrowed(&self.buffer),
            at: 0,
        });
        merge(&mut sources, visit)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        if let (Some(folder), Some(_)) = (&self.folder, &self.spilled) {
            // One that stays is removed by the next.
            let _ = folder.remove(SPILLED);
        }
    }
}

fn merge(
    sources: &mut [MarkSource<'_>],
    visit: &mut dyn FnMut(ContainerMarks) -> Result<()>,
) -> Result<()> {
    let mut heap = BinaryHeap::new();
    for (i, source) in sources.iter_mut().enumerate() {
        heap.extend(source.next()?.map(|mark| Reverse((mark, i))));
    }
    let mut current: Option<ContainerMarks> = None;
    while let Some(Reverse(((container, prefix, origin), i))) = heap.pop() {
        heap.extend(sources[i].next()?.map(|mark| Reverse((mark, i))));
        let id = ContainerId(container);
        if current.as_ref().is_none_or(|marks| marks.id != id)
            && let Some(whole) = current.replace(ContainerMarks {
                id,
                prefixes: Vec::new(),
                followed: false,
            })
        {
            visit(whole)?;
        }
        let marks = current.as_mut().expect("it was just set");
        marks.followed |= origin != MarkOrigin::Direct;
        if marks.prefixes.last() != Some(&prefix) {
            marks.prefixes.push(prefix);
        }
    }
    current.map_or(Ok(()), visit)
}

/// A sorted run, read a piece at a time; or the marks in RAM.
struct MarkSource<'a> {
    /// The run and the part of it that is not read yet; `None` for marks in RAM.
    run: Option<(&'a Spilled, Range<u64>)>,
    ready: Cow<'a, [Mark]>,
    /// Number of the next mark in `ready`.
    at: usize,
}

impl MarkSource<'_> {
    fn next(&mut self) -> Result<Option<Mark>> {
        if let Some(mark) = self.ready.get(self.at) {
            self.at += 1;
            return Ok(Some(*mark));
        }
        let Some((spilled, left)) = &mut self.run else {
            return Ok(None);
        };
        let stored_bytes = (left.end - left.start).min(PIECE_BYTES as u64);
        let marks = spilled.piece(left.start, stored_bytes as usize)?;
        left.start += stored_bytes;
        let (marks, _) = marks.as_chunks::<MARK_BYTES>();
        let marks: Vec<Mark> = marks
            .iter()
            .map(|mark| (number(&mark[..8]), number(&mark[8..16]), mark[16].into()))
            .collect();
        (self.ready, self.at) = (marks.into(), 1);
        Ok(self.ready.first().copied())
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onefold_io::MemDir;

    use super::*;

    #[test]
    fn marks_that_are_spilled_come_back_sorted_and_once_wherever_they_were() {
        let marks = || {
            let one = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            (0..5 * BUFFER_MARKS as u64 / 2).map(move |i| {
                (
                    one(i) % 7,
                    one(i),
                    [MarkOrigin::Direct, MarkOrigin::Followed][usize::from(i % 1000 == 0)],
                )
            })
        };
        let expected: BTreeSet<(u64, u64)> = marks().map(|(id, prefix, _)| (id, prefix)).collect();
        let dir = MemDir::new();
        for mut gathered in [Marks::new(&dir).unwrap(), Marks::temporary()] {
            for (id, prefix, origin) in marks() {
                let mut fingerprint = Fingerprint([0; 32]);
                fingerprint.0[..8].copy_from_slice(&prefix.to_be_bytes());
                gathered.add(ContainerId(id), &fingerprint, origin).unwrap();
            }
            assert!(gathered.runs.len() > 1, "{:?}", gathered.runs);
            let mut found = Vec::new();
            let mut visit = |marks: ContainerMarks| {
                assert!(marks.followed);
                let prefixes = marks.prefixes.iter();
                found.extend(prefixes.map(|prefix| (marks.id.0, *prefix)));
                Ok(())
            };
            gathered.for_each(&mut visit).unwrap();
            assert!(found.iter().eq(&expected));
        }
        let left = dir.open_subdir(SCRATCH_FOLDER).unwrap().list().unwrap();
        assert_eq!(left.len(), 0);
    }
    #[test]
    fn marks_that_come_back_otherwise_are_told_with_their_place() {
        let device = onefold_io::sim::SimDir::new(1);
        let mut gathered = Marks::new(&device).unwrap();
        for i in 0..3 * BUFFER_MARKS as u64 / 2 {
            let fingerprint = Fingerprint(*blake3::hash(&i.to_le_bytes()).as_bytes());
            gathered
                .add(ContainerId(i % 5), &fingerprint, MarkOrigin::Direct)
                .unwrap();
        }
        let path = format!("{SCRATCH_FOLDER}/{SPILLED}");
        let flip = |bytes: &mut Vec<u8>| bytes[2 * PIECE_BYTES + 7] ^= 1;
        device.damage(&path, flip).unwrap();
        let told = gathered.for_each(&mut |_| Ok(())).unwrap_err().to_string();
        let place = format!("{path} at offset {}: checksum", 2 * PIECE_BYTES);
        assert!(told.starts_with(&place), "{told}");
    }
}
