//! Finds the stored objects that a snapshot refers to, path by path: the reverse of a restore.

use onefold_store::{ChunkReader, ChunkRef};

use crate::snapshot::Snapshot;
use crate::tree::{Tree, Visit, read_leaf, visit_once};
use crate::{Error, Result, Slice, path};

/// An object that a snapshot refers to.
#[derive(Clone, Copy, Debug)]
pub enum ReferencedObject<'a> {
    /// A chunk of a file's data, or a recipe chunk of that file alone.
    OfFile {
        /// Fingerprint, container and length of the chunk.
        chunk: ChunkRef,
        /// Path of the file.
        path: &'a [u8],
        /// Leaf that holds the file's entry.
        leaf: ChunkRef,
    },
    /// A leaf, or a recipe chunk of several of its files.
    OfLeaf {
        /// Fingerprint, container and length of the chunk.
        chunk: ChunkRef,
        /// Folder of the leaf's first entry.
        folder: &'a [u8],
    },
}

/// Calls `visit` with every object that the snapshot refers to, leaf by leaf. A chunk that a file repeats may come
/// again, but each of its recipe chunks is opened once. Reads all metadata, and no data.
///
/// # Errors
/// Errors of `visit`; [`Error::Store`] or [`Error::Malformed`] where the table or a leaf cannot be had: the visit ends
/// there. [`Error::Content`] at the end, for the first file with a recipe chunk that cannot be had.
pub fn visit(
    snapshot: &Snapshot,
    reader: &mut ChunkReader,
    visit: &mut dyn FnMut(ReferencedObject<'_>) -> Result<()>,
) -> Result<()> {
    let tree = Tree::open(snapshot, reader)?;
    let mut lost = None;
    for stored in tree.leaves() {
        let (leaf, folder) = (stored.chunk, &stored.folder[..]);
        visit(ReferencedObject::OfLeaf {
            chunk: leaf,
            folder,
        })?;
        let read = read_leaf(stored, reader)?;
        for recipe in &read.recipes {
            let chunk = recipe.chunk;
            visit(ReferencedObject::OfLeaf { chunk, folder })?;
        }
        for (folder, entry) in read.iter() {
            let path = path::join(folder, &entry.name);
            let visited = visit_once(&entry.content, reader, &mut |met, _| {
                if let Visit::Data(Slice { chunk, .. }, _) | Visit::Recipe(chunk) = met {
                    let path = &path;
                    visit(ReferencedObject::OfFile { chunk, path, leaf })?;
                }
                Ok(true)
            });
            match visited {
                // Other files have recipe chunks of their own.
                Err(error) if error.is_loss() => {
                    lost.get_or_insert_with(|| Error::of_content("look into", &path, error));
                }
                other => other?,
            }
        }
    }
    lost.map_or(Ok(()), Err)
}
