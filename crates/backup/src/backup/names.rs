//! Files with several names: what the planner remembers of the first one, and what the finisher does, so that each is read once.

use std::sync::Arc;

use crate::leaf::recipe;
use crate::linked::{LinkKey, Value};
use crate::wire::{Reader, put, put_bytes, zigzag};
use crate::{Content, Item, Result, Time, Xattrs};

/// A file with several names.
#[derive(Clone, Copy)]
pub struct Names {
    pub key: LinkKey,
    /// How many names will ask for the first one's content at most.
    pub to_come: u32,
}

/// What a further name of a file must have in common with the first: an inode may have been freed and given to another file since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Looks {
    pub size: u64,
    pub mtime: Time,
}

impl Value for Looks {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.size);
        put(out, zigzag(self.mtime.secs));
        put(out, self.mtime.nanos.into());
    }

    fn get(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("temporary file", bytes);
        let size = reader.varint()?;
        let (secs, nanos) = (reader.signed()?, reader.small()?);
        let mtime = Time { secs, nanos };
        Ok(Self { size, mtime })
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

/// The content of a file with several names.
#[derive(Clone)]
pub struct First {
    pub content: Content,
    pub size: u64,
    pub xattrs: Arc<Xattrs>,
}

impl Value for First {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.size);
        put(out, self.content.depth.into());
        put_bytes(
            out,
            &recipe::encode(&self.content.items, self.content.depth),
        );
        put(out, self.xattrs.len() as u64);
        for (name, value) in &*self.xattrs {
            put_bytes(out, name);
            put_bytes(out, value);
        }
    }

    fn get(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("temporary file", bytes);
        let (size, depth) = (reader.varint()?, reader.small()?);
        let items = recipe::decode(reader.bytes()?, depth)?;
        let xattrs = (0..reader.count()?)
            .map(|_| Ok((reader.bytes()?.into(), reader.bytes()?.into())))
            .collect::<Result<_>>()?;
        Ok(Self {
            content: Content { depth, items },
            size,
            xattrs: Arc::new(xattrs),
        })
    }

    fn heap_bytes(&self) -> usize {
        let xattrs = self.xattrs.iter();
        let xattrs = xattrs.map(|(name, value)| 64 + name.len() + value.len());
        self.content.items.len() * size_of::<Item>() + xattrs.sum::<usize>() + 16
    }
}
