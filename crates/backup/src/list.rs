//! Looks into snapshots: lists a folder, finds entries, adds up sizes.

use onefold_chunk::Fingerprint;
use onefold_store::ChunkReader;

use crate::exclude::Patterns;
use crate::linked::{Linked, Value};
use crate::sample::Sample;
use crate::tree::{Tree, Visit, read_leaf, visit_items, visit_once};
use crate::{Content, Entry, Error, Kind, Result, Slice, Time, content, path};

/// Visits the entries of `folder` (clean; empty: the root), and if `recursive` everything below it, in order, until
/// `visit` returns false.
///
/// # Errors
/// Errors of `visit`; [`Error::Store`] or [`Error::Malformed`] where a leaf or recipe chunk cannot be had: the visit
/// ends there.
pub fn list(
    tree: &Tree,
    reader: &mut ChunkReader,
    folder: &[u8],
    recursive: bool,
    visit: &mut dyn FnMut(&[u8], &Entry) -> Result<bool>,
) -> Result<()> {
    let mut cursor = tree.cursor_at(folder, b"");
    while let Some((at, entry)) = cursor.next(reader)? {
        let is_meant = if recursive {
            path::within(&at, folder)
        } else {
            at == folder
        };
        if !is_meant || !visit(&at, &entry)? {
            break;
        }
    }
    Ok(())
}

/// RAM for files with several names, in bytes; further ones go to a temporary file.
const LINKS_BYTES_MAX: usize = 8 << 20;

/// Conditions of a search: an entry must meet all that are given.
#[derive(Clone, Default, Debug)]
pub struct Find {
    /// Patterns, one of which must match the path.
    pub patterns: Patterns,
    /// Earliest time of change.
    pub oldest: Option<Time>,
    /// Latest time of change.
    pub newest: Option<Time>,
    /// Least size of a file, in bytes.
    pub bytes_min: Option<u64>,
    /// Greatest size of a file, in bytes.
    pub bytes_max: Option<u64>,
    /// Kind of the entry.
    pub kind: Option<Kind>,
}

impl Find {
    /// Whether an entry at `path` meets the conditions.
    pub fn matches(&self, path: &[u8], entry: &Entry) -> bool {
        let has_size = |holds: &dyn Fn(u64) -> bool| entry.kind == Kind::File && holds(entry.size);
        (self.patterns.is_empty() || self.patterns.decide(path, entry.is_dir()) == Some(true))
            && self.oldest.is_none_or(|oldest| entry.mtime >= oldest)
            && self.newest.is_none_or(|newest| entry.mtime <= newest)
            && self
                .bytes_min
                .is_none_or(|min| has_size(&|size| size >= min))
            && self
                .bytes_max
                .is_none_or(|max| has_size(&|size| size <= max))
            && self.kind.is_none_or(|kind| entry.kind == kind)
    }
}

/// Sizes of snapshots, added up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Sizes {
    /// Number of snapshots.
    pub snapshots_count: u64,
    /// Number of files, where each name counts.
    pub total_file_count: u64,
    /// Number of folders, links and other entries.
    pub total_other_count: u64,
    /// Bytes that restoring each snapshot would write; further names of a file do not count.
    pub total_size: u64,
    /// Whether the counts below are exact; otherwise they are estimated from a sample of half a million, to some 0.2 %.
    pub is_exact: bool,
    /// Number of different chunks of file contents.
    pub total_blob_count: u64,
    /// Bytes of different chunks of file contents, before compression.
    pub total_uncompressed_size: u64,
    /// Number of files of different contents.
    pub contents_count: u64,
    /// Bytes of files of different contents.
    pub contents_size: u64,
    /// Number of files of different contents or paths.
    pub versions_count: u64,
    /// Number of different chunks of each path's files, over all snapshots, added up.
    pub versions_blob_count: u64,
    /// Bytes of different chunks of each path's files, over all snapshots, added up.
    pub versions_size: u64,
}

/// Adds up sizes over snapshots. Different things are told apart by hashes, in bounded RAM.
#[derive(Default)]
pub struct Adder {
    sizes: Sizes,
    /// Chunks of data, with their lengths in bytes.
    chunks: Sample<u64>,
    recipes: Sample<()>,
    versions: Option<FileVersions>,
}

/// Contents and versions of files, with their bytes.
#[derive(Default)]
struct FileVersions {
    contents: Sample<u64>,
    files: Sample<()>,
    /// Chunks by path and fingerprint, with their lengths in bytes.
    chunks: Sample<u64>,
    /// Names of large files' contents, by the part of the content that is in the entry.
    names: Sample<u64>,
}

impl FileVersions {
    /// Returns the name of a content; recipe chunks are read only where the content is new.
    fn name(&mut self, content: &Content, reader: &mut ChunkReader) -> Result<u64> {
        if content.depth == 0 {
            return content::name(content, reader);
        }
        let top = content::top_name(content);
        if let Some(name) = self.names.get(top) {
            return Ok(*name);
        }
        let name = content::name(content, reader)?;
        self.names.meet(top, |known| *known = name);
        Ok(name)
    }
}

impl Adder {
    /// Makes an adder that also counts contents and versions.
    pub fn of_versions() -> Self {
        Self {
            versions: Some(FileVersions::default()),
            ..Self::default()
        }
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// [`Error::Store`] or [`Error::Malformed`] where a leaf cannot be had, [`Error::Content`] where a recipe chunk of
    /// a file cannot be; [`Error::Temporary`] where many hard links find no room. A part of the snapshot may be added
    /// then.
    pub fn add(&mut self, tree: &Tree, reader: &mut ChunkReader) -> Result<()> {
        self.sizes.snapshots_count += 1;
        let mut linked = Linked::new(LINKS_BYTES_MAX);
        for leaf in tree.leaves() {
            for (folder, entry) in read_leaf(leaf, reader)?.iter() {
                if entry.kind != Kind::File {
                    self.sizes.total_other_count += 1;
                    continue;
                }
                self.sizes.total_file_count += 1;
                let path = path::join(folder, &entry.name);
                let named = |error| match error {
                    error @ (Error::Store(_) | Error::Malformed(_)) => {
                        Error::of_content("add up", &path, error)
                    }
                    error => error,
                };
                self.add_version(&path, entry, reader).map_err(named)?;
                if is_first_name(entry, &mut linked)? {
                    self.sizes.total_size += entry.size;
                    self.add_chunks(entry, reader).map_err(named)?;
                }
            }
        }
        Ok(())
    }

    fn add_version(&mut self, path: &[u8], entry: &Entry, reader: &mut ChunkReader) -> Result<()> {
        let Some(versions) = &mut self.versions else {
            return Ok(());
        };
        let (path, content) = (
            Fingerprint::of(path).prefix(),
            versions.name(&entry.content, reader)?,
        );
        versions.contents.meet(content, |bytes| *bytes = entry.size);
        // Both are as good as random, so their difference bit by bit is, too.
        if !versions.files.meet(path ^ content, |()| {}) {
            return Ok(());
        }
        visit_once(&entry.content, reader, &mut |visit, _| {
            if let Visit::Data(Slice { chunk, .. }, _) = visit {
                let bytes = u64::from(chunk.len);
                let key = path ^ chunk.fingerprint.prefix();
                versions.chunks.meet(key, |known| *known = bytes);
            }
            Ok(true)
        })
    }

    fn add_chunks(&mut self, entry: &Entry, reader: &mut ChunkReader) -> Result<()> {
        visit_items(&entry.content, reader, &mut |visit, _| {
            match visit {
                Visit::Hole(..) => {}
                Visit::Recipe(chunk) => {
                    return Ok(self.recipes.meet(chunk.fingerprint.prefix(), |()| {}));
                }
                Visit::Data(Slice { chunk, .. }, _) => {
                    let bytes = u64::from(chunk.len);
                    self.chunks
                        .meet(chunk.fingerprint.prefix(), |known| *known = bytes);
                }
            }
            Ok(true)
        })
    }

    /// Returns the sums.
    pub fn sizes(&self) -> Sizes {
        let sizes = Sizes {
            is_exact: self.chunks.is_exact(),
            total_blob_count: self.chunks.count(),
            total_uncompressed_size: self.chunks.sum(|bytes| *bytes),
            ..self.sizes
        };
        let Some(versions) = &self.versions else {
            return sizes;
        };
        let FileVersions {
            contents,
            files,
            chunks,
            ..
        } = versions;
        Sizes {
            is_exact: contents.is_exact() && files.is_exact() && chunks.is_exact(),
            contents_count: contents.count(),
            contents_size: contents.sum(|bytes| *bytes),
            versions_count: files.count(),
            versions_blob_count: chunks.count(),
            versions_size: chunks.sum(|bytes| *bytes),
            ..sizes
        }
    }
}

/// Remembers nothing about a file except that it came.
impl Value for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn get(_: &[u8]) -> Result<Self> {
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

fn is_first_name(entry: &Entry, linked: &mut Linked<()>) -> Result<bool> {
    if entry.links < 2 {
        return Ok(true);
    }
    let key = (entry.device, entry.inode);
    if linked.meet(key, |()| true)?.is_some() {
        return Ok(false);
    }
    let to_come = u32::try_from(entry.links - 1).unwrap_or(u32::MAX);
    linked.insert(key, to_come, ())?;
    Ok(true)
}
