//! Repositories on object storage: what `onefold-store` asks of a place, over the protocol of S3.
//!
//! ```text
//! engine's threads ─▶ Client (objects, registers: attempts, patience, read-back)
//!                       ─▶ object_store (S3: signatures, lists, credentials)
//!                            ─▶ Http (hyper: a pool of connections, counted, limited, watched)
//! heart: each minute the sessions and locks of this process show that they live
//! ```
//!
//! Invariant: an object is put under a free name by a conditional request, or not at all; what becomes of a request
//! without an answer is found out before anybody is told; and nothing that the network does counts as loss or damage.
#![forbid(unsafe_code)]

mod answer;
mod client;
pub mod doctor;
mod ending;
mod heart;
mod http;
mod location;
mod objects;
mod patience;
mod profile;
mod registers;
mod service;
mod tags;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_io::Dir;
use onefold_store::objects::ObjectStore;
use onefold_store::registry::lease::LeaseRegistry;
use onefold_store::registry::registers::Registers;
use onefold_store::{Entropy, Place, Result, Ways};

pub use answer::Trouble;
use client::Client;
pub use ending::IsEnding;
use heart::Beating;
pub use http::WireCounts;
pub use location::BucketLocation;
pub use patience::Pause;

/// The object that names the machine which uses a repository alone; missing where many share it.
pub const SINGLE_WRITER_OBJECT: &str = "single-writer";

/// Limits and preferences of a store over a network.
const WAYS: Ways = Ways {
    puts_at_once: 4,
    gets_at_once: 16,
    gap_bytes: 1 << 20,
    tail_bytes: 128 << 10,
    whole_max: 256,
    grace_s: 24 * 60 * 60,
};

/// Identity of the user, as the store knows it.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Whom the environment names.
    #[default]
    Environment,
    /// The owner of these keys.
    Keys {
        /// The name of the keys.
        id: String,
        /// The secret that signs.
        secret: String,
    },
}

/// How a bucket is spoken to.
#[derive(Clone)]
pub struct Options {
    /// Identity of the user.
    pub credentials: Credentials,
    /// Names of sessions, and the chance in pauses.
    pub entropy: Entropy,
    /// Waits between attempts.
    pub pause: Pause,
    /// Bytes a second that are sent at most.
    pub upload_bytes_s_max: Option<u64>,
    /// Bytes a second that are received at most.
    pub download_bytes_s_max: Option<u64>,
    /// Files with certificates that are trusted beside the system's, in PEM.
    pub cacert: Vec<PathBuf>,
    /// Milliseconds without a sign of life after which a session or a lock is stale; `None`: the registry's own limit.
    pub stale_after_ms: Option<u64>,
    /// Time without a moved byte after which a request is given up.
    pub stalled_after: Duration,
    /// Time for which a failed request is tried again.
    pub patience: Duration,
    /// Whether the program is to end: then requests end within a second, those for sessions and locks within two.
    pub is_ending: IsEnding,
}

/// The time for which a request is tried again, unless it is said: a store that is restarted is back by then, and
/// nobody wants to begin a long backup anew.
pub const PATIENCE: Duration = Duration::from_secs(5 * 60);

impl Default for Options {
    fn default() -> Self {
        Self {
            credentials: Credentials::default(),
            entropy: Entropy::system(),
            pause: Arc::new(|ms| {
                std::thread::sleep(Duration::from_millis(ms));
                true
            }),
            upload_bytes_s_max: None,
            download_bytes_s_max: None,
            cacert: Vec::new(),
            stale_after_ms: None,
            stalled_after: Duration::from_secs(60),
            patience: PATIENCE,
            is_ending: Arc::new(|| false),
        }
    }
}

/// A connection to the place of a repository in a bucket.
#[derive(Clone)]
pub struct Remote {
    client: Arc<Client>,
    registry: Arc<Beating>,
}

impl Remote {
    /// Prepares to speak to the bucket; no request is made yet.
    ///
    /// # Errors
    /// [`onefold_store::Error::Option`]: what the environment says of the service makes no sense.
    pub fn connect(location: &BucketLocation, options: &Options) -> Result<Self> {
        let client = Arc::new(service::client(location, options)?);
        let began = Instant::now();
        let registers: Arc<dyn Registers> = client.clone();
        let objects: Arc<dyn ObjectStore> = client.clone();
        let mut registry = LeaseRegistry::new(
            registers,
            objects,
            options.entropy.clone(),
            Arc::new(move || began.elapsed().as_millis() as u64),
        );
        if let Some(ms) = options.stale_after_ms {
            registry = registry.stale_after_ms(ms);
        }
        let registry = Arc::new(Beating::begin(registry)?);
        Ok(Self { client, registry })
    }

    /// The repository's place, with this machine's `own` folder for index and scratch.
    pub fn place(&self, own: Arc<dyn Dir>) -> Place {
        Place {
            objects: self.client.clone(),
            registry: self.registry.clone(),
            own,
            ways: WAYS,
        }
    }

    /// Returns a function that takes back the sessions and locks of this process within two seconds, for a program that
    /// ends at once: nobody then waits for them, and they cannot be used any more.
    pub fn leave(&self) -> impl Fn() + Send + Sync + use<> {
        let (client, registry) = (Arc::downgrade(&self.client), Arc::downgrade(&self.registry));
        move || {
            if let (Some(client), Some(registry)) = (client.upgrade(), registry.upgrade()) {
                registry.leave(|| client.ending.begin_last());
            }
        }
    }

    /// Registers in the bucket, below the same prefix.
    pub fn registers(&self) -> Arc<dyn Registers> {
        self.client.clone()
    }

    /// Returns the counts of requests and bytes so far.
    pub fn counts(&self) -> WireCounts {
        self.client.traffic.counts()
    }
}
