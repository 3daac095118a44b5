//! Decoders of arbitrary bytes behind a right checksum: an error or a value, never a panic and never a large allocation.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::frame::{FrameKind, encode_frame};
use onefold_io::{Dir, Disk, MemDir};
use proptest::collection::vec;
use proptest::prelude::*;

use super::log::LogPage;
use super::manifest::{FileId, LOG_PAGES_MAX, LogEntry, MANIFEST_FRAME, Manifest};
use super::page::{PAGE_BYTES, seal_page};
use super::run::{RUN_FRAME, Run, RunReader};
use super::run_filters::FilterShare;
use super::run_page::RunPage;
use super::spans::{LOG_FRAME, SpanTable, read_spans};
use super::{Strata, StrataOptions};
use crate::{ChunkIndex, ContainerId, Error, Location};

/// Small numbers are what counts, lengths and pages look like; large ones are what overflows.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![
        0u32..4,
        0u32..1000,
        any::<u32>(),
        Just(u32::MAX),
        Just(1 << 31)
    ];
    (vec(number, 0..80), vec(any::<u8>(), 0..5)).prop_map(|(numbers, rest)| {
        let mut bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        bytes.extend(rest);
        bytes
    })
}

fn disk(content: &[&[u8]]) -> (Arc<dyn Disk>, u64) {
    let disk = MemDir::new().create("x").expect("create");
    let bytes = content.concat();
    disk.write_at(&bytes, 0).expect("write");
    (disk, bytes.len() as u64)
}

fn framed(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    encode_frame(kind, 0, payload)
}

fn page(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(PAGE_BYTES, 0x5a);
    seal_page(&mut bytes, 0);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn manifest(payload in payload(), noise in vec(any::<u8>(), 0..100)) {
        if let Ok(manifest) = Manifest::decode(&framed(MANIFEST_FRAME, &payload), "x") {
            prop_assert_eq!(Manifest::decode(&manifest.encode(), "x").expect("again"), manifest);
        }
        Manifest::decode(&noise, "x").ok();
    }

    #[test]
    fn run_footer(partitions_log2 in 0u8..4, numbers in payload(), pages in 0usize..4) {
        let mut payload = numbers.get(..8).unwrap_or(&[0; 8]).to_vec();
        payload.push(partitions_log2);
        payload.extend_from_slice(&numbers);
        let pages = vec![page(numbers.clone()); pages].concat();
        let (disk, len) = disk(&[&pages, &framed(RUN_FRAME, &payload)]);
        if let Ok(mut run) = Run::open(disk, "x", pages.len() as u64, len) {
            run.load_filters(FilterShare { bits: 8, more: 0 }, 16).ok();
            let asked = (0..100u64).filter(|i| run.may_contain(i << 48)).map(|i| run.page_of(i << 48));
            prop_assert!(asked.count() <= 100);
            let mut reader = RunReader::new(Arc::new(run), 4);
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    #[test]
    fn log_footer(payload in payload()) {
        let (disk, file_bytes) = disk(&[&framed(LOG_FRAME, &payload)]);
        let entry = LogEntry { id: FileId { unique: 0, number: 0 }, first_page: 0, pages: 0, records: 0, file_bytes };
        if let Ok(spans) = read_spans(&entry, "x", &*disk) {
            SpanTable::new(&spans).container(7, 2);
        }
    }

    #[test]
    fn pages(counts in any::<[u8; 16]>(), bytes in vec(any::<u8>(), 0..4080)) {
        let mut bytes = [&counts[..], &bytes].concat();
        let bytes = page(std::mem::take(&mut bytes));
        if let Ok(page) = LogPage::check(&bytes, "x", 0) {
            page.find(&Fingerprint([7; 32]));
            prop_assert_eq!(page.records().count(), page.len());
        }
    }

    #[test]
    fn run_pages(len in 0u16..2000, rest_bits in 0u8..70, value_bits in 0u8..40, hash in any::<u64>(), bytes in vec(any::<u8>(), 0..4000)) {
        let head = [&[0; 16][..], &len.to_le_bytes(), &[rest_bits, value_bits, 1, 0, 0, 0]].concat();
        let bytes = page([head, bytes].concat());
        if let Ok(page) = RunPage::check(&bytes, "x", 0) {
            page.ask(hash);
            prop_assert!((0..page.len()).all(|i| page.record(i).page < 1 << 31));
        }
    }
}

/// A manifest whose checksum holds but whose numbers are made up: what it costs in RAM is bounded by what its files hold.
#[test]
fn a_forged_manifest_takes_no_ram() {
    let options = |unique| StrataOptions {
        ram_budget_bytes: 1 << 20,
        background_merges: false,
        ..StrataOptions::new(unique)
    };
    let dir = MemDir::new();
    let location = Location {
        container: ContainerId(1),
    };
    let mut index = Strata::open(Arc::new(dir.clone()), options(1)).expect("open");
    index
        .insert(&[(Fingerprint([9; 32]), location)])
        .expect("insert");
    index.checkpoint().expect("checkpoint");
    drop(index);
    let name = "manifest";
    let disk = dir.open(name).expect("open");
    let mut bytes = vec![0; disk.len().expect("length") as usize];
    disk.read_at(&mut bytes, 0).expect("read");
    let real = Manifest::decode(&bytes, name).expect("what was written");
    let forge = |change: &dyn Fn(&mut Manifest)| {
        let mut forged = real.clone();
        change(&mut forged);
        dir.remove(name).expect("remove");
        let disk = dir.create(name).expect("create");
        disk.write_at(&forged.encode(), 0).expect("write");
        Strata::open(Arc::new(dir.clone()), options(2))
    };
    let index = forge(&|manifest| manifest.next_page = LOG_PAGES_MAX).expect("pages that are gone");
    assert!(index.ram_bytes() < 1 << 20, "{} bytes", index.ram_bytes());
    let lies: [&dyn Fn(&mut Manifest); 5] = [
        &|manifest| manifest.runs[0].records = 1 << 37,
        &|manifest| manifest.logs[0].records = 1 << 37,
        &|manifest| {
            manifest.next_page = LOG_PAGES_MAX;
            manifest.logs[0].pages = LOG_PAGES_MAX;
        },
        &|manifest| manifest.logs[0].file_bytes = 1 << 40,
        &|manifest| manifest.runs[0].file_bytes = 1 << 40,
    ];
    for (number, lie) in lies.iter().enumerate() {
        let opened = forge(lie);
        assert!(
            matches!(opened, Err(Error::Damaged { .. })),
            "lie {number} is believed"
        );
    }
}
