//! A repository in a bucket of object storage, as the program reaches it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onefold_io::{Dir, MemDir};
use onefold_remote::doctor::{self, Extent, Finding};
use onefold_remote::{Location, Options, Remote, SINGLE_WRITER_OBJECT};
use onefold_store::registry::Registry;
use onefold_store::registry::flock::FlockRegistry;
use onefold_store::{Entropy, Error as StoreError, Place};

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::{machine, signal};

/// For tests: after so many milliseconds without a sign of life others count as dead. Never a matter of safety.
const STALE_ENV: &str = "ONEFOLD_TEST_STALE_MS";
/// While it waits to ask the store again, the program looks so often whether it is to end, in milliseconds.
const LOOK_MS: u64 = 100;

/// A bucket, and the connection to it.
pub struct Bucket {
    location: Location,
    options: Options,
    remote: Remote,
}

impl Bucket {
    /// The bucket that `named` names; no request is made yet.
    ///
    /// # Errors
    /// [`Error::Usage`]: it names none, or what is said of the service makes no sense.
    pub fn named(named: &str, global: &Global) -> Result<Self> {
        let location = Location::parse(named).map_err(Error::Usage)?;
        let options = Options {
            pause: Arc::new(pause),
            upload_bytes_s_max: global.limit_upload,
            download_bytes_s_max: global.limit_download,
            cacert: global.cacert.clone(),
            stale_after_ms: std::env::var(STALE_ENV).ok().and_then(|ms| ms.parse().ok()),
            ..Options::default()
        };
        let remote = Remote::connect(&location, &options)?;
        Ok(Self {
            location,
            options,
            remote,
        })
    }

    /// Tries whether the store does what it must.
    ///
    /// # Errors
    /// The store cannot be reached, or not be written.
    pub fn examine(&self, extent: Extent, each: &mut dyn FnMut(&Finding)) -> Result<Vec<Finding>> {
        Ok(doctor::examine(
            &self.location,
            &self.options,
            extent,
            each,
        )?)
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Its place, with an own folder that holds nothing.
    pub fn place(&self) -> Place {
        self.remote.place(Arc::new(MemDir::new()))
    }

    /// Its place, with this machine's `own` folder. Of a repository that one machine alone uses, sessions and locks are
    /// files of that folder.
    ///
    /// # Errors
    /// [`StoreError::Locked`]: another machine uses it alone, and this one is not to take it over.
    pub fn place_with(&self, own: Arc<dyn Dir>, take_over: bool) -> onefold_store::Result<Place> {
        let place = self.remote.place(Arc::clone(&own));
        let writer = match place.objects.get(SINGLE_WRITER_OBJECT) {
            Err(error) if error.is_not_found() => return Ok(place),
            writer => String::from_utf8_lossy(&writer?).into_owned(),
        };
        if writer != machine::host() {
            if !take_over {
                return Err(StoreError::Locked {
                    what: format!(
                        "the machine {writer} uses this repository alone (init --single-writer); where it does so no more, --take-over lets this machine do it"
                    ),
                });
            }
            name_writer(&place)?;
        }
        alone(place, own)
    }

    /// The place of a repository that is to be made in it, for one machine alone if that is said.
    ///
    /// # Errors
    /// Failures of the store.
    pub fn place_to_make(&self, is_single_writer: bool) -> onefold_store::Result<Place> {
        let place = self.place();
        if !is_single_writer {
            // Left of one whose making was interrupted.
            place.objects.delete(SINGLE_WRITER_OBJECT)?;
            return Ok(place);
        }
        name_writer(&place)?;
        let own = Arc::clone(&place.own);
        alone(place, own)
    }
}

fn name_writer(place: &Place) -> onefold_store::Result<()> {
    let writer = machine::host();
    place
        .objects
        .put(SINGLE_WRITER_OBJECT, &[writer.as_bytes()])
}

/// The place with sessions and locks in this machine's own folder.
fn alone(place: Place, own: Arc<dyn Dir>) -> onefold_store::Result<Place> {
    let objects = Arc::clone(&place.objects);
    let registry = FlockRegistry::new(own, objects, Entropy::system());
    registry.init()?;
    Ok(Place {
        registry: Arc::new(registry),
        ..place
    })
}

/// Sleeps, and tells whether to go on.
fn pause(ms: u64) -> bool {
    let mut left = ms;
    while left > 0 && !signal::raised() {
        let some = left.min(LOOK_MS);
        std::thread::sleep(Duration::from_millis(some));
        left -= some;
    }
    !signal::raised()
}

/// The folder of this machine's own folders of repositories.
///
/// # Errors
/// Nothing says where it is to be.
pub fn cache_folder() -> onefold_store::Result<PathBuf> {
    let absolute = |name: &str, below: &str| {
        let folder = PathBuf::from(std::env::var_os(name)?);
        folder.is_absolute().then(|| folder.join(below))
    };
    absolute("XDG_CACHE_HOME", "onefold")
        .or_else(|| absolute("HOME", ".cache/onefold"))
        .ok_or_else(|| {
            StoreError::Option(
                "there is no folder for the index: set HOME or XDG_CACHE_HOME, or give --index-dir"
                    .into(),
            )
        })
}
