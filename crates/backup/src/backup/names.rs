//! Files with several names: what the planner remembers of the first one, and what the finisher does, so that each is
//! read once.

use crate::leaf::recipe;
use crate::linked::{LinkKey, Linked, Value};
use crate::meta::Stat;
use crate::wire::{Reader, put, put_bytes, put_digest, zigzag};
use crate::{Content, Entry, Flags, Item, Result, SharedXattrs, Time, Xattrs};

/// A file with several names.
#[derive(Clone, Copy)]
pub struct Names {
    pub key: LinkKey,
    /// How many names will ask for the first one's content at most.
    pub to_come: u32,
}

/// What a further name of a file must have in common with the first: an inode may have been freed and given to another
/// file since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Looks {
    pub size: u64,
    pub mtime: Time,
}

impl Value for Looks {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.size);
        put_time(out, self.mtime);
    }

    fn get(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("temporary file", bytes);
        let (size, mtime) = (reader.varint()?, time(&mut reader)?);
        Ok(Self { size, mtime })
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    put(out, zigzag(time.secs));
    put(out, time.nanos.into());
}

fn time(reader: &mut Reader<'_>) -> Result<Time> {
    let (secs, nanos) = (reader.signed()?, reader.small()?);
    Ok(Time { secs, nanos })
}

/// Which files with several names were met, for whoever reads each once and keeps nothing of it.
pub struct Met(Linked<Looks>);

impl Met {
    /// None yet; they take about `bytes_max` bytes of RAM at most.
    pub fn new(bytes_max: usize) -> Self {
        Self(Linked::new(bytes_max))
    }

    /// Whether the file was met under another name. Without room for a temporary file each name counts as another file.
    pub fn again(&mut self, stat: &Stat) -> bool {
        let looks = Looks {
            size: stat.size,
            mtime: stat.mtime,
        };
        let names = meet(&mut self.0, (stat.device, stat.inode), stat.links, looks);
        names.is_some_and(|names| names.to_come == 0)
    }
}

/// Of a file with so many `names` that comes under one of them; no more names are to come where it came under another
/// before. Without room for a temporary file each name is that of another file.
pub fn meet(links: &mut Linked<Looks>, key: LinkKey, names: u64, looks: Looks) -> Option<Names> {
    if names < 2 {
        return None;
    }
    if let Ok(Some(_)) = links.meet(key, |first| *first == looks) {
        return Some(Names { key, to_come: 0 });
    }
    let to_come = u32::try_from(names - 1).unwrap_or(u32::MAX);
    let remembered = links.insert(key, to_come, looks);
    remembered.is_ok().then_some(Names { key, to_come })
}

/// A file with several names as it was when it was read under the first.
#[derive(Clone)]
pub struct First {
    content: Content,
    size: u64,
    mtime: Time,
    ctime: Time,
    flags: Flags,
    xattrs: SharedXattrs,
}

/// What the finisher remembers for the names to come; nothing more once that has failed.
pub struct FirstNames(Option<Linked<First>>);

impl FirstNames {
    /// None yet; they take about `bytes_max` bytes of RAM at most.
    pub fn new(bytes_max: usize) -> Self {
        Self(Some(Linked::new(bytes_max)))
    }

    /// Remembers nothing from now on.
    pub fn give_up(&mut self) {
        self.0 = None;
    }

    /// Takes note of what was read under the first of `names`; of nothing, if another file stood there by then. Errors:
    /// a temporary file failed.
    pub fn remember(&mut self, names: Names, entry: &Entry) -> Result<()> {
        if (entry.device, entry.inode) != names.key {
            return self.forget(names);
        }
        let Some(links) = &mut self.0 else {
            return Ok(());
        };
        let first = First {
            content: entry.content.clone(),
            size: entry.size,
            mtime: entry.mtime,
            ctime: entry.ctime,
            flags: entry.flags,
            xattrs: entry.xattrs.clone(),
        };
        links.insert(names.key, names.to_come, first)
    }

    /// The first of `names` was not read. Errors: a temporary file failed.
    pub fn forget(&mut self, names: Names) -> Result<()> {
        match &mut self.0 {
            Some(links) => links.forget(names.key),
            None => Ok(()),
        }
    }

    /// Makes `entry`, a further name, what was read under the first one; `false` where nothing was. Errors: a temporary
    /// file failed.
    pub fn recall(&mut self, names: Names, entry: &mut Entry) -> Result<bool> {
        let first = match &mut self.0 {
            Some(links) => links.meet(names.key, |_| true)?,
            None => None,
        };
        let Some(first) = first else {
            return Ok(false);
        };
        (entry.content, entry.size, entry.xattrs) = (first.content, first.size, first.xattrs);
        (entry.mtime, entry.ctime, entry.flags) = (first.mtime, first.ctime, first.flags);
        Ok(true)
    }
}

impl Value for First {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.size);
        put_time(out, self.mtime);
        put_time(out, self.ctime);
        put(out, self.flags.0.into());
        put(out, self.content.depth.into());
        put_bytes(
            out,
            &recipe::encode(&self.content.items, self.content.depth),
        );
        put_digest(out, self.content.digest);
        put(out, self.xattrs.len() as u64);
        for (name, value) in &*self.xattrs {
            put_bytes(out, name);
            put_bytes(out, value);
        }
    }

    fn get(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("temporary file", bytes);
        let size = reader.varint()?;
        let (mtime, ctime) = (time(&mut reader)?, time(&mut reader)?);
        let (flags, depth) = (Flags(reader.small()?), reader.small()?);
        let items = recipe::decode(reader.bytes()?, depth)?;
        let digest = reader.digest()?;
        let xattrs = (0..reader.count()?)
            .map(|_| Ok((reader.bytes()?.into(), reader.bytes()?.into())))
            .collect::<Result<Xattrs>>()?;
        Ok(Self {
            content: Content {
                depth,
                items,
                digest,
            },
            size,
            mtime,
            ctime,
            flags,
            xattrs: xattrs.into(),
        })
    }

    fn heap_bytes(&self) -> usize {
        let xattrs = self.xattrs.iter();
        let xattrs = xattrs.map(|(name, value)| 64 + name.len() + value.len());
        self.content.items.len() * size_of::<Item>() + xattrs.sum::<usize>() + 16
    }
}
