//! Files with several names: the planner remembers which first names came, and the finisher the content read under
//! them, so that each file is read once.

use crate::leaf::recipe;
use crate::linked::{LinkKey, Linked, Value};
use crate::meta::Stat;
use crate::wire::{WireReader, put, put_bytes, put_digest, zigzag};
use crate::{Content, Entry, Flags, Item, Result, SharedXattrs, Time, Xattrs};

/// A file with several names.
#[derive(Clone, Copy)]
pub struct LinkedNames {
    pub key: LinkKey,
    /// Largest number of names that will still ask for the first name's content.
    pub to_come: u32,
}

/// Size and time of change of a file. Two names of one file have both in common, unless the inode was freed and given
/// to another file in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SizeAndTime {
    pub size: u64,
    pub mtime: Time,
}

impl From<&Entry> for SizeAndTime {
    fn from(entry: &Entry) -> Self {
        Self {
            size: entry.size,
            mtime: entry.mtime,
        }
    }
}

impl From<&Stat> for SizeAndTime {
    fn from(stat: &Stat) -> Self {
        Self {
            size: stat.size,
            mtime: stat.mtime,
        }
    }
}

impl Value for SizeAndTime {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.size);
        put_time(out, self.mtime);
    }

    fn get(bytes: &[u8]) -> Result<Self> {
        let mut reader = WireReader::new("temporary file", bytes);
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

fn time(reader: &mut WireReader<'_>) -> Result<Time> {
    let (secs, nanos) = (reader.signed()?, reader.small()?);
    Ok(Time { secs, nanos })
}

/// The files with several names that were met so far, for readers that need no content of them.
pub struct SeenFiles(Linked<SizeAndTime>);

impl SeenFiles {
    /// Makes an empty set that takes about `bytes_max` bytes of RAM at most.
    pub fn new(bytes_max: usize) -> Self {
        Self(Linked::new(bytes_max))
    }

    /// Returns whether the file was met under another name. Without room for a temporary file each name counts as
    /// another file.
    pub fn again(&mut self, stat: &Stat) -> bool {
        let looks = SizeAndTime::from(stat);
        let names = meet(&mut self.0, (stat.device, stat.inode), stat.links, looks);
        names.is_some_and(|names| names.to_come == 0)
    }
}

/// Notes a file with `names` names, met under one of them, and returns what links the names. No further names are
/// expected of a file that came under another name before. Without room for a temporary file each name counts as
/// another file.
pub fn meet(
    links: &mut Linked<SizeAndTime>,
    key: LinkKey,
    names: u64,
    looks: SizeAndTime,
) -> Option<LinkedNames> {
    if names < 2 {
        return None;
    }
    if let Ok(Some(_)) = links.meet(key, |first| *first == looks) {
        return Some(LinkedNames { key, to_come: 0 });
    }
    let to_come = u32::try_from(names - 1).unwrap_or(u32::MAX);
    let remembered = links.insert(key, to_come, looks);
    remembered.is_ok().then_some(LinkedNames { key, to_come })
}

/// State of a file with several names when it was read under the first.
#[derive(Clone)]
pub struct FirstNameState {
    content: Content,
    size: u64,
    mtime: Time,
    ctime: Time,
    flags: Flags,
    xattrs: SharedXattrs,
}

/// Contents that the finisher remembers for further names; `None` once remembering has failed.
pub struct FirstNames(Option<Linked<FirstNameState>>);

impl FirstNames {
    /// Makes an empty memory that takes about `bytes_max` bytes of RAM at most.
    pub fn new(bytes_max: usize) -> Self {
        Self(Some(Linked::new(bytes_max)))
    }

    /// Remembers nothing from now on.
    pub fn give_up(&mut self) {
        self.0 = None;
    }

    /// Remembers the content that was read under the first of `names`, unless another file stood there by then. Errors:
    /// a temporary file failed.
    pub fn remember(&mut self, names: LinkedNames, entry: &Entry) -> Result<()> {
        if (entry.device, entry.inode) != names.key {
            return self.forget(names);
        }
        let Some(links) = &mut self.0 else {
            return Ok(());
        };
        let first = FirstNameState {
            content: entry.content.clone(),
            size: entry.size,
            mtime: entry.mtime,
            ctime: entry.ctime,
            flags: entry.flags,
            xattrs: entry.xattrs.clone(),
        };
        links.insert(names.key, names.to_come, first)
    }

    /// Forgets `names`, since the first of them was not read. Errors: a temporary file failed.
    pub fn forget(&mut self, names: LinkedNames) -> Result<()> {
        match &mut self.0 {
            Some(links) => links.forget(names.key),
            None => Ok(()),
        }
    }

    /// Gives `entry`, a further name, the content that was read under the first name; returns `false` where there is
    /// none. Errors: a temporary file failed.
    pub fn recall(&mut self, names: LinkedNames, entry: &mut Entry) -> Result<bool> {
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

impl Value for FirstNameState {
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
        let mut reader = WireReader::new("temporary file", bytes);
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
