//! What `volume` verbs work on: a depot, or a raw file that stands in for one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_export::RawDevice;
use onefold_io::FileDir;
use onefold_volume::depot::OpenOptions;
use onefold_volume::{BlockDevice, Depot, Error as VolumeError};
use parking_lot::Mutex;

use super::places;
use crate::error::{Error, Result};

/// A depot or a raw file, by their paths.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Named {
    /// Folder of the depot
    #[arg(value_name = "DEPOT")]
    pub depot: Option<PathBuf>,

    /// In place of a depot, a file or block device as it is
    #[arg(long, value_name = "FILE")]
    pub raw: Option<PathBuf>,
}

impl Named {
    fn path(&self) -> &Path {
        self.depot
            .as_deref()
            .or(self.raw.as_deref())
            .unwrap_or(Path::new(""))
    }

    /// As the user gave it.
    pub fn shown(&self) -> String {
        self.path().display().to_string()
    }

    /// The private folder of the daemon that attaches it.
    ///
    /// # Errors
    /// There is no such file or folder.
    pub fn place(&self) -> Result<PathBuf> {
        match &self.depot {
            Some(folder)
                if !folder.join("config").exists() && !folder.join("config.copy").exists() =>
            {
                Err(no_depot(folder))
            }
            Some(folder) => places::of("depot", folder),
            None => places::of("raw", self.path()),
        }
    }

    /// The control socket of its daemon.
    ///
    /// # Errors
    /// There is no such file or folder.
    pub fn control(&self) -> Result<PathBuf> {
        Ok(match &self.depot {
            Some(folder) => folder.join("control"),
            None => self.place()?.join("control"),
        })
    }

    /// Opens it; `name` is that of a raw file's device, `ram_bytes` the budget of a depot.
    ///
    /// # Errors
    /// It is in use, damaged, or not there; the budget is too small.
    pub fn open(&self, name: &str, is_writable: bool, ram_bytes: Option<u64>) -> Result<Source> {
        match &self.depot {
            Some(folder) => {
                let depot = open_depot(folder, ram_bytes)?;
                Ok(Source::Depot(Mutex::new(Some(depot))))
            }
            None => {
                let device = RawDevice::open(self.path(), name, is_writable)?;
                Ok(Source::Raw(Arc::new(device)))
            }
        }
    }
}

/// Opens the depot in `folder`, alone.
///
/// # Errors
/// There is none, another process has it open, or it is damaged; `ram_bytes` are too few.
pub fn open_depot(folder: &Path, ram_bytes: Option<u64>) -> Result<Depot> {
    let dir = match FileDir::open(folder) {
        Err(error) if error.kind == onefold_io::ErrorKind::NotFound => {
            return Err(no_depot(folder));
        }
        other => other.map_err(VolumeError::from)?,
    };
    let options = OpenOptions {
        ram_bytes,
        ..OpenOptions::default()
    };
    let opened = Depot::open(Arc::new(dir), options);
    Ok(opened.map_err(|error| naming(error, folder))?)
}

fn no_depot(folder: &Path) -> Error {
    let place = folder.display().to_string();
    Error::Device(VolumeError::NoDepot { place })
}

/// The error with the folder's own path.
pub fn naming(error: VolumeError, folder: &Path) -> VolumeError {
    let place = folder.display().to_string();
    match error {
        VolumeError::NoDepot { .. } => VolumeError::NoDepot { place },
        VolumeError::Held { .. } => VolumeError::Held { place },
        VolumeError::Exists { what, .. } => VolumeError::Exists { place, what },
        error => error,
    }
}

/// What was opened.
pub enum Source {
    /// A raw file.
    Raw(Arc<RawDevice>),
    /// A depot; none once it is closed.
    Depot(Mutex<Option<Depot>>),
}

impl Source {
    /// All devices.
    pub fn devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        match self {
            Self::Raw(device) => vec![device.clone()],
            Self::Depot(depot) => {
                let depot = depot.lock();
                let open = depot.iter();
                open.flat_map(|depot| {
                    depot
                        .heads()
                        .into_iter()
                        .filter_map(|head| depot.device(head.id))
                })
                .collect()
            }
        }
    }

    /// Does something with the open depot.
    ///
    /// # Errors
    /// It is a raw file, or closed; what `work` gives.
    pub fn with_depot<T>(
        &self,
        work: impl FnOnce(&Depot) -> onefold_volume::Result<T>,
    ) -> Result<T> {
        match self {
            Self::Raw(_) => Err(Error::Failed("a raw file is no depot".into())),
            Self::Depot(depot) => match &*depot.lock() {
                Some(depot) => Ok(work(depot)?),
                None => Err(Error::Failed("the depot is closed".into())),
            },
        }
    }

    /// Makes the next opening short, once a minute: what was written since stands in the journal alone. `last` is when it
    /// was done last.
    pub fn settle_each_minute(&self, last: &mut Instant) {
        if last.elapsed() < Duration::from_secs(60) {
            return;
        }
        *last = Instant::now();
        if let Self::Depot(depot) = self
            && let Some(depot) = &*depot.lock()
        {
            // Whoever flushes is told of a failure.
            let _ = depot.settle();
        }
    }

    /// Has everything on the disk, and ends.
    ///
    /// # Errors
    /// The devices have failed.
    pub fn close(&self) -> Result<()> {
        match self {
            Self::Raw(device) => Ok(onefold_export::flush(&**device)?),
            Self::Depot(depot) => match depot.lock().take() {
                Some(depot) => Ok(depot.close()?),
                None => Ok(()),
            },
        }
    }
}
