//! Whole depots of the block device of which one file is changed: they are opened, read, checked and written.
//!
//! A chunk that is not reported damaged has to be what was written, where checksums or seals stand between: not in
//! `dtb`, whose pages have none, and not where something was made to look whole.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use onefold_io::{Dir, MemDir, Random};
use onefold_keys::{Entropy, KdfCost, Secret};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::backends::Parameters;
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, NewPassword, OpenOptions};
use onefold_volume::front::Options;
use onefold_volume::log::formats::mend_page_of_run;
use onefold_volume::{Compression, Depot, Effort, HeadId};

use super::{Reach, Target};
use crate::image::Image;
use crate::mend::{self, PAGE_BYTES};

const CHUNK: u64 = 4096;
/// Chunks of the volume, of which most hold something.
const CHUNKS: u64 = 256;
const PASSWORD: &str = "open sesame";
/// RAM that a depot may take: budget, staging and buffers.
const DEPOT_BYTES: usize = 256 << 20;

pub fn targets() -> Vec<Target> {
    let depot = |name, backend| ClosedDepot::depot(name, EngineKind::Dmdedup(backend), false);
    let cbt = depot("cbt", Backend::Cbt);
    let dtb = depot("dtb", Backend::Dtb);
    let log = ClosedDepot::depot("log", EngineKind::Log, false);
    let sealed = ClosedDepot::depot("sealed log", EngineKind::Log, true);
    vec![
        cbt.target("meta", |changed, written, _| {
            !has_forged_page(changed, written)
        })
        .mended(mend::cbt_pages),
        dtb.target("meta", |_, _, _| false),
        log.target("data", |changed, written, _| {
            !has_forged_frame(changed, written)
        })
        .mended(mend_zones),
        log.target("map", |changed, written, path| {
            let mut mended = changed.to_vec();
            mend_run(&mut mended, run_at(path));
            let pages = |bytes| <[u8]>::chunks(bytes, PAGE_BYTES);
            let mut all = pages(changed).zip(pages(written)).zip(pages(&mended));
            !all.any(|((page, before), mended)| page != before && page == mended)
        })
        .mended({
            let run = run_at(&log.file("map").0);
            move |bytes| mend_run(bytes, run)
        }),
        log.target("manifest", |changed, written, _| {
            !has_forged_frame(changed, written)
        })
        .mended(mend::frame),
        log.target("relocations", |changed, written, _| {
            !has_forged_frame(changed, written)
        })
        .mended(mend::frame),
        sealed.target("data", |_, _, _| true),
        sealed.target("map", |_, _, _| true),
    ]
}

/// A depot that was written and closed, and what it holds.
struct ClosedDepot {
    name: &'static str,
    image: Image,
    /// Contents of the heads, chunk by chunk.
    heads: BTreeMap<HeadId, Vec<Vec<u8>>>,
}

impl ClosedDepot {
    fn depot(name: &'static str, engine: EngineKind, is_sealed: bool) -> Rc<Self> {
        let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
        let is_log = engine == EngineKind::Log;
        let password = || NewPassword {
            password: Secret::new(PASSWORD),
            label: String::new(),
            cost: KdfCost::LEAST,
            created_unix_s: 0,
        };
        let options = CreateOptions {
            engine,
            parameters: Parameters::default(),
            compression: if is_log {
                Compression::Lz4
            } else {
                Compression::None
            },
            encryption: is_sealed.then(password),
            entropy: Entropy::seeded(1),
            capacity_bytes: is_log.then_some(8 << 20),
            ..CreateOptions::new(CHUNKS * CHUNK, [1; 16], [2; 32])
        };
        Depot::create(&folder, &options).expect("a depot");
        let mut chunks = vec![vec![0; CHUNK as usize]; CHUNKS as usize];
        let mut heads = BTreeMap::new();
        let mut random = Random(7);
        for round in 0..4 {
            let depot = open(&folder).expect("a depot");
            let device = Caller(depot.device(HeadId(0)).expect("the volume"));
            for _ in 0..CHUNKS / 2 {
                let lbn = random.below(CHUNKS);
                let bytes = match random.below(8) {
                    0 => vec![0; CHUNK as usize],
                    1 => vec![3; CHUNK as usize],
                    2..4 => {
                        let text = Random(random.below(90)).bytes(700);
                        [text, vec![b'p'; CHUNK as usize - 700]].concat()
                    }
                    _ => Random(random.below(300)).bytes(CHUNK as usize),
                };
                device.write(lbn * CHUNK, &bytes).expect("room");
                chunks[lbn as usize] = bytes;
                if random.one_in(40) {
                    device.flush().expect("a flush");
                }
            }
            if is_log && round == 1 {
                let kept = depot.snapshot(None, "kept", 0).expect("a snapshot");
                heads.insert(kept.id, chunks.clone());
            }
            if round == 2 {
                depot.collect(Effort::Whole).expect("a collection");
            }
            drop(device);
            depot.close().expect("all is well");
        }
        heads.insert(HeadId(0), chunks);
        let image = Image::of(&*folder);
        Rc::new(Self { name, image, heads })
    }

    /// The first file whose path begins so.
    fn file(&self, begin: &str) -> (String, Vec<u8>) {
        let first = self.image.files(begin).into_iter().next();
        first.unwrap_or_else(|| panic!("{} has no file {begin}", self.name))
    }

    /// Changes of the first file whose path begins so. `is_proved` tells of a changed file, the written one and its
    /// path whether all that is read must be right or reported.
    fn target(
        self: &Rc<Self>,
        begin: &str,
        is_proved: impl Fn(&[u8], &[u8], &str) -> bool + 'static,
    ) -> Target {
        let (path, written) = self.file(begin);
        let len = written.len();
        let end = written.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        let seed = written[..end.next_multiple_of(PAGE_BYTES).min(len)].to_vec();
        let depot = Rc::clone(self);
        // Data and metadata keep their length as devices do: what a shorter input lacks is zeros.
        let is_device = ["data", "meta"].contains(&begin);
        let name = format!("volume/depot {} {begin}", self.name);
        Target::new(&name, vec![seed], move |bytes| {
            let mut changed = bytes.to_vec();
            if is_device {
                changed.resize(len, 0);
            }
            let is_proved = is_proved(&changed, &written, &path);
            depot.try_with(&path, &changed, is_proved)
        })
        .in_pages()
        .allowing(DEPOT_BYTES)
    }

    /// Opens, reads, checks and writes the depot with this file in it.
    fn try_with(&self, path: &str, bytes: &[u8], is_proved: bool) -> Reach {
        let folder: Arc<dyn Dir> = self.image.with(path, bytes);
        let depot = match open(&folder) {
            Ok(depot) => depot,
            Err(error) => return Reach::of_error(&error),
        };
        let mut reach = Reach::Inside;
        for (head, chunks) in &self.heads {
            let Some(device) = depot.device(*head).map(Caller) else {
                assert!(!is_proved, "head {} is gone", head.0);
                continue;
            };
            for (lbn, expected) in (0..).zip(chunks) {
                match device.read(lbn * CHUNK, CHUNK) {
                    Ok(found) => assert!(
                        !is_proved || found[..] == expected[..],
                        "chunk {lbn} of head {} is another one, and no damage is reported",
                        head.0
                    ),
                    Err(error) => reach = reach.and(Reach::of_error(&error)),
                }
            }
        }
        if let Err(error) = depot.check(true) {
            reach = reach.and(Reach::of_error(&error));
        }
        write_and_collect(&depot, is_proved);
        // A depot that is damaged may refuse to be closed.
        let _ = depot.close();
        reach
    }
}

/// Writes some chunks, and reads them again: they are there, unless the depot says otherwise.
fn write_and_collect(depot: &Depot, is_proved: bool) {
    let Some(device) = depot.device(HeadId(0)).map(Caller) else {
        return;
    };
    let content = |lbn: u64| Random(1000 + lbn % 20).bytes(CHUNK as usize);
    let lbns = (0..CHUNKS).step_by(9);
    let is_written = |lbn: &u64| device.write(lbn * CHUNK, &content(*lbn)).is_ok();
    let written: Vec<u64> = lbns.filter(is_written).collect();
    let is_discarded = device.discard(40 * CHUNK, 30 * CHUNK).is_ok();
    let is_flushed = device.flush().is_ok();
    let _ = depot.collect(Effort::Whole);
    for lbn in written {
        if let Ok(found) = device.read(lbn * CHUNK, CHUNK)
            && is_proved
            && is_flushed
        {
            let is_gone = is_discarded && (40..70).contains(&lbn);
            let expected = if is_gone {
                vec![0; CHUNK as usize]
            } else {
                content(lbn)
            };
            assert!(
                found[..] == expected[..],
                "chunk {lbn} is not what was written"
            );
        }
    }
}

/// Whether a page of `cbt` differs that looks whole, or a superblock: without the newest one the state before it
/// counts.
fn has_forged_page(changed: &[u8], written: &[u8]) -> bool {
    let pages = changed.chunks(PAGE_BYTES).zip(written.chunks(PAGE_BYTES));
    let mut differing = (0..)
        .zip(pages)
        .filter(|(_, (page, before))| page != before);
    differing.any(|(number, (page, _))| number < 2 || mend::is_cbt_page(page, number))
}

/// Whether a frame differs that looks whole.
fn has_forged_frame(changed: &[u8], written: &[u8]) -> bool {
    let starts = (0..changed.len()).step_by(PAGE_BYTES);
    let mut frames = starts.filter_map(|at| Some((at, mend::whole_frame(&changed[at..])?)));
    frames.any(|(at, frame)| written.get(at..at + frame.len()) != Some(frame))
}

fn mend_zones(bytes: &mut [u8]) {
    for magic in [b"1FVZONEH", b"1FVGROUP", b"1FVZONEF"] {
        mend::frames_in_pages(*magic)(bytes);
    }
}

/// The number of the run in this file.
fn run_at(path: &str) -> u64 {
    let name = path.rsplit('/').next().unwrap_or_default();
    u64::from_str_radix(name, 16).expect("the number of a run")
}

/// Makes the pages of a run whole, and its footer.
fn mend_run(bytes: &mut [u8], run: u64) {
    for (number, page) in (0..).zip(bytes.chunks_mut(PAGE_BYTES)) {
        if page.starts_with(b"1FVMAPRN") {
            mend::frame(page)
        } else {
            mend_page_of_run(page, run, number)
        }
    }
}

fn open(folder: &Arc<dyn Dir>) -> onefold_volume::Result<Depot> {
    let options = OpenOptions {
        front: Options {
            inline: true,
            ..Options::default()
        },
        password: Some(Secret::new(PASSWORD)),
        entropy: Entropy::seeded(2),
        ..OpenOptions::default()
    };
    Depot::open(Arc::clone(folder), options)
}
