//! The setups that are compared: the raw device, the report's engine over its three backends, and the engine `log`;
//! each on modelled devices, with the time that a load would have taken there.
//!
//! The data lies on a Savvio 15K.2, metadata on an X25-M, as in the report (§4.1). Data, metadata and CPU work side by
//! side, so the slowest of the three sets the time: the report's engine has threads for each request.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{Strata, StrataOptions};
use onefold_io::{
    Dir, Disk, FlashCounts, FlashDir, FlashModel, MemDir, ReadAt, SpindleDir, SpindleModel,
    WriteAt, mix64,
};
use onefold_volume::cbt::{Cbt, CbtOptions};
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::dtb::Dtb;
use onefold_volume::inram::InRam;
use onefold_volume::log::{Budget, Layout, LogEngine, LogOptions};
use onefold_volume::{
    ChunkContent, ChunkRead, Compression, Engine, HashedChunk, HeadId, HeadInfo, Lbn,
    MetadataBackend,
};

use crate::Error;
use crate::likeness::MetadataDevice;
use crate::trimmed_disk::TrimmedDisk;

/// Bytes of a chunk (report §3.4).
pub const CHUNK_BYTES: u64 = 4096;
/// Chunks of the report's data device of 146 GB (§4.1).
pub const REPORT_CHUNKS: f64 = 146e9 / CHUNK_BYTES as f64;
/// Bytes of metadata for each chunk of the device: a slot of 24 bytes in a hash table with 10 % to spare, 8 of an LBN,
/// 4 of a count. Caches are shares of that.
const METADATA_BYTES: f64 = 39.0;
/// Microseconds of CPU for a chunk, all cores together: 65 % of the machine at 147 MB/s (report p. 24).
const CPU_US: f64 = 0.65 * CHUNK_BYTES as f64 / 147.0;
const _: () = assert!(CPU_US > 18.0 && CPU_US < 18.2);
/// The content of a chunk of zeros.
pub const ZEROS: u64 = u64::MAX;
/// The spindle gives places in pieces of this size, or larger ones.
const EXTENT_BYTES: usize = 64 << 10;
/// A flash without room for another page would collect garbage, and the model would measure that: the report's device
/// was nearly empty.
const FLASH_BYTES_MIN: u64 = 1 << 30;

/// A device under test.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Setup {
    /// The data device itself.
    Raw,
    /// Dmdedup over `inram`.
    InRam,
    /// Dmdedup over `dtb`, with a cache of this share of all metadata.
    Dtb { cache: f64 },
    /// Dmdedup over `cbt`, with transactions of so many writes; 0: unlimited.
    Cbt { cache: f64, transaction: u64 },
    /// The engine `log`.
    Log,
}

impl Setup {
    /// Whether it is the report's engine.
    pub fn is_dmdedup(self) -> bool {
        !matches!(self, Self::Raw | Self::Log)
    }

    /// Whether it is `dtb`.
    pub fn is_dtb(self) -> bool {
        matches!(self, Self::Dtb { .. })
    }

    /// Whether it is `cbt` with these transactions.
    pub fn is_cbt(self, with: u64) -> bool {
        matches!(self, Self::Cbt { transaction, .. } if transaction == with)
    }

    /// The share of the metadata in the cache; 0 without one.
    pub fn cache(self) -> f64 {
        match self {
            Self::Dtb { cache } | Self::Cbt { cache, .. } => cache,
            _ => 0.0,
        }
    }

    /// The name in tables.
    pub fn name(self) -> String {
        let percent = |cache: f64| match cache * 100.0 {
            percent if percent < 1.0 => format!("{percent:.1} %"),
            percent => format!("{percent:.0} %"),
        };
        match self {
            Self::Raw => "raw".into(),
            Self::InRam => "inram".into(),
            Self::Dtb { cache } => format!("dtb {}", percent(cache)),
            Self::Cbt { cache, transaction } => {
                let writes = match transaction {
                    0 => "unlimited".to_owned(),
                    writes => writes.to_string(),
                };
                format!("cbt {}, {writes}", percent(cache))
            }
            Self::Log => "log".into(),
        }
    }
}

/// One write: neighbouring chunks. Each number is a content.
#[derive(Clone, Debug)]
pub struct Write {
    /// The first chunk's place.
    pub lbn: u64,
    /// The contents from there on.
    pub contents: Vec<u64>,
    /// The hint NODEDUP.
    pub nodedup: bool,
}

/// A setup on modelled devices.
pub struct Modelled {
    spindle: SpindleDir,
    flash: FlashDir,
    target: Target,
    memory: Vec<u8>,
    chunks: u64,
    begin: Spent,
}

enum Target {
    Raw(Arc<dyn Disk>),
    Engine(Box<dyn Engine>),
}

/// Modelled time, in microseconds, and pages of metadata.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spent {
    /// Time of the data device.
    pub data_us: f64,
    /// Time of the metadata device.
    pub metadata_us: f64,
    /// Time of the CPU.
    pub cpu_us: f64,
    /// Pages of metadata read.
    pub reads: u64,
    /// Pages of metadata written.
    pub writes: u64,
}

impl Spent {
    /// Seconds from start to end.
    pub fn seconds(&self) -> f64 {
        self.data_us.max(self.metadata_us).max(self.cpu_us) / 1e6
    }

    /// Seconds where each waits for the others.
    pub fn seconds_in_turns(&self) -> f64 {
        (self.data_us + self.metadata_us + self.cpu_us) / 1e6
    }

    /// The one that the others wait for.
    pub fn slowest(&self) -> &'static str {
        match self.data_us >= self.metadata_us.max(self.cpu_us) {
            true => "data",
            false if self.metadata_us >= self.cpu_us => "metadata",
            false => "CPU",
        }
    }
}

impl Modelled {
    /// An empty device of `chunks` chunks, with as many places.
    pub fn new(setup: Setup, chunks: u64) -> Result<Self, Error> {
        Self::over(
            setup,
            chunks,
            chunks,
            MetadataDevice::new(FlashModel::x25_m),
        )
    }

    /// An empty device of `chunks` chunks for a volume of `lbns`, with its metadata on another device.
    pub fn over(
        setup: Setup,
        chunks: u64,
        lbns: u64,
        metadata: MetadataDevice<'_>,
    ) -> Result<Self, Error> {
        let share = chunks as f64 / REPORT_CHUNKS;
        let spindle = SpindleModel::SAVVIO_15K2.scaled(share);
        let spindle = SpindleDir::new(Arc::new(MemDir::new()), spindle);
        let flash = metadata.flash((chunks * 400).max(FLASH_BYTES_MIN));
        let flash = FlashDir::new(Arc::new(MemDir::new()), flash);
        let data = |bytes: u64| laid_out(&spindle, bytes);
        let target = match setup {
            Setup::Raw => Target::Raw(data(lbns * CHUNK_BYTES)?),
            Setup::Log => {
                let bytes = roomy(chunks * CHUNK_BYTES);
                Target::Engine(log(data(bytes)?, bytes, lbns, &flash)?)
            }
            _ => {
                let disk = data(chunks * CHUNK_BYTES)?;
                let area = DataArea::new(disk, 0, CHUNK_BYTES as u32, chunks);
                let (backend, transaction) = backend(setup, chunks, &flash, metadata)?;
                let engine = Dmdedup::open(backend, area, lbns)?;
                Target::Engine(Box::new(engine.committing_every(transaction)))
            }
        };
        let mut made = Self {
            spindle,
            flash,
            target,
            memory: Vec::new(),
            chunks: 0,
            begin: Spent::default(),
        };
        made.begin = made.spent();
        Ok(made)
    }

    /// Writes that are under way together: the device sorts them; an engine takes one after the other.
    pub fn write(&mut self, writes: &[Write]) -> Result<(), Error> {
        let chunks: usize = writes.iter().map(|write| write.contents.len()).sum();
        self.memory.resize(chunks * CHUNK_BYTES as usize, 0);
        let contents = writes.iter().flat_map(|write| &write.contents);
        let places = self.memory.chunks_exact_mut(CHUNK_BYTES as usize);
        for (content, place) in contents.zip(places) {
            // Zeros alone are not written at all: only one content is zeros.
            place[..8].copy_from_slice(&content.wrapping_add(1).to_le_bytes());
        }
        let mut rest = &self.memory[..];
        let mut pieces = Vec::with_capacity(writes.len());
        for write in writes {
            let (data, later) = rest.split_at(write.contents.len() * CHUNK_BYTES as usize);
            pieces.push((write, data));
            rest = later;
        }
        match &mut self.target {
            Target::Raw(disk) => {
                let mut all: Vec<WriteAt<'_>> = Vec::with_capacity(pieces.len());
                for (write, data) in pieces {
                    let offset = write.lbn * CHUNK_BYTES;
                    all.push(WriteAt { offset, data });
                }
                disk.write_many_at(&all)?;
            }
            Target::Engine(engine) => {
                self.chunks += chunks as u64;
                for (write, data) in pieces {
                    write_to(&mut **engine, write, data)?;
                }
            }
        }
        Ok(())
    }

    /// Reads of one chunk each that are under way together; with the hint PREFETCH if `is_hinted`.
    pub fn read(&mut self, lbns: &[u64], is_hinted: bool) -> Result<(), Error> {
        self.memory.resize(lbns.len() * CHUNK_BYTES as usize, 0);
        let places = self.memory.chunks_exact_mut(CHUNK_BYTES as usize);
        match &self.target {
            Target::Raw(disk) => {
                let mut reads: Vec<ReadAt<'_>> = Vec::with_capacity(lbns.len());
                for (lbn, buf) in lbns.iter().zip(places) {
                    let offset = lbn * CHUNK_BYTES;
                    reads.push(ReadAt { offset, buf });
                }
                disk.read_many_at(&mut reads)?;
            }
            Target::Engine(engine) => {
                let mut reads = Vec::with_capacity(lbns.len());
                for (lbn, buffer) in lbns.iter().zip(places) {
                    let lbn = Lbn(*lbn);
                    reads.push(ChunkRead { lbn, buffer });
                }
                let (reader, head) = (engine.reader(), HeadId(0));
                if is_hinted {
                    reader.read_and_remember(head, &mut reads, &fingerprints)?
                } else {
                    reader.read(head, &mut reads)?
                }
            }
        }
        Ok(())
    }

    /// Everything that was written is on its device. Metadata that a backend keeps in its cache stays there.
    pub fn write_out(&mut self) -> Result<(), Error> {
        match &mut self.target {
            Target::Raw(_) => {}
            Target::Engine(engine) => drop(engine.write_out()?),
        }
        Ok(())
    }

    /// Everything that was written survives a crash.
    pub fn commit(&mut self) -> Result<(), Error> {
        match &mut self.target {
            Target::Raw(_) => {}
            Target::Engine(engine) => engine.commit()?,
        }
        Ok(())
    }

    /// The cost of all loads so far.
    pub fn spent(&self) -> Spent {
        let FlashCounts {
            page_reads,
            page_writes,
            modelled_us,
            ..
        } = self.flash.counts();
        Spent {
            data_us: self.spindle.counts().modelled_us - self.begin.data_us,
            metadata_us: modelled_us - self.begin.metadata_us,
            cpu_us: self.chunks as f64 * CPU_US - self.begin.cpu_us,
            reads: page_reads - self.begin.reads,
            writes: page_writes - self.begin.writes,
        }
    }

    /// Begins to measure: all before is forgotten.
    pub fn begin(&mut self) {
        self.begin = Spent::default();
        self.begin = self.spent();
    }

    /// Chunks that were new, as the engine counted; none of the raw device.
    pub fn stored_chunks(&self) -> Option<u64> {
        match &self.target {
            Target::Raw(_) => None,
            Target::Engine(engine) => Some(engine.stats().unique_writes),
        }
    }
}

/// A disk that lies on the spindle from start to end, as a device does: a spindle gives places as they are asked for.
fn laid_out(spindle: &SpindleDir, bytes: u64) -> Result<Arc<dyn Disk>, Error> {
    let disk = spindle.over("data", Arc::new(TrimmedDisk::new(bytes)));
    for at in (0..bytes).step_by(EXTENT_BYTES) {
        disk.write_at(&[0], at)?;
    }
    Ok(disk)
}

fn write_to(engine: &mut dyn Engine, write: &Write, data: &[u8]) -> Result<(), Error> {
    let chunks: Vec<HashedChunk<'_>> = (write.contents.iter().zip(write.lbn..))
        .zip(data.chunks_exact(CHUNK_BYTES as usize))
        .map(|((content, lbn), bytes)| HashedChunk {
            head: HeadId(0),
            lbn: Lbn(lbn),
            content: match write.nodedup {
                _ if *content == ZEROS => ChunkContent::Zero,
                true => ChunkContent::NoDedup(bytes),
                false => ChunkContent::Fingerprinted(fingerprint(*content), bytes),
            },
            has_page: true,
            is_metadata: false,
            is_incompressible: false,
        })
        .collect();
    match engine.write(&chunks)?.len() {
        0 => Ok(()),
        refused => Err(format!("the device is full: {refused} chunks were refused").into()),
    }
}

/// A fingerprint of a content, without its bytes being hashed: nobody measures the hash here.
fn fingerprint(content: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    for (place, word) in bytes.chunks_exact_mut(8).zip(1..) {
        place.copy_from_slice(&mix64(mix64(content) ^ word).to_le_bytes());
    }
    Fingerprint(bytes)
}

/// Fingerprints of chunks as they were written: a number and zeros.
fn fingerprints(chunks: &[&[u8]]) -> Vec<Fingerprint> {
    let number = |chunk: &&[u8]| chunk.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
    (chunks.iter().map(number))
        .map(|number| fingerprint(number.wrapping_sub(1)))
        .collect()
}

type Backend = (Box<dyn MetadataBackend>, u64);

fn backend(
    setup: Setup,
    chunks: u64,
    flash: &FlashDir,
    metadata: MetadataDevice<'_>,
) -> Result<Backend, Error> {
    let bytes = |cache: f64| cache_bytes(chunks, metadata.cache(cache));
    Ok(match setup {
        Setup::Dtb { cache } => {
            Dtb::create(flash, chunks)?;
            (Box::new(Dtb::open(flash, chunks, bytes(cache))?), 0)
        }
        Setup::Cbt { cache, transaction } => {
            Cbt::create(flash, chunks)?;
            let options = CbtOptions::new(bytes(cache));
            let cbt = Box::new(Cbt::open(flash, chunks, options)?);
            (metadata.nodes(cbt), transaction)
        }
        _ => (Box::new(InRam::unsaved(chunks)?), 0),
    })
}

/// Bytes of a cache that holds this share of the metadata of a device of so many chunks.
pub fn cache_bytes(chunks: u64, share: f64) -> u64 {
    (chunks as f64 * METADATA_BYTES * share) as u64
}

/// Bytes of a device that holds so many with room to spare.
fn roomy(bytes: u64) -> u64 {
    bytes + bytes / 7 + (8 << 20)
}

fn log(
    data: Arc<dyn Disk>,
    bytes: u64,
    lbns: u64,
    flash: &FlashDir,
) -> Result<Box<dyn Engine>, Error> {
    let layout = Layout::new(bytes, CHUNK_BYTES as u32)?;
    let budget = Budget::divide(Budget::default_bytes(bytes), &layout)?;
    let index = StrataOptions {
        ram_budget_bytes: budget.index_bytes as usize,
        background_merges: false,
        ..StrataOptions::new(1)
    };
    let options = LogOptions {
        depot: [1; 16],
        fingerprint: Arc::new(fingerprints),
        first: HeadInfo::first("main", lbns),
        index: Box::new(Strata::open(flash.subdir("index")?, index)?),
        sizes: budget.sizes,
        compression: Compression::None,
        seals: onefold_volume::log::Seals::none(),
        is_inline: true,
        clock: None,
    };
    let folder: Arc<dyn Dir> = Arc::new(flash.clone());
    let engine = LogEngine::create(folder, data, CHUNK_BYTES as u32, options)?;
    Ok(Box::new(engine))
}
