//! Filters that are saved and loaded: they answer as before, go on growing, and are never loaded when any part of them
//! has changed.

use std::path::Path;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{Filter, Result};
use onefold_io::{Dir, Disk, MemDir};
use onefold_papers::filters::{
    Accounting, BlockedBloom, Bloom, BufferOptions, Buffering, Chain, Forest, ForestOptions, Full,
    PageShape, Quotient, SingleLayer, Traverse, load_blocked, save_blocked,
};

use crate::history::key;

const RATE: f64 = 0.01;

/// A kind of filter by its name: how to make, save and load it.
trait Kept: Filter {
    fn save_as(&mut self, dir: &dyn Dir, name: &str) -> Result<()>;
}

macro_rules! kept {
    ($($filter:ty),*) => {
        $(impl Kept for $filter {
            fn save_as(&mut self, dir: &dyn Dir, name: &str) -> Result<()> {
                self.save(dir, name)
            }
        })*
    };
}
kept!(Bloom, SingleLayer, Chain, Forest, Quotient);

impl Kept for BlockedBloom {
    fn save_as(&mut self, dir: &dyn Dir, name: &str) -> Result<()> {
        save_blocked(self, dir, name)
    }
}

type Made = Result<Box<dyn Kept>>;

fn forest_options(ram_bytes: usize, starts_in_flash: bool) -> ForestOptions {
    ForestOptions {
        ram_bytes,
        shape: PageShape::for_rate(RATE),
        grown: PageShape::with_hashes(RATE, 3),
        branching: 2,
        traverse: Traverse::BottomUp,
        group_pages: 4,
        starts_in_flash,
        full: Full::FullestPage,
        accounting: Accounting::OURS,
    }
}

/// A filter for `keys` keys, on `disk` if it is one on flash.
fn make(name: &str, keys: u64, disk: Arc<dyn Disk>) -> Made {
    let shape = PageShape::for_rate(RATE);
    Ok(match name {
        "bloom" => Box::new(Bloom::new(keys, RATE)?),
        "blocked" => Box::new(BlockedBloom::new(keys, RATE)?),
        "single" => Box::new(SingleLayer::new(
            disk,
            keys,
            shape,
            BufferOptions::new(Buffering::Pooled, 8192),
            4,
        )?),
        "chain" => Box::new(Chain::new(disk, 1, shape)),
        "forest" => Box::new(Forest::new(disk, forest_options(4096, false))?),
        "forest-flash" => Box::new(Forest::new(disk, forest_options(8192, true))?),
        _ => Box::new(Quotient::new(keys / 4 + 1, keys * 4, RATE)?),
    })
}

fn load(name: &str, dir: &dyn Dir, disk: Arc<dyn Disk>) -> Made {
    Ok(match name {
        "bloom" => Box::new(Bloom::load(dir, name)?),
        "blocked" => Box::new(load_blocked(dir, name)?),
        "single" => Box::new(SingleLayer::load(
            disk,
            dir,
            name,
            BufferOptions::new(Buffering::Pooled, 8192),
            4,
        )?),
        "chain" => Box::new(Chain::load(disk, dir, name)?),
        "forest" => Box::new(Forest::load(disk, dir, name, forest_options(4096, false))?),
        "forest-flash" => Box::new(Forest::load(disk, dir, name, forest_options(4096, false))?),
        _ => Box::new(Quotient::load(dir, name)?),
    })
}

const NAMES: [&str; 7] = [
    "bloom",
    "blocked",
    "single",
    "chain",
    "forest",
    "forest-flash",
    "quotient",
];

fn ask(filter: &mut dyn Filter, numbers: std::ops::Range<u64>) -> Vec<bool> {
    let keys: Vec<Fingerprint> = numbers.map(key).collect();
    let mut present = vec![false; keys.len()];
    filter
        .may_contain(&keys, &mut present)
        .expect("may_contain");
    present
}

fn keys(numbers: std::ops::Range<u64>) -> Vec<Fingerprint> {
    numbers.map(key).collect()
}

#[test]
fn a_loaded_filter_answers_as_the_saved_one_and_goes_on() {
    for name in NAMES {
        for count in [0, 300, 9000] {
            let (dir, pages) = (MemDir::new(), MemDir::new());
            let disk = pages.create("pages").expect("create");
            let mut filter = make(name, 12_000, Arc::clone(&disk)).expect("make");
            filter.insert(&keys(0..count)).expect("insert");
            filter.save_as(&dir, name).expect("save");
            let mut again = load(name, &dir, disk).expect("load");
            for numbers in [0..count, 1 << 30..(1 << 30) + 3000] {
                assert_eq!(
                    ask(&mut *again, numbers.clone()),
                    ask(&mut *filter, numbers),
                    "{name} {count}"
                );
            }
            drop(filter);
            again.insert(&keys(count..count + 3000)).expect("insert");
            assert!(
                ask(&mut *again, 0..count + 3000).iter().all(|is| *is),
                "{name} {count}"
            );
            again.save_as(&dir, name).expect("save again");
        }
    }
}

#[test]
fn a_damaged_or_foreign_file_and_changed_pages_are_errors() {
    for name in NAMES {
        let (dir, pages) = (MemDir::new(), MemDir::new());
        let disk = pages.create("pages").expect("create");
        let mut filter = make(name, 12_000, Arc::clone(&disk)).expect("make");
        filter.insert(&keys(0..9000)).expect("insert");
        filter.save_as(&dir, name).expect("save");
        drop(filter);
        let file = dir.open_write(name).expect("open");
        for place in (0..file.len().expect("len")).step_by(997) {
            let mut byte = [0];
            file.read_at(&mut byte, place).expect("read");
            file.write_at(&[byte[0] ^ 4], place).expect("write");
            assert!(
                load(name, &dir, Arc::clone(&disk)).is_err(),
                "{name}: byte {place}"
            );
            file.write_at(&byte, place).expect("write");
        }
        load(name, &dir, Arc::clone(&disk)).expect("whole again");
        if disk.len().expect("len") > 0 {
            let mut byte = [0];
            disk.read_at(&mut byte, 1000).expect("read");
            disk.write_at(&[byte[0] ^ 4], 1000).expect("write");
            assert!(
                load(name, &dir, Arc::clone(&disk)).is_err(),
                "{name}: a page"
            );
        }
        let other = if name == "bloom" { "chain" } else { "bloom" };
        dir.rename(name, other).expect("rename");
        assert!(load(other, &dir, disk).is_err(), "{name} as {other}");
    }
}

#[test]
fn golden_filters_are_still_written_so_and_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/filters-1");
    for name in NAMES {
        let (made, kept) = (MemDir::new(), MemDir::new());
        let disk = made.create("pages").expect("create");
        let mut filter = make(name, 5, disk).expect("make");
        filter.insert(&keys(0..5)).expect("insert");
        filter.save_as(&made, name).expect("save");
        for (file, golden) in [(name, name.to_string()), ("pages", format!("{name}-pages"))] {
            let disk = made.open(file).expect("open");
            let mut written = vec![0; disk.len().expect("len") as usize];
            disk.read_at(&mut written, 0).expect("read");
            let path = folder.join(golden);
            if std::env::var_os("ONEFOLD_BLESS").is_some() && !written.is_empty() {
                std::fs::create_dir_all(&folder).expect("create");
                std::fs::write(&path, &written).expect("write");
            }
            let golden = if written.is_empty() {
                Vec::new()
            } else {
                std::fs::read(&path).expect("golden file")
            };
            assert!(written == golden, "{name}: {file} differs");
            kept.create(file)
                .expect("create")
                .write_at(&golden, 0)
                .expect("write");
        }
        let mut again = load(name, &kept, kept.open_write("pages").expect("open")).expect("load");
        assert!(ask(&mut *again, 0..5).iter().all(|is| *is), "{name}");
        assert!(ask(&mut *again, 100..105).iter().all(|is| !is), "{name}");
    }
}

/// A rate that no filter needs makes many hashes.
#[test]
fn a_blocked_filter_of_many_hashes_is_loaded_again() {
    let dir = MemDir::new();
    let saved = BlockedBloom::new(10, 1e-30).expect("new");
    save_blocked(&saved, &dir, "f").expect("save");
    load_blocked(&dir, "f").expect("load");
}
