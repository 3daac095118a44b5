//! A dump of the header of a `dtb`: whether its tables mean anything, and how large they are.

use onefold_io::{Dir, Disk};

use super::header::{self, DtbHeader, StoreHeader, TablesMark};
use crate::Result;
use crate::dump::Dump;

/// The header of the metadata in a depot's folder. Numbers of blocks and entries are right where the mark is `clean`.
///
/// # Errors
/// The file is not there, or its header is damaged; the device failed.
pub fn dump(folder: &dyn Dir) -> Result<Dump> {
    Ok(of_header(&header::read(folder)?))
}

/// The same of metadata on a disk.
///
/// # Errors
/// As of [`dump`].
pub fn dump_disk(disk: &dyn Disk) -> Result<Dump> {
    Ok(of_header(&header::read_disk(disk)?))
}

fn of_header(header: &DtbHeader) -> Dump {
    let mark = match header.mark {
        TablesMark::Clean => "clean",
        TablesMark::Open => "open: the tables are being changed, or their process was killed",
    };
    let store = |store: &StoreHeader| {
        let mut fields = store.shape.dump_fields();
        fields.push(("entries", store.entries.into()));
        Dump::Fields(fields)
    };
    Dump::Fields(vec![
        ("mark", mark.into()),
        ("blocks", header.blocks.into()),
        ("blocks_used", header.used.into()),
        ("next_block", header.cursor.into()),
        ("stores", header.stores.iter().map(store).collect()),
    ])
}
