//! Decoders of what lies in containers and catalogs, for the fuzz targets: as in a repository without encryption, where
//! checksums alone stand before them.

use onefold_keys::{Entropy, Keys, SALT_BYTES, Sealer};

use crate::container::block;
use crate::container::compression::Decompressor;
use crate::container::footer::Footer;
use crate::container::{ContainerTable, Header, object_name};
use crate::index::catalog::{self, Catalog};
use crate::{Result, container::opened};

/// The raw bytes of block `number` from its stored ones, its header included.
pub fn decode_block(header: &Header, number: u32, stored: &[u8]) -> Result<Vec<u8>> {
    let mut zstd = Decompressor::new()?;
    let sealer = unsealed(&header.salt);
    block::decode_block(header, number, &mut stored.to_vec(), 0, &sealer, &mut zstd)
}

/// The table from its stored bytes, if its blocks lie one behind the other up to where `footer` says that it begins.
pub fn open_table(footer: &Footer, stored: Vec<u8>) -> Result<ContainerTable> {
    let sealer = unsealed(&footer.header.salt);
    let table = footer.open_table(stored, &sealer)?;
    let object = object_name(footer.header.id);
    opened::check_layout(&table, footer.table_offset, &object)?;
    Ok(table)
}

/// A catalog from its stored bytes.
pub fn decode_catalog(stored: &[u8]) -> Result<Catalog> {
    catalog::decode(stored, &Keys::none(), "catalog")
}

/// A catalog as it is stored.
pub fn encode_catalog(catalog: &Catalog) -> Result<Vec<u8>> {
    catalog::encode(catalog, &Keys::none(), &Entropy::seeded(1))
}

fn unsealed(salt: &[u8; SALT_BYTES]) -> Sealer {
    Keys::none().container_sealer(salt)
}
