//! Chunks of contents that were read last, and those that are asked for ahead.
//!
//! Invariants: one thread at a time reads a chunk, and the others wait for it; what is kept and what is under way are
//! bounded in bytes. What was asked for ahead and fails is nobody's error: whoever needs the chunk reads it, and hears
//! why not.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;

use onefold_chunk::Fingerprint;
use onefold_store::{ChunkReader, ChunkRef, ContainerId, Session};
use parking_lot::{Condvar, Mutex};

use crate::Result;

/// Bytes of chunks that are kept.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Bytes that are asked for ahead and have not come yet.
const COMING_BYTES_MAX: usize = 16 << 20;
/// Bytes of one request ahead: what neighbours of a container are read together.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Readers that wait for work: each keeps some blocks.
const READERS_MAX: usize = 2;
/// Threads that read ahead.
const THREADS: usize = 2;

/// The chunks of all open files.
pub struct OpenChunks {
    session: Session,
    kept: Mutex<ChunkCache>,
    arrived: Condvar,
    readers: Mutex<Vec<ChunkReader>>,
    queue: Mutex<RequestQueue>,
    asked: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A chunk that is here, or on its way.
enum CacheSlot {
    Here(Arc<[u8]>, u64),
    Coming,
}

#[derive(Default)]
struct ChunkCache {
    slots: HashMap<Fingerprint, CacheSlot>,
    /// Chunks that are here, those not used for longest first.
    order: BTreeMap<u64, Fingerprint>,
    bytes: usize,
    tick: u64,
}

/// Chunks of one container that are wanted together.
struct ContainerRequest {
    container: ContainerId,
    chunks: Vec<Fingerprint>,
    bytes: usize,
}

#[derive(Default)]
struct RequestQueue {
    requests: VecDeque<ContainerRequest>,
    /// Bytes of requests that wait or are under way.
    bytes: usize,
    is_closed: bool,
}

impl OpenChunks {
    /// Chunks that `session` reads, none yet; threads that read ahead are started.
    pub fn new(session: Session) -> Arc<Self> {
        let chunks = Arc::new(Self {
            session,
            kept: Mutex::default(),
            arrived: Condvar::new(),
            readers: Mutex::default(),
            queue: Mutex::default(),
            asked: Condvar::new(),
            threads: Mutex::default(),
        });
        for _ in 0..THREADS {
            let own = Arc::clone(&chunks);
            let thread = std::thread::spawn(move || own.read_ahead());
            chunks.threads.lock().push(thread);
        }
        chunks
    }

    /// Ends the threads that read ahead, and waits for them: they keep the session. What they have not begun is given
    /// up.
    pub fn close(&self) {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.requests);
        drop(queue);
        self.asked.notify_all();
        let mut kept = self.kept.lock();
        let chunks = left.iter().flat_map(|request| &request.chunks);
        chunks.for_each(|chunk| kept.give_up(chunk));
        drop(kept);
        self.arrived.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }

    /// The session by which chunks are read.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The bytes of a chunk.
    ///
    /// # Errors
    /// Those of [`ChunkReader::read`].
    pub fn get(&self, chunk: &ChunkRef) -> Result<Arc<[u8]>> {
        if let Some(here) = self.here(&chunk.fingerprint) {
            return Ok(here);
        }
        let read = self.read(chunk);
        let mut kept = self.kept.lock();
        match &read {
            Ok(bytes) => kept.put(chunk.fingerprint, Arc::clone(bytes)),
            Err(_) => kept.give_up(&chunk.fingerprint),
        }
        drop(kept);
        self.arrived.notify_all();
        read
    }

    /// The chunk, once it has come. `None`: it is on nobody's way, and from now on on the caller's.
    fn here(&self, chunk: &Fingerprint) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock();
        loop {
            match kept.slots.get(chunk) {
                Some(CacheSlot::Coming) => self.arrived.wait(&mut kept),
                Some(CacheSlot::Here(..)) => return kept.touch(chunk),
                None => {
                    kept.slots.insert(*chunk, CacheSlot::Coming);
                    return None;
                }
            }
        }
    }

    fn read(&self, chunk: &ChunkRef) -> Result<Arc<[u8]>> {
        let idle = self.readers.lock().pop();
        let mut reader = match idle {
            Some(reader) => reader,
            // Chunks are kept here, so a reader needs no more than the blocks that it is reading.
            None => self.session.small_reader()?,
        };
        let read = reader.read(chunk).map(|data| Arc::from(&data[..]));
        let mut readers = self.readers.lock();
        if readers.len() < READERS_MAX {
            readers.push(reader);
        }
        Ok(read?)
    }

    /// Asks for chunks of one container ahead, as far as there is room for them. False: there is none.
    pub fn ask(&self, container: ContainerId, wanted: &[ChunkRef]) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_closed || queue.bytes >= COMING_BYTES_MAX {
            return false;
        }
        let mut request = ContainerRequest {
            container,
            chunks: Vec::with_capacity(wanted.len()),
            bytes: 0,
        };
        let mut kept = self.kept.lock();
        for chunk in wanted {
            if kept.begin(&chunk.fingerprint) {
                request.chunks.push(chunk.fingerprint);
                request.bytes += chunk.len as usize;
            }
        }
        if !request.chunks.is_empty() {
            queue.bytes += request.bytes;
            queue.requests.push_back(request);
            self.asked.notify_one();
        }
        true
    }

    fn read_ahead(&self) {
        let mut reader = None;
        while let Some(request) = self.next() {
            self.carry_out(&request, &mut reader);
            self.queue.lock().bytes -= request.bytes;
        }
    }

    /// The next request; `None` at the end.
    fn next(&self) -> Option<ContainerRequest> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some(request) = queue.requests.pop_front() {
                return Some(request);
            }
            self.asked.wait(&mut queue);
        }
    }

    fn carry_out(&self, request: &ContainerRequest, reader: &mut Option<ChunkReader>) {
        if reader.is_none() {
            *reader = self.session.small_reader().ok();
        }
        if let Some(reader) = reader {
            let mut keep = |chunk: &Fingerprint, bytes: &[u8]| {
                self.kept.lock().put(*chunk, Arc::from(bytes));
                self.arrived.notify_all();
                Ok(())
            };
            // Whoever needs what fails here is told why.
            let _ = reader.read_container(request.container, &request.chunks, &mut keep);
        }
        let mut kept = self.kept.lock();
        for chunk in &request.chunks {
            kept.give_up(chunk);
        }
        drop(kept);
        self.arrived.notify_all();
    }
}

impl ChunkCache {
    fn touch(&mut self, chunk: &Fingerprint) -> Option<Arc<[u8]>> {
        let Some(CacheSlot::Here(bytes, used)) = self.slots.get_mut(chunk) else {
            return None;
        };
        self.tick += 1;
        self.order.remove(used);
        self.order.insert(self.tick, *chunk);
        *used = self.tick;
        Some(Arc::clone(bytes))
    }

    /// Whether the chunk is neither here nor on its way; from now on it is on its way.
    fn begin(&mut self, chunk: &Fingerprint) -> bool {
        if self.touch(chunk).is_some() || self.slots.contains_key(chunk) {
            return false;
        }
        self.slots.insert(*chunk, CacheSlot::Coming);
        true
    }

    /// The chunk comes no more, if it has not come.
    fn give_up(&mut self, chunk: &Fingerprint) {
        if let Some(CacheSlot::Coming) = self.slots.get(chunk) {
            self.slots.remove(chunk);
        }
    }

    fn put(&mut self, chunk: Fingerprint, bytes: Arc<[u8]>) {
        if let Some(CacheSlot::Here(..)) = self.slots.get(&chunk) {
            return;
        }
        while self.bytes + bytes.len() > KEPT_BYTES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            if let Some(CacheSlot::Here(bytes, _)) = self.slots.remove(&oldest) {
                self.bytes -= bytes.len();
            }
        }
        self.tick += 1;
        self.bytes += bytes.len();
        self.order.insert(self.tick, chunk);
        self.slots.insert(chunk, CacheSlot::Here(bytes, self.tick));
    }
}
