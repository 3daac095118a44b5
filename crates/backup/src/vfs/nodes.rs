//! Answers about the tree: names, attributes, folders, contents.

use std::iter::successors;
use std::sync::Arc;

use super::file::{self, OpenFile};
use super::hard_links::HardLinks;
use super::leaves::OpenLeaf;
use super::number::{EntryPosition, Number};
use super::{Attributes, Vfs};
use crate::snapshots;
use crate::tree::{Tree, read_leaf};
use crate::{Entry, Error, Item, Kind, Result, SharedXattrs, Time, path};

/// Mode of folders that no snapshot has.
const FOLDER_MODE: u16 = 0o555;
/// Files of which it is remembered that they were told.
const TOLD_MAX: usize = 4096;
/// RAM of a leaf's row in the table of leaves, about, in bytes.
const ROW_BYTES: usize = 160;

/// A name in a folder.
pub struct ListedName<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The file's number.
    pub number: u64,
    /// Kind of the entry.
    pub kind: Kind,
    /// Where the listing goes on behind it.
    pub next: u64,
    /// The entry, where a snapshot has one.
    entry: Option<(u32, EntryPosition, &'a Entry)>,
}

/// An entry and the leaf that it stands in.
struct LeafEntry {
    snapshot: u32,
    position: EntryPosition,
    leaf: Arc<OpenLeaf>,
}

impl LeafEntry {
    fn get(&self) -> Option<(&[u8], &Entry)> {
        self.leaf.get(self.position.entry as usize)
    }

    fn entry(&self) -> Option<&Entry> {
        self.get().map(|(_, entry)| entry)
    }

    fn path(&self) -> Vec<u8> {
        self.get()
            .map(|(folder, entry)| path::join(folder, &entry.name))
            .unwrap_or_default()
    }
}

impl Vfs {
    /// Attributes of the file `name` in the folder `parent`, if it is there. The caller is told the number of it, and
    /// [forgets](Self::forget) it some time.
    ///
    /// # Errors
    /// The leaf cannot be read.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Option<Attributes>> {
        let Some(above) = Number::decode(parent) else {
            return Ok(None);
        };
        if let Number::Shelf(shelf) = above {
            let child = self.shelves.lock().child(shelf, name);
            return child.map_or(Ok(None), |child| self.attributes(child.encode()));
        }
        let Some((snapshot, folder)) = self.folder(above)? else {
            return Ok(None);
        };
        let tree = self.tree(snapshot)?;
        let leaf = tree.leaf_of(&folder, name);
        let Some(open) = self.leaf(&tree, leaf)? else {
            return Ok(None);
        };
        let entry = open.lower_bound(&folder, name);
        let position = position(leaf, entry);
        match open.get(entry) {
            Some((at, entry)) if at == folder && entry.name == name => {
                let number = self.hard_links.meet(snapshot, position, entry);
                self.of_entry(number, snapshot, position, entry).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Somebody forgets a number, as often as they were told it.
    pub fn forget(&self, number: u64, times: u64) {
        self.hard_links.forget(number, times);
    }

    /// Attributes of the file with this number, if there is one.
    ///
    /// # Errors
    /// The leaf cannot be read.
    pub fn attributes(&self, number: u64) -> Result<Option<Attributes>> {
        let Some(decoded) = Number::decode(number) else {
            return Ok(None);
        };
        match decoded {
            Number::Shelf(shelf) => Ok(self.of_shelf(shelf)),
            Number::Top(snapshot) => {
                let time = self.known.lock().time_of(snapshot);
                Ok(time.map(|time| Attributes {
                    is_fixed: true,
                    ..self.of_folder(number, time)
                }))
            }
            Number::Entry(..) | Number::Linked(..) => {
                let Some(found) = self.find(decoded)? else {
                    return Ok(None);
                };
                let entry = found.entry();
                entry
                    .map(|entry| self.of_entry(decoded, found.snapshot, found.position, entry))
                    .transpose()
            }
        }
    }

    fn of_shelf(&self, shelf: u64) -> Option<Attributes> {
        let shelves = self.shelves.lock();
        let number = Number::Shelf(shelf).encode();
        if let Some(target) = shelves.target(shelf) {
            return Some(Attributes {
                kind: Kind::Symlink,
                mode: 0o777,
                size: target.len() as u64,
                ..self.of_folder(number, self.options.now)
            });
        }
        let is_there = shelves.is_shelf(shelf);
        is_there.then(|| self.of_folder(number, self.options.now))
    }

    /// Returns the attributes of a folder that no snapshot has.
    fn of_folder(&self, number: u64, time: Time) -> Attributes {
        let (uid, gid) = self.options.owner;
        Attributes {
            number,
            kind: Kind::Dir,
            mode: FOLDER_MODE,
            uid,
            gid,
            size: 0,
            data_bytes: 0,
            mtime: time,
            ctime: time,
            atime: time,
            links: 1,
            rdev: 0,
            is_fixed: false,
        }
    }

    fn of_entry(
        &self,
        number: Number,
        snapshot: u32,
        position: EntryPosition,
        entry: &Entry,
    ) -> Result<Attributes> {
        let size = match entry.kind {
            Kind::Symlink => entry.target.len() as u64,
            _ => entry.size,
        };
        Ok(Attributes {
            number: number.encode(),
            kind: entry.kind,
            mode: entry.mode,
            uid: entry.owner.uid,
            gid: entry.owner.gid,
            size,
            data_bytes: self.data_bytes(snapshot, position, entry)?,
            mtime: entry.mtime,
            ctime: entry.ctime,
            atime: entry.atime.unwrap_or(entry.mtime),
            links: entry.links,
            rdev: entry.rdev,
            is_fixed: true,
        })
    }

    /// Bytes of a file that are no holes: programs that copy look for holes where they are fewer than its length.
    fn data_bytes(&self, snapshot: u32, position: EntryPosition, entry: &Entry) -> Result<u64> {
        let content = &entry.content;
        let of_item = |item: &Item| match item {
            Item::Hole { .. } => 0,
            item => item.span(),
        };
        if content.depth == 0 {
            return Ok(content.items.iter().map(of_item).sum());
        }
        // A file with a digest has no holes.
        if content.digest.is_some() {
            return Ok(entry.size);
        }
        let key = (snapshot, position.code());
        if let Some(known) = self.data_bytes.lock().get(&key) {
            return Ok(*known);
        }
        let read = file::data_bytes(content, &mut self.metadata.lock());
        // Whoever reads it is told.
        let bytes = match read {
            Err(error) if error.is_loss() => entry.size,
            other => other?,
        };
        self.data_bytes.lock().put(key, Arc::new(bytes), 1);
        Ok(bytes)
    }

    /// Returns the target of a symbolic link; `None` where the number is of no link.
    ///
    /// # Errors
    /// The leaf cannot be read.
    pub fn target(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let Some(decoded) = Number::decode(number) else {
            return Ok(None);
        };
        if let Number::Shelf(shelf) = decoded {
            return Ok(self.shelves.lock().target(shelf).map(<[u8]>::to_vec));
        }
        let found = self.find(decoded)?;
        let entry = found.as_ref().and_then(LeafEntry::entry);
        let link = entry.filter(|entry| entry.kind == Kind::Symlink);
        Ok(link.map(|entry| entry.target.clone()))
    }

    /// Extended attributes of the file with this number.
    ///
    /// # Errors
    /// The leaf cannot be read.
    pub fn xattrs(&self, number: u64) -> Result<SharedXattrs> {
        let found = Number::decode(number).map_or(Ok(None), |number| self.find(number))?;
        let entry = found.as_ref().and_then(LeafEntry::entry);
        Ok(entry.map(|entry| entry.xattrs.clone()).unwrap_or_default())
    }

    /// Opens the file with this number; `None` where there is none.
    ///
    /// # Errors
    /// The leaf cannot be read. [`Error::Content`]: the backup could not read the file.
    pub fn open(&self, number: u64) -> Result<Option<OpenFile>> {
        let found = Number::decode(number).map_or(Ok(None), |number| self.find(number))?;
        let Some((found, entry)) = found.as_ref().and_then(|at| Some((at, at.entry()?))) else {
            return Ok(None);
        };
        if entry.kind != Kind::File {
            return Ok(None);
        }
        if entry.is_unreadable() {
            let source = std::io::Error::other("the backup could not read it");
            let error = Error::io("read", &found.path(), source);
            self.tell_once(number, &found.path(), &error);
            return Err(error);
        }
        let in_use = self.known.lock().use_of(found.snapshot);
        let (content, size) = (entry.content.clone(), entry.size);
        Ok(Some(OpenFile::new(content, size, in_use)))
    }

    /// Adds bytes of an open file to `out`, as [`OpenFile::read`]. What is damaged is told once a file.
    ///
    /// # Errors
    /// Those of [`OpenFile::read`].
    pub fn read(
        &self,
        number: u64,
        open: &OpenFile,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let read = open.read(offset, len, &self.chunks, &self.metadata, out);
        read.inspect_err(|error| {
            let found = Number::decode(number).map(|number| self.find(number));
            if let Some(Ok(Some(found))) = found {
                self.tell_once(number, &found.path(), error);
            }
        })
    }

    /// Where data (or a hole, where `wants_data` is false) begins from `offset` on.
    ///
    /// # Errors
    /// A recipe chunk cannot be read.
    pub fn seek(&self, open: &OpenFile, offset: u64, wants_data: bool) -> Result<Option<u64>> {
        if wants_data {
            open.data_from(offset, &self.metadata)
        } else {
            open.hole_from(offset, &self.metadata)
        }
    }

    /// Visits names in a folder, from place `from` on (0: from the start), until `visit` says false. `None`: the number
    /// is of no folder.
    ///
    /// # Errors
    /// Those of `visit`; a leaf cannot be read.
    pub fn list(
        &self,
        number: u64,
        from: u64,
        visit: &mut dyn FnMut(&ListedName<'_>) -> Result<bool>,
    ) -> Result<Option<()>> {
        let Some(decoded) = Number::decode(number) else {
            return Ok(None);
        };
        if let Number::Shelf(shelf) = decoded {
            return self.list_shelf(shelf, from, visit);
        }
        let Some((snapshot, folder)) = self.folder(decoded)? else {
            return Ok(None);
        };
        let tree = self.tree(snapshot)?;
        // Places begin at 1.
        let mut at = match from.checked_sub(1) {
            Some(code) => EntryPosition::of_code(code),
            None => position(tree.leaf_of(&folder, b""), 0),
        };
        let mut is_first = from == 0;
        while let Some(leaf) = self.leaf(&tree, at.leaf as usize)? {
            if std::mem::take(&mut is_first) {
                at.entry = leaf.lower_bound(&folder, b"") as u32;
            }
            while let Some((in_folder, entry)) = leaf.get(at.entry as usize) {
                if in_folder != folder {
                    return Ok(Some(()));
                }
                let next = EntryPosition {
                    entry: at.entry + 1,
                    ..at
                };
                let goes_on = visit(&ListedName {
                    name: &entry.name,
                    number: HardLinks::number(snapshot, at, entry).encode(),
                    kind: entry.kind,
                    next: next.code() + 1,
                    entry: Some((snapshot, at, entry)),
                })?;
                if !goes_on {
                    return Ok(Some(()));
                }
                at = next;
            }
            at = EntryPosition {
                leaf: at.leaf + 1,
                entry: 0,
            };
        }
        Ok(Some(()))
    }

    fn list_shelf(
        &self,
        shelf: u64,
        from: u64,
        visit: &mut dyn FnMut(&ListedName<'_>) -> Result<bool>,
    ) -> Result<Option<()>> {
        let Some(listed) = self.shelves.lock().list(shelf, from) else {
            return Ok(None);
        };
        for (place, name, number) in listed {
            let is_link = matches!(number, Number::Shelf(number) if self.shelves.lock().target(number).is_some());
            let goes_on = visit(&ListedName {
                name: &name,
                number: number.encode(),
                kind: if is_link { Kind::Symlink } else { Kind::Dir },
                next: place + 1,
                entry: None,
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(Some(()))
    }

    /// Attributes of a file that was listed.
    ///
    /// # Errors
    /// A recipe chunk cannot be read.
    pub fn listed(&self, listed: &ListedName<'_>) -> Result<Option<Attributes>> {
        match listed.entry {
            None => self.attributes(listed.number),
            Some((snapshot, position, entry)) => {
                let number = HardLinks::number(snapshot, position, entry);
                self.of_entry(number, snapshot, position, entry).map(Some)
            }
        }
    }

    /// The caller was told the number of a file that was listed, and [forgets](Self::forget) it some time.
    pub fn told(&self, listed: &ListedName<'_>) {
        if let Some((snapshot, position, entry)) = listed.entry {
            self.hard_links.meet(snapshot, position, entry);
        }
    }

    /// Tells why a file cannot be read, once.
    fn tell_once(&self, number: u64, path: &[u8], error: &Error) {
        let mut told = self.told.lock();
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        if told.insert(number) {
            let chain = successors(Some(error as &dyn std::error::Error), |error| {
                error.source()
            });
            let why: Vec<_> = chain.map(ToString::to_string).collect();
            self.warn(format_args!("{}: {}", path::show(path), why.join(": ")));
        }
    }

    /// The path of a folder in its snapshot; `None` where the number is of none.
    fn folder(&self, number: Number) -> Result<Option<(u32, Vec<u8>)>> {
        if let Number::Top(snapshot) = number {
            return Ok(Some((snapshot, Vec::new())));
        }
        let Some(found) = self.find(number)? else {
            return Ok(None);
        };
        let is_dir = found.entry().is_some_and(Entry::is_dir);
        Ok(is_dir.then(|| (found.snapshot, found.path())))
    }

    /// The entry with this number, with its leaf.
    fn find(&self, number: Number) -> Result<Option<LeafEntry>> {
        let (snapshot, position) = match number {
            Number::Entry(snapshot, position) => (snapshot, position),
            Number::Linked(snapshot, hash) => match self.hard_links.position(snapshot, hash) {
                Some(position) => (snapshot, position),
                None => return Ok(None),
            },
            Number::Shelf(_) | Number::Top(_) => return Ok(None),
        };
        let tree = self.tree(snapshot)?;
        let leaf = self.leaf(&tree, position.leaf as usize)?;
        Ok(leaf.map(|leaf| LeafEntry {
            snapshot,
            position,
            leaf,
        }))
    }

    /// The table of leaves of a snapshot.
    fn tree(&self, snapshot: u32) -> Result<Arc<Tree>> {
        if let Some(tree) = self.trees.lock().get(&snapshot) {
            return Ok(tree);
        }
        let id = self.known.lock().id_of(snapshot);
        let id = id.ok_or_else(|| Error::NoSnapshot(snapshot.to_string()))?;
        let named = snapshots::load_held(&self.repository, id)?;
        let tree = Arc::new(Tree::open(&named.snapshot, &mut self.metadata.lock())?);
        let bytes = tree.leaves().len() * ROW_BYTES;
        self.trees.lock().put(snapshot, Arc::clone(&tree), bytes);
        Ok(tree)
    }

    /// A leaf by its number, decoded; `None` past the last.
    fn leaf(&self, tree: &Tree, number: usize) -> Result<Option<Arc<OpenLeaf>>> {
        let Some(stored) = tree.leaves().get(number) else {
            return Ok(None);
        };
        let key = stored.chunk.fingerprint;
        if let Some(leaf) = self.leaves.lock().get(&key) {
            return Ok(Some(leaf));
        }
        let mut reader = self.metadata.lock();
        // Whoever had the reader may have read the same.
        if let Some(leaf) = self.leaves.lock().get(&key) {
            return Ok(Some(leaf));
        }
        let leaf = Arc::new(OpenLeaf::new(read_leaf(stored, &mut reader)?));
        let bytes = leaf.ram_bytes();
        self.leaves.lock().put(key, Arc::clone(&leaf), bytes);
        Ok(Some(leaf))
    }
}

fn position(leaf: usize, entry: usize) -> EntryPosition {
    EntryPosition {
        leaf: leaf as u32,
        entry: entry as u32,
    }
}
