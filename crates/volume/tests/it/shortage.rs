//! A process that may open no more files for a while: what waits for a file of its own is tried again, and nothing that
//! was acknowledged is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use onefold_io::{
    Dir, DirEntry, Disk, Error as IoError, ErrorKind, LockGuard, LockKind, MemDir, Result,
};
use onefold_volume::Depot;
use onefold_volume::depot::CreateOptions;
use onefold_volume::depot::config::EngineKind;

use crate::opened::{CHUNK, content, open};

const MIB: u64 = 1 << 20;

/// A folder, and its subfolders, where no file can be opened or made while `is_short` is set.
struct ShortDir {
    dir: Arc<dyn Dir>,
    is_short: Arc<AtomicBool>,
}

impl ShortDir {
    fn descriptor(&self, name: &str) -> Result<()> {
        if self.is_short.load(SeqCst) {
            Err(IoError::new(
                "open",
                name,
                ErrorKind::TooManyOpen,
                "too many files are open",
            ))
        } else {
            Ok(())
        }
    }

    fn below(&self, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Arc::new(Self {
            dir,
            is_short: self.is_short.clone(),
        })
    }
}

impl Dir for ShortDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.descriptor(name)?;
        self.dir.open(name)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.descriptor(name)?;
        self.dir.open_write(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.descriptor(name)?;
        self.dir.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(name)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        self.dir.len_of(name)
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.below(self.dir.subdir(name)?))
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.below(self.dir.open_subdir(name)?))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.dir.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.dir.lock(name, kind)
    }
}

#[test]
fn a_lack_of_descriptors_passes() {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let options = CreateOptions {
        engine: EngineKind::Log,
        ..CreateOptions::new(16 * MIB, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let is_short = Arc::new(AtomicBool::new(false));
    let short: Arc<dyn Dir> = Arc::new(ShortDir {
        dir: folder.clone(),
        is_short: is_short.clone(),
    });
    let (depot, caller) = open(&short, None);
    let write = |lbns: std::ops::Range<u64>| {
        for lbn in lbns {
            caller.write(lbn * CHUNK, &content(lbn)).expect("room");
        }
        caller.flush().expect("the journal takes it");
    };
    write(0..500);
    is_short.store(true, SeqCst);
    write(500..1000);
    let refused = depot.snapshot(None, "a", 0);
    refused.expect_err("a snapshot begins with a checkpoint, which needs files");
    write(1000..1500);
    is_short.store(false, SeqCst);
    write(1500..2000);
    depot.snapshot(None, "a", 0).expect("files are there again");
    drop(caller);
    depot.close().expect("all is well");

    let (_depot, caller) = open(&folder, None);
    for lbn in 0..2000 {
        let found = caller.read(lbn * CHUNK, CHUNK).expect("a read");
        assert!(found[..] == content(lbn)[..], "chunk {lbn}");
    }
}
