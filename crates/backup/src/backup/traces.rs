//! What an earlier snapshot has of large files that look the same: traces to go along ([`super::retrace`]).
//!
//! A file is looked for at its own path first, then among all of the snapshot by size and time of change, so that what
//! was moved, or copied with its times, is found. A trace is a guess that is verified.
//!
//! RAM: the tops of a thousand recipes at most, some MiB; a reader with its caches; and a leaf at a time.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_store::{ChunkReader, ChunkRef, ContainerId, Session};
use parking_lot::Mutex;

use super::buffers::LONG_SEGMENT_BYTES;
use super::windows::WINDOW_BYTES;
use crate::content::Ahead;
use crate::tree::{Tree, read_leaf};
use crate::{Content, Entry, Flags, Item, Kind, Progress, Result, Time};

/// Smaller files are cut anew.
pub const TRACED_BYTES_MIN: u64 = WINDOW_BYTES as u64;
/// Leaves are read once those who ask are so many times as long together: by then what they cost, with the recipes of
/// small files that go with them, is little beside reading the files (estimated, not measured).
const LEAVES_SHARE: u64 = 1024;
/// Contents that are remembered at most.
const REMEMBERED_MAX: usize = 1024;
/// Chunks that are followed at a time: what they are called takes RAM until they are seen.
const STRETCH_CHUNKS_MAX: usize = 1024;

/// Finds traces and follows them. Shared by those who read.
pub struct Traces<'a> {
    session: &'a Session,
    is_followed: bool,
    may_have_digests: bool,
    known: Mutex<Known>,
    /// Made when it is first needed. One for all, since blocks of metadata are large.
    reader: Mutex<Option<ChunkReader>>,
}

#[derive(Default)]
struct Known {
    /// Where to look; taken once its leaves are read.
    tree: Option<Arc<Tree>>,
    /// Of all who asked so far.
    asked_bytes: u64,
    /// Those of one size and time of change that have different contents.
    by_looks: HashMap<Looks, Vec<Remembered>>,
    /// All of these.
    remembered: usize,
}

/// What the parent says of a large file that is about to be read.
pub enum Hint {
    /// Nothing that helps: it may be as one elsewhere that looks the same.
    Nothing,
    /// It has this, if all that `stat` gives can be believed.
    Same(Content),
    /// It had this. Its size and time of change are the same, but not its ctime: it was given another owner or name, or
    /// was written by a program that puts the time of change back.
    Touched(Content),
    /// It had what is not where the parent says any more.
    Lost,
}

/// A file's size and time of change.
type Looks = (u64, Time);

struct Remembered {
    name: Vec<u8>,
    content: Content,
}

impl<'a> Traces<'a> {
    /// Those of this snapshot. `may_have_digests`: the repository has a secret key.
    pub fn new(session: &'a Session, tree: Option<Arc<Tree>>, may_have_digests: bool) -> Self {
        let known = Known {
            tree,
            ..Known::default()
        };
        Self {
            session,
            is_followed: true,
            may_have_digests,
            known: Mutex::new(known),
            reader: Mutex::default(),
        }
    }

    /// None is found.
    pub fn none(session: &'a Session) -> Self {
        Self {
            is_followed: false,
            ..Self::new(session, None, false)
        }
    }

    /// Whether there is any use in looking for one.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Whether what is found may be known by its digest.
    pub fn may_have_digests(&self) -> bool {
        self.may_have_digests
    }

    /// A content that a file of this size, time of change and name may have: of what looks the same, that of this name
    /// or the only one. Whoever asks is about to read the file's `data_bytes`.
    pub fn find(
        &self,
        looks: Looks,
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
            // What cannot be read is as good as not there.
            let _ = self.with_reader(|reader| known.remember(&tree, reader, progress));
        }
        let found = known.choose(looks, name).cloned();
        if is_first && found.is_none() {
            // Among new files it may be needed no more.
            *self.reader.lock() = None;
        }
        found
    }

    /// What looks so is taken for no file any more: it turned out another for one.
    pub fn forget(&self, looks: Looks) {
        self.known.lock().by_looks.remove(&looks);
    }

    /// The next chunks of a trace, as long as a segment together; `None` where there are none to be counted on before a
    /// hole or the end.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn follow(&self, trace: &mut Ahead) -> Result<Option<Vec<ChunkRef>>> {
        let (mut chunks, mut bytes) = (Vec::<ChunkRef>::new(), 0);
        let mut vouched = None;
        while trace.peek().is_some() {
            let chunk = match self.next(trace, &mut vouched)? {
                Some(Item::Chunk { chunk, .. }) => chunk,
                Some(Item::Hole { .. }) => break,
                _ => return Ok(None),
            };
            bytes += chunk.len as usize;
            let is_long = bytes > LONG_SEGMENT_BYTES || chunks.len() == STRETCH_CHUNKS_MAX;
            if is_long && !chunks.is_empty() {
                break;
            }
            chunks.push(chunk);
            trace.pass();
        }
        Ok((!chunks.is_empty()).then_some(chunks))
    }

    /// Passes the data that a trace has up to where it covers `until` bytes, of which it has passed `bytes`; whether
    /// all of that is to be counted on.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn vouch(&self, trace: &mut Ahead, bytes: &mut u64, until: u64) -> Result<bool> {
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

    /// Passes a hole of `len` bytes; whether there is one as long.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn pass_hole(&self, trace: &mut Ahead, len: u64) -> Result<bool> {
        let is_there = self.next(trace, &mut None)? == Some(Item::Hole { len });
        if is_there {
            trace.pass();
        }
        Ok(is_there)
    }

    /// The next hole of a trace, or data that is to be counted on; `vouched` is the container that somebody vouches
    /// for.
    fn next(&self, trace: &mut Ahead, vouched: &mut Option<ContainerId>) -> Result<Option<Item>> {
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
            // The planner's reader of metadata has its cache at the same time.
            none => read(none.insert(self.session.data_reader()?)),
        }
    }
}

impl Known {
    /// Remembers what is large enough, up to the limit, while somebody still wants to know.
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
                    && entry.size >= TRACED_BYTES_MIN
                    && !entry.flags.has(Flags::CHANGED_WHILE_READ)
            });
            for entry in traced.take(REMEMBERED_MAX - self.remembered) {
                let Entry { name, content, .. } = entry;
                let alike = self.by_looks.entry((entry.size, entry.mtime)).or_default();
                if !alike.iter().any(|it| it.content.is_as(&content)) {
                    alike.push(Remembered { name, content });
                    self.remembered += 1;
                }
            }
        }
        Ok(())
    }

    fn choose(&self, looks: Looks, name: &[u8]) -> Option<&Content> {
        let alike = self.by_looks.get(&looks)?;
        if let [one] = &alike[..] {
            return Some(&one.content);
        }
        // As many parts of an archive are, unpacked at once.
        let mut named = alike.iter().filter(|it| it.name == name);
        let one = named.next().filter(|_| named.next().is_none());
        one.map(|it| &it.content)
    }
}

fn leaves_bytes(tree: &Tree) -> u64 {
    let leaves = tree.leaves().iter();
    leaves.map(|leaf| u64::from(leaf.chunk.len)).sum()
}
