//! A dump of the saved file of an `inram`: its blocks, and its stores with their sizes.

use onefold_io::Dir;

use super::{SavedContent, Store, saved};
use crate::Result;
use crate::dump::Dump;
use crate::store_shape::StoreShape;

/// The metadata of `blocks` blocks as it was saved last in a depot's folder. All of it is read, and takes its RAM.
///
/// # Errors
/// The file is not there, or damaged; the device failed.
pub fn dump(folder: &dyn Dir, blocks: u64) -> Result<Dump> {
    saved::require(folder)?;
    let content = saved::load(folder, blocks)?;
    Ok(content.map_or(Dump::None, |content| fields(&content)))
}

fn fields(content: &SavedContent) -> Dump {
    let stores = content.stores.iter().map(|store| {
        let (shape, entries) = match store {
            Store::Linear(store) => (StoreShape::Linear(store.keys()), store.entries()),
            Store::Sparse(store) => {
                let (key_bytes, keys_max) = store.shape();
                let shape = StoreShape::Sparse {
                    key_bytes,
                    keys_max,
                };
                (shape, store.entries())
            }
        };
        let mut fields = shape.dump_fields();
        fields.push(("entries", entries.into()));
        Dump::Fields(fields)
    });
    Dump::Fields(vec![
        ("blocks", content.counts.blocks().into()),
        ("blocks_used", content.counts.iter().count().into()),
        ("next_block", content.counts.cursor().into()),
        ("stores", stores.collect()),
    ])
}
