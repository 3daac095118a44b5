//! Encodes entries as a leaf's bytes.

use std::collections::HashMap;
use std::hash::Hash;

use super::{
    COLUMNS_MAX, CTIME_FROM_MTIME, Column, HAS_ATIMES, HAS_DIGESTS, Leaf, VERSION, has_column,
    recipe,
};
use crate::wire::{put, put_bytes, put_digest, zigzag};
use crate::{Content, Entry, Flags, Kind, Owner, Time, Xattrs};

/// Returns the leaf's bytes. Equal leaves give equal bytes. Contents in `leaf.recipes` are not written again.
pub fn encode(leaf: &Leaf) -> Vec<u8> {
    // Freshly written files have equal mtime and ctime; in older trees each time resembles its neighbour's.
    let alike = leaf
        .entries
        .iter()
        .filter(|entry| entry.mtime == entry.ctime)
        .count();
    let mut head = 0;
    if alike * 2 > leaf.entries.len() {
        head |= CTIME_FROM_MTIME;
    }
    if leaf.entries.iter().any(|entry| entry.atime.is_some()) {
        head |= HAS_ATIMES;
    }
    let mut contents = leaf.entries.iter().map(|entry| &entry.content);
    if contents.any(|content| content.digest.is_some()) {
        head |= HAS_DIGESTS;
    }
    let mut encoder = Encoder {
        head,
        ..Encoder::default()
    };
    let mut entries = leaf.entries.iter();
    for run in &leaf.runs {
        let mut before: &[u8] = b"";
        for entry in entries.by_ref().take(run.count) {
            encoder.push(before, entry);
            before = &entry.name;
        }
    }
    encoder.assemble(leaf)
}

/// Values, numbered in order of first use.
struct ValueTable<'a, T: ?Sized> {
    numbers: HashMap<&'a T, u64>,
    values: Vec<&'a T>,
}

impl<T: ?Sized> Default for ValueTable<'_, T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }
}

impl<'a, T: Eq + Hash + ?Sized> ValueTable<'a, T> {
    fn number(&mut self, value: &'a T) -> u64 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u64 - 1
        })
    }
}

#[derive(Default)]
struct Encoder<'a> {
    columns: [Vec<u8>; COLUMNS_MAX],
    owners: ValueTable<'a, Owner>,
    xattrs: ValueTable<'a, Xattrs>,
    containers: recipe::Containers,
    mtime: Time,
    ctime: Time,
    head: u8,
    inode: u64,
    device: u64,
}

impl<'a> Encoder<'a> {
    fn push(&mut self, before: &[u8], entry: &'a Entry) {
        let shared = before
            .iter()
            .zip(&entry.name)
            .take_while(|(a, b)| a == b)
            .count();
        self.column(Column::NameLengths, shared as u64);
        self.column(Column::NameLengths, (entry.name.len() - shared) as u64);
        self.columns[Column::Names as usize].extend_from_slice(&entry.name[shared..]);
        self.column(
            Column::Modes,
            u64::from(entry.kind as u8) << 12 | u64::from(entry.mode & 0xfff),
        );
        let owner = self.owners.number(&entry.owner);
        self.column(Column::Owners, owner);
        self.times(entry);
        self.column(
            Column::Inodes,
            zigzag(entry.inode.wrapping_sub(self.inode) as i64),
        );
        self.column(
            Column::Devices,
            zigzag(entry.device.wrapping_sub(self.device) as i64),
        );
        (self.inode, self.device) = (entry.inode, entry.device);
        self.column(Column::Links, entry.links);
        let stored = entry.flags.0 & !Flags::DAMAGED.0;
        self.column(Column::Flags, u64::from(stored));
        let xattrs = if entry.xattrs.is_empty() {
            0
        } else {
            1 + self.xattrs.number(&entry.xattrs)
        };
        self.column(Column::XattrIndexes, xattrs);
        self.special(entry);
    }

    fn column(&mut self, column: Column, n: u64) {
        put(&mut self.columns[column as usize], n);
    }

    fn times(&mut self, entry: &Entry) {
        self.column(
            Column::MtimeSecs,
            zigzag(entry.mtime.secs.wrapping_sub(self.mtime.secs)),
        );
        self.column(
            Column::MtimeNanos,
            zigzag(i64::from(entry.mtime.nanos) - i64::from(self.mtime.nanos)),
        );
        let base = if self.head & CTIME_FROM_MTIME != 0 {
            entry.mtime
        } else {
            self.ctime
        };
        self.column(
            Column::CtimeSecs,
            zigzag(entry.ctime.secs.wrapping_sub(base.secs)),
        );
        self.column(
            Column::CtimeNanos,
            zigzag(i64::from(entry.ctime.nanos) - i64::from(base.nanos)),
        );
        (self.mtime, self.ctime) = (entry.mtime, entry.ctime);
        if self.head & HAS_ATIMES != 0 {
            let (atime, base) = (entry.atime.unwrap_or(entry.mtime), entry.mtime);
            self.column(
                Column::AtimeSecs,
                zigzag(atime.secs.wrapping_sub(base.secs)),
            );
            self.column(
                Column::AtimeNanos,
                zigzag(i64::from(atime.nanos) - i64::from(base.nanos)),
            );
        }
    }

    fn special(&mut self, entry: &'a Entry) {
        match entry.kind {
            Kind::File => {
                self.column(Column::Sizes, entry.size);
                let Content {
                    depth,
                    items,
                    digest,
                } = &entry.content;
                if self.head & HAS_DIGESTS != 0 {
                    put_digest(&mut self.columns[Column::Digests as usize], *digest);
                }
                self.column(
                    Column::Shapes,
                    (items.len() as u64) << 4 | u64::from(*depth),
                );
                if *depth > 0 {
                    let shapes = &mut self.columns[Column::Shapes as usize];
                    let mut fingerprints = Vec::new();
                    recipe::put_nodes(
                        &entry.content,
                        &mut self.containers,
                        shapes,
                        &mut fingerprints,
                    );
                    self.columns[Column::Fingerprints as usize].append(&mut fingerprints);
                }
            }
            Kind::Symlink => put_bytes(&mut self.columns[Column::Special as usize], &entry.target),
            Kind::CharDevice | Kind::BlockDevice => self.column(Column::Special, entry.rdev),
            Kind::Dir | Kind::Fifo | Kind::Socket => {}
        }
    }

    fn assemble(mut self, leaf: &Leaf) -> Vec<u8> {
        let recipes = self.recipes(leaf);
        let mut out = vec![VERSION, self.head];
        put(&mut out, leaf.entries.len() as u64);
        put_runs(&mut out, leaf);
        put(&mut out, self.owners.values.len() as u64);
        self.owners
            .values
            .iter()
            .for_each(|owner| put_owner(&mut out, owner));
        put(&mut out, self.xattrs.values.len() as u64);
        self.xattrs
            .values
            .iter()
            .for_each(|xattrs| put_xattrs(&mut out, xattrs));
        self.containers.put(&mut out);
        out.extend_from_slice(&recipes);
        let columns = self.columns.iter().enumerate();
        columns
            .filter(|(column, _)| has_column(self.head, *column))
            .for_each(|(_, bytes)| put_bytes(&mut out, bytes));
        out
    }
}

impl Encoder<'_> {
    /// Writes the list of recipe chunks: count, then container, length and items of each, then all fingerprints.
    fn recipes(&mut self, leaf: &Leaf) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, leaf.recipes.len() as u64);
        for recipe in &leaf.recipes {
            put(&mut out, self.containers.number(recipe.chunk.container));
            put(&mut out, u64::from(recipe.chunk.len));
            put(&mut out, u64::from(recipe.items));
        }
        leaf.recipes
            .iter()
            .for_each(|recipe| out.extend_from_slice(&recipe.chunk.fingerprint.0));
        out
    }
}

fn put_runs(out: &mut Vec<u8>, leaf: &Leaf) {
    put(out, leaf.runs.len() as u64);
    let mut before: &[u8] = b"";
    for run in &leaf.runs {
        let shared = before
            .iter()
            .zip(&run.folder)
            .take_while(|(a, b)| a == b)
            .count();
        put(out, shared as u64);
        put_bytes(out, &run.folder[shared..]);
        put(out, run.count as u64);
        before = &run.folder;
    }
}

fn put_owner(out: &mut Vec<u8>, owner: &Owner) {
    put(out, u64::from(owner.uid));
    put(out, u64::from(owner.gid));
    put_bytes(out, owner.user.as_bytes());
    put_bytes(out, owner.group.as_bytes());
}

fn put_xattrs(out: &mut Vec<u8>, xattrs: &Xattrs) {
    put(out, xattrs.len() as u64);
    for (name, value) in xattrs {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}
