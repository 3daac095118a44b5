//! Marking: which chunks of which containers the roots refer to, in bounded RAM.
//!
//! A mark is (container, first eight bytes of the fingerprint, whether the reference was followed to there). Marks gather in a buffer of
//! fixed size, are sorted and spilled to the scratch folder, and are merged in order of container.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::{Dir, Disk};

use crate::reader::ChunkReader;
use crate::repository::Repository;
use crate::roots::{RootId, Roots};
use crate::{ChunkRef, Error, Result};

/// Marks in RAM before they are spilled: 17 bytes each.
const BUFFER_MARKS: usize = 1 << 20;
const MARK_BYTES: usize = 17;
const SCRATCH_FOLDER: &str = "scratch";

/// Container, fingerprint prefix, followed there from elsewhere.
type Mark = (u64, u64, bool);

/// Gathers marks.
pub struct Marks {
    scratch: Arc<dyn Dir>,
    buffer: Vec<Mark>,
    runs: Vec<String>,
}

/// What the roots refer to in one container.
pub struct ContainerMarks {
    /// The container.
    pub id: ContainerId,
    /// Prefixes of the fingerprints, sorted.
    pub prefixes: Vec<u64>,
    /// Whether any reference was followed to there: then its presence must be proved.
    pub followed: bool,
}

impl Marks {
    /// No marks. Only the holder of the sweep's lock may have any: the scratch folder is cleared.
    pub fn new(root: &dyn Dir) -> Result<Self> {
        let scratch = root.subdir(SCRATCH_FOLDER)?;
        for entry in scratch.list()? {
            scratch.remove(&entry.name)?;
        }
        Ok(Self {
            scratch,
            buffer: Vec::new(),
            runs: Vec::new(),
        })
    }

    /// Adds a mark.
    pub fn add(
        &mut self,
        container: ContainerId,
        fingerprint: &Fingerprint,
        followed: bool,
    ) -> Result<()> {
        self.buffer
            .push((container.0, fingerprint.prefix(), followed));
        if self.buffer.len() >= BUFFER_MARKS {
            self.spill()?;
        }
        Ok(())
    }

    /// What a [`Marker`] gives its marks to.
    pub fn taker(&mut self) -> impl FnMut(ContainerId, &Fingerprint, bool) -> Result<()> {
        |container, fingerprint, followed| self.add(container, fingerprint, followed)
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
        let name = format!("marks-{}", self.runs.len());
        let mut bytes = Vec::with_capacity(self.buffer.len() * MARK_BYTES);
        for (container, prefix, followed) in self.buffer.drain(..) {
            bytes.extend_from_slice(&container.to_le_bytes());
            bytes.extend_from_slice(&prefix.to_le_bytes());
            bytes.push(followed.into());
        }
        self.scratch.create(&name)?.write_at(&bytes, 0)?;
        self.runs.push(name);
        Ok(())
    }

    /// Gives all marks, a container at a time, in order of container.
    pub fn for_each(mut self, visit: &mut dyn FnMut(ContainerMarks) -> Result<()>) -> Result<()> {
        self.settle();
        let mut sources: Vec<Source> = Vec::new();
        for name in &self.runs {
            sources.push(Source::open(&*self.scratch, name)?);
        }
        let last = std::mem::take(&mut self.buffer);
        sources.push(Source {
            disk: None,
            at: 0,
            ready: last.into_iter(),
        });
        merge(&mut sources, visit)?;
        for name in &self.runs {
            self.scratch.remove(name)?;
        }
        Ok(())
    }
}

fn merge(
    sources: &mut [Source],
    visit: &mut dyn FnMut(ContainerMarks) -> Result<()>,
) -> Result<()> {
    let mut heap = BinaryHeap::new();
    for (i, source) in sources.iter_mut().enumerate() {
        heap.extend(source.next()?.map(|mark| Reverse((mark, i))));
    }
    let mut current: Option<ContainerMarks> = None;
    while let Some(Reverse(((container, prefix, followed), i))) = heap.pop() {
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
        marks.followed |= followed;
        if marks.prefixes.last() != Some(&prefix) {
            marks.prefixes.push(prefix);
        }
    }
    current.map_or(Ok(()), visit)
}

/// One sorted run, read a piece at a time.
struct Source {
    disk: Option<Arc<dyn Disk>>,
    at: u64,
    ready: std::vec::IntoIter<Mark>,
}

impl Source {
    const PIECE_MARKS: u64 = 4096;

    fn open(dir: &dyn Dir, name: &str) -> Result<Self> {
        Ok(Self {
            disk: Some(dir.open(name)?),
            at: 0,
            ready: Vec::new().into_iter(),
        })
    }

    fn next(&mut self) -> Result<Option<Mark>> {
        if let Some(mark) = self.ready.next() {
            return Ok(Some(mark));
        }
        let Some(disk) = &self.disk else {
            return Ok(None);
        };
        let left = disk.len()?.saturating_sub(self.at);
        let mut bytes = vec![0; left.min(Self::PIECE_MARKS * MARK_BYTES as u64) as usize];
        disk.read_at(&mut bytes, self.at)?;
        self.at += bytes.len() as u64;
        let (marks, _) = bytes.as_chunks::<MARK_BYTES>();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let marks: Vec<Mark> = marks
            .iter()
            .map(|mark| (number(&mark[..8]), number(&mark[8..16]), mark[16] != 0))
            .collect();
        self.ready = marks.into_iter();
        Ok(self.ready.next())
    }
}

/// Takes a mark: container, chunk, and whether the reference was followed there from elsewhere.
pub type Taker<'a> = dyn FnMut(ContainerId, &Fingerprint, bool) -> Result<()> + 'a;

/// Marks from roots, with the containers that are there and those condemned by an earlier sweep.
pub struct Marker<'a> {
    repository: &'a Repository,
    listed: &'a [ContainerId],
    doubtful: &'a [ContainerId],
    seen: HashSet<Fingerprint>,
    /// References whose chunk is in none of the listed containers, as far as the index knows.
    pub unresolved: HashMap<Fingerprint, ContainerId>,
    /// Roots that could not be read, and why.
    pub damaged: Vec<(RootId, Error)>,
}

impl<'a> Marker<'a> {
    /// `listed` and `doubtful` are sorted. A reference into a doubtful container is followed elsewhere where that can be.
    pub fn new(
        repository: &'a Repository,
        listed: &'a [ContainerId],
        doubtful: &'a [ContainerId],
    ) -> Self {
        Self {
            repository,
            listed,
            doubtful,
            seen: HashSet::new(),
            unresolved: HashMap::new(),
            damaged: Vec::new(),
        }
    }

    /// Gives `mark` the marks of one root. A root that cannot be had is put down in `damaged`; other failures end it.
    pub fn mark(
        &mut self,
        id: &RootId,
        roots: &dyn Roots,
        reader: &mut ChunkReader,
        mark: &mut Taker<'_>,
    ) -> Result<()> {
        let root = match self.repository.root(id) {
            Ok(root) => root,
            // Forgotten since it was listed.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.is_loss() => {
                self.damaged.push((*id, error));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut seen = std::mem::take(&mut self.seen);
        let mut unseen = |chunk: &ChunkRef| !seen.insert(chunk.fingerprint);
        let mut wandering = Vec::new();
        let outcome = roots.for_each_ref(id, &root, reader, &mut unseen, &mut |chunk| {
            if self.listed.binary_search(&chunk.container).is_ok()
                && self.doubtful.binary_search(&chunk.container).is_err()
            {
                return mark(chunk.container, &chunk.fingerprint, false);
            }
            wandering.push(*chunk);
            if wandering.len() >= 512 {
                self.follow(&mut wandering, mark)
            } else {
                Ok(())
            }
        });
        self.seen = seen;
        self.follow(&mut wandering, mark)?;
        match outcome {
            Err(error) if error.is_loss() => self.damaged.push((*id, error)),
            other => other?,
        }
        Ok(())
    }

    /// Asks the index where chunks are whose containers are gone or doubtful.
    fn follow(&mut self, wandering: &mut Vec<ChunkRef>, mark: &mut Taker<'_>) -> Result<()> {
        let keys: Vec<_> = wandering.iter().map(|chunk| chunk.fingerprint).collect();
        let mut found = vec![None; keys.len()];
        self.repository
            .shared
            .with_index(|index| Ok(index.lookup(&keys, &mut found)?))?;
        for (chunk, found) in wandering.drain(..).zip(found) {
            let there = |id: &ContainerId| self.listed.binary_search(id).is_ok();
            match found.map(|location| location.container).filter(there) {
                Some(container) => {
                    mark(container, &chunk.fingerprint, container != chunk.container)?
                }
                None if there(&chunk.container) => {
                    mark(chunk.container, &chunk.fingerprint, false)?
                }
                None => drop(self.unresolved.insert(chunk.fingerprint, chunk.container)),
            }
        }
        Ok(())
    }
}
