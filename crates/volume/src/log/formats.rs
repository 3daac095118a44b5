//! The decoders of the engine's formats by themselves: for the fuzzer, and for whoever looks into a depot.

use onefold_keys::{Entropy, Keys, MASTER_BYTES, SALT_BYTES};
use zeroize::Zeroizing;

use super::damaged;
use super::group::{InZone, decode_group};
use super::layout::{Address, Layout, PAGE_BYTES, WHOLE, ZoneId, ZoneNo};
use super::manifest::Manifest;
use super::map::extent::Extent;
use super::map::run_id::RunId;
use super::map::run_page::{PageBuilder, RunPage, open_page};
use super::packed_page;
use super::page_sealer::PageSealer;
use super::relocations::Relocations;
use super::seals::Seals;
use super::zone::{self, Stream, ZoneHeader};
use super::zone_list::{ListedZone, decode_zones, encode_zones};
use super::zone_table::ZoneTable;
use crate::Result;

/// A format of the engine `log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The file `manifest`.
    Manifest,
    /// Page 0 of run 1 of the map.
    MapPage,
    /// A file of zones.
    Zones,
    /// A file of relocations.
    Relocations,
    /// A group, which begins at page 1 of a zone.
    Group,
    /// A zone's header page.
    ZoneHeader,
    /// The table of zone 1.
    ZoneTable,
    /// A packed page.
    PackedPage,
    /// The file `damaged`.
    Damaged,
}

/// Whether `bytes` are a value of the format, of a depot with this layout.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): they are none, or say what cannot be.
pub fn verify(format: Format, bytes: &[u8], layout: &Layout) -> Result<()> {
    match format {
        Format::Manifest => {
            let manifest = Manifest::decode(bytes)?;
            assert_eq!(Manifest::decode(&manifest.encode())?, manifest);
        }
        Format::MapPage => {
            let page = RunPage::decode(bytes.to_vec(), RunId(1), 0, layout, "page")?;
            let extents: Vec<_> = (0..page.len()).map(|at| page.extent(at)).collect();
            for (at, extent) in extents.iter().enumerate() {
                assert_eq!(page.first_behind(extent.lbn), at);
            }
        }
        Format::Zones => drop(decode_zones(bytes, layout, "zones")?),
        Format::Relocations => {
            let relocations = Relocations::decode(bytes, layout, "relocations")?;
            let encoded = relocations.encode();
            assert_eq!(Relocations::decode(&encoded, layout, "again")?, relocations);
        }
        Format::Group => drop(decode_group(bytes, 1, in_zone_1(), "group", 0)?),
        Format::ZoneHeader => drop(ZoneHeader::decode(bytes, &Seals::none(), "header", 0)?),
        Format::ZoneTable => {
            let none = Seals::none();
            drop(ZoneTable::decode(
                bytes,
                layout,
                &none,
                ZoneId(1),
                "table",
                0,
            )?);
        }
        Format::PackedPage => verify_packed(bytes)?,
        Format::Damaged => drop(damaged::decode(bytes)?),
    }
    Ok(())
}

/// Whether `bytes` are a value of the format in an encrypted depot with this master key. A group and a map page follow
/// the salt of their zone or run.
///
/// # Errors
/// As of [`verify`].
pub fn verify_sealed(
    format: Format,
    bytes: &[u8],
    layout: &Layout,
    master: [u8; MASTER_BYTES],
) -> Result<()> {
    let keys = Keys::from_master(&Zeroizing::new(master));
    let seals = Seals::new(keys, Entropy::system());
    let layout = layout.with_checks_of(seals.check_bytes());
    let (salt, rest) = bytes.split_at(bytes.len().min(SALT_BYTES));
    let sealer = seals.pages(Some(salt.try_into().unwrap_or_default()));
    let file = |name| seals.open_file(name, bytes.to_vec());
    match format {
        Format::Manifest => verify(format, &file("manifest")?, &layout),
        Format::Zones => verify(format, &file("zones")?, &layout),
        Format::Relocations => verify(format, &file("relocations")?, &layout),
        Format::Damaged => verify(format, &file("damaged")?, &layout),
        Format::MapPage => {
            let page = open_page(rest.to_vec(), RunId(1), 0, &sealer, "page")?;
            verify(format, &page, &layout)
        }
        Format::Group => {
            let zone = ZoneId(1);
            let sealer = &sealer;
            decode_group(rest, 1, InZone { zone, sealer }, "group", 0).map(drop)
        }
        Format::ZoneHeader => ZoneHeader::decode(bytes, &seals, "header", 0).map(drop),
        Format::ZoneTable => {
            ZoneTable::decode(bytes, &layout, &seals, ZoneId(1), "table", 0).map(drop)
        }
        Format::PackedPage => verify(format, bytes, &layout),
    }
}

/// A small value of a format that stands alone; of the others an empty one.
pub fn example(format: Format) -> Vec<u8> {
    match format {
        Format::MapPage => some_map_page(),
        Format::Zones => encode_zones(&[
            some_zone(0, 1, Stream::Journal),
            some_zone(5, 300, Stream::Copied),
        ]),
        Format::Relocations => some_relocations().encode(),
        Format::PackedPage => some_packed_page(),
        Format::Damaged => damaged::some_list(),
        _ => Vec::new(),
    }
}

fn in_zone_1() -> InZone<'static> {
    InZone {
        zone: ZoneId(1),
        sealer: &PageSealer::Crc32c,
    }
}

fn verify_packed(page: &[u8]) -> Result<()> {
    let failed = |what: String| zone::damaged("page", 0, what);
    for slot in 1..=packed_page::slots(page).map_err(failed)? {
        packed_page::unpack(page, slot, &mut [0; PAGE_BYTES]).map_err(failed)?;
    }
    Ok(())
}

/// Two chunks: one of ones, and one of twos.
fn some_packed_page() -> Vec<u8> {
    let slots = [1, 2].map(|byte| lz4_flex::block::compress(&[byte; PAGE_BYTES]));
    let mut page = vec![0; PAGE_BYTES];
    packed_page::pack(&mut page, &slots.each_ref().map(Vec::as_slice));
    page
}

fn some_map_page() -> Vec<u8> {
    let mut builder = PageBuilder::default();
    for n in 0..100 {
        let (zone, page) = (ZoneId(1 + n * 7 % 50), 3 + n as u32 % 20);
        let extent = Extent {
            lbn: 1000 + n * 9,
            chunks: 1 + n % 4,
            target: (n % 5 > 0).then_some(Address {
                zone,
                page,
                slot: WHOLE,
            }),
        };
        assert!(builder.push(extent), "a page has room for a hundred");
    }
    let mut page = Vec::with_capacity(PAGE_BYTES);
    builder.finish(RunId(1), 0, &PageSealer::Crc32c, &mut page);
    page
}

fn some_zone(no: u32, id: u64, stream: Stream) -> ListedZone {
    ListedZone {
        no: ZoneNo(no),
        id: ZoneId(id),
        stream,
        pages_used: 60,
    }
}

/// Chunks of zone 3 that were moved to two zones.
fn some_relocations() -> Relocations {
    let at = |zone, page| Address {
        zone: ZoneId(zone),
        page,
        slot: WHOLE,
    };
    let moved = [
        (at(3, 2), at(9, 1)),
        (at(3, 5), at(9, 2)),
        (at(3, 8), at(10, 1)),
    ];
    let mut relocations = Relocations::default();
    relocations.add(
        &std::collections::HashSet::from([ZoneId(3)]),
        &moved.into(),
        1,
    );
    relocations
}

/// Makes the check of a changed map page of the example right again.
pub fn mend_map_page(page: &mut [u8]) {
    mend_page_of_run(page, 1, 0);
}

/// Makes the check of page `number` of the run `run` right again.
pub fn mend_page_of_run(page: &mut [u8], run: u64, number: u32) {
    if let Some((check, rest)) = page.split_first_chunk_mut::<4>() {
        *check = super::check::run_page_check(RunId(run), number, rest).to_le_bytes();
    }
}
