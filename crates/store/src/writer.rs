//! Writing chunks: duplicates are dropped, new chunks gathered into blocks, blocks into containers.
//!
//! Always holds: the index is told of a container only when it is durable; a chunk that is neither in the index nor durable is in the
//! session's `pending`, so that its next occurrence refers to it. Every queue is bounded.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_chunk::Fingerprint;
use onefold_index::{ContainerId, Location};
use parking_lot::Mutex;

use crate::building::{Building, ChunkList, Finished};
use crate::compression::Compressor;
use crate::container::{self, StreamKind};
use crate::session::SessionState;
use crate::{ChunkRef, Error, Result};

/// What a writer did. Bytes are of chunks, before compression; `stored_bytes` is what containers took on disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteStats {
    /// Chunks given.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of those, chunks that were not stored yet.
    pub new_chunks: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Bytes of the containers written, all included.
    pub stored_bytes: u64,
    /// Containers written.
    pub containers: u64,
}

/// Writes one stream of chunks. [`finish`](Self::finish) makes all of it durable; dropped without, what was sealed stays and the rest is lost.
pub struct ChunkWriter {
    session: Arc<SessionState>,
    stream: StreamKind,
    raw: Vec<u8>,
    chunks: ChunkList,
    container: Option<OpenContainer>,
    sealing: Sealing,
    stats: WriteStats,
    keys: Vec<Fingerprint>,
    found: Vec<Option<Location>>,
    early: Vec<Option<ContainerId>>,
}

struct OpenContainer {
    building: Arc<Building>,
    blocks: u32,
    raw_bytes: u64,
}

/// Blocks that compress very well would make a container of very many chunks: at this many raw bytes per target byte it is closed.
const RAW_PER_TARGET_MAX: u64 = 12;

impl ChunkWriter {
    pub(crate) fn new(session: Arc<SessionState>, stream: StreamKind) -> Result<Self> {
        // Metadata is little: it is compressed where it is written, and leaves the threads to the data.
        let threads = if stream == StreamKind::Data {
            session.options().threads
        } else {
            1
        };
        let sealing = Sealing::start(&session, stream, threads)?;
        Ok(Self {
            session,
            stream,
            raw: Vec::new(),
            chunks: Vec::new(),
            container: None,
            sealing,
            stats: WriteStats::default(),
            keys: Vec::new(),
            found: Vec::new(),
            early: Vec::new(),
        })
    }

    /// Stores what is new of `chunks`, a segment of the stream, and appends a reference for each to `refs`, in order.
    ///
    /// # Errors
    /// Any failure since the last call, of other threads too. The writer is of no use afterwards.
    pub fn write(
        &mut self,
        chunks: &[(Fingerprint, &[u8])],
        refs: &mut Vec<ChunkRef>,
    ) -> Result<()> {
        self.sealing.failed()?;
        self.look_up(chunks)?;
        for (i, (fingerprint, data)) in chunks.iter().enumerate() {
            let container = match self.known(i, fingerprint)? {
                Some(container) => container,
                None => self.append(*fingerprint, data)?,
            };
            self.stats.chunks += 1;
            self.stats.bytes += data.len() as u64;
            refs.push(ChunkRef {
                fingerprint: *fingerprint,
                container,
                len: data.len() as u32,
            });
        }
        Ok(())
    }

    /// Stores a chunk once more, in a new container, though it is stored already: how the sweep and the repair move chunks. A chunk that this
    /// session has stored is not stored yet again.
    pub(crate) fn write_again(&mut self, fingerprint: Fingerprint, data: &[u8]) -> Result<()> {
        self.sealing.failed()?;
        if !self.session.has_stored(&fingerprint)? {
            self.append(fingerprint, data)?;
        }
        Ok(())
    }

    /// What was written so far; `stored_bytes` and `containers` lag behind what is being sealed.
    pub fn stats(&self) -> WriteStats {
        let (stored_bytes, containers) = *self.sealing.stored.lock();
        WriteStats {
            stored_bytes,
            containers,
            ..self.stats
        }
    }

    /// Seals what is open and returns once every chunk written is durable and known to the index.
    pub fn finish(mut self) -> Result<WriteStats> {
        self.close_block()?;
        self.close_container()?;
        self.sealing.finish()?;
        Ok(self.stats())
    }

    /// One index lookup for the whole segment. What is pending is asked for before: what leaves there is in the index by then.
    fn look_up(&mut self, chunks: &[(Fingerprint, &[u8])]) -> Result<()> {
        self.keys.clear();
        self.keys
            .extend(chunks.iter().map(|(fingerprint, _)| *fingerprint));
        self.early.clear();
        self.session.all_pending(&self.keys, &mut self.early);
        self.found.clear();
        self.found.resize(chunks.len(), None);
        self.session.lookup(&self.keys, &mut self.found)
    }

    fn known(&self, i: usize, fingerprint: &Fingerprint) -> Result<Option<ContainerId>> {
        if self.early[i].is_some() {
            return Ok(self.early[i]);
        }
        if let Some(location) = self.found[i]
            && self.session.may_refer_to(location.container)?
        {
            return Ok(Some(location.container));
        }
        // It may have come up before in this very segment.
        Ok(self.session.pending(fingerprint))
    }

    /// Adds a new chunk to the open block of the open container.
    fn append(&mut self, fingerprint: Fingerprint, data: &[u8]) -> Result<ContainerId> {
        let block_bytes = self.session.block_bytes(self.stream);
        if !self.raw.is_empty() && self.raw.len() + data.len() > block_bytes {
            self.close_block()?;
        }
        if self
            .container
            .as_ref()
            .is_some_and(|open| self.is_full(open))
        {
            self.close_block()?;
            self.close_container()?;
        }
        let session = &self.session;
        let stream = self.stream;
        let open = self.container.get_or_insert_with(|| OpenContainer {
            building: Arc::new(session.begin_container(stream)),
            blocks: 0,
            raw_bytes: 0,
        });
        let id = open.building.id();
        open.raw_bytes += data.len() as u64;
        if self.raw.capacity() == 0 {
            // Room for the chunk lengths and the seal, so that they are added without a copy.
            self.raw.reserve(block_bytes + 16 * 1024);
        }
        self.raw.extend_from_slice(data);
        self.chunks.push((fingerprint, data.len() as u32));
        self.session.set_pending(fingerprint, id);
        self.stats.new_chunks += 1;
        self.stats.new_bytes += data.len() as u64;
        Ok(id)
    }

    fn is_full(&self, open: &OpenContainer) -> bool {
        let target = self.session.options().container_bytes as u64;
        open.building.stored_bytes() >= target || open.raw_bytes >= target * RAW_PER_TARGET_MAX
    }

    fn close_block(&mut self) -> Result<()> {
        if self.chunks.is_empty() {
            return Ok(());
        }
        let open = self
            .container
            .as_mut()
            .expect("an open block has an open container");
        let job = BlockJob {
            building: Arc::clone(&open.building),
            number: open.blocks,
            raw: std::mem::take(&mut self.raw),
            chunks: std::mem::take(&mut self.chunks),
        };
        open.blocks += 1;
        self.sealing.add(job)
    }

    fn close_container(&mut self) -> Result<()> {
        match self.container.take() {
            Some(open) => match open.building.close(open.blocks) {
                Some(finished) => self.sealing.store(finished),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}

#[derive(Default)]
enum Failure {
    #[default]
    None,
    Fresh(Error),
    Told,
}

struct BlockJob {
    building: Arc<Building>,
    number: u32,
    raw: Vec<u8>,
    chunks: ChunkList,
}

/// The threads behind a writer: some compress and seal blocks, one stores whole containers. With one thread, all of it runs inline.
struct Sealing {
    session: Arc<SessionState>,
    stored: Arc<Mutex<(u64, u64)>>,
    failure: Arc<Mutex<Failure>>,
    inline: Option<Compressor>,
    jobs: Option<Sender<BlockJob>>,
    finished: Option<Sender<Finished>>,
    threads: Vec<JoinHandle<()>>,
}

impl Sealing {
    fn start(session: &Arc<SessionState>, stream: StreamKind, threads: usize) -> Result<Self> {
        let mut sealing = Self {
            session: Arc::clone(session),
            stored: Arc::default(),
            failure: Arc::default(),
            inline: None,
            jobs: None,
            finished: None,
            threads: Vec::new(),
        };
        if threads <= 1 {
            sealing.inline = Some(Compressor::new(session.options().compression, stream)?);
            return Ok(sealing);
        }
        let (job_sender, jobs) = bounded(threads);
        // None waits between: a container is 16 MiB.
        let (finished_sender, finished) = bounded(0);
        for _ in 0..threads {
            let compressor = Compressor::new(session.options().compression, stream)?;
            let (jobs, finished) = (jobs.clone(), finished_sender.clone());
            sealing.threads.push(std::thread::spawn(move || {
                seal_blocks(&jobs, &finished, compressor)
            }));
        }
        let (session, stored, failure) = (
            Arc::clone(session),
            Arc::clone(&sealing.stored),
            Arc::clone(&sealing.failure),
        );
        sealing.threads.push(std::thread::spawn(move || {
            store_containers(&finished, &session, &stored, &failure)
        }));
        sealing.jobs = Some(job_sender);
        sealing.finished = Some(finished_sender);
        Ok(sealing)
    }

    fn add(&mut self, job: BlockJob) -> Result<()> {
        if let Some(compressor) = &mut self.inline {
            return match job
                .building
                .add(job.number, job.raw, job.chunks, compressor)
            {
                Some(finished) => self.store(finished),
                None => Ok(()),
            };
        }
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        debug_assert!(sent.is_some(), "not after finish");
        self.failed()
    }

    fn store(&mut self, finished: Finished) -> Result<()> {
        match &self.finished {
            Some(sender) => {
                let _ = sender.send(finished);
                self.failed()
            }
            None => store_container(&self.session, finished, &self.stored),
        }
    }

    /// Once anything has failed, everything fails; the first caller hears why.
    fn failed(&self) -> Result<()> {
        let mut failure = self.failure.lock();
        match std::mem::replace(&mut *failure, Failure::Told) {
            Failure::None => {
                *failure = Failure::None;
                Ok(())
            }
            Failure::Fresh(error) => Err(error),
            Failure::Told => Err(Error::Option("an earlier write failed".into())),
        }
    }

    fn finish(&mut self) -> Result<()> {
        (self.jobs, self.finished) = (None, None);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| Error::Option("a sealing thread panicked".into()))?;
        }
        self.failed()
    }
}

fn seal_blocks(jobs: &Receiver<BlockJob>, finished: &Sender<Finished>, mut compressor: Compressor) {
    for job in jobs {
        if let Some(whole) = job
            .building
            .add(job.number, job.raw, job.chunks, &mut compressor)
            && finished.send(whole).is_err()
        {
            return;
        }
    }
}

/// Stores containers until there are no more; after a failure it only empties the queue, so that nobody waits for ever.
fn store_containers(
    finished: &Receiver<Finished>,
    session: &SessionState,
    stored: &Mutex<(u64, u64)>,
    failure: &Mutex<Failure>,
) {
    let mut broken = false;
    for whole in finished {
        if broken {
            continue;
        }
        if let Err(error) = store_container(session, whole, stored) {
            broken = true;
            *failure.lock() = Failure::Fresh(error);
        }
    }
}

fn store_container(
    session: &SessionState,
    whole: Finished,
    stored: &Mutex<(u64, u64)>,
) -> Result<()> {
    let dry_run = session.options().dry_run;
    if !dry_run {
        let name = container::object_name(whole.id);
        let parts: [&[u8]; 2] = [&whole.bytes, &whole.tail];
        session.objects().put_if_absent(&name, &parts)?;
    }
    let bytes = (whole.bytes.len() + whole.tail.len()) as u64;
    session.stored(bytes);
    let mut sums = stored.lock();
    sums.0 += bytes;
    sums.1 += 1;
    drop(sums);
    if dry_run {
        session.imagine(&whole.table);
        return Ok(());
    }
    session.tell_index(whole.id, &whole.table)
}
