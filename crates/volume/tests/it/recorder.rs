//! A data device and a metadata backend that note what is asked of them, in order, and fail when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_io::{Disk, Error as IoError, ErrorKind, MemDisk};
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::inram::InRam;
use onefold_volume::{
    BackendStats, Durability, Error, Key, MetadataBackend, Pbn, Result, StoreId, Supported,
};
use parking_lot::Mutex;

/// Call of the data device or the backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    DataWrite,
    DataSync,
    DataDiscard,
    InsertLbn,
    InsertHash,
    DeleteLbn,
    DeleteHash,
    DecRef,
    Flush,
}

/// Notes events, and says what fails.
#[derive(Default)]
pub struct Recorder {
    pub events: Mutex<Vec<Event>>,
    pub data_writes_fail: AtomicBool,
    pub flushes_fail: AtomicBool,
}

impl Recorder {
    fn note(&self, event: Event) {
        self.events.lock().push(event);
    }

    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock())
    }

    /// An engine of which both sides are recorded.
    pub fn engine(self: &Arc<Self>, chunk_bytes: u32, lbns: u64, blocks: u64) -> Dmdedup {
        let disk = RecordedDisk {
            disk: MemDisk::new(),
            recorder: Arc::clone(self),
        };
        disk.set_len(blocks * u64::from(chunk_bytes)).expect("RAM");
        let backend = RecordedBackend {
            backend: InRam::unsaved(blocks).expect("RAM"),
            recorder: Arc::clone(self),
        };
        let data = DataArea::new(Arc::new(disk), 0, chunk_bytes, blocks);
        Dmdedup::open(Box::new(backend), data, lbns).expect("RAM")
    }
}

struct RecordedDisk {
    disk: MemDisk,
    recorder: Arc<Recorder>,
}

impl Disk for RecordedDisk {
    fn len(&self) -> onefold_io::Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> onefold_io::Result<()> {
        self.disk.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> onefold_io::Result<()> {
        self.recorder.note(Event::DataWrite);
        if self.recorder.data_writes_fail.load(Ordering::Relaxed) {
            // A part of it is written all the same.
            self.disk.write_at(&data[..data.len() / 2], offset)?;
            return Err(IoError::new(
                "write",
                "data",
                ErrorKind::Medium,
                "the device failed",
            ));
        }
        self.disk.write_at(data, offset)
    }

    fn sync(&self) -> onefold_io::Result<()> {
        self.recorder.note(Event::DataSync);
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> onefold_io::Result<()> {
        self.disk.set_len(len)
    }

    fn discard(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        self.recorder.note(Event::DataDiscard);
        self.disk.discard(offset, len)
    }
}

struct RecordedBackend {
    backend: InRam,
    recorder: Arc<Recorder>,
}

impl MetadataBackend for RecordedBackend {
    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.backend).close()
    }

    fn create_linear(&mut self, keys: u64) -> Result<StoreId> {
        self.backend.create_linear(keys)
    }

    fn create_sparse(&mut self, key_bytes: usize, keys_max: u64) -> Result<StoreId> {
        self.backend.create_sparse(key_bytes, keys_max)
    }

    fn insert(&mut self, store: StoreId, key: Key<'_>, pbn: Pbn) -> Result<()> {
        self.recorder.note(match key {
            Key::Linear(_) => Event::InsertLbn,
            Key::Sparse(_) => Event::InsertHash,
        });
        self.backend.insert(store, key, pbn)
    }

    fn lookup(&mut self, store: StoreId, keys: &[Key<'_>], pbns: &mut [Option<Pbn>]) -> Result<()> {
        self.backend.lookup(store, keys, pbns)
    }

    fn delete(&mut self, store: StoreId, key: Key<'_>) -> Result<()> {
        self.recorder.note(match key {
            Key::Linear(_) => Event::DeleteLbn,
            Key::Sparse(_) => Event::DeleteHash,
        });
        self.backend.delete(store, key)
    }

    fn iterate(
        &mut self,
        store: StoreId,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<Supported> {
        self.backend.iterate(store, visit)
    }

    fn alloc_block(&mut self) -> Result<Option<Pbn>> {
        self.backend.alloc_block()
    }

    fn inc_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.backend.inc_ref(pbn)
    }

    fn dec_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.recorder.note(Event::DecRef);
        self.backend.dec_ref(pbn)
    }

    fn flush(&mut self) -> Result<Durability> {
        self.recorder.note(Event::Flush);
        if self.recorder.flushes_fail.load(Ordering::Relaxed) {
            return Err(Error::Damaged {
                place: "superblock".into(),
                what: "it cannot be written".into(),
            });
        }
        self.backend.flush()
    }

    fn stats(&self) -> BackendStats {
        self.backend.stats()
    }
}
