//! A window: as many of a snapshot's files as fit into the plan's budget. Within a window each container is read once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel};

use onefold_chunk::Fingerprint;
use onefold_store::{ChunkRef, ContainerId};
use parking_lot::Mutex;

use super::apply::Meta;
use super::lacking::MetadataOutcome;
use super::temporary::CurrentName;
use crate::{Entry, Item, SharedXattrs, Slice};

/// Decision about a folder's metadata.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FolderFate {
    /// No decision was made yet.
    #[default]
    Unknown,
    /// The folder gets the snapshot's metadata at the end.
    Described,
    /// The folder was there, and keeps its own metadata.
    Kept,
}

/// A folder of the window.
pub struct WindowFolder {
    /// Name in the folder above. Whole paths would take the square of the depth.
    pub name: Box<[u8]>,
    /// Metadata that the folder gets at the end; `None` for the target itself.
    pub meta: Option<Meta>,
    /// Number of the folder above; the target's is its own number.
    pub parent: u32,
    /// Whether the folder is wanted for itself, and does not only lead to a wanted one.
    pub is_asked_for: bool,
    /// Decision about the folder's metadata.
    pub fate: Mutex<FolderFate>,
    /// Whether the folder goes on in the next window, so that its metadata waits.
    pub continues: bool,
    /// Result of setting the folder's metadata.
    pub metadata_outcome: MetadataOutcome,
    /// Device of the folder in the target; 0 before the restore goes into it.
    pub device: AtomicU64,
}

/// State of a file in a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileState {
    /// Nothing was done yet.
    Planned,
    /// The file was made, and gets its bytes.
    Made(Made),
    /// The file was made in an earlier window.
    Resumed(Made),
    /// The file in the target stays as it was.
    Skipped,
    /// The file failed, which was reported; if it was made before, it is not complete.
    Failed(Option<Made>),
}

impl FileState {
    /// Returns the file that was made, if any.
    pub fn made(self) -> Option<Made> {
        match self {
            Self::Made(made) | Self::Resumed(made) => Some(made),
            Self::Failed(made) => made,
            Self::Planned | Self::Skipped => None,
        }
    }
}

/// A file that this restore has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    pub inode: u64,
    pub place: CurrentName,
}

/// A file of the window.
pub struct File {
    pub folder: u32,
    pub name: Box<[u8]>,
    pub size: u64,
    pub meta: Meta,
    /// Whether the size must be set, as writing alone may not reach the file's end, or not as its last step.
    pub set_size: bool,
    /// Whether other names may be linked to the file.
    pub has_further_names: bool,
    pub state: Mutex<FileState>,
    /// Result of setting the file's metadata.
    pub metadata_outcome: MetadataOutcome,
    to_come: AtomicU32,
}

impl File {
    /// Counts `n` chunks as done; returns true if they were the last ones.
    pub fn arrived(&self, n: u32) -> bool {
        self.to_come.fetch_sub(n, AcqRel) == n
    }

    /// Chunks that are still to come.
    pub fn to_come(&self) -> u32 {
        self.to_come.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// One place in a file that a chunk, or a part of it, goes to.
#[derive(Clone, Copy)]
pub struct Use {
    pub container: u32,
    pub file: u32,
    pub fingerprint: Fingerprint,
    pub chunk_len: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Offset of the part in the chunk, in bytes.
    pub skip: u32,
    pub len: u32,
}

impl Use {
    /// Returns the part of the chunk that goes there.
    pub fn slice(&self, container: ContainerId) -> Slice {
        let chunk = ChunkRef {
            fingerprint: self.fingerprint,
            container,
            len: self.chunk_len,
        };
        Slice {
            chunk,
            skip: self.skip,
            len: self.len,
        }
    }
}

/// A link, pipe, socket or device.
pub struct Special {
    pub folder: u32,
    pub entry: Entry,
    /// First name, where this is a further name of the same thing.
    pub first: Option<FirstName>,
    /// Result of setting the metadata.
    pub metadata_outcome: MetadataOutcome,
}

/// The first name of a file in the target.
#[derive(Clone)]
pub struct FirstName {
    /// Path of the name's folder, which neighbours share.
    pub folder: Arc<[u8]>,
    pub name: Box<[u8]>,
    /// Whether it was in the target before this restore, with the snapshot's metadata and content.
    pub was_there: bool,
}

/// Place of a name among the names of its file.
pub enum NamePlace {
    /// The content is written under this name.
    First,
    /// The name is linked to the first one.
    Further(FirstName),
    /// Something in the target stays under it: no other name is linked to that unless it is the snapshot's file.
    Stays,
}

/// A further name of a file, or a name that stays in the target.
pub struct Link {
    pub folder: u32,
    /// First name; `None` where the name itself stays.
    pub first: Option<FirstName>,
    pub entry: Entry,
    /// Result of setting the metadata, where the name could not be linked and got the content itself, or was linked to
    /// a name that was there before.
    pub metadata_outcome: MetadataOutcome,
}

/// The plan of a window.
pub struct Window {
    pub folders: Vec<WindowFolder>,
    pub files: Vec<File>,
    pub uses: Vec<Use>,
    pub containers: Vec<ContainerId>,
    pub links: Vec<Link>,
    pub specials: Vec<Special>,
    numbers: HashMap<ContainerId, u32>,
    /// Attributes that were counted last.
    xattrs: SharedXattrs,
    /// Folder of the first name that was counted last.
    firsts: Option<Arc<[u8]>>,
    bytes: usize,
    bytes_max: usize,
}

/// RAM of an attribute besides its name and value, in bytes.
const XATTR_OVERHEAD_BYTES: usize = 64;

impl Window {
    /// Makes an empty window, which is full when it takes `bytes_max` bytes of RAM.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            folders: room(bytes_max),
            files: room(bytes_max),
            uses: room(bytes_max),
            containers: Vec::new(),
            links: room(bytes_max),
            specials: room(bytes_max),
            numbers: HashMap::new(),
            xattrs: SharedXattrs::default(),
            firsts: None,
            bytes: 0,
            bytes_max,
        }
    }

    /// Adds a folder, which is not wanted for itself so far; returns its number.
    pub fn folder(&mut self, name: &[u8], parent: u32, meta: Option<Meta>) -> u32 {
        self.bytes += size_of::<WindowFolder>() + name.len() + 16;
        if let Some(meta) = &meta {
            self.count_xattrs(&meta.xattrs);
        }
        self.folders.push(WindowFolder {
            name: name.into(),
            meta,
            parent,
            is_asked_for: false,
            fate: Mutex::default(),
            continues: false,
            metadata_outcome: MetadataOutcome::default(),
            device: AtomicU64::new(0),
        });
        self.folders.len() as u32 - 1
    }

    /// Adds a file without chunks; returns its number.
    pub fn file(&mut self, folder: u32, entry: &Entry) -> u32 {
        self.bytes += size_of::<File>() + entry.name.len() + 16;
        self.count_xattrs(&entry.xattrs);
        self.files.push(File {
            folder,
            name: entry.name.as_slice().into(),
            size: entry.size,
            meta: Meta::of(entry),
            set_size: false,
            has_further_names: entry.links > 1,
            state: Mutex::new(FileState::Planned),
            metadata_outcome: MetadataOutcome::default(),
            to_come: AtomicU32::new(0),
        });
        self.files.len() as u32 - 1
    }

    /// Adds a chunk, or a part of one, of the file that was added last.
    pub fn chunk(&mut self, file: u32, slice: &Slice, offset: u64) {
        let chunk = &slice.chunk;
        self.bytes += size_of::<Use>();
        let next = self.containers.len() as u32;
        let container = *self.numbers.entry(chunk.container).or_insert_with(|| {
            self.containers.push(chunk.container);
            next
        });
        *self.files[file as usize].to_come.get_mut() += 1;
        self.uses.push(Use {
            container,
            file,
            fingerprint: chunk.fingerprint,
            chunk_len: chunk.len,
            offset,
            skip: slice.skip,
            len: slice.len,
        });
    }

    /// Adds a further name of a file.
    pub fn link(&mut self, mut link: Link) {
        // Room for four items is a third of all that a link with one item takes.
        link.entry.content.items.shrink_to_fit();
        let items = link.entry.content.items.len() * size_of::<Item>();
        let first = link.first.as_ref();
        let first = first.map_or(0, |first| self.count_first(first));
        let names = link.entry.name.len() + first;
        let bytes = size_of::<Link>() + names + items + 64;
        // A link counts twice: it reads no container, so a smaller window costs nothing.
        self.bytes += 2 * bytes;
        self.count_xattrs(&link.entry.xattrs);
        self.links.push(link);
    }

    /// Adds a link, pipe, socket or device.
    pub fn special(&mut self, special: Special) {
        let first = special.first.as_ref();
        let first = first.map_or(0, |first| self.count_first(first));
        let entry = &special.entry;
        self.bytes += size_of::<Special>() + entry.name.len() + entry.target.len() + first + 32;
        self.count_xattrs(&special.entry.xattrs);
        self.specials.push(special);
    }

    fn count_first(&mut self, first: &FirstName) -> usize {
        let last = self.firsts.replace(Arc::clone(&first.folder));
        let is_counted = last.is_some_and(|last| Arc::ptr_eq(&last, &first.folder));
        let folder = if is_counted { 0 } else { first.folder.len() };
        first.name.len() + folder
    }

    /// Counts attributes, unless they are shared with those counted last: entries of one leaf share equal ones.
    fn count_xattrs(&mut self, xattrs: &SharedXattrs) {
        if xattrs.is_empty() || xattrs.is_shared_with(&self.xattrs) {
            return;
        }
        let each = |(name, value): &(Box<[u8]>, Box<[u8]>)| {
            name.len() + value.len() + XATTR_OVERHEAD_BYTES
        };
        self.bytes += xattrs.iter().map(each).sum::<usize>();
        self.xattrs = xattrs.clone();
    }

    /// Notes that the rest of this file comes in the next window: it is not complete when its chunks of this one are
    /// there.
    pub fn file_continues(&mut self, file: u32) {
        *self.files[file as usize].to_come.get_mut() += 1;
    }

    /// Whether nothing more should be added. One thing fits in any case.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max && !self.is_empty()
    }

    /// Whether the window holds nothing but the target itself.
    pub fn is_empty(&self) -> bool {
        self.folders.len() <= 1
            && self.files.is_empty()
            && self.specials.is_empty()
            && self.links.is_empty()
    }

    /// Returns a folder's path in the target: empty, or beginning with `/`.
    pub fn path(&self, folder: u32) -> Vec<u8> {
        self.path_with(folder, &[])
    }

    /// Returns a file's path in the target.
    pub fn path_of(&self, file: &File) -> Vec<u8> {
        self.path_in(file.folder, &file.name)
    }

    /// Returns the path in the target of `name` in a folder.
    pub fn path_in(&self, folder: u32, name: &[u8]) -> Vec<u8> {
        self.path_with(folder, &[name])
    }

    fn path_with(&self, folder: u32, name: &[&[u8]]) -> Vec<u8> {
        let names = self
            .way_up(folder)
            .map(|at| &*self.folders[at as usize].name);
        let mut names: Vec<&[u8]> = name.iter().copied().chain(names).collect();
        names.reverse();
        let mut path = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        path
    }

    /// Gives the numbers of the folder and those above it, without the target.
    pub fn way_up(&self, folder: u32) -> impl Iterator<Item = u32> {
        let in_target = |at: u32| Some(at).filter(|at| self.folders[*at as usize].parent != *at);
        std::iter::successors(in_target(folder), move |at| {
            in_target(self.folders[*at as usize].parent)
        })
    }

    /// Sorts the uses by container and fingerprint; returns the range of uses for each container.
    pub fn by_container(&mut self) -> Vec<(ContainerId, std::ops::Range<usize>)> {
        self.uses.sort_unstable_by(|a, b| {
            (a.container, a.fingerprint, a.file, a.offset).cmp(&(
                b.container,
                b.fingerprint,
                b.file,
                b.offset,
            ))
        });
        let mut ranges = Vec::with_capacity(self.containers.len());
        let mut start = 0;
        for group in self.uses.chunk_by(|a, b| a.container == b.container) {
            ranges.push((
                self.containers[group[0].container as usize],
                start..start + group.len(),
            ));
            start += group.len();
        }
        ranges
    }
}

/// Reserves address space for all items that `bytes_max` allows. RAM is taken as it is used; a growing list would be
/// copied, and leave holes.
fn room<T>(bytes_max: usize) -> Vec<T> {
    Vec::with_capacity(bytes_max / size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three thousand nested folders, whose paths would take a gigabyte.
    #[test]
    fn folders_in_each_other_take_what_their_names_take() {
        let mut window = Window::new(2 << 20);
        let mut innermost = window.folder(b"", 0, None);
        for _ in 0..3000 {
            assert!(!window.is_full());
            innermost = window.folder(&[b'd'; 250], innermost, None);
        }
        assert_eq!(window.path(innermost).len(), 3000 * 251);
        assert_eq!(window.path(0), b"");
        assert_eq!(
            window.path_in(1, b"name"),
            [&b"/"[..], &[b'd'; 250], b"/name"].concat()
        );
    }
}
