//! Subject of the `volume` verbs: a depot, or a raw file that replaces one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_export::nbd::{DeviceList, Differences};
use onefold_export::{RawDevice, attach};
use onefold_io::FileDir;
use onefold_volume::depot::{CheckProgress, Head, OpenOptions};
use onefold_volume::front::{Options, WhenFull};
use onefold_volume::{BlockDevice, Depot, Error as VolumeError, FreeSpace, Hints};
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::default_hints;
use super::head_name::{HeadName, is_depot};
use super::own_path::naming;
use super::places;
use super::requested_head;
use super::unlocking;
use crate::error::{Error, Result};

/// A depot or a raw file, by their paths.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
pub struct NamedVolume {
    /// Folder of the depot; attach takes one of its volumes and snapshots
    #[arg(value_name = "DEPOT[:VOLUME][@SNAPSHOT]")]
    pub depot: Option<HeadName>,

    /// In place of a depot, a file or block device as it is
    #[arg(long, value_name = "FILE")]
    pub raw: Option<PathBuf>,
}

impl NamedVolume {
    fn path(&self) -> &Path {
        let folder = self.folder();
        folder.or(self.raw.as_deref()).unwrap_or(Path::new(""))
    }

    /// Returns the folder of the depot, where it is one.
    pub fn folder(&self) -> Option<&Path> {
        self.depot.as_ref().map(|name| &*name.depot)
    }

    /// Returns the path as the user gave it.
    pub fn shown(&self) -> String {
        self.path().display().to_string()
    }

    /// Returns the path from the root, as far as it is known.
    pub fn absolute(&self) -> String {
        let path = std::path::absolute(self.path());
        path.map_or_else(|_| self.shown(), |path| path.display().to_string())
    }

    /// Returns the private folder of the daemon that attaches the depot or file.
    ///
    /// # Errors
    /// The file or folder is not there.
    pub fn place(&self) -> Result<PathBuf> {
        match self.folder() {
            Some(folder) if !is_depot(folder) => Err(no_depot(folder)),
            Some(folder) => places::of("depot", folder),
            None => places::of("raw", self.path()),
        }
    }

    /// Returns the control socket of the daemon.
    ///
    /// # Errors
    /// The file or folder is not there.
    pub fn control(&self) -> Result<PathBuf> {
        Ok(match self.folder() {
            Some(folder) => folder.join("control"),
            None => self.place()?.join("control"),
        })
    }

    /// Opens the depot or raw file; `name` is that of a raw file's device, `ram_bytes` the budget of a depot.
    ///
    /// # Errors
    /// The depot or file is in use, damaged, or not there; or the budget is too small.
    pub fn open(
        &self,
        name: &str,
        is_writable: bool,
        ram_bytes: Option<u64>,
        when_full: WhenFull,
    ) -> Result<VolumeSource> {
        match self.folder() {
            Some(folder) => {
                let depot = open_depot(folder, ram_bytes, when_full)?;
                Ok(VolumeSource::Depot(OpenDepot {
                    folder: Some(folder.to_owned()),
                    ..OpenDepot::new(depot)
                }))
            }
            None => {
                if is_writable {
                    attach::confirm_unused(self.path(), "try again")?;
                }
                let device = RawDevice::open(self.path(), name, is_writable)?;
                Ok(VolumeSource::Raw(Arc::new(device)))
            }
        }
    }
}

/// Opens the depot in `folder` for this process alone.
///
/// # Errors
/// There is none, another process has it open, or it is damaged; `ram_bytes` are too few.
pub fn open_depot(folder: &Path, ram_bytes: Option<u64>, when_full: WhenFull) -> Result<Depot> {
    let dir = open_folder(folder)?;
    let started = Instant::now();
    let options = OpenOptions {
        ram_bytes,
        password: unlocking::password_of(folder, &dir)?,
        front: Options {
            when_full,
            infer: true,
            clock: Some(Arc::new(move || {
                u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
            })),
            ..Options::default()
        },
        ..OpenOptions::default()
    };
    let opened = Depot::open(Arc::new(dir), options);
    opened.map_err(|error| match naming(error, folder) {
        VolumeError::Held { place } => held(place),
        error => error.into(),
    })
}

/// Somebody has the depot or its data device: of a mounted one, the error says where.
fn held(place: String) -> Error {
    match attach::confirm_unused(Path::new(&place), "try again") {
        Err(error) => error.into(),
        Ok(()) => VolumeError::Held { place }.into(),
    }
}

/// Opens the folder of a depot.
///
/// # Errors
/// There is no folder of this name, or it cannot be opened.
pub fn open_folder(folder: &Path) -> Result<FileDir> {
    match FileDir::open(folder) {
        Err(error) if error.kind == onefold_io::ErrorKind::NotFound => Err(no_depot(folder)),
        Err(_) if folder.is_file() => Err(no_depot(folder)),
        other => Ok(other.map_err(VolumeError::from)?),
    }
}

/// There is none in this folder.
pub fn no_depot(folder: &Path) -> Error {
    let place = folder.display().to_string();
    Error::Device(VolumeError::NoDepot { place })
}

/// An open depot or raw file.
pub enum VolumeSource {
    /// A raw file.
    Raw(Arc<RawDevice>),
    /// A depot.
    Depot(OpenDepot),
}

/// A depot that is open until it is closed. Many work with it at once.
pub struct OpenDepot {
    depot: RwLock<Option<Depot>>,
    /// Folder in which the volumes' default hints are; `None` where no device is served.
    folder: Option<PathBuf>,
    /// The check that goes on, or the last one.
    pub check: CheckProgress,
}

impl OpenDepot {
    fn new(depot: Depot) -> Self {
        Self {
            depot: RwLock::new(Some(depot)),
            folder: None,
            check: CheckProgress::default(),
        }
    }

    /// A device, with the hints that its volume has by default.
    fn hinted(&self, device: Arc<dyn BlockDevice>, volume: &str) -> Arc<dyn BlockDevice> {
        let folder = self.folder.as_ref();
        let hints = folder.map(|folder| default_hints::of_volume(folder, volume));
        match hints {
            Some(hints) if hints != Hints::default() => onefold_export::with_hints(device, hints),
            _ => device,
        }
    }

    /// All volumes and snapshots; none once the depot is closed.
    fn heads(&self) -> Vec<Head> {
        let depot = self.depot.read();
        depot.as_ref().map(Depot::heads).unwrap_or_default()
    }
}

/// Volumes and snapshots as they are when somebody asks: the first volume first.
impl DeviceList for VolumeSource {
    fn names(&self) -> Vec<String> {
        match self {
            Self::Raw(device) => vec![device.geometry().name],
            Self::Depot(open) => {
                let mut heads = open.heads();
                heads.sort_by_key(|head| !head.is_writable);
                heads.into_iter().map(|head| head.name).collect()
            }
        }
    }

    fn device(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        match self {
            Self::Raw(device) if device.geometry().name == name => Some(device.clone()),
            Self::Raw(_) => None,
            Self::Depot(open) => {
                let depot = open.depot.read();
                let depot = depot.as_ref()?;
                let heads = depot.heads();
                let head = heads.iter().find(|head| head.name == name)?;
                let device = depot.device(head.id)?;
                Some(open.hinted(device, name))
            }
        }
    }

    fn compare(&self, name: &str, base: &str) -> Option<Arc<dyn Differences>> {
        match self {
            Self::Raw(_) => None,
            Self::Depot(open) => {
                let depot = open.depot.read();
                Some(Arc::new(depot.as_ref()?.compare(name, base)?))
            }
        }
    }
}

impl VolumeSource {
    /// An open depot.
    pub fn depot(depot: Depot) -> Self {
        Self::Depot(OpenDepot::new(depot))
    }

    /// Returns volumes and snapshots as JSON.
    pub fn volumes(&self) -> Vec<Value> {
        match self {
            Self::Raw(device) => {
                let geometry = device.geometry();
                vec![json!({
                    "name": geometry.name,
                    "bytes": geometry.bytes,
                    "writable": geometry.is_writable,
                })]
            }
            Self::Depot(open) => open.heads().iter().map(requested_head::shown).collect(),
        }
    }

    /// Says that the depot has gone back to what was saved last, where it has.
    pub fn loss(&self) -> Option<String> {
        let lost = self.with_depot(|depot, _| Ok(depot.lost_unsaved()));
        lost.unwrap_or(false).then(|| {
            "the depot was open when its process or the machine died: all is as it was saved last (backend inram), and what was written since is lost".into()
        })
    }

    /// Pages of the depot's data device; `None` of a raw file, and while the depot is being closed.
    pub fn space(&self) -> Option<FreeSpace> {
        match self {
            Self::Raw(_) => None,
            Self::Depot(open) => Some(open.depot.try_read()?.as_ref()?.space()),
        }
    }

    /// Does something with the open depot, beside others.
    ///
    /// # Errors
    /// A raw file, or a closed depot; errors of `work`.
    pub fn with_depot<T>(
        &self,
        work: impl FnOnce(&Depot, &CheckProgress) -> onefold_volume::Result<T>,
    ) -> Result<T> {
        match self {
            Self::Raw(_) => Err(Error::Failed("a raw file is no depot".into())),
            Self::Depot(open) => match &*open.depot.read() {
                Some(depot) => Ok(work(depot, &open.check)?),
                None => Err(Error::Failed("the depot is closed".into())),
            },
        }
    }

    /// Makes the next opening short, once a minute: what was written since stands in the journal alone. `last` is when
    /// it was done last.
    pub fn settle_each_minute(&self, last: &mut Instant) {
        if last.elapsed() < Duration::from_secs(60) {
            return;
        }
        *last = Instant::now();
        if let Self::Depot(open) = self
            && let Some(depot) = open.depot.try_read()
            && let Some(depot) = &*depot
        {
            // Whoever flushes is told of a failure.
            let _ = depot.settle();
        }
    }

    /// Makes everything durable, and closes the depot. A check that goes on is ended.
    ///
    /// # Errors
    /// Errors of the devices.
    pub fn close(&self) -> Result<()> {
        match self {
            Self::Raw(device) => Ok(onefold_export::flush(&**device)?),
            Self::Depot(open) => {
                open.check.stop();
                match open.depot.write().take() {
                    Some(depot) => Ok(depot.close()?),
                    None => Ok(()),
                }
            }
        }
    }
}
