//! The registry of a local folder: files that are locked (flock) as long as their process lives. The kernel frees them
//! with it.
//!
//! A session is the file `sessions/<name>`. One that another can lock is dead, and whoever sees it removes it; so where
//! a network file system freed the lock of a machine that slept, the file is gone, and never comes back. Removing the
//! file is how a session is revoked. A root is put between two looks at the file: whoever removes the file lists the
//! roots only after that, so with the file still there after the putting they see the root, and without it the root is
//! taken back.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_io::{
    Dir, DirEntry, ErrorKind, LockGuard, LockKind, hex_number, if_there, remove_if_there,
};
use onefold_keys::Entropy;
use parking_lot::Mutex;

use super::{Held, ListNumber, Living, Lock, Pin, PinInfo, PinState, Registry, Revoked, RootPlan};
use crate::objects::ObjectStore;
use crate::{Error, Result, RootId, protocol, root};

pub use crate::folders::{LOCKS_FOLDER, PIN_FOLDER};

/// A pin is not longer, in bytes: it names a quarter of a million roots.
const PIN_BYTES_MAX: u64 = 8 << 20;

/// Sessions and locks as locked files below a folder.
pub struct FlockRegistry {
    /// Sessions that began here: they live, and nobody need ask their files.
    own: OwnSessions,
    root: Arc<dyn Dir>,
    objects: Arc<dyn ObjectStore>,
    entropy: Entropy,
}

impl FlockRegistry {
    /// The registry in `root`, for the repository whose objects these are; `entropy` names sessions.
    pub fn new(root: Arc<dyn Dir>, objects: Arc<dyn ObjectStore>, entropy: Entropy) -> Self {
        Self {
            own: OwnSessions::default(),
            root,
            objects,
            entropy,
        }
    }
}

impl Registry for FlockRegistry {
    fn init(&self) -> Result<()> {
        for folder in [PIN_FOLDER, LOCKS_FOLDER] {
            self.root.subdir(folder)?;
        }
        Ok(())
    }

    fn begin(&self, info: &PinInfo, holds: &[RootId]) -> Result<Box<dyn Pin>> {
        let file = PinFile::set(&*self.root, info, holds, &self.entropy)?;
        let own = Arc::clone(&self.own);
        let said = (info.clone(), holds.to_vec());
        own.lock().insert(file.name().to_owned(), said);
        let objects = Arc::clone(&self.objects);
        Ok(Box::new(FlockPin { file, objects, own }))
    }

    fn living(&self) -> Result<Vec<Living>> {
        living(&*self.root, &self.own.lock())
    }

    fn revoke(&self, name: &str) -> Result<Revoked> {
        let folder = if_there(self.root.open_subdir(PIN_FOLDER))?;
        Ok(match folder.map(|dir| dir.remove(name)).transpose() {
            Ok(Some(())) => Revoked::Revoked,
            Ok(None) => Revoked::Ended,
            Err(error) if error.kind == ErrorKind::NotFound => Revoked::Ended,
            Err(error) => return Err(error.into()),
        })
    }

    fn lock(&self, lock: Lock) -> Result<Box<dyn Held>> {
        self.take(lock, LockKind::Exclusive)
    }

    fn share(&self, lock: Lock) -> Result<Box<dyn Held>> {
        self.take(lock, LockKind::Shared)
    }
}

impl FlockRegistry {
    fn take(&self, lock: Lock, kind: LockKind) -> Result<Box<dyn Held>> {
        let folder = self.root.subdir(LOCKS_FOLDER)?;
        let guard = folder.lock(lock.name(), kind)?;
        let guard = guard.ok_or_else(|| lock.held())?;
        let objects = Arc::clone(&self.objects);
        Ok(Box::new(FlockHeld {
            _guard: guard,
            objects,
        }))
    }
}

/// A session's description of itself, and the roots that it holds.
type Said = (PinInfo, Vec<RootId>);
/// Descriptions of this process's sessions, by session name.
type OwnSessions = Arc<Mutex<HashMap<String, Said>>>;

struct FlockPin {
    file: PinFile,
    objects: Arc<dyn ObjectStore>,
    own: OwnSessions,
}

impl Drop for FlockPin {
    fn drop(&mut self) {
        self.own.lock().remove(self.file.name());
    }
}

impl Pin for FlockPin {
    fn name(&self) -> &str {
        self.file.name()
    }

    /// Nobody asks: a sweep of a folder waits for all sessions that were there before its list was.
    fn saw(&self, _lists: &[ListNumber]) -> Result<()> {
        Ok(())
    }

    fn confirm(&self) -> Result<()> {
        self.file.confirm()
    }

    fn publish(&self, root: &RootId, stored: &[u8]) -> Result<bool> {
        // A root that is known to be in vain is not shown to others.
        self.confirm()?;
        let is_new = root::put(&*self.objects, root, stored)?;
        self.confirm().inspect_err(|error| {
            if is_new && matches!(error, Error::PinLost { .. }) {
                let _ = self.objects.delete(&root.object());
            }
        })?;
        Ok(is_new)
    }
}

struct FlockHeld {
    _guard: Box<dyn LockGuard>,
    objects: Arc<dyn ObjectStore>,
}

impl Held for FlockHeld {
    /// A file system that frees a lock tells nobody. Who has to know confirms a pin as well.
    fn confirm(&self) -> Result<()> {
        Ok(())
    }

    fn decide(&self, plan: &RootPlan<'_>, steps: &mut protocol::ChangeMachine) -> Result<()> {
        decide(&*self.objects, plan, steps)
    }
}

/// Puts a plan's roots, then removes the others. A process that dies in between leaves both, which costs room only: the
/// kernel frees its lock, and whoever forgets next sees both.
pub(crate) fn decide(
    objects: &dyn ObjectStore,
    plan: &RootPlan<'_>,
    steps: &mut protocol::ChangeMachine,
) -> Result<()> {
    // Nobody takes a lock over whose process lives.
    steps.decided(true);
    for (root, stored) in &plan.put {
        let pin = plan.pin.ok_or_else(no_pin)?;
        pin.publish(root, stored)?;
    }
    steps.roots_put();
    let removed = &mut plan.remove.iter();
    removed.try_for_each(|root| root::forget(objects, root))?;
    steps.roots_removed();
    Ok(())
}

fn no_pin() -> Error {
    Error::Machine("no sweep sees this session: it puts no root".into())
}

/// A session's file, locked. Gone when dropped, and when the process dies, however it dies.
pub struct PinFile {
    dir: Arc<dyn Dir>,
    name: String,
    guard: Option<Box<dyn LockGuard>>,
}

impl PinFile {
    /// Makes a session visible: its file is there and locked when this returns.
    ///
    /// # Errors
    /// [`Error::Io`] where no file can be made there: of kind [`ErrorKind::Denied`], or [`ErrorKind::NoSpace`] where
    /// there is no room even for an empty one.
    pub fn set(
        root: &dyn Dir,
        info: &PinInfo,
        holds: &[RootId],
        entropy: &Entropy,
    ) -> Result<Self> {
        let dir = root.subdir(PIN_FOLDER)?;
        loop {
            let name = format!("{:016x}", entropy.try_u64()?);
            let Some(guard) = dir.lock(&name, LockKind::Exclusive)? else {
                continue;
            };
            // Whoever clears stale pins may have taken it for one between its creation and its lock, and removed it.
            let Some(disk) = if_there(dir.open_write(&name))? else {
                continue;
            };
            let pin = Self {
                dir: Arc::clone(&dir),
                name,
                guard: Some(guard),
            };
            match disk.write_at(&info.encode(holds), 0) {
                // The lock is the pin; what it says of itself is for people, and a sweep waits for one that says of no
                // root that it holds it. A full disk can still be read, checked and swept.
                Err(error) if error.kind != ErrorKind::NoSpace => return Err(error.into()),
                _ => return Ok(pin),
            }
        }
    }

    /// The pin's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes sure that it is still there. Once it is not, it never is again: whoever removed it held its lock, as when
    /// the machine slept and a network file system freed the lock meanwhile. It is opened, since such a file system
    /// answers that anew, and a question for the name from what it remembers.
    fn confirm(&self) -> Result<()> {
        let lost = || Error::PinLost {
            object: format!("{PIN_FOLDER}/{}", self.name),
        };
        match if_there(self.dir.open(&self.name)) {
            Ok(Some(_)) => Ok(()),
            Err(error) if error.kind != ErrorKind::NotAFile => Err(error.into()),
            _ => Err(lost()),
        }
    }
}

impl Drop for PinFile {
    fn drop(&mut self) {
        // Removed while still locked; if that fails, the next who looks finds it stale.
        let _ = self.dir.remove(&self.name);
        self.guard = None;
    }
}

/// All sessions that live, with what they say of themselves. Pins of dead processes are removed. One that does not read
/// is listed all the same.
fn living(root: &dyn Dir, own: &HashMap<String, Said>) -> Result<Vec<Living>> {
    let Some(dir) = if_there(root.open_subdir(PIN_FOLDER))? else {
        return Ok(Vec::new());
    };
    let mut living = Vec::new();
    let is_pin = |entry: &DirEntry| !entry.is_dir && hex_number(&entry.name, 16).is_some();
    for entry in dir.list()?.into_iter().filter(is_pin) {
        if let Some(said) = own.get(&entry.name) {
            living.push(active(entry.name, said.clone()));
            continue;
        }
        match dir.lock(&entry.name, LockKind::Exclusive) {
            // A socket, a link: nobody's.
            Err(error) if error.kind == ErrorKind::NotAFile => {}
            Err(error) => return Err(error.into()),
            // Held by nobody: dead. Removed while we hold it, so that no one mistakes it for alive.
            Ok(Some(_guard)) => remove_if_there(&*dir, &entry.name)?,
            Ok(None) => {
                let said = said_by(&*dir, &entry.name);
                living.push(active(entry.name, said));
            }
        }
    }
    Ok(living)
}

fn active(name: String, (info, holds): Said) -> Living {
    Living {
        name,
        info,
        state: PinState::Active,
        seen: Vec::new(),
        holds,
        is_stale: false,
    }
}

/// Reads a living session's description of itself. Before the session has written that, it holds nothing, and is waited
/// for.
fn said_by(dir: &dyn Dir, name: &str) -> Said {
    let read = || -> Result<Said> {
        let disk = dir.open(name)?;
        let mut bytes = vec![0; disk.len()?.min(PIN_BYTES_MAX) as usize];
        disk.read_at(&mut bytes, 0)?;
        PinInfo::decode(&bytes, name)
    };
    read().unwrap_or_else(|_| (PinInfo::unknown(), Vec::new()))
}
