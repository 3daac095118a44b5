//! The entry: properties and content of one file, folder, link or device in a snapshot.

use std::ops::{Deref, Range};
use std::sync::Arc;

use onefold_store::digest::Digest;
use onefold_store::{ChunkRef, ContainerId};

use crate::Error;
use crate::leaf::OWNER_NAME_BYTES_MAX;
use crate::wire::WireReader;

/// Kind of an entry. The numbers are those on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A regular file.
    File = 1,
    /// A folder.
    Dir = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket's name.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl Kind {
    /// Returns the kind with this number on disk; `None` where there is none.
    pub fn from_u8(n: u8) -> Option<Self> {
        use Kind::*;
        [File, Dir, Symlink, Fifo, Socket, CharDevice, BlockDevice]
            .into_iter()
            .find(|kind| *kind as u8 == n)
    }

    /// Returns restic's word for the kind in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Dir => "dir",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharDevice => "chardev",
            Kind::BlockDevice => "dev",
        }
    }
}

/// A point in time: seconds since 1970 and nanoseconds within the second (`< 1_000_000_000`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time {
    /// Seconds since 1970, UTC.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// Owner of an entry, by numbers and, where the host of the backup knew them, by names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Owner {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// User name, or empty.
    pub user: Box<str>,
    /// Group name, or empty.
    pub group: Box<str>,
}

/// Extended attributes, ACLs among them (`system.posix_acl_*`), sorted by name; names and values as the system gives
/// them.
pub type Xattrs = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Attributes of an entry, shared by entries with the same ones; an entry without attributes needs no RAM for them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SharedXattrs(Option<Arc<Xattrs>>);

impl SharedXattrs {
    /// Whether both are the same value in RAM.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl From<Xattrs> for SharedXattrs {
    fn from(xattrs: Xattrs) -> Self {
        Self((!xattrs.is_empty()).then(|| xattrs.into()))
    }
}

impl Deref for SharedXattrs {
    type Target = Xattrs;

    fn deref(&self) -> &Xattrs {
        static NONE: Xattrs = Xattrs::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

/// RAM that attributes take, in bytes.
pub(crate) fn xattrs_bytes(xattrs: &Xattrs) -> usize {
    let bytes = |(name, value): &(Box<[u8]>, Box<[u8]>)| name.len() + value.len();
    xattrs.iter().map(bytes).sum::<usize>() + size_of_val(&xattrs[..])
}

/// Notes about an entry, as bits on disk. A backup makes them, and a repair that gave up what was lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(pub u8);

impl Flags {
    /// The file changed while it was read, twice: its content may mix versions.
    pub const CHANGED_WHILE_READ: Flags = Flags(1);
    /// The thing was there and could not be read, or its content is lost: the entry has the properties that were known,
    /// and no content. For a folder: its attributes are missing.
    pub const UNREADABLE: Flags = Flags(2);
    /// The folder could not be listed: the snapshot may lack some of its names. For other entries: their attributes
    /// could not be read, and are missing.
    pub const UNLISTED: Flags = Flags(4);
    /// Set by readers and never stored: the entry is damaged, since its owner has a name that no system gives. Such an
    /// entry is unreadable, too.
    pub(crate) const DAMAGED: Flags = Flags(128);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One piece of a file's content, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// Bytes of a file that were never written: `len` zeros that take no space.
    Hole {
        /// Length in bytes.
        len: u64,
    },
    /// At depth 0 a chunk of data, `span` being its length. At depth d > 0 a recipe chunk whose items have depth d−1
    /// and cover `span` bytes of the file.
    Chunk {
        /// Fingerprint, container and length of the chunk.
        chunk: ChunkRef,
        /// Bytes of the file that the chunk covers.
        span: u64,
    },
    /// A part of a chunk of data, at depth 0.
    Slice(Slice),
}

/// Bytes of a chunk of data: all of them, or those that a file still has of a long chunk which it changed in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The chunk.
    pub chunk: ChunkRef,
    /// Offset of this part in the chunk, in bytes.
    pub skip: u32,
    /// Length of this part, in bytes; `skip` and `len` together are at most the chunk's length.
    pub len: u32,
}

impl Slice {
    /// Makes the slice of a whole chunk.
    pub fn whole(chunk: ChunkRef) -> Self {
        Self {
            chunk,
            skip: 0,
            len: chunk.len,
        }
    }

    /// Whether the slice is all of its chunk.
    pub fn is_whole(&self) -> bool {
        self.len == self.chunk.len
    }

    /// Returns the slice's bytes, out of those of its chunk.
    pub fn of<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        &chunk[self.skip as usize..][..self.len as usize]
    }

    /// Returns the part of the slice at the offsets `part`, in bytes.
    pub fn part(&self, part: Range<usize>) -> Self {
        Self {
            skip: self.skip + part.start as u32,
            len: part.len() as u32,
            ..*self
        }
    }
}

impl From<Slice> for Item {
    fn from(slice: Slice) -> Item {
        if slice.is_whole() {
            Item::Chunk {
                chunk: slice.chunk,
                span: slice.len.into(),
            }
        } else {
            Item::Slice(slice)
        }
    }
}

impl Item {
    /// Returns the item's chunk; `None` for a hole.
    pub fn chunk(&self) -> Option<&ChunkRef> {
        match self {
            Item::Hole { .. } => None,
            Item::Chunk { chunk, .. } | Item::Slice(Slice { chunk, .. }) => Some(chunk),
        }
    }

    /// Returns the item without the place of its chunk, for comparisons.
    fn nowhere(mut self) -> Self {
        if let Item::Chunk { chunk, .. } | Item::Slice(Slice { chunk, .. }) = &mut self {
            chunk.container = ContainerId(0);
        }
        self
    }

    /// Returns the data of an item of depth 0; `None` for a hole.
    pub fn data(&self) -> Option<Slice> {
        match *self {
            Item::Hole { .. } => None,
            Item::Chunk { chunk, .. } => Some(Slice::whole(chunk)),
            Item::Slice(slice) => Some(slice),
        }
    }

    /// Bytes of the file that the item covers.
    pub fn span(&self) -> u64 {
        match *self {
            Item::Hole { len } => len,
            Item::Chunk { span, .. } => span,
            Item::Slice(slice) => slice.len.into(),
        }
    }
}

/// A recipe: the content of a file as a list of items, at `depth` > 0 through recipe chunks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Content {
    /// Number of layers of recipe chunks between `items` and the data.
    pub depth: u8,
    /// Items, in file order.
    pub items: Vec<Item>,
    /// Digest of all bytes, if the file is long, has no holes, and the repository has a secret key.
    pub digest: Option<Digest>,
}

impl Content {
    /// Whether the other content is the same, apart from the places of chunks. (Where places differ, recipe chunks
    /// differ, too: they contain the places.)
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let (own, others) = (self.items.iter(), other.items.iter());
        let same = |(a, b): (&Item, &Item)| a.nowhere() == b.nowhere();
        self.depth == other.depth && own.len() == others.len() && own.zip(others).all(same)
    }
}

/// An entry of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Name within its folder: bytes, UTF-8 or not.
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: Kind,
    /// The lower twelve mode bits.
    pub mode: u16,
    /// Owner and group.
    pub owner: Arc<Owner>,
    /// Content length in bytes for files (as read), 0 for others.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last access, where it is kept.
    pub atime: Option<Time>,
    /// Inode number.
    pub inode: u64,
    /// File system that the entry lies on (`st_dev`).
    pub device: u64,
    /// Hard link count; 1 for folders.
    pub links: u64,
    /// Number of the device (`st_rdev`), for devices.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes and ACLs.
    pub xattrs: SharedXattrs,
    /// Notes about the entry.
    pub flags: Flags,
    /// Content of a file: where its bytes are.
    pub content: Content,
}

impl Entry {
    /// An entry with nothing but name and kind.
    pub fn new(name: Vec<u8>, kind: Kind) -> Self {
        Self::owned_by(Arc::default(), name, kind)
    }

    /// An entry with nothing but its owner, name and kind.
    pub fn owned_by(owner: Arc<Owner>, name: Vec<u8>, kind: Kind) -> Self {
        Self {
            name,
            kind,
            mode: 0,
            owner,
            size: 0,
            mtime: Time::default(),
            ctime: Time::default(),
            atime: None,
            inode: 0,
            device: 0,
            links: 1,
            rdev: 0,
            target: Vec::new(),
            xattrs: SharedXattrs::default(),
            flags: Flags::default(),
            content: Content::default(),
        }
    }

    /// Whether the entry stands for something that could not be read: its name is kept, and there is nothing to
    /// restore.
    pub fn is_unreadable(&self) -> bool {
        self.flags.has(Flags::UNREADABLE) && !self.is_dir()
    }

    /// Returns the error of an entry that is damaged itself, though entries beside it are not; `None` for sound ones.
    pub fn damage(&self) -> Option<Error> {
        let is_damaged = self.flags.has(Flags::DAMAGED);
        is_damaged.then(|| {
            WireReader::new("leaf", b"").fail(format_args!(
                "an owner's name of more than {OWNER_NAME_BYTES_MAX} bytes, which no system has"
            ))
        })
    }

    /// Whether the entry is a folder that could not be listed, or not to its end.
    pub fn is_unlisted(&self) -> bool {
        self.is_dir() && self.flags.has(Flags::UNLISTED)
    }

    /// Whether the entry has all attributes that the thing had.
    pub fn knows_xattrs(&self) -> bool {
        let unknown = if self.is_dir() {
            Flags::UNREADABLE
        } else {
            Flags::UNLISTED
        };
        !self.flags.has(unknown) && !self.is_unreadable()
    }

    /// Whether only the attributes of the entry could not be read.
    pub fn lacks_xattrs(&self) -> bool {
        !self.knows_xattrs() && !self.is_unreadable()
    }

    /// Heap bytes of the entry, as if its attributes were not shared. The owner, whom many entries share, does not
    /// count.
    pub(crate) fn heap_bytes(&self) -> usize {
        let items = size_of_val(&self.content.items[..]);
        self.name.len() + self.target.len() + items + xattrs_bytes(&self.xattrs)
    }

    /// Whether the entry is a folder.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }
}
