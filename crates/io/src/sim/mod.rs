//! A simulated device: folders in RAM that fail, fill up, rot and crash as told, the same way for the same seed.
//!
//! ```
//! use onefold_io::{Dir, sim::{Faults, SimDir}};
//! let dir = SimDir::new(7);
//! let disk = dir.create("a").unwrap();
//! disk.write_at(b"synced", 0).unwrap();
//! disk.sync().unwrap();
//! dir.sync().unwrap();
//! disk.write_at(b"not yet", 6).unwrap();
//! dir.inject(Faults { crash_at: Some(0), ..Faults::default() });
//! assert!(disk.write_at(b"!", 13).is_err());
//! let after = dir.crash_image(42); // what is left after that power cut, as seed 42 would have it
//! assert!(after.open("a").unwrap().len().unwrap() >= 6);
//! ```
//!
//! Invariant: synced data survives every crash (a disk's bytes by its `sync`, a name by its folder's `sync`, and
//! nothing else); each operation that changes something, or makes it durable, is one *point*; an operation that fails
//! because a name is missing is none; a single-threaded user sees the same run for the same seed. Clones are the same
//! folder.
//!
//! Why the device is so weak: a real file system often keeps more than was synced, and code that relies on it fails on
//! another one.

mod core;
mod crash;
mod dir;
mod disk;
mod faults;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use parking_lot::Mutex;
use rustix::io::Errno;

pub use disk::SimDisk;
pub use faults::{Faults, SimCounts, When};

use self::core::{Core, FileNode, Ino, ROOT, SimChild};
use crate::{
    Error, ErrorKind, Result, lock::LockState, name::join, pages::SparseBytes, random::Random,
};

/// A folder of a simulated device.
#[derive(Clone)]
pub struct SimDir {
    device: Arc<Mutex<SharedDevice>>,
    ino: Ino,
    path: Arc<str>,
}

impl SimDir {
    /// An empty device. `seed` decides the details of its faults.
    pub fn new(seed: u64) -> Self {
        Self::of(Core::new(), Bad::new(), seed)
    }

    fn of(core: Core, bad: Bad, seed: u64) -> Self {
        let device = SharedDevice {
            core,
            rng: Random::of_stream(seed, 0),
            faults: Faults::default(),
            counts: SimCounts::default(),
            crashed: false,
            locks: BTreeMap::new(),
            open: BTreeMap::new(),
            bad,
            history: None,
            syncs_since_collect: 0,
        };
        Self {
            device: Arc::new(Mutex::new(device)),
            ino: ROOT,
            path: "".into(),
        }
    }

    /// Replaces all faults, and restarts the counters at 0.
    pub fn inject(&self, faults: Faults) {
        let mut device = self.device.lock();
        device.faults = faults;
        device.counts = SimCounts::default();
    }

    /// The number of operations since the last [`inject`](Self::inject), or since the device was created.
    pub fn counts(&self) -> SimCounts {
        self.device.lock().counts
    }

    /// Crashes now: every later call on this device fails.
    pub fn crash(&self) {
        self.device.lock().crashed = true;
    }

    /// Whether the device has crashed.
    pub fn crashed(&self) -> bool {
        self.device.lock().crashed
    }

    /// The state that a power cut now would leave, as a new device that keeps bad sectors but no locks and other
    /// faults. This device is unchanged.
    ///
    /// Seed 0: only synced changes survive. Seed 1: all changes do, as when the process alone is killed. Other seeds:
    /// some of them do, in the ways that [the module](self) names.
    pub fn crash_image(&self, seed: u64) -> Self {
        let device = self.device.lock();
        Self::of(crash::image(&device.core, seed), device.bad.clone(), seed)
    }

    /// A copy of the device with all pending changes and bad sectors, but without other faults, locks and history. The
    /// copy costs next to nothing.
    pub fn fork(&self) -> Self {
        let device = self.device.lock();
        Self::of(
            device.core.clone(),
            device.bad.clone(),
            device.rng.clone().next(),
        )
    }

    /// Remembers the state at each point from now on, for [`crash_image_at`](Self::crash_image_at); restarts the
    /// counters at 0. One run of some work thus gives the crash images of all its points.
    pub fn keep_history(&self) {
        let mut device = self.device.lock();
        device.history = Some(Vec::new());
        device.counts = SimCounts::default();
    }

    /// The [`crash_image`](Self::crash_image) of a device that crashed at `point`. `None` where the history does not
    /// have that point.
    pub fn crash_image_at(&self, point: u64, seed: u64) -> Option<Self> {
        let device = self.device.lock();
        let history = device.history.as_ref()?;
        let core = history.get(usize::try_from(point).ok()?)?;
        Some(Self::of(crash::image(core, seed), device.bad.clone(), seed))
    }

    /// The paths of all disks in this folder and those within, sorted, with `/` between names.
    pub fn paths(&self) -> Vec<String> {
        let device = self.device.lock();
        let mut paths = Vec::new();
        let mut folders = vec![(self.ino, String::new())];
        while let Some((dir, path)) = folders.pop() {
            for (name, child) in device.core.live.names(dir).into_iter().flatten() {
                match child {
                    SimChild::Disk(_) => paths.push(join(&path, name)),
                    SimChild::Dir(ino) => folders.push((*ino, join(&path, name))),
                }
            }
        }
        paths.sort();
        paths
    }

    /// Changes the content of the disk at `path` within this folder, durably and without counting an operation.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is no disk at `path`.
    pub fn damage(&self, path: &str, edit: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut device = self.device.lock();
        let (_, ino) = self.resolve("damage", &device, path)?;
        let live = device
            .core
            .file(ino)
            .map(|file| file.live.clone())
            .unwrap_or_default();
        let mut bytes = vec![0; live.len() as usize];
        live.read(&mut bytes, 0);
        edit(&mut bytes);
        let mut pages = SparseBytes::default();
        pages.write(&bytes, 0);
        *device.core.file_mut(ino) = FileNode::settled(pages);
        Ok(())
    }

    /// Makes every read of any of these bytes of the disk at `path` within this folder fail, as on a bad sector, on
    /// this device and on forks and crash images of it. A write there does not repair it; a new disk of the same name
    /// does.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is no disk at `path`.
    pub fn spoil(&self, path: &str, bytes: Range<u64>) -> Result<()> {
        let mut device = self.device.lock();
        let (_, ino) = self.resolve("spoil", &device, path)?;
        device.bad.entry(ino).or_default().push(bytes);
        Ok(())
    }

    /// Removes all bad sectors.
    pub fn heal(&self) {
        self.device.lock().bad.clear();
    }

    /// Removes the disk at `path` within this folder, durably and without counting an operation.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is no disk at `path`.
    pub fn lose(&self, path: &str) -> Result<()> {
        let mut device = self.device.lock();
        let (dir, ino) = self.resolve("lose", &device, path)?;
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        device.core.sync_dir(dir);
        device.core.change_dir(core::FolderChange {
            dir,
            child: SimChild::Disk(ino),
            kind: core::FolderChangeKind::Remove { name },
        });
        device.core.sync_dir(dir);
        Ok(())
    }

    /// The numbers of the folder and of the disk at `path`.
    fn resolve(&self, op: &'static str, device: &SharedDevice, path: &str) -> Result<(Ino, Ino)> {
        let mut dir = self.ino;
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            match device.core.live.names(dir).and_then(|all| all.get(name)) {
                Some(SimChild::Disk(ino)) if names.peek().is_none() => return Ok((dir, *ino)),
                Some(SimChild::Dir(ino)) => dir = *ino,
                _ => break,
            }
        }
        Err(Error::new(op, path, ErrorKind::NotFound, "no such disk"))
    }
}

/// Bytes that cannot be read, by disk.
type Bad = BTreeMap<Ino, Vec<Range<u64>>>;

/// State shared by all handles of a simulated device.
struct SharedDevice {
    core: Core,
    rng: Random,
    faults: Faults,
    counts: SimCounts,
    crashed: bool,
    locks: BTreeMap<Ino, Arc<LockState>>,
    open: BTreeMap<Ino, usize>,
    bad: Bad,
    history: Option<Vec<Core>>,
    syncs_since_collect: u32,
}

/// Number of syncs of folders between two removals of unreachable content.
const COLLECT_EVERY_SYNCS: u32 = 64;

impl SharedDevice {
    fn is_bad(&self, ino: Ino, bytes: Range<u64>) -> bool {
        let mut bad = self.bad.get(&ino).into_iter().flatten();
        bad.any(|bad| bad.start < bytes.end && bytes.start < bad.end)
    }

    /// Fails if the device has crashed.
    fn alive(&self, op: &'static str, path: &str) -> Result<()> {
        if self.crashed {
            Err(Error::new(
                op,
                path,
                ErrorKind::Device,
                "the simulated device has crashed",
            ))
        } else {
            Ok(())
        }
    }

    /// Changes something, not durably, then passes a point: a crash there finds it pending.
    fn change<T>(
        &mut self,
        op: &'static str,
        path: &str,
        change: impl FnOnce(&mut Core) -> T,
    ) -> Result<T> {
        let out = change(&mut self.core);
        self.point(op, path)?;
        Ok(out)
    }

    /// Changes a folder, or fails where told to; a failed change happens or not, at random.
    fn change_folder<T>(
        &mut self,
        op: &'static str,
        path: &str,
        change: impl FnOnce(&mut Core) -> T,
    ) -> Result<T> {
        if let Err(error) = self.look_into_folder(op, path) {
            if self.rng.one_in(2) {
                change(&mut self.core);
            }
            return Err(error);
        }
        self.change(op, path, change)
    }

    /// Counts an operation on a folder, and fails where asked to.
    fn look_into_folder(&mut self, op: &'static str, path: &str) -> Result<()> {
        let number = faults::count(&mut self.counts.folders);
        if self.faults.folder_error.hits(number) {
            Err(Error::from_io(op, path, Errno::IO))
        } else {
            Ok(())
        }
    }

    /// Counts a point, and crashes there if told to.
    fn point(&mut self, op: &'static str, path: &str) -> Result<()> {
        if let Some(history) = &mut self.history {
            history.push(self.core.clone());
        }
        let number = faults::count(&mut self.counts.points);
        self.crashed |= self.faults.crash_at == Some(number);
        self.alive(op, path)
    }

    /// Counts an operation that needs space, and fails where there is none for `more` bytes.
    fn space(&mut self, op: &'static str, path: &str, more: u64) -> Result<()> {
        let number = faults::count(&mut self.counts.space);
        let full = self
            .faults
            .capacity_bytes
            .is_some_and(|max| self.core.used_bytes().saturating_add(more) > max);
        if full || self.faults.no_space.hits(number) {
            Err(Error::from_io(op, path, Errno::NOSPC))
        } else {
            Ok(())
        }
    }

    /// Drops unreachable content at every [`COLLECT_EVERY_SYNCS`]th call.
    fn collect(&mut self) {
        self.syncs_since_collect += 1;
        if self.syncs_since_collect >= COLLECT_EVERY_SYNCS {
            self.syncs_since_collect = 0;
            let open = &self.open;
            self.core.collect(|ino| open.contains_key(&ino));
        }
    }
}
