//! The files of the papers' indexes, through an index that is opened over them; and filters as they are saved.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::filters::{
    Accounting, BlockedBloom, Bloom, BufferOptions, Buffering, Chain, Forest, ForestOptions, Full,
    PageShape, Quotient, SingleLayer, Traverse,
};
use onefold_index::{ContainerId, Filter, IndexName, Location, Result};
use onefold_io::{Dir, Disk, MemDir};

use super::Target;
use super::index::key;
use crate::image::Image;

/// Enough that every index has something on disk, and little enough that it opens at once.
const KEYS: u64 = 3000;
const RAM_BYTES: usize = 64 << 10;
/// Of an index that is opened, asked and filled, whatever its files claim: redb has regions and caches of its own, and a forged shape may ask for
/// some thousand write buffers.
const INDEX_BYTES: usize = 64 << 20;
const RATE: f64 = 0.01;

pub fn targets() -> Vec<Target> {
    let mut all = Vec::new();
    for (name, index) in IndexName::ALL {
        // Strata's have targets of their own.
        if index != IndexName::Strata {
            all.extend(of_index(name, index));
        }
    }
    for name in ["bloom", "blocked", "quotient", "single", "chain", "forest"] {
        all.extend(of_filter(name));
    }
    all
}

fn entries(numbers: std::ops::Range<u64>) -> Vec<(Fingerprint, Location)> {
    let at = |number| Location {
        container: ContainerId(number / 100),
    };
    numbers.map(|number| (key(number), at(number))).collect()
}

/// One target for each file.
fn of_index(name: &str, index: IndexName) -> Vec<Target> {
    let dir = Arc::new(MemDir::new());
    let made = || -> Result<()> {
        let mut made = index.open(dir.clone(), RAM_BYTES, 1)?;
        made.insert(&entries(0..KEYS))?;
        made.checkpoint()?;
        made.retire(&[ContainerId(3), ContainerId(4)])?;
        made.insert(&entries(KEYS..KEYS + 100))?;
        made.checkpoint()
    };
    made().expect("a new index");
    let image = Image::of(&*dir);
    let files = image.files("").into_iter();
    let files = files.filter(|(path, bytes)| !bytes.is_empty() && !path.contains("lock"));
    let target = |(path, bytes): (String, Vec<u8>)| {
        let (image, place) = (image.clone(), path.clone());
        let run = move |bytes: &[u8]| look(index, image.with(&place, bytes));
        Target::new(&format!("{name}/{path}"), vec![bytes], run).allowing(INDEX_BYTES)
    };
    let found: Vec<_> = files.map(target).collect();
    assert!(!found.is_empty(), "{name} has no files");
    found
}

/// Opens, asks for keys, and writes more.
fn look(index: IndexName, dir: Arc<MemDir>) {
    let Ok(mut index) = index.open(dir, RAM_BYTES, 2) else {
        return;
    };
    let keys: Vec<_> = (0..KEYS + 300).step_by(3).map(key).collect();
    let mut found = vec![None; keys.len()];
    let _ = index.lookup(&keys, &mut found);
    let _ = index.insert(&entries(KEYS * 3..KEYS * 3 + 200));
    let _ = index.retire(&[ContainerId(5)]);
    let _ = index.checkpoint();
}

/// Its pages on flash, and what is saved of it beside them.
fn of_filter(name: &'static str) -> Vec<Target> {
    let dir = Arc::new(MemDir::new());
    made(name, &dir).expect("a new filter");
    let image = Image::of(&*dir);
    let files = image
        .files("")
        .into_iter()
        .filter(|(_, bytes)| !bytes.is_empty());
    let target = |(path, bytes): (String, Vec<u8>)| {
        let (image, place) = (image.clone(), path.clone());
        let run = move |bytes: &[u8]| drop(ask(name, &image.with(&place, bytes)));
        Target::new(&format!("filters/{name}-{path}"), vec![bytes], run).allowing(4 << 20)
    };
    files.map(target).collect()
}

fn forest() -> ForestOptions {
    ForestOptions {
        ram_bytes: 8192,
        shape: PageShape::for_rate(RATE),
        grown: PageShape::with_hashes(RATE, 3),
        branching: 2,
        traverse: Traverse::BottomUp,
        group_pages: 4,
        starts_in_flash: true,
        full: Full::FullestPage,
        accounting: Accounting::OURS,
    }
}

fn made(name: &str, dir: &Arc<MemDir>) -> Result<()> {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let disk = || -> Result<Arc<dyn Disk>> { Ok(dir.create("pages")?) };
    let shape = PageShape::for_rate(RATE);
    macro_rules! save {
        ($filter:expr) => {{
            let mut filter = $filter;
            filter.insert(&keys)?;
            filter.save(&**dir, "saved")
        }};
    }
    match name {
        "bloom" => save!(Bloom::new(KEYS, RATE)?),
        "blocked" => save!(BlockedBloom::new(KEYS, RATE)?),
        "quotient" => save!(Quotient::new(KEYS / 4, KEYS * 4, RATE)?),
        "single" => {
            save!(SingleLayer::new(
                disk()?,
                KEYS,
                shape,
                BufferOptions::new(Buffering::Pooled, 8192),
                4
            )?)
        }
        "chain" => save!(Chain::new(disk()?, 1, shape)),
        _ => save!(Forest::new(disk()?, forest())?),
    }
}

fn ask(name: &str, dir: &Arc<MemDir>) -> Result<()> {
    let disk = || -> Result<Arc<dyn Disk>> { Ok(dir.open_write("pages")?) };
    let mut filter: Box<dyn Filter> = match name {
        "bloom" => Box::new(Bloom::load(&**dir, "saved")?),
        "blocked" => Box::new(BlockedBloom::load(&**dir, "saved")?),
        "quotient" => Box::new(Quotient::load(&**dir, "saved")?),
        "single" => Box::new(SingleLayer::load(
            disk()?,
            &**dir,
            "saved",
            BufferOptions::new(Buffering::Pooled, 8192),
            4,
        )?),
        "chain" => Box::new(Chain::load(disk()?, &**dir, "saved")?),
        _ => Box::new(Forest::load(disk()?, &**dir, "saved", forest())?),
    };
    let keys: Vec<_> = (0..500).map(key).collect();
    let mut present = vec![false; keys.len()];
    filter.may_contain(&keys, &mut present)?;
    filter.insert(&keys)
}
