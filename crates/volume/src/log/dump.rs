//! Structures of engine `log` in words: each decoded from bytes alone, so that damaged depots can be looked at, too.

use onefold_io::{Dir, Disk, PageBuffer};

use super::group::{Entry, GroupHeader, InZone, decode_group};
use super::layout::{Layout, PAGE_BYTES, ZoneNo, on_device};
use super::manifest::{ListedHead, Manifest};
use super::map::run::ListedRun;
use super::recover::listed_zones;
use super::seals::Seals;
use super::zone::{NO_HASH, Stream, ZoneHeader};
use super::zone_list::ListedZone;
use super::zone_table::{ZoneTable, rows_said};
use crate::dump::{Dump, hex, not_read};
use crate::{Error, Result};

/// The manifest in a depot's folder.
///
/// # Errors
/// [`Error::Damaged`]; the folder cannot be read.
pub fn manifest(dir: &dyn Dir, seals: &Seals) -> Result<Dump> {
    let manifest = Manifest::read(dir, seals)?;
    let layout = manifest.layout;
    let position = manifest.position;
    let in_use = listed_zones(dir, seals, &manifest)?.len();
    let run = |run: &ListedRun| {
        Dump::Fields(vec![
            ("run", run.id.0.into()),
            ("first_lbn", run.first.into()),
            ("lbns", (run.end - run.first).into()),
            ("mapped", run.mapped.into()),
            ("extents", run.extents.into()),
            ("pages", run.pages.into()),
        ])
    };
    let head = |ListedHead { info, levels }: &ListedHead| {
        let recent = levels.recent.iter();
        let recent = recent.map(|runs| runs.iter().map(run).collect::<Dump>());
        Dump::Fields(vec![
            ("volume", info.id.0.into()),
            ("name", info.name.as_str().into()),
            ("lbns", info.lbns.into()),
            ("writable", u64::from(info.is_writable).into()),
            ("created", info.created.into()),
            ("recent", recent.collect()),
            ("middle", levels.middle.iter().map(run).collect()),
            ("base", levels.base.iter().map(run).collect()),
        ])
    };
    Ok(Dump::Fields(vec![
        ("generation", manifest.generation.into()),
        ("sequence", manifest.sequence.into()),
        ("zone_bytes", layout.zone_bytes().into()),
        ("zones", layout.zones.into()),
        ("zones_in_use", in_use.into()),
        ("chunk_pages", layout.chunk_pages.into()),
        ("ids_reserved", manifest.ids_reserved.into()),
        (
            "log_goes_on",
            Dump::Fields(vec![
                ("place", position.no.0.into()),
                ("zone", position.zone.0.into()),
                ("page", position.page.into()),
            ]),
        ),
        ("zone_list", manifest.zone_list.into()),
        ("relocations", manifest.relocations.into()),
        ("next_run", manifest.next_run.into()),
        ("maps", manifest.heads.iter().map(head).collect()),
    ]))
}

/// The zones that the manifest lists, by place.
///
/// # Errors
/// As [`manifest`].
pub fn zones(dir: &dyn Dir, seals: &Seals) -> Result<Dump> {
    let manifest = Manifest::read(dir, seals)?;
    let zone = |zone: &ListedZone| {
        Dump::Fields(vec![
            ("place", zone.no.0.into()),
            ("zone", zone.id.0.into()),
            ("stream", stream(zone.stream).into()),
            ("pages_used", zone.pages_used.into()),
        ])
    };
    let listed = listed_zones(dir, seals, &manifest)?;
    Ok(listed.iter().map(zone).collect())
}

/// The zone at a place of the data device: its header, its groups, and its table. What cannot be read says why in its
/// place.
///
/// # Errors
/// There is no such place; the manifest is damaged; the device cannot be read.
pub fn zone(dir: &dyn Dir, data: &dyn Disk, seals: &Seals, place: u32) -> Result<Dump> {
    let layout = Manifest::read(dir, seals)?.layout;
    if place >= layout.zones {
        return Err(Error::Invalid {
            what: format!(
                "there is no place {place}: the device has {} zones, from 0 on",
                layout.zones
            ),
        });
    }
    let offset = layout.zone_offset(ZoneNo(place));
    let mut bytes = PageBuffer::zeroed(layout.zone_bytes() as usize);
    data.read_at(&mut bytes, offset)?;
    let header = ZoneHeader::decode(&bytes[..PAGE_BYTES], seals, "data", on_device(offset));
    let rows = rows_said(&bytes[bytes.len() - PAGE_BYTES..], &layout, seals).unwrap_or(0);
    let table_page = layout.groups_end_with(rows);
    let table_bytes = &bytes[table_page as usize * PAGE_BYTES..];
    let table = header.as_ref().ok().map(|header| {
        let offset = on_device(layout.page_offset(ZoneNo(place), table_page));
        ZoneTable::decode(table_bytes, &layout, seals, header.zone, "data", offset)
    });
    let journal = match &header {
        Ok(header) if header.stream == Stream::Journal => {
            Some((header.zone, seals.pages(header.salt)))
        }
        _ => None,
    };
    let mut fields = vec![
        ("place", place.into()),
        ("offset", on_device(offset).into()),
        ("header", or_why(header, |header| header_fields(&header))),
    ];
    if let Some(table) = table {
        fields.push(("table", or_why(table, |table| table_fields(&table))));
    }
    if let Some((zone, sealer)) = &journal {
        let within = InZone {
            zone: *zone,
            sealer,
        };
        fields.push(("groups", groups(&bytes, within, &layout, offset)));
    }
    Ok(Dump::Fields(fields))
}

fn or_why<T>(decoded: Result<T>, fields: impl FnOnce(T) -> Dump) -> Dump {
    match decoded {
        Ok(value) => fields(value),
        Err(error) => not_read(&error),
    }
}

fn stream(stream: Stream) -> &'static str {
    match stream {
        Stream::Journal => "journal",
        Stream::Copied => "copied",
    }
}

fn header_fields(header: &ZoneHeader) -> Dump {
    Dump::Fields(vec![
        ("depot", hex(&header.depot).into()),
        ("zone", header.zone.0.into()),
        ("stream", stream(header.stream).into()),
        ("previous", header.previous.map(|zone| zone.0).into()),
        ("next_place", header.next.0.into()),
        ("first_sequence", header.sequence.into()),
    ])
}

fn table_fields(table: &ZoneTable) -> Dump {
    let nodedup = table.rows.iter().filter(|row| row.hash == NO_HASH).count();
    let row = |row: &super::zone_table::Row| {
        Dump::Fields(vec![
            ("page", row.page.into()),
            ("slot", u64::from(row.slot).into()),
            ("hash", hex(&row.hash).into()),
        ])
    };
    Dump::Fields(vec![
        ("pages_used", table.pages_used.into()),
        ("last_sequence", table.sequence.into()),
        ("chunks", table.rows.len().into()),
        ("chunks_without_hash", nodedup.into()),
        ("rows", table.rows.iter().map(row).collect()),
    ])
}

/// The groups of a zone, one behind the other, as far as they can be read.
fn groups(zone: &[u8], within: InZone<'_>, layout: &Layout, offset: u64) -> Dump {
    let mut page = 1;
    let mut groups = Vec::new();
    while page < layout.groups_end() {
        let start = page as usize * PAGE_BYTES;
        let place = on_device(offset + start as u64);
        let Ok(group) = decode_group(&zone[start..], page, within, "data", place) else {
            break;
        };
        groups.push(group_fields(page, &group));
        page = group.first_data_page + group.checks.len() as u32;
    }
    Dump::List(groups)
}

fn group_fields(page: u32, group: &GroupHeader) -> Dump {
    Dump::Fields(vec![
        ("page", page.into()),
        ("zone", group.zone.0.into()),
        ("sequence", group.sequence.into()),
        ("durable", group.durable.into()),
        ("first_data_page", group.first_data_page.into()),
        ("data_pages", group.checks.len().into()),
        ("entries", group.entries.iter().map(entry_fields).collect()),
    ])
}

fn entry_fields(entry: &Entry) -> Dump {
    Dump::Fields(vec![
        ("volume", entry.head.0.into()),
        ("lbn", entry.lbn.into()),
        ("chunks", entry.chunks.into()),
        ("zone", entry.target.map(|target| target.zone.0).into()),
        ("page", entry.target.map(|target| target.page).into()),
        (
            "slot",
            entry.target.map(|target| u64::from(target.slot)).into(),
        ),
    ])
}
