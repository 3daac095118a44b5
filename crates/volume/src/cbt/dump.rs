//! A dump of the superblocks of a `cbt`: transaction, blocks, pages, and the trees with their sizes.

use onefold_io::{Dir, Disk, ErrorKind};

use super::file_is_gone;
use super::page::FILE;
use super::superblock::{Superblock, newest};
use super::tree::CbtTree;
use crate::dump::{Dump, not_read};
use crate::page_cache::PAGE_BYTES;
use crate::{Error, Result};

/// Both superblocks of the metadata in a depot's folder, and the transaction that an opening takes. A superblock that
/// cannot be read says why in its place.
///
/// # Errors
/// The file is not there, or the device failed.
pub fn dump(folder: &dyn Dir) -> Result<Dump> {
    let disk = match folder.open(FILE) {
        Err(error) if error.kind == ErrorKind::NotFound => return Err(file_is_gone()),
        other => other?,
    };
    dump_disk(&*disk)
}

/// The same of metadata on a disk.
///
/// # Errors
/// The device failed.
pub fn dump_disk(disk: &dyn Disk) -> Result<Dump> {
    let last = match newest(disk) {
        Ok(last) => Dump::from(last.transaction),
        Err(error) => not_read(&error),
    };
    let superblocks = (0..2).map(|place| superblock(disk, place));
    Ok(Dump::Fields(vec![
        ("last_transaction", last),
        ("superblocks", superblocks.collect()),
    ]))
}

fn superblock(disk: &dyn Disk, place: u64) -> Dump {
    let offset = place * PAGE_BYTES as u64;
    let mut bytes = vec![0; PAGE_BYTES];
    let read = disk.read_at(&mut bytes, offset).map_err(Error::from);
    let mut fields = vec![("place", place.into()), ("offset", offset.into())];
    match read.and_then(|()| Superblock::decode(&bytes, offset)) {
        Ok(found) => fields.extend(superblock_fields(&found)),
        // A new depot has written one superblock, and nothing in the other's place.
        Err(_) if bytes.iter().all(|byte| *byte == 0) => fields.push(("transaction", Dump::None)),
        Err(error) => fields.push(("not_read", error.to_string().into())),
    }
    Dump::Fields(fields)
}

fn superblock_fields(superblock: &Superblock) -> Vec<(&'static str, Dump)> {
    let stores = superblock.stores.iter().map(|(shape, tree)| {
        let mut fields = shape.dump_fields();
        fields.extend(tree_fields(tree));
        Dump::Fields(fields)
    });
    vec![
        ("transaction", superblock.transaction.into()),
        ("blocks", superblock.blocks.into()),
        ("blocks_used", superblock.used.into()),
        ("next_block", superblock.block_cursor.into()),
        ("pages", superblock.end.into()),
        ("next_page", superblock.page_cursor.into()),
        ("counts", Dump::Fields(tree_fields(&superblock.counts))),
        ("stores", stores.collect()),
    ]
}

fn tree_fields(tree: &CbtTree) -> Vec<(&'static str, Dump)> {
    let is_empty = tree.root == 0;
    vec![
        ("root_page", (!is_empty).then_some(tree.root).into()),
        (
            "levels",
            if is_empty {
                0
            } else {
                u32::from(tree.level) + 1
            }
            .into(),
        ),
        ("entries", tree.entries.into()),
    ]
}
