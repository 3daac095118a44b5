//! Zones of the engine `log` without groups: headers and tables; and the places of a guest file system's metadata.

use std::sync::Arc;

use onefold_io::{Dir, MemDir, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{EngineKind, HEAD_BYTES};
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::front::Options;
use onefold_volume::hints::{FileSystem, looks_like_metadata};
use onefold_volume::log::Layout;
use onefold_volume::log::formats::{Format, verify};
use onefold_volume::{Depot, HeadId};

use super::{Reach, Target};
use crate::mend;

const PAGE_BYTES: usize = 4096;
/// Zones of a small depot, of which 58 pages hold groups: three of rows and checks and a footer follow.
const ZONE_BYTES: usize = 256 << 10;
const TABLE_PAGES: usize = 3;
/// At least the bytes of a zone's header.
const HEADER_BYTES: usize = 128;

pub fn targets() -> Vec<Target> {
    let written = written();
    let zone = |no: usize| &written[no * ZONE_BYTES..(no + 1) * ZONE_BYTES];
    // The page behind the frame is padding, which no checksum covers.
    let header = zone(0)[..HEADER_BYTES].to_vec();
    let table = zone(0)[ZONE_BYTES - TABLE_PAGES * PAGE_BYTES..].to_vec();
    vec![
        Target::new("volume/zone-header", vec![header], |bytes| {
            let mut page = bytes.to_vec();
            page.resize(page.len().max(PAGE_BYTES), 0);
            Reach::of(&verify(Format::ZoneHeader, &page, &layout()))
        })
        .mended(mend::frames_in_pages(*b"1FVZONEH")),
        Target::new("volume/zone-table", vec![table], |bytes| {
            Reach::of(&verify(Format::ZoneTable, bytes, &layout()))
        })
        .mended(mend::zone_table)
        .in_pages(),
        Target::new(
            "volume/file-system",
            vec![ext4(), xfs(), btrfs()],
            |bytes| {
                let mut found = FileSystem::find(1 << 40, &mut |offset, buffer| {
                    let from = usize::try_from(offset)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len());
                    let there = &bytes[from..bytes.len().min(from.saturating_add(buffer.len()))];
                    buffer[..there.len()].copy_from_slice(there);
                    Ok(())
                });
                if let Ok(found) = &mut found {
                    let ranges: Vec<_> = found.ranges().iter().collect();
                    assert!(ranges.iter().all(|range| range.start < range.end));
                    assert!(ranges.is_sorted_by(|a, b| a.end < b.start));
                    for (place, chunk) in (0..).zip(bytes.chunks(PAGE_BYTES)) {
                        found.has_metadata(place * PAGE_BYTES as u64, chunk);
                    }
                }
                looks_like_metadata(bytes);
                Reach::of(&found)
            },
        )
        .allowing(40 << 20),
    ]
}

fn layout() -> Layout {
    Layout::new(64 << 20, 4096).expect("large enough")
}

/// The zones that a depot wrote.
fn written() -> Vec<u8> {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let options = CreateOptions {
        engine: EngineKind::Log,
        parameters: Parameters::default(),
        ..CreateOptions::new(8 << 20, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let options = OpenOptions {
        front: Options {
            inline: true,
            ..Options::default()
        },
        ..OpenOptions::default()
    };
    let depot = Depot::open(Arc::clone(&folder), options).expect("a depot");
    let device = Caller(depot.device(HeadId(0)).expect("the volume"));
    for n in 0..200 {
        device
            .write(n * 8192, &Random(n).bytes(PAGE_BYTES))
            .expect("room");
        device.flush().expect("a flush");
    }
    drop(device);
    depot.close().expect("all is well");
    let disk = folder.open("data").expect("it is there");
    let mut bytes = vec![0; (disk.len().expect("RAM") - HEAD_BYTES) as usize];
    disk.read_at(&mut bytes, HEAD_BYTES).expect("RAM");
    bytes
}

/// A superblock with descriptors of two groups and a journal of a tree with one leaf.
fn ext4() -> Vec<u8> {
    let mut bytes = vec![0; 4 * PAGE_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(1024 + 0x4, &65_536u32.to_le_bytes());
    put(1024 + 0x18, &2u32.to_le_bytes());
    put(1024 + 0x20, &32_768u32.to_le_bytes());
    put(1024 + 0x28, &8192u32.to_le_bytes());
    put(1024 + 0x38, &0xEF53u16.to_le_bytes());
    put(1024 + 0x58, &256u16.to_le_bytes());
    put(1024 + 0x60, &0x2C2u32.to_le_bytes());
    put(1024 + 0xFD, &[1]);
    put(1024 + 0xFE, &64u16.to_le_bytes());
    put(1024 + 0x10C, &[0x0A, 0xF3, 1, 0, 4, 0, 1, 0]);
    put(1024 + 0x10C + 16, &2u32.to_le_bytes());
    put(PAGE_BYTES, &20u32.to_le_bytes());
    put(2 * PAGE_BYTES, &[0x0A, 0xF3, 1, 0, 4, 0, 0, 0]);
    put(2 * PAGE_BYTES + 16, &100u16.to_le_bytes());
    put(2 * PAGE_BYTES + 20, &30_000u32.to_le_bytes());
    bytes
}

/// A superblock, a node that it tells of, and a chunk behind that.
fn btrfs() -> Vec<u8> {
    let mut bytes = vec![0; 20 * PAGE_BYTES];
    let superblock = 16 * PAGE_BYTES;
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(superblock + 0x20, &[7; 16]);
    put(superblock + 0x40, b"_BHRfS_M");
    put(superblock + 0x94, &8192u32.to_le_bytes());
    put(18 * PAGE_BYTES + 0x20, &[7; 16]);
    bytes
}

fn xfs() -> Vec<u8> {
    let mut bytes = vec![0; PAGE_BYTES];
    bytes[..4].copy_from_slice(b"XFSB");
    bytes[4..8].copy_from_slice(&4096u32.to_be_bytes());
    bytes[48..56].copy_from_slice(&(2u64 << 16).to_be_bytes());
    bytes[84..88].copy_from_slice(&60_000u32.to_be_bytes());
    bytes[96..100].copy_from_slice(&16_384u32.to_be_bytes());
    bytes[124] = 16;
    bytes[32..48].fill(7);
    bytes[100..102].copy_from_slice(&[0xB4, 0xA5]);
    bytes
}
