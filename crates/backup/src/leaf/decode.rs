//! Decodes a leaf's bytes to entries. Any bytes give a leaf or an error. Allocations are bounded by the number of
//! bytes, or by the limits of a leaf.

use std::collections::VecDeque;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_store::{ChunkRef, ContainerId};

use super::limits::{
    ENTRIES_MAX, FOLDERS_BYTES_MAX, ITEMS_MAX, Limit, NAMES_BYTES_MAX, OWNER_NAME_BYTES_MAX,
    OWNERS_BYTES_MAX, XATTRS_MAX,
};
use super::{
    COLUMNS_MAX, CTIME_FROM_MTIME, Column, FolderRun, HAS_ATIMES, HAS_DIGESTS, Leaf, RecipeRef,
    VERSION, has_column, recipe,
};
use crate::path::{folder_is_safe, name_is_safe, show};
use crate::wire::WireReader;
use crate::{Content, Entry, Flags, Item, Kind, Owner, Result, SharedXattrs, Time, Xattrs};

/// Reads a recipe chunk's items.
pub type ReadRecipe<'a> = &'a mut dyn FnMut(&ChunkRef) -> Result<Vec<Item>>;

/// Decodes a leaf, contents included: recipe chunks are read through `read`. Names and folders are checked: none can
/// lead out of its folder.
///
/// # Errors
/// [`Error::Malformed`](crate::Error::Malformed), with the offset: bytes that mean nothing, a name or folder that leads
/// elsewhere, more than a limit of a leaf, or another version; those of `read`.
pub fn decode(bytes: &[u8], read: ReadRecipe<'_>) -> Result<Leaf> {
    decode_with(bytes, Some(read)).map(|(leaf, _)| leaf)
}

/// Decodes a leaf without the contents of files at depth 0; returns also how many items of its recipe chunks each entry
/// has.
///
/// # Errors
/// [`Error::Malformed`](crate::Error::Malformed), as in [`decode`].
pub fn decode_bare(bytes: &[u8]) -> Result<(Leaf, Vec<u64>)> {
    decode_with(bytes, None)
}

fn decode_with(bytes: &[u8], read: Option<ReadRecipe<'_>>) -> Result<(Leaf, Vec<u64>)> {
    let mut reader = WireReader::new("leaf", bytes);
    reader.version(VERSION)?;
    let head = reader.u8()?;
    if head & !(CTIME_FROM_MTIME | HAS_ATIMES | HAS_DIGESTS) != 0 {
        return Err(reader.fail(format_args!("head {head:#x}")));
    }
    let entries = reader.count()?;
    Limit::new("entries", ENTRIES_MAX).take(entries as u64, &reader)?;
    let runs = read_runs(&mut reader, entries)?;
    let tables = LeafTables::read(&mut reader, entries)?;
    let recipes = read_recipes(&mut reader, &tables.containers)?;
    let mut columns = Vec::with_capacity(COLUMNS_MAX);
    for column in 0..COLUMNS_MAX {
        columns.push(if has_column(head, column) {
            reader.column("leaf")?
        } else {
            WireReader::new("leaf", b"")
        });
    }
    reader.end()?;
    let feed = ItemFeed {
        recipes: recipes.clone().into(),
        items: VecDeque::new(),
        read,
    };
    let mut rows = LeafRows {
        tables,
        columns,
        feed,
        head,
        mtime: Time::default(),
        ctime: Time::default(),
        inode: 0,
        device: 0,
        counts: Vec::new(),
        names: Limit::new("bytes of names", NAMES_BYTES_MAX),
        items: Limit::new("items", ITEMS_MAX),
    };
    let mut leaf = Leaf {
        entries: Vec::with_capacity(entries),
        runs,
        recipes,
    };
    for run in &leaf.runs {
        let mut before = Vec::new();
        for _ in 0..run.count {
            let entry = rows.next(&before)?;
            before.clone_from(&entry.name);
            leaf.entries.push(entry);
        }
    }
    rows.columns.iter().try_for_each(WireReader::end)?;
    rows.feed.end(&reader)?;
    let has_digest = |entry: &Entry| entry.content.digest.is_some();
    if head & HAS_DIGESTS != 0 && !leaf.entries.iter().any(has_digest) {
        return Err(reader.fail("digests of no file"));
    }
    Ok((leaf, rows.counts))
}

fn read_runs(reader: &mut WireReader<'_>, entries: usize) -> Result<Vec<FolderRun>> {
    let mut runs: Vec<FolderRun> = Vec::new();
    let mut left = entries;
    let mut bytes = Limit::new("bytes of folders", FOLDERS_BYTES_MAX);
    for _ in 0..reader.count()? {
        let shared: usize = reader.small()?;
        let before = runs.last().map_or(&b""[..], |run| &run.folder);
        let start = before
            .get(..shared)
            .ok_or_else(|| reader.fail("shares more than the folder before has"))?;
        let own = reader.bytes()?;
        bytes.take((start.len() + own.len()) as u64, reader)?;
        let folder = [start, own].concat();
        if !folder_is_safe(&folder) {
            return Err(reader.fail(format_args!("folder {:?}", show(&folder))));
        }
        let count: usize = reader.small()?;
        left = left
            .checked_sub(count)
            .filter(|_| count > 0)
            .ok_or_else(|| reader.fail(format_args!("{count} entries in a folder of {left}")))?;
        runs.push(FolderRun { folder, count });
    }
    match left {
        0 => Ok(runs),
        _ => Err(reader.fail(format_args!("{left} entries belong to no folder"))),
    }
}

struct LeafTables {
    /// Owners, each with a flag for damage: a damaged owner is kept without names.
    owners: Vec<(Arc<Owner>, bool)>,
    /// Sets of attributes by number; number 0 is the empty set.
    xattrs: Vec<SharedXattrs>,
    containers: Vec<ContainerId>,
}

impl LeafTables {
    /// Reads the tables of a leaf with `entries` entries: more owners or sets of attributes than entries are an error.
    fn read(reader: &mut WireReader<'_>, entries: usize) -> Result<Self> {
        let count = |what, reader: &mut WireReader<'_>| {
            let count = reader.count()?;
            Limit::new(what, entries as u64).take(count as u64, reader)?;
            Ok::<_, crate::Error>(count)
        };
        let mut pairs = Limit::new("attributes", XATTRS_MAX);
        let mut owners = Vec::new();
        let mut bytes = Limit::new("bytes of owners' names", OWNERS_BYTES_MAX);
        for _ in 0..count("owners", reader)? {
            let (uid, gid) = (reader.small()?, reader.small()?);
            let names = [
                owner_name(reader, &mut bytes)?,
                owner_name(reader, &mut bytes)?,
            ];
            let is_damaged = names.contains(&None);
            let [user, group] = names.map(Option::unwrap_or_default);
            let owner = Owner {
                uid,
                gid,
                user,
                group,
            };
            owners.push((Arc::new(owner), is_damaged));
        }
        let mut xattrs = vec![SharedXattrs::default()];
        for _ in 0..count("sets of attributes", reader)? {
            let mut one = Xattrs::new();
            let own = reader.count()?;
            pairs.take(own as u64, reader)?;
            for _ in 0..own {
                one.push((reader.bytes()?.into(), reader.bytes()?.into()));
            }
            xattrs.push(one.into());
        }
        Ok(Self {
            owners,
            xattrs,
            containers: recipe::Containers::read(reader)?,
        })
    }
}

/// Reads the name of a user or a group, of a length that a system can have: a restore asks the system for each. `None`:
/// no system has a name of this length; then the entries of that owner are lost, and no others.
fn owner_name(reader: &mut WireReader<'_>, bytes: &mut Limit) -> Result<Option<Box<str>>> {
    let name = reader.text()?;
    if name.len() > OWNER_NAME_BYTES_MAX {
        return Ok(None);
    }
    bytes.take(name.len() as u64, reader)?;
    Ok(Some(name.into()))
}

fn read_recipes(reader: &mut WireReader<'_>, containers: &[ContainerId]) -> Result<Vec<RecipeRef>> {
    let count = reader.count()?;
    let mut recipes = Vec::new();
    let mut left = Limit::new("items", ITEMS_MAX);
    for _ in 0..count {
        let number: usize = reader.small()?;
        let container = number.checked_sub(1).and_then(|i| containers.get(i));
        let container = *container.ok_or_else(|| {
            reader.fail(format_args!("container {number} of {}", containers.len()))
        })?;
        let chunk = ChunkRef {
            fingerprint: Fingerprint([0; 32]),
            container,
            len: reader.small()?,
        };
        let items: u32 = reader.small()?;
        if items == 0 {
            return Err(reader.fail("a recipe chunk of no items"));
        }
        left.take(items.into(), reader)?;
        recipes.push(RecipeRef { chunk, items });
    }
    for recipe in &mut recipes {
        recipe.chunk.fingerprint = Fingerprint(reader.array()?);
    }
    Ok(recipes)
}

/// Gives the items of recipe chunks one after another, where contents are wanted.
struct ItemFeed<'r> {
    recipes: VecDeque<RecipeRef>,
    items: VecDeque<Item>,
    read: Option<ReadRecipe<'r>>,
}

impl ItemFeed<'_> {
    /// Returns the next `count` items.
    fn take(&mut self, count: u64, reader: &WireReader<'_>) -> Result<Vec<Item>> {
        let Some(read) = &mut self.read else {
            return Ok(Vec::new());
        };
        while (self.items.len() as u64) < count {
            let recipe = self.recipes.pop_front();
            let recipe =
                recipe.ok_or_else(|| reader.fail("more items than the recipe chunks hold"))?;
            let items = read(&recipe.chunk)?;
            if items.len() != recipe.items as usize {
                return Err(reader.fail(format_args!(
                    "a recipe chunk of {} items, expected {}",
                    items.len(),
                    recipe.items
                )));
            }
            self.items.extend(items);
        }
        Ok(self.items.drain(..count as usize).collect())
    }

    fn end(&self, reader: &WireReader<'_>) -> Result<()> {
        if self.read.is_none() || self.items.is_empty() && self.recipes.is_empty() {
            Ok(())
        } else {
            Err(reader.fail("recipe chunks hold items of no file"))
        }
    }
}

struct LeafRows<'a, 'r> {
    tables: LeafTables,
    columns: Vec<WireReader<'a>>,
    feed: ItemFeed<'r>,
    head: u8,
    /// Number of items from recipe chunks, for each entry.
    counts: Vec<u64>,
    mtime: Time,
    ctime: Time,
    inode: u64,
    device: u64,
    names: Limit,
    items: Limit,
}

impl<'a> LeafRows<'a, '_> {
    fn column(&mut self, column: Column) -> &mut WireReader<'a> {
        &mut self.columns[column as usize]
    }

    fn next(&mut self, before: &[u8]) -> Result<Entry> {
        let name = self.name(before)?;
        let mode: u16 = self.column(Column::Modes).small()?;
        let kind = Kind::from_u8((mode >> 12) as u8);
        let kind = kind.ok_or_else(|| {
            let column = self.column(Column::Modes);
            column.fail(format_args!("kind {}", mode >> 12))
        })?;
        let mut entry = Entry::new(name, kind);
        entry.mode = mode & 0xfff;
        let (owner, is_damaged) = self.owner()?;
        entry.owner = owner;
        self.times(&mut entry)?;
        self.inode = self
            .inode
            .wrapping_add(self.column(Column::Inodes).signed()? as u64);
        self.device = self
            .device
            .wrapping_add(self.column(Column::Devices).signed()? as u64);
        (entry.inode, entry.device) = (self.inode, self.device);
        entry.links = self.column(Column::Links).varint()?;
        let flags: u8 = self.column(Column::Flags).small()?;
        entry.flags.0 = flags & !Flags::DAMAGED.0;
        if is_damaged {
            entry.flags.0 |= Flags::DAMAGED.0 | Flags::UNREADABLE.0;
        }
        entry.xattrs = self.xattrs()?;
        let items = self.special(&mut entry)?;
        self.counts.push(items);
        Ok(entry)
    }

    fn name(&mut self, before: &[u8]) -> Result<Vec<u8>> {
        let lengths = self.column(Column::NameLengths);
        let (shared, own): (usize, usize) = (lengths.small()?, lengths.small()?);
        let start = before
            .get(..shared)
            .ok_or_else(|| lengths.fail("shares more than the name before has"))?;
        let column = &self.columns[Column::Names as usize];
        self.names
            .take((start.len() as u64).saturating_add(own as u64), column)?;
        let name = [start, self.column(Column::Names).take(own)?].concat();
        if name_is_safe(&name) && name.as_slice() > before {
            Ok(name)
        } else {
            let column = self.column(Column::Names);
            Err(column.fail(format_args!(
                "name {:?} after {:?}",
                show(&name),
                show(before)
            )))
        }
    }

    /// Reads an entry's owner, and whether that owner is damaged: it has a name that no system gives.
    fn owner(&mut self) -> Result<(Arc<Owner>, bool)> {
        let number: usize = self.column(Column::Owners).small()?;
        let owner = self.tables.owners.get(number).cloned();
        owner.ok_or_else(|| {
            self.column(Column::Owners)
                .fail(format_args!("owner {number}"))
        })
    }

    fn times(&mut self, entry: &mut Entry) -> Result<()> {
        let columns = &mut self.columns;
        entry.mtime = after(self.mtime, columns, Column::MtimeSecs, Column::MtimeNanos)?;
        let base = match self.head & CTIME_FROM_MTIME {
            0 => self.ctime,
            _ => entry.mtime,
        };
        entry.ctime = after(base, columns, Column::CtimeSecs, Column::CtimeNanos)?;
        (self.mtime, self.ctime) = (entry.mtime, entry.ctime);
        if self.head & HAS_ATIMES != 0 {
            let atime = after(entry.mtime, columns, Column::AtimeSecs, Column::AtimeNanos)?;
            entry.atime = Some(atime);
        }
        Ok(())
    }

    fn xattrs(&mut self) -> Result<SharedXattrs> {
        let number: usize = self.column(Column::XattrIndexes).small()?;
        let xattrs = self.tables.xattrs.get(number).cloned();
        xattrs.ok_or_else(|| {
            self.column(Column::XattrIndexes)
                .fail(format_args!("xattrs {number}"))
        })
    }

    /// Reads the columns that only some kinds have; returns how many items come from recipe chunks.
    fn special(&mut self, entry: &mut Entry) -> Result<u64> {
        match entry.kind {
            Kind::File => {
                entry.size = self.column(Column::Sizes).varint()?;
                let items = self.content(entry)?;
                if self.head & HAS_DIGESTS != 0 {
                    entry.content.digest = self.column(Column::Digests).digest()?;
                }
                return Ok(items);
            }
            Kind::Symlink => entry.target = self.column(Column::Special).bytes()?.to_vec(),
            Kind::CharDevice | Kind::BlockDevice => {
                entry.rdev = self.column(Column::Special).varint()?
            }
            Kind::Dir | Kind::Fifo | Kind::Socket => {}
        }
        Ok(0)
    }

    fn content(&mut self, entry: &mut Entry) -> Result<u64> {
        let (columns, fingerprints) = self.columns.split_at_mut(Column::Fingerprints as usize);
        let shapes = &mut columns[Column::Shapes as usize];
        let head = shapes.varint()?;
        let (depth, count) = ((head & 15) as u8, head >> 4);
        self.items.take(count, shapes)?;
        let items = match depth {
            0 => self.feed.take(count, shapes)?,
            _ => recipe::read_nodes(
                count,
                depth,
                &self.tables.containers,
                shapes,
                &mut fingerprints[0],
            )?,
        };
        entry.content = Content {
            depth,
            items,
            digest: None,
        };
        let items = &entry.content.items;
        let sum = items
            .iter()
            .try_fold(0u64, |sum, item| sum.checked_add(item.span()));
        if (depth > 0 || self.feed.read.is_some()) && sum != Some(entry.size) {
            return Err(shapes.fail(format_args!(
                "items cover {sum:?} bytes of a file of {}",
                entry.size
            )));
        }
        Ok(if depth == 0 { count } else { 0 })
    }
}

fn after(base: Time, columns: &mut [WireReader<'_>], secs: Column, nanos: Column) -> Result<Time> {
    let secs = base.secs.wrapping_add(columns[secs as usize].signed()?);
    let column = &mut columns[nanos as usize];
    let sum = column.signed()?.checked_add(i64::from(base.nanos));
    let nanos = sum
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n < 1_000_000_000)
        .ok_or_else(|| column.fail("nanoseconds of no second"))?;
    Ok(Time { secs, nanos })
}
