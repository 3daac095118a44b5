//! The files of the papers' indexes, through an index that is opened over them; and filters as they are saved.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{
    ChunkIndex, ContainerId, Filter, IndexKind, Location, OpenIndex, Openers, Result,
};
use onefold_io::frame::{HEADER_BYTES, TRAILER_BYTES};
use onefold_io::{Dir, Disk, MemDir};
use onefold_papers::filters::{
    Accounting, BlockedBloom, Bloom, BufferOptions, Buffering, Chain, Forest, ForestOptions, Full,
    PageShape, Quotient, SingleLayer, Traverse, load_blocked, save_blocked,
};
use onefold_papers::{BloomStore, BloomStoreOptions, KINDS};

use super::index::key;
use super::{Reach, Target};
use crate::image::Image;
use crate::mend;

/// Enough that every index has something on disk, and little enough that it opens at once.
const KEYS: u64 = 3000;
const RAM_BYTES: usize = 64 << 10;
/// RAM of an index that is opened, asked and filled, whatever its files claim: redb has regions and caches of its own,
/// and a forged shape may ask for some thousand write buffers.
const INDEX_BYTES: usize = 64 << 20;
const RATE: f64 = 0.01;
/// The file of BloomStore's chains.
const CHAINS: &str = "bloom-chains";

pub fn targets() -> Vec<Target> {
    let mut all = Vec::new();
    for kind in KINDS {
        // Strata's have targets of their own.
        if kind.openers == Openers::One {
            all.extend(of_index(kind));
        }
    }
    all.extend(of_chains());
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
fn of_index(kind: &'static IndexKind) -> Vec<Target> {
    files_of(kind.name, move |dir| {
        (kind.open)(OpenIndex::new(dir, RAM_BYTES, 1))
    })
}

/// BloomStore's chains are on flash only where there is no RAM for them.
fn of_chains() -> Vec<Target> {
    let options = BloomStoreOptions {
        pool_bytes: 0,
        ..BloomStoreOptions::new(KEYS, RAM_BYTES)
    };
    let open = move |dir: Arc<MemDir>| -> Result<Box<dyn ChunkIndex>> {
        Ok(Box::new(BloomStore::open(dir, options.clone())?))
    };
    let mut found = files_of("bloomstore", open);
    found.retain(|target| target.name.ends_with(CHAINS));
    found
}

fn files_of(
    name: &str,
    open: impl Fn(Arc<MemDir>) -> Result<Box<dyn ChunkIndex>> + Clone + 'static,
) -> Vec<Target> {
    let dir = Arc::new(MemDir::new());
    let made = || -> Result<()> {
        let mut made = open(dir.clone())?;
        made.insert(&entries(0..KEYS))?;
        made.checkpoint()?;
        made.retire(&[ContainerId(3), ContainerId(4)])?;
        made.insert(&entries(KEYS..KEYS + 100))?;
        made.checkpoint()
    };
    made().expect("a new index");
    let image = Image::of(&*dir);
    let files = image.files("").into_iter();
    // sealed tablets are alike
    let is_another = |path: &str| path.starts_with("tablet-") && !path.ends_with("-00000000");
    let files = files
        .filter(|(path, bytes)| !bytes.is_empty() && !path.contains("lock") && !is_another(path));
    let target = |(path, bytes): (String, Vec<u8>)| {
        let (image, place, open) = (image.clone(), path.clone(), open.clone());
        let run = move |bytes: &[u8]| look(&open, &image.with(&place, bytes), &place, bytes);
        let target = Target::new(&format!("{name}/{path}"), vec![bytes], run);
        with_checksums(target.allowing(INDEX_BYTES), &path)
    };
    let found: Vec<_> = files.map(target).collect();
    assert!(!found.is_empty(), "{name} has no files");
    found
}

/// Sets the way in which the checksums of a file of this name are made true again.
fn with_checksums(target: Target, path: &str) -> Target {
    match path {
        // the library's own
        "btree" => target,
        "stash-retired" | "bloom-shape" | "bufferhash-shape" => target.mended(mend::frame),
        "sparse-log" => target
            .mended(mend::frames_in_pages(*b"OFSPARSE"))
            .in_pages(),
        _ if path.starts_with("tablets-journal") => target
            .mended(mend::frames_in_pages(*b"OFTABJRN"))
            .in_pages(),
        _ => target.mended(mend::pages).in_pages(),
    }
}

/// Opens, asks for keys, and writes more. What is cut off at opening, as a torn end is, was stopped by a checksum, and
/// so was a unit of chains that is not whole: it is made anew from the log, and nothing is said.
fn look(
    open: &dyn Fn(Arc<MemDir>) -> Result<Box<dyn ChunkIndex>>,
    dir: &Arc<MemDir>,
    path: &str,
    bytes: &[u8],
) -> Reach {
    let mut index = match open(dir.clone()) {
        Ok(index) => index,
        Err(error) => return Reach::of_error(&error),
    };
    let there = dir.open(path).and_then(|disk| disk.len());
    let is_cut = there.is_ok_and(|there| there < bytes.len() as u64);
    let is_stopped = is_cut || path == CHAINS && !mend::hold(bytes);
    let keys: Vec<_> = (0..KEYS + 300).step_by(3).map(key).collect();
    let mut found = vec![None; keys.len()];
    let asked = index.lookup(&keys, &mut found);
    let _ = index.insert(&entries(KEYS * 3..KEYS * 3 + 200));
    let _ = index.retire(&[ContainerId(5)]);
    let _ = index.checkpoint();
    if is_stopped {
        Reach::Door
    } else {
        Reach::of(&asked)
    }
}

/// Its pages on flash, and what is saved of it beside them.
fn of_filter(name: &'static str) -> Vec<Target> {
    let dir = Arc::new(MemDir::new());
    made(name, &dir).expect("a new filter");
    let image = Image::of(&*dir);
    let [saved, pages] = ["saved", "pages"].map(|begin| image.files(begin).pop());
    let (_, saved) = saved.expect("what is saved of a filter");
    let target = |path: &str, bytes: &[u8]| {
        let (image, place) = (image.clone(), path.to_string());
        let run = move |bytes: &[u8]| Reach::of(&ask(name, &image.with(&place, bytes)));
        let target = Target::new(&format!("filters/{name}-{path}"), vec![bytes.to_vec()], run);
        target.allowing(4 << 20)
    };
    let Some((_, pages)) = pages else {
        return vec![target("saved", &saved).mended(mend::frame)];
    };
    vec![
        target("saved", &saved).mended(mend_beside_pages(&saved)),
        of_pages(name, &image, &saved, pages),
    ]
}

/// Mends the saved state of a filter whose pages stay as they are: its last number is their checksum.
fn mend_beside_pages(saved: &[u8]) -> impl Fn(&mut [u8]) + use<> {
    let end = saved.len() - TRAILER_BYTES;
    let checksum = saved[end - 8..end].to_vec();
    move |bytes| {
        if let Some(end) = bytes.len().checked_sub(TRAILER_BYTES)
            && end >= HEADER_BYTES + 8
        {
            bytes[end - 8..end].copy_from_slice(&checksum);
        }
        mend::frame(bytes);
    }
}

/// Pages of a filter on flash, under whose checksum they stand in any case.
fn of_pages(name: &'static str, image: &Image, saved: &[u8], pages: Vec<u8>) -> Target {
    let saved_for = mend::saved_for(saved, &pages);
    assert_eq!(saved_for(&pages), saved, "{name}: its checksum is another");
    let image = image.clone();
    let run = move |bytes: &[u8]| {
        let (saved, pages) = (&saved_for(bytes)[..], bytes);
        let dir = image.with_all(&[("saved", saved), ("pages", pages)]);
        Reach::of(&ask(name, &dir))
    };
    let target = Target::new(&format!("filters/{name}-pages"), vec![pages], run);
    target.in_pages().allowing(4 << 20)
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
    // a chain keeps its last page in RAM
    let pages = if name == "chain" { 3 } else { 1 };
    let keys: Vec<_> = (0..KEYS * pages).map(key).collect();
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
        "blocked" => {
            let mut filter = BlockedBloom::new(KEYS, RATE)?;
            filter.insert(&keys)?;
            save_blocked(&filter, &**dir, "saved")
        }
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
        "blocked" => Box::new(load_blocked(&**dir, "saved")?),
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
