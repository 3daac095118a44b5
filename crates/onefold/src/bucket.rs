//! A repository in a bucket of object storage, as the program reaches it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use onefold_io::{Dir, MemDir};
use onefold_remote::doctor::{self, TrialExtent, TrialResult};
use onefold_remote::{BucketLocation, Options, Remote, SINGLE_WRITER_OBJECT};
use onefold_store::Place;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::global::Global;
use crate::{alone, signal};

/// Variable for tests: milliseconds without a sign of life after which other processes count as dead. Never a matter of
/// safety.
const STALE_ENV: &str = "ONEFOLD_TEST_STALE_MS";
/// While it waits to ask the store again, the program looks so often whether it is to end, in milliseconds.
const LOOK_MS: u64 = 100;
/// Longest wait for stores that are told of the program's end.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// For each bucket that was named, what takes back sessions and locks there.
static OPENED: Mutex<Vec<Leave>> = Mutex::new(Vec::new());

type Leave = Box<dyn Fn() + Send + Sync>;

/// The place of a repository in a bucket, where there may be none yet, and the connection to it.
pub struct Bucket {
    location: BucketLocation,
    options: Options,
    remote: Remote,
}

impl Bucket {
    /// The bucket that `named` names; no request is made yet.
    ///
    /// # Errors
    /// [`Error::Usage`]: it names none. [`Error::Store`]: what is said of the service makes no sense, or no thread can
    /// be started for the signs of life.
    pub fn named(named: &str, global: &Global) -> Result<Self> {
        let location = BucketLocation::parse(named).map_err(Error::Usage)?;
        let usual = Options::default();
        let options = Options {
            pause: Arc::new(pause),
            upload_bytes_s_max: global.limit_upload,
            download_bytes_s_max: global.limit_download,
            cacert: global.cacert.clone(),
            stalled_after: global.stuck_request_timeout.unwrap_or(usual.stalled_after),
            patience: global.patience.unwrap_or(usual.patience),
            is_ending: Arc::new(signal::ends_requests),
            stale_after_ms: std::env::var(STALE_ENV).ok().and_then(|ms| ms.parse().ok()),
            ..usual
        };
        let remote = Remote::connect(&location, &options)?;
        OPENED.lock().push(Box::new(remote.leave()));
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
    pub fn examine(
        &self,
        extent: TrialExtent,
        each: &mut dyn FnMut(&TrialResult),
    ) -> Result<Vec<TrialResult>> {
        Ok(doctor::examine(
            &self.location,
            &self.options,
            extent,
            each,
        )?)
    }

    pub fn location(&self) -> &BucketLocation {
        &self.location
    }

    /// The path of this place below `other`, empty where they are one; `None` where it does not lie there.
    pub fn below(&self, other: &Self) -> Option<PathBuf> {
        let (own, other) = (&self.location, &other.location);
        let is_one_bucket = (&own.endpoint, &own.bucket) == (&other.endpoint, &other.bucket);
        let own = Path::new(&own.prefix).strip_prefix(&other.prefix).ok();
        own.filter(|_| is_one_bucket).map(Path::to_path_buf)
    }

    /// Its place, with an empty folder in RAM as this machine's own: before it is known which repository is there.
    pub fn place(&self) -> Place {
        self.remote.place(Arc::new(MemDir::new()))
    }

    /// Its place, with this machine's `own` folder, for work in the repository that is there.
    ///
    /// # Errors
    /// Those of [`alone::registry`].
    pub fn place_with(&self, own: Arc<dyn Dir>, take_over: bool) -> onefold_store::Result<Place> {
        self.settled(self.remote.place(own), take_over)
    }

    /// The `place` with the sessions and locks of the repository that is there: in the bucket, or where one machine
    /// uses it alone, in a folder of this machine. To be asked once the repository is known to be there.
    ///
    /// # Errors
    /// Those of [`alone::registry`].
    pub fn settled(&self, place: Place, take_over: bool) -> onefold_store::Result<Place> {
        Ok(match alone::registry(&place.objects, take_over)? {
            None => place,
            Some(registry) => Place { registry, ..place },
        })
    }

    /// The place of a repository that is to be made in it, for one machine alone if that is said.
    ///
    /// # Errors
    /// Those of [`alone::begin`]; failures of the store.
    pub fn place_to_make(&self, is_single_writer: bool) -> onefold_store::Result<Place> {
        let place = self.place();
        if is_single_writer {
            let registry = alone::begin(&place.objects)?;
            return Ok(Place { registry, ..place });
        }
        // Left of one whose making was interrupted.
        place.objects.delete(SINGLE_WRITER_OBJECT)?;
        Ok(place)
    }
}

/// Takes back the sessions and locks of this process in all buckets, as far as their stores answer soon.
pub fn leave_all() {
    let opened = std::mem::take(&mut *OPENED.lock());
    if opened.is_empty() {
        return;
    }
    let (told, done) = channel::<()>();
    for leave in opened {
        let told = told.clone();
        std::thread::spawn(move || {
            leave();
            drop(told);
        });
    }
    drop(told);
    // Nothing is ever sent: the last thread that ends closes the channel.
    let _ = done.recv_timeout(LEAVE_MAX);
}

/// Sleeps, and tells whether to go on.
fn pause(ms: u64) -> bool {
    let mut left = ms;
    while left > 0 && !signal::ends_requests() {
        let some = left.min(LOOK_MS);
        std::thread::sleep(Duration::from_millis(some));
        left -= some;
    }
    !signal::ends_requests()
}
