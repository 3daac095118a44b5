//! The snapshot's root object: host, user, time, paths, and the table of its leaves. FORMAT.md, "Snapshot".
//!
//! Fields are numbered and have lengths: a reader skips unknown numbers, so later versions can add fields.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_store::{ChunkRef, ContainerId, Entropy};

use crate::path::entry_order;
use crate::wire::{WireReader, put, put_bytes, zigzag};
use crate::{Error, Result, Time};

/// Version of the root's format that is written.
pub const VERSION: u8 = 1;
/// Longest table of leaves that stands in the root, in bytes; a longer one stands in chunks of its own.
pub const TABLE_INLINE_MAX: usize = 32 << 10;
/// Random bytes of a root.
const NONCE_BYTES: usize = 16;

/// Counts of a backup: what was read and stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Summary {
    /// Files that the parent did not have.
    pub files_new: u64,
    /// Files whose content or metadata changed.
    pub files_changed: u64,
    /// Files as in the parent.
    pub files_unmodified: u64,
    /// Folders that the parent did not have.
    pub dirs_new: u64,
    /// Folders whose metadata changed.
    pub dirs_changed: u64,
    /// Folders as in the parent.
    pub dirs_unmodified: u64,
    /// Links, pipes, sockets and devices.
    pub others: u64,
    /// All files that were looked at.
    pub total_files_processed: u64,
    /// Bytes of all files, including holes.
    pub total_bytes_processed: u64,
    /// Bytes that were read from the source.
    pub bytes_read: u64,
    /// New chunks of file contents.
    pub data_chunks: u64,
    /// New chunks of leaves and recipes.
    pub tree_chunks: u64,
    /// Bytes of new chunks before compression.
    pub data_added: u64,
    /// Bytes by which the repository grew.
    pub data_added_packed: u64,
    /// Paths that could not be read.
    pub errors: u64,
    /// Begin of the backup, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Duration of the backup, in nanoseconds.
    pub duration_ns: u64,
}

impl Summary {
    fn fields(&self) -> [u64; 17] {
        let s = self;
        [
            s.files_new,
            s.files_changed,
            s.files_unmodified,
            s.dirs_new,
            s.dirs_changed,
            s.dirs_unmodified,
            s.others,
            s.total_files_processed,
            s.total_bytes_processed,
            s.bytes_read,
            s.data_chunks,
            s.tree_chunks,
            s.data_added,
            s.data_added_packed,
            s.errors,
            s.started_ns,
            s.duration_ns,
        ]
    }

    fn from_fields(f: [u64; 17]) -> Self {
        Self {
            files_new: f[0],
            files_changed: f[1],
            files_unmodified: f[2],
            dirs_new: f[3],
            dirs_changed: f[4],
            dirs_unmodified: f[5],
            others: f[6],
            total_files_processed: f[7],
            total_bytes_processed: f[8],
            bytes_read: f[9],
            data_chunks: f[10],
            tree_chunks: f[11],
            data_added: f[12],
            data_added_packed: f[13],
            errors: f[14],
            started_ns: f[15],
            duration_ns: f[16],
        }
    }
}

/// Reference to one leaf of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeafRef {
    /// Fingerprint, container and length of its chunk.
    pub chunk: ChunkRef,
    /// Folder of its first entry; leaves in a row with the same folder share the value.
    pub folder: Arc<[u8]>,
    /// Name of its first entry.
    pub name: Vec<u8>,
}

/// The table of leaves, or where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeafTable {
    /// The table, in the root itself.
    Inline(Vec<LeafRef>),
    /// Chunks, each a list of leaves in the form of [`encode_table`], in order.
    Chunks(Vec<ChunkRef>),
}

/// The root object of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Begin of the backup.
    pub time: Time,
    /// Machine of the backup.
    pub host: String,
    /// User who ran the backup.
    pub user: String,
    /// User and group who ran the backup, as numbers.
    pub uid_gid: (u32, u32),
    /// Paths that were backed up: absolute, sorted.
    pub paths: Vec<Vec<u8>>,
    /// Tags: the user's words, sorted, each once.
    pub tags: Vec<String>,
    /// Name of the parent: unchanged files were taken from it.
    pub parent: Option<[u8; 32]>,
    /// Name of the first of the snapshots that this one replaces with other tags.
    pub original: Option<[u8; 32]>,
    /// Program that wrote the snapshot, and its version.
    pub program: String,
    /// Patterns of files that were left out, as given.
    pub excludes: Vec<Vec<u8>>,
    /// Counts of the backup.
    pub summary: Summary,
    /// Leaves of the snapshot.
    pub table: LeafTable,
}

#[derive(Clone, Copy)]
enum Field {
    Time = 1,
    Host = 2,
    User = 3,
    UidGid = 4,
    Path = 5,
    Tag = 6,
    Parent = 7,
    Original = 8,
    Program = 9,
    Exclude = 10,
    Summary = 11,
    TableInline = 12,
    TableChunk = 13,
    /// Random bytes that nobody reads.
    Nonce = 14,
}

impl Snapshot {
    /// Encodes the root.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let mut field = |field: Field, bytes: &[u8]| {
            put(&mut out, field as u64);
            put_bytes(&mut out, bytes);
        };
        field(
            Field::Time,
            &numbers(&[zigzag(self.time.secs), u64::from(self.time.nanos)]),
        );
        field(Field::Host, self.host.as_bytes());
        field(Field::User, self.user.as_bytes());
        field(
            Field::UidGid,
            &numbers(&[self.uid_gid.0.into(), self.uid_gid.1.into()]),
        );
        self.paths.iter().for_each(|path| field(Field::Path, path));
        self.tags
            .iter()
            .for_each(|tag| field(Field::Tag, tag.as_bytes()));
        self.parent.iter().for_each(|id| field(Field::Parent, id));
        self.original
            .iter()
            .for_each(|id| field(Field::Original, id));
        field(Field::Program, self.program.as_bytes());
        self.excludes
            .iter()
            .for_each(|pattern| field(Field::Exclude, pattern));
        field(Field::Summary, &numbers(&self.summary.fields()));
        match &self.table {
            LeafTable::Inline(leaves) => field(Field::TableInline, &encode_table(leaves)),
            LeafTable::Chunks(chunks) => chunks
                .iter()
                .for_each(|chunk| field(Field::TableChunk, &encode_ref(chunk))),
        }
        out
    }

    /// Encodes the root with random bytes, which no other root has. Without encryption a root's name is the hash of
    /// these bytes, and a name that was forgotten counts for nothing on object storage (FORMAT.md §2.11): a snapshot
    /// whose tag is added, removed and added again needs three names.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn encode_unique(&self, entropy: &Entropy) -> Result<Vec<u8>> {
        let nonce: [u8; NONCE_BYTES] = entropy.try_bytes().map_err(onefold_store::Error::from)?;
        let mut out = self.encode();
        put(&mut out, Field::Nonce as u64);
        put_bytes(&mut out, &nonce);
        Ok(out)
    }

    /// Decodes a root.
    ///
    /// # Errors
    /// [`Error::Malformed`]: fields that mean nothing, or another version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = WireReader::new("snapshot", bytes);
        reader.version(VERSION)?;
        let mut snapshot = Self::empty();
        let mut chunks = Vec::new();
        while reader.left() > 0 {
            let number = reader.varint()?;
            let mut value = reader.column("snapshot")?;
            if !snapshot.read_field(number, &mut value, &mut chunks)? {
                continue;
            }
            value.end()?;
        }
        if !chunks.is_empty() {
            snapshot.table = LeafTable::Chunks(chunks);
        }
        Ok(snapshot)
    }

    /// Returns the name of the tree of entries: the same for snapshots of the same entries with the same metadata,
    /// wherever their chunks lie.
    pub fn tree_id(&self) -> [u8; 32] {
        let chunks: Vec<u8> = match &self.table {
            LeafTable::Inline(leaves) => leaves
                .iter()
                .flat_map(|leaf| leaf.chunk.fingerprint.0)
                .collect(),
            LeafTable::Chunks(chunks) => chunks
                .iter()
                .flat_map(|chunk| chunk.fingerprint.0)
                .collect(),
        };
        Fingerprint::of(&chunks).0
    }

    pub(crate) fn empty() -> Self {
        Self {
            time: Time::default(),
            host: String::new(),
            user: String::new(),
            uid_gid: (0, 0),
            paths: Vec::new(),
            tags: Vec::new(),
            parent: None,
            original: None,
            program: String::new(),
            excludes: Vec::new(),
            summary: Summary::default(),
            table: LeafTable::Inline(Vec::new()),
        }
    }

    /// Reads one field. Returns false where the number is unknown: then the value is left unread.
    fn read_field(
        &mut self,
        number: u64,
        value: &mut WireReader<'_>,
        chunks: &mut Vec<ChunkRef>,
    ) -> Result<bool> {
        match number {
            n if n == Field::Time as u64 => {
                self.time = Time {
                    secs: value.signed()?,
                    nanos: value.small()?,
                };
                if self.time.nanos >= 1_000_000_000 {
                    return Err(value.fail("nanoseconds of no second"));
                }
            }
            n if n == Field::Host as u64 => self.host = rest_text(value)?,
            n if n == Field::User as u64 => self.user = rest_text(value)?,
            n if n == Field::UidGid as u64 => self.uid_gid = (value.small()?, value.small()?),
            n if n == Field::Path as u64 => self.paths.push(value.take(value.left())?.to_vec()),
            n if n == Field::Tag as u64 => self.tags.push(rest_text(value)?),
            n if n == Field::Parent as u64 => self.parent = Some(value.array()?),
            n if n == Field::Original as u64 => self.original = Some(value.array()?),
            n if n == Field::Program as u64 => self.program = rest_text(value)?,
            n if n == Field::Exclude as u64 => {
                self.excludes.push(value.take(value.left())?.to_vec())
            }
            n if n == Field::Summary as u64 => {
                let mut fields = [0; 17];
                for field in &mut fields {
                    *field = value.varint()?;
                }
                self.summary = Summary::from_fields(fields);
            }
            n if n == Field::TableInline as u64 => {
                self.table = LeafTable::Inline(decode_table(value.take(value.left())?)?)
            }
            n if n == Field::TableChunk as u64 => chunks.push(read_ref(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|n| put(&mut out, *n));
    out
}

fn rest_text(value: &mut WireReader<'_>) -> Result<String> {
    let bytes = value.take(value.left())?;
    String::from_utf8(bytes.to_vec()).map_err(|_| value.fail("text is not UTF-8"))
}

fn encode_ref(chunk: &ChunkRef) -> Vec<u8> {
    let mut out = Vec::with_capacity(45);
    put_ref(&mut out, chunk);
    out
}

fn put_ref(out: &mut Vec<u8>, chunk: &ChunkRef) {
    out.extend_from_slice(&chunk.fingerprint.0);
    out.extend_from_slice(&chunk.container.0.to_le_bytes());
    put(out, u64::from(chunk.len));
}

fn read_ref(reader: &mut WireReader<'_>) -> Result<ChunkRef> {
    Ok(ChunkRef {
        fingerprint: Fingerprint(reader.array()?),
        container: ContainerId(reader.u64_le()?),
        len: reader.small()?,
    })
}

/// Encodes a list of leaves: reference, folder (front-coded against the one before), name of the first entry.
pub fn encode_table(leaves: &[LeafRef]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, leaves.len() as u64);
    let mut before: &[u8] = b"";
    for leaf in leaves {
        put_ref(&mut out, &leaf.chunk);
        let shared = before
            .iter()
            .zip(&leaf.folder[..])
            .take_while(|(a, b)| a == b)
            .count();
        put(&mut out, shared as u64);
        put_bytes(&mut out, &leaf.folder[shared..]);
        put_bytes(&mut out, &leaf.name);
        before = &leaf.folder;
    }
    out
}

/// Decodes a list of [`encode_table`].
///
/// # Errors
/// [`Error::Malformed`]: bytes that mean nothing, leaves out of order, or folders of too many bytes.
pub fn decode_table(bytes: &[u8]) -> Result<Vec<LeafRef>> {
    let mut leaves = Vec::new();
    append_table(bytes, &mut leaves)?;
    Ok(leaves)
}

/// Largest number of bytes of different folders' paths in a table, beside [`FOLDER_BYTES_A_LEAF`] for each leaf: a
/// prefix that is shared with the path before takes no bytes in the table, but RAM.
const FOLDER_BYTES_MAX: usize = 256 << 20;
/// Longest path that Linux takes in one call, in bytes.
const FOLDER_BYTES_A_LEAF: usize = 4096;

/// Bytes of the leaves' folder paths, where a path that leaves in a row share counts once.
fn folder_bytes(leaves: &[LeafRef]) -> usize {
    let mut last: &[u8] = b"";
    let new = leaves.iter().filter(|leaf| {
        let before = std::mem::replace(&mut last, &leaf.folder);
        !std::ptr::eq(before, &*leaf.folder)
    });
    new.map(|leaf| leaf.folder.len()).sum()
}

/// Checks that a table of these leaves can be read again. Errors: its folders' paths are too long.
pub(crate) fn fits_a_table(leaves: &[LeafRef]) -> Result<()> {
    let bytes = folder_bytes(leaves);
    if bytes > FOLDER_BYTES_MAX + leaves.len() * FOLDER_BYTES_A_LEAF {
        let what = format!("the folders lie too deep: their paths take {bytes} bytes");
        return Err(Error::Usage(what));
    }
    Ok(())
}

/// Decodes a list of leaves behind those of the lists before. Leaves must be in order, so no list can come twice.
pub(crate) fn append_table(bytes: &[u8], leaves: &mut Vec<LeafRef>) -> Result<()> {
    let mut reader = WireReader::new("table of leaves", bytes);
    let count = reader.count()?;
    let mut folder_bytes = folder_bytes(leaves);
    for i in 0..count {
        let chunk = read_ref(&mut reader)?;
        let shared: usize = reader.small()?;
        let last = leaves.last();
        let before = last.filter(|_| i > 0).map_or(&b""[..], |leaf| &leaf.folder);
        let start = before
            .get(..shared)
            .ok_or_else(|| reader.fail("shares more than the folder before has"))?;
        let own = reader.bytes()?;
        let same = last.filter(|last| start.len() == last.folder.len() && own.is_empty());
        if same.is_none() {
            folder_bytes += start.len() + own.len();
        }
        if folder_bytes > FOLDER_BYTES_MAX + (leaves.len() + 1) * FOLDER_BYTES_A_LEAF {
            return Err(reader.fail(format_args!("{folder_bytes} bytes of folders")));
        }
        let folder = same.map(|last| Arc::clone(&last.folder));
        let folder = folder.unwrap_or_else(|| [start, own].concat().into());
        let name = reader.bytes()?.to_vec();
        let is_behind =
            |last: &LeafRef| entry_order((&last.folder, &last.name), (&folder, &name)).is_lt();
        if !last.is_none_or(is_behind) {
            return Err(reader.fail("a leaf before the one before it"));
        }
        leaves.push(LeafRef {
            chunk,
            folder,
            name,
        });
    }
    reader.end()
}
