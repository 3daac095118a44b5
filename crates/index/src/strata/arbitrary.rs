//! Decoders of arbitrary bytes behind a right checksum: an error or a value, never a panic and never a large
//! allocation.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::frame::{FrameKind, encode_frame};
use onefold_io::{Dir, Disk, LockKind, MemDir};
use proptest::collection::vec;
use proptest::prelude::*;

use super::log::{HEADER_BYTES, LogPage};
use super::manifest::{
    FileId, IndexManifest, LOG_PAGES_MAX, LOOSE_PAGES_MAX, LOOSE_RECORDS_MAX, LogEntry,
    MANIFEST_FRAME,
};
use super::merge::merge_once;
use super::page::{PAGE_BYTES, seal_page};
use super::run::{RUN_FRAME, Run, RunReader};
use super::run_filters::FilterShare;
use super::run_page::{RunPage, RunRecord};
use super::run_writer::RunWriter;
use super::spans::{LOG_FRAME, LogSpan, SpanTable, encode_spans, read_spans};
use super::{Strata, StrataOptions};
use crate::{ChunkIndex, ContainerId, Error, Location};

/// Payloads of small numbers, as counts, lengths and pages are, and of large ones, which may overflow.
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
    encode_frame(kind, payload)
}

fn page(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(PAGE_BYTES, 0x5a);
    seal_page(&mut bytes, 0);
    bytes
}

/// The id whose mark is 0: its pages are sealed as those of files without a mark.
const UNMARKED: FileId = FileId {
    unique: 0,
    number: 0,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn manifest(payload in payload(), noise in vec(any::<u8>(), 0..100)) {
        if let Ok(manifest) = IndexManifest::decode(&framed(MANIFEST_FRAME, &payload), "x") {
            prop_assert_eq!(IndexManifest::decode(&manifest.encode(), "x").expect("again"), manifest);
        }
        IndexManifest::decode(&noise, "x").ok();
    }

    #[test]
    fn run_footer(partitions_log2 in 0u8..4, numbers in payload(), pages in 0usize..4) {
        let mut payload = numbers.get(..8).unwrap_or(&[0; 8]).to_vec();
        payload.push(partitions_log2);
        payload.extend_from_slice(&numbers);
        let pages = vec![page(numbers.clone()); pages].concat();
        let (disk, len) = disk(&[&pages, &framed(RUN_FRAME, &payload)]);
        if let Ok(mut run) = Run::open(disk, UNMARKED, pages.len() as u64, len) {
            run.load_filters(FilterShare { bits: 8, more: 0 }, 16).ok();
            let asked = (0..100u64).filter(|i| run.may_contain(i << 48)).map(|i| run.page_of(i << 48));
            prop_assert!(asked.count() <= 100);
            let mut reader = RunReader::new(Arc::new(run), 4);
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    #[test]
    fn log_footer(pages in 0u32..20, numbers in vec((0u64..3, 0u32..20, 0u32..20), 0..8)) {
        let span = |(container, first, last)| LogSpan { said: (container > 0).then_some(ContainerId(container)), first, last };
        let spans: Vec<LogSpan> = numbers.into_iter().map(span).collect();
        let footer = encode_spans(UNMARKED.mark(), 0, pages, &spans);
        let (disk, file_bytes) = disk(&[&vec![0; pages as usize * PAGE_BYTES], &footer]);
        let entry = LogEntry { id: FileId { unique: 0, number: 0 }, first_page: 0, pages, records: 0, file_bytes };
        let is_in_place = |pair: &[LogSpan]| pair[1].first >= pair[0].last;
        let is_within = |span: &LogSpan| span.first <= span.last && span.last < pages;
        let right = spans.iter().all(is_within) && spans.windows(2).all(is_in_place);
        prop_assert_eq!(read_spans(&entry, "x", &*disk).ok(), right.then(|| spans.clone()));
        if right {
            SpanTable::new(&spans).container(7, 2);
        }
    }

    #[test]
    fn log_footer_of_noise(payload in payload()) {
        let frame = framed(LOG_FRAME, &payload);
        let footer = page([&[0; HEADER_BYTES][..], &frame].concat());
        let (disk, file_bytes) = disk(&[&footer]);
        let entry = LogEntry { id: FileId { unique: 0, number: 0 }, first_page: 0, pages: 0, records: 0, file_bytes };
        read_spans(&entry, "x", &*disk).ok();
    }

    #[test]
    fn pages(counts in any::<[u8; 16]>(), bytes in vec(any::<u8>(), 0..4080)) {
        let mut bytes = [&counts[..], &bytes].concat();
        let bytes = page(std::mem::take(&mut bytes));
        if let Ok(page) = LogPage::check(&bytes, UNMARKED.mark(), "x", 0) {
            page.find(&Fingerprint([7; 32]));
            prop_assert_eq!(page.records().count(), page.len());
        }
    }

    #[test]
    fn run_pages(len in 0u16..2000, rest_bits in 0u8..70, value_bits in 0u8..40, hash in any::<u64>(), bytes in vec(any::<u8>(), 0..4000)) {
        let head = [&[0; 16][..], &len.to_le_bytes(), &[rest_bits, value_bits, 1, 0, 0, 0]].concat();
        let bytes = page([head, bytes].concat());
        if let Ok(page) = RunPage::check(&bytes, UNMARKED.mark(), "x", 0) {
            page.ask(hash);
            prop_assert!((0..page.len()).all(|i| page.record(i).page < 1 << 31));
        }
    }
}

const KEYS: u64 = 12_700;
/// Log pages that [`KEYS`] records fill.
const PAGES: u32 = 100;

fn options(unique: u64) -> StrataOptions {
    StrataOptions {
        ram_budget_bytes: 1 << 20,
        background_merges: false,
        ..StrataOptions::new(unique)
    }
}

/// Key number `number`, spread over the whole range.
fn key(number: u64) -> Fingerprint {
    let mut key = [0; 32];
    let random = |eight: u64| (number * 4 + eight + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..)
        .zip(key.chunks_exact_mut(8))
        .for_each(|(i, eight)| eight.copy_from_slice(&random(i).to_be_bytes()));
    Fingerprint(key)
}

/// An index of one log file of [`PAGES`] pages, of containers 1 and 2 in halves, and one run, and its manifest.
fn of_two_containers() -> (MemDir, IndexManifest) {
    let dir = MemDir::new();
    let large = StrataOptions {
        ram_budget_bytes: 64 << 20,
        ..options(1)
    };
    let mut index = Strata::open(Arc::new(dir.clone()), large).expect("open");
    for number in 0..KEYS {
        let container = ContainerId(1 + number * 2 / KEYS);
        index
            .insert(&[(key(number), Location { container })])
            .expect("insert");
    }
    index.checkpoint().expect("checkpoint");
    let manifest =
        IndexManifest::decode(&read(&dir, "manifest"), "manifest").expect("what was written");
    assert_eq!((manifest.logs[0].pages, manifest.runs.len()), (PAGES, 1));
    (dir, manifest)
}

fn read(dir: &MemDir, name: &str) -> Vec<u8> {
    let disk = dir.open(name).expect("open");
    let mut bytes = vec![0; disk.len().expect("length") as usize];
    disk.read_at(&mut bytes, 0).expect("read");
    bytes
}

fn replace(dir: &MemDir, name: &str, bytes: &[u8]) {
    dir.remove(name).expect("remove");
    let disk = dir.create(name).expect("create");
    disk.write_at(bytes, 0).expect("write");
}

/// Spans with a right checksum that no writer makes: a reader that accepted them would write the same run for ever.
#[test]
fn spans_that_are_out_of_place_are_damage() {
    let (dir, mut manifest) = of_two_containers();
    let name = manifest.logs[0].id.log_name();
    let pages = read(&dir, &name)[..PAGES as usize * PAGE_BYTES].to_vec();
    let span = |container, first, last| LogSpan {
        said: Some(ContainerId(container)),
        first,
        last,
    };
    for (is_right, spans) in [
        (true, [span(1, 0, 50), span(2, 50, 99)]),
        (false, [span(1, 50, 0), span(2, 50, 99)]),
        (false, [span(1, 2, u32::MAX), span(2, u32::MAX, u32::MAX)]),
        (false, [span(1, u32::MAX - 1, u32::MAX), span(2, 3, 3)]),
        (false, [span(1, 0, 99), span(2, 50, 99)]),
        (false, [span(1, 0, 50), span(2, 50, PAGES)]),
    ] {
        let entry = &manifest.logs[0];
        let footer = encode_spans(entry.id.mark(), entry.records, PAGES, &spans);
        let bytes = [&pages[..], &footer].concat();
        manifest.logs[0].file_bytes = bytes.len() as u64;
        replace(&dir, &name, &bytes);
        replace(&dir, "manifest", &manifest.encode());
        let opened = Strata::open(Arc::new(dir.clone()), options(2));
        let is_damage = matches!(opened, Err(Error::Damaged { .. }));
        assert_eq!(is_damage, !is_right, "{spans:?}");
    }
}

/// A run that speaks of the first pages only and has as many records as the log: half of its pages are gone, and none
/// of its records.
#[test]
fn a_run_that_is_written_anew_in_vain_stays_as_it_is() {
    let (dir, mut manifest) = of_two_containers();
    let entry = &mut manifest.runs[0];
    let disk = dir.open(&entry.id.run_name()).expect("open");
    let run = Run::open(disk, entry.id, entry.footer_at, entry.file_bytes).expect("a run");
    let mut reader = RunReader::new(Arc::new(run), 4);
    let forged = dir.create("forged").expect("create");
    let mut writer = RunWriter::new(Arc::clone(&forged), entry.id, KEYS, PAGES, 1000, 8);
    while let Some(record) = reader.next().expect("a record") {
        let page = record.page / 2;
        writer.push(RunRecord { page, ..record }).expect("push");
    }
    let written = writer.finish(&[]).expect("finish");
    (entry.footer_at, entry.file_bytes) = (written.footer_at, written.file_bytes);
    let name = entry.id.run_name();
    replace(&dir, &name, &read(&dir, "forged"));
    replace(&dir, "manifest", &manifest.encode());
    let mut index = Strata::open(Arc::new(dir.clone()), options(2)).expect("open");
    index.retire(&[ContainerId(2)]).expect("retire");
    let merging = dir.lock("merge", LockKind::Exclusive).expect("lock");
    index.checkpoint().expect("checkpoint");
    drop(merging);
    // the log is compacted in the end
    let merges = (0..20).take_while(|_| merge_once(&index.shared, false).expect("merge"));
    assert!(merges.count() < 20);
}

/// A manifest with a right checksum and made-up numbers: the RAM it costs is bounded by the size of its files.
#[test]
fn a_forged_manifest_takes_no_ram() {
    let dir = MemDir::new();
    let location = Location {
        container: ContainerId(1),
    };
    let mut index = Strata::open(Arc::new(dir.clone()), options(1)).expect("open");
    // with a run, and some records that are loose
    for number in 0..LOOSE_RECORDS_MAX * 2 {
        let entry = (key(number.into()), location);
        index.insert(&[entry]).expect("insert");
    }
    index.checkpoint().expect("checkpoint");
    drop(index);
    let real =
        IndexManifest::decode(&read(&dir, "manifest"), "manifest").expect("what was written");
    let forge = |change: &dyn Fn(&mut IndexManifest)| {
        let mut forged = real.clone();
        change(&mut forged);
        replace(&dir, "manifest", &forged.encode());
        Strata::open(Arc::new(dir.clone()), options(2))
    };
    let gone = |manifest: &mut IndexManifest| {
        manifest.next_page = LOG_PAGES_MAX;
        manifest.runs[0].end_page = LOG_PAGES_MAX;
    };
    let index = forge(&gone).expect("pages that are gone");
    assert!(index.ram_bytes() < 1 << 20, "{} bytes", index.ram_bytes());
    let lies: [&dyn Fn(&mut IndexManifest); 10] = [
        &|manifest| manifest.runs[0].records = 1 << 37,
        &|manifest| manifest.logs[0].records = 1 << 37,
        &|manifest| {
            manifest.next_page = LOG_PAGES_MAX;
            manifest.logs[0].pages = LOG_PAGES_MAX;
        },
        &|manifest| manifest.logs[0].file_bytes = 1 << 40,
        &|manifest| manifest.runs[0].file_bytes = 1 << 40,
        &|manifest| manifest.next_page += LOOSE_PAGES_MAX,
        &|manifest| manifest.loose_records = LOOSE_RECORDS_MAX + 1,
        &|manifest| manifest.loose_records = u32::MAX,
        &|manifest| manifest.loose_records /= 2,
        // no run: all records are loose, more than the manifest says
        &|manifest| manifest.runs.clear(),
    ];
    for (number, lie) in lies.iter().enumerate() {
        let opened = forge(lie);
        assert!(
            matches!(opened, Err(Error::Damaged { .. })),
            "lie {number} is believed"
        );
    }
}
