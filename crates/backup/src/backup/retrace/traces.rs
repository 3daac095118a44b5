//! Traces: contents that an earlier snapshot has of large files that look the same, to be followed
//! ([`super`]).
//!
//! A trace is looked for at the file's own path first, then among all files of the snapshot by size and time of change,
//! so that files that were moved, or copied with their times, are found. A trace is a guess that is verified.
//!
//! RAM: at most a thousand tops of recipes, some MiB; a reader with its caches; and a leaf at a time.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_store::digest::Digester;
use onefold_store::{ChunkReader, ChunkRef, ContainerId, Session};
use parking_lot::Mutex;

use crate::backup::names::SizeAndTime;
use crate::backup::windows::DIGESTED_BYTES_MIN;
use crate::content::ContentCursor;
use crate::tree::{Tree, read_leaf};
use crate::{Content, Entry, Flags, Item, Kind, Progress, Result};

/// Leaves are read once the files that ask for a trace are this many times as long as the leaves: by then the cost of
/// the leaves, with the recipes of small files that go with them, is little beside reading the files (estimated, not
/// measured).
const LEAVES_SHARE: u64 = 1024;
/// Largest number of contents that are remembered.
const REMEMBERED_MAX: usize = 1024;
/// Largest number of chunks that are followed at a time: their references take RAM until their bytes are verified.
const STRETCH_CHUNKS_MAX: usize = 1024;

/// Finds traces and follows them. All readers share it.
pub struct Traces<'a> {
    session: &'a Session,
    is_followed: bool,
    digester: Option<Arc<Digester>>,
    known: Mutex<TraceMemory>,
    /// Reader of metadata, made when it is first needed. There is one for all threads, since blocks of metadata are
    /// large.
    reader: Mutex<Option<ChunkReader>>,
}

#[derive(Default)]
struct TraceMemory {
    /// The snapshot's tree; taken once its leaves are read.
    tree: Option<Arc<Tree>>,
    /// Bytes of data of all files that asked for a trace so far.
    asked_bytes: u64,
    /// Contents that are remembered, by size and time of change; different ones may have both in common.
    by_looks: HashMap<SizeAndTime, Vec<Remembered>>,
    /// Number of contents in `by_looks`.
    remembered: usize,
}

struct Remembered {
    name: Vec<u8>,
    content: Content,
}

impl<'a> Traces<'a> {
    /// Finds traces in `tree`. There is a digester if the repository has a secret key.
    pub fn new(
        session: &'a Session,
        tree: Option<Arc<Tree>>,
        digester: Option<Arc<Digester>>,
    ) -> Self {
        let known = TraceMemory {
            tree,
            ..TraceMemory::default()
        };
        Self {
            session,
            is_followed: true,
            digester,
            known: Mutex::new(known),
            reader: Mutex::default(),
        }
    }

    /// Finds no traces.
    pub fn none(session: &'a Session) -> Self {
        Self {
            is_followed: false,
            ..Self::new(session, None, None)
        }
    }

    /// Whether traces are looked for at all.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Verifies files by their digest, where the repository has digests.
    pub fn digester(&self) -> Option<&Digester> {
        self.digester.as_deref()
    }

    /// Returns a content that a file of this size, time of change and name may have: among contents that look the same,
    /// the one of this name, or the only one. The caller is about to read `data_bytes` of the file.
    pub fn find(
        &self,
        looks: SizeAndTime,
        data_bytes: u64,
        name: &[u8],
        progress: &Progress,
    ) -> Option<Content> {
        let mut known = self.known.lock();
        known.asked_bytes += data_bytes;
        let affordable = known.asked_bytes / LEAVES_SHARE;
        let tree = known.tree.take_if(|it| leaves_bytes(it) <= affordable);
        let is_first = tree.is_some();
        if let Some(tree) = tree {
            // A tree that cannot be read counts as not there.
            let _ = self.with_reader(|reader| known.remember(&tree, reader, progress));
        }
        let found = known.choose(looks, name).cloned();
        if is_first && found.is_none() {
            // Among new files the reader may not be needed any more.
            *self.reader.lock() = None;
        }
        found
    }

    /// Forgets contents of this size and time of change: one of them turned out to differ from its file.
    pub fn forget(&self, looks: SizeAndTime) {
        self.known.lock().by_looks.remove(&looks);
    }

    /// Returns the next chunks of a trace, together at most `bytes_max` bytes or one chunk; `None` where no reliable
    /// chunks come before a hole or the end.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn follow(
        &self,
        trace: &mut ContentCursor,
        bytes_max: usize,
    ) -> Result<Option<Vec<ChunkRef>>> {
        let (mut chunks, mut bytes) = (Vec::<ChunkRef>::new(), 0);
        let mut vouched = None;
        while trace.peek().is_some() {
            let chunk = match self.next(trace, &mut vouched)? {
                Some(Item::Chunk { chunk, .. }) => chunk,
                Some(Item::Hole { .. }) => break,
                _ => return Ok(None),
            };
            bytes += chunk.len as usize;
            let is_long = bytes > bytes_max || chunks.len() == STRETCH_CHUNKS_MAX;
            if is_long && !chunks.is_empty() {
                break;
            }
            chunks.push(chunk);
            trace.pass();
        }
        Ok((!chunks.is_empty()).then_some(chunks))
    }

    /// Passes the data of a trace up to where it covers `until` bytes; `bytes` are passed already. Returns whether all
    /// of the data can be counted on.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn vouch(&self, trace: &mut ContentCursor, bytes: &mut u64, until: u64) -> Result<bool> {
        let mut vouched = None;
        while *bytes < until {
            let item = self.next(trace, &mut vouched)?;
            let Some(item) = item.filter(|item| item.chunk().is_some()) else {
                return Ok(false);
            };
            *bytes += item.span();
            trace.pass();
        }
        Ok(true)
    }

    /// Passes a hole; returns whether the trace has one of `len` bytes.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn pass_hole(&self, trace: &mut ContentCursor, len: u64) -> Result<bool> {
        let is_there = self.next(trace, &mut None)? == Some(Item::Hole { len });
        if is_there {
            trace.pass();
        }
        Ok(is_there)
    }

    /// Returns the next hole of a trace, or data that can be counted on; `vouched` is the container that the session
    /// vouched for last.
    fn next(
        &self,
        trace: &mut ContentCursor,
        vouched: &mut Option<ContainerId>,
    ) -> Result<Option<Item>> {
        while let Some((depth, item)) = trace.peek() {
            let Some(chunk) = item.chunk() else {
                return Ok(Some(item));
            };
            if *vouched != Some(chunk.container) && !self.session.vouches_for(chunk) {
                return Ok(None);
            }
            *vouched = Some(chunk.container);
            if depth == 0 {
                return Ok(Some(item));
            }
            self.with_reader(|reader| trace.open(reader))?;
        }
        Ok(None)
    }

    fn with_reader<T>(&self, read: impl FnOnce(&mut ChunkReader) -> Result<T>) -> Result<T> {
        let mut reader = self.reader.lock();
        match &mut *reader {
            Some(reader) => read(reader),
            // The reader is made only now, since the planner's reader of metadata has its cache at the same time.
            none => read(none.insert(self.session.data_reader()?)),
        }
    }
}

impl TraceMemory {
    /// Remembers contents of large files, up to the limit, until the backup is cancelled.
    fn remember(
        &mut self,
        tree: &Tree,
        reader: &mut ChunkReader,
        progress: &Progress,
    ) -> Result<()> {
        for leaf in tree.leaves() {
            if progress.is_over() || self.remembered >= REMEMBERED_MAX {
                break;
            }
            let entries = read_leaf(leaf, reader)?.entries.into_iter();
            let traced = entries.filter(|entry| {
                entry.kind == Kind::File
                    && entry.size >= DIGESTED_BYTES_MIN
                    && !entry.flags.has(Flags::CHANGED_WHILE_READ)
            });
            for entry in traced.take(REMEMBERED_MAX - self.remembered) {
                let looks = SizeAndTime::from(&entry);
                let Entry { name, content, .. } = entry;
                let alike = self.by_looks.entry(looks).or_default();
                if !alike.iter().any(|it| it.content.is_as(&content)) {
                    alike.push(Remembered { name, content });
                    self.remembered += 1;
                }
            }
        }
        Ok(())
    }

    fn choose(&self, looks: SizeAndTime, name: &[u8]) -> Option<&Content> {
        let alike = self.by_looks.get(&looks)?;
        if let [one] = &alike[..] {
            return Some(&one.content);
        }
        // Many parts of an archive, unpacked at once, look alike.
        let mut named = alike.iter().filter(|it| it.name == name);
        let one = named.next().filter(|_| named.next().is_none());
        one.map(|it| &it.content)
    }
}

fn leaves_bytes(tree: &Tree) -> u64 {
    let leaves = tree.leaves().iter();
    leaves.map(|leaf| u64::from(leaf.chunk.len)).sum()
}
