//! A client of one bucket: requests that are tried again, and what becomes of those that fail.
//!
//! Invariant: the crate below tries nothing again by itself, so each attempt is seen here. Callers are threads of
//! the engine; they wait on a runtime of two threads that belongs to this client alone.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore as _, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};
use onefold_io::ErrorKind;
use onefold_store::{Entropy, Error, Result};
use tokio::runtime::Runtime;

use crate::Options;
use crate::answer::{self, Failure};
use crate::ending::Ending;
use crate::http::Traffic;
use crate::patience::{Pause, RequestPatience};
use crate::tags::Tags;

/// The folder of sessions' registers.
pub(crate) const SESSION_FOLDER: &str = "sessions";
/// The folder of locks' registers.
pub(crate) const LOCK_FOLDER: &str = "locks";
/// Threads that move bytes, for all threads of the engine.
const RUNTIME_THREADS: usize = 2;
/// Objects that one request removes; no store takes more.
const DELETES_A_REQUEST: usize = 1000;

/// A client of the objects below one prefix of a bucket.
pub(crate) struct Client {
    /// Until the client is dropped.
    runtime: Option<Runtime>,
    store: AmazonS3,
    /// The same, which removes each object by a request of its own.
    single: AmazonS3,
    prefix: String,
    pub traffic: Arc<Traffic>,
    pub entropy: Entropy,
    pub pause: Pause,
    pub tags: Tags,
    patience: Duration,
    pub ending: Ending,
}

/// Result of one attempt.
pub(crate) type Attempt<T> = std::result::Result<T, (Failure, String)>;

impl Client {
    pub fn new(
        [store, single]: [AmazonS3; 2],
        prefix: &str,
        traffic: Arc<Traffic>,
        options: &Options,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .thread_name("network")
            .enable_all()
            .build()
            .map_err(|error| Error::no_thread("the network", &error))?;
        Ok(Self {
            runtime: Some(runtime),
            store,
            single,
            prefix: prefix.to_owned(),
            traffic,
            tags: Tags::default(),
            entropy: options.entropy.clone(),
            pause: Arc::clone(&options.pause),
            patience: options.patience,
            ending: Ending::new(Arc::clone(&options.is_ending)),
        })
    }

    /// The key of an object.
    fn key(&self, name: &str) -> Path {
        if self.prefix.is_empty() {
            Path::from(name)
        } else {
            Path::from(format!("{}/{name}", self.prefix))
        }
    }

    /// The object's name, of a key that was listed.
    fn name_of(&self, key: &Path) -> Option<String> {
        let name = key.as_ref().strip_prefix(&*self.prefix)?;
        Some(name.trim_start_matches('/').to_owned())
    }

    /// One attempt at a request for `name`, which ends when the program is to end.
    pub fn attempt<T>(
        &self,
        name: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Attempt<T> {
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        let done = runtime.block_on(async {
            let (request, over) = (pin!(request), pin!(self.ending.over(is_register(name))));
            match select(request, over).await {
                Either::Left((done, _)) => Some(done),
                Either::Right(_) => None,
            }
        });
        match done {
            Some(done) => done.map_err(|error| answer::of(&error)),
            None => Err((Failure::Ended, "the program is to end".into())),
        }
    }

    /// Attempts until one is answered, or patience ends. For requests that may be done several times.
    pub fn ask<T>(
        &self,
        op: &'static str,
        name: &str,
        mut attempt: impl FnMut() -> Attempt<T>,
    ) -> Result<T> {
        let mut patience = self.patience();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err((failure, words)) => {
                    let is_to_come = match failure {
                        Failure::NoAnswer(asked_s) => patience.wait(asked_s),
                        // Another changed the same object in that moment.
                        Failure::Conflict => patience.wait(0),
                        _ => false,
                    };
                    if !is_to_come {
                        return Err(answer::error(op, name, failure, words));
                    }
                    tracing::info!("{op} {name}: {words}: asked again");
                }
            }
        }
    }

    pub fn patience(&self) -> RequestPatience<'_> {
        RequestPatience::new(&self.traffic, &self.entropy, &self.pause, self.patience)
    }

    /// Puts an object, once. Gives its new version.
    pub fn put(
        &self,
        name: &str,
        bytes: impl Into<PutPayload>,
        mode: PutMode,
    ) -> Attempt<Option<String>> {
        let key = self.key(name);
        let put = self
            .store
            .put_opts(&key, bytes.into(), PutOptions::from(mode));
        Ok(self.attempt(name, put)?.e_tag)
    }

    /// The object, or the part of it that `range` names, and what the store says of it.
    ///
    /// # Errors
    /// Damage where the object is longer than `bytes_max`; failures of the store.
    pub fn get(
        &self,
        name: &str,
        range: Option<GetRange>,
        bytes_max: u64,
    ) -> Result<(Vec<u8>, ObjectMeta)> {
        let key = self.key(name);
        let got = self.ask("read", name, || {
            let options = GetOptions {
                range: range.clone(),
                ..GetOptions::default()
            };
            let getting = async {
                let result = self.store.get_opts(&key, options).await?;
                let (meta, range) = (result.meta.clone(), result.range.clone());
                let expected = range.end - range.start;
                if expected > bytes_max {
                    return Ok(Err(expected));
                }
                let mut bytes = Vec::with_capacity(expected as usize);
                let mut pieces = result.into_stream();
                while let Some(piece) = pieces.try_next().await? {
                    bytes.extend_from_slice(&piece);
                }
                Ok(Ok((bytes, meta, expected)))
            };
            match self.attempt(name, getting)? {
                Ok((bytes, meta, expected)) => {
                    require_whole(bytes.len(), expected)?;
                    Ok(Ok((bytes, meta)))
                }
                Err(too_long) => Ok(Err(too_long)),
            }
        })?;
        got.map_err(|len| {
            let what = format!("{len} bytes, at most {bytes_max} can be");
            Error::damaged(name, Some(bytes_max), what)
        })
    }

    /// The object's bytes from `offset` on into `buf`, whole.
    pub fn get_into(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let key = self.key(name);
        let wanted = buf.len() as u64;
        let len = self.ask("read", name, || {
            let options = GetOptions {
                range: Some(GetRange::Bounded(offset..offset + wanted)),
                ..GetOptions::default()
            };
            let getting = async {
                let result = self.store.get_opts(&key, options).await?;
                if result.range.end - result.range.start < wanted {
                    return Ok((wanted as usize, result.meta.size));
                }
                let len = result.meta.size;
                let mut pieces = result.into_stream();
                let mut filled = 0;
                while let Some(piece) = pieces.try_next().await? {
                    // More than was asked for is cut off.
                    let some = piece.len().min(buf.len() - filled);
                    buf[filled..filled + some].copy_from_slice(&piece[..some]);
                    filled += some;
                }
                Ok((filled, len))
            };
            let (filled, len) = self.attempt(name, getting)?;
            require_whole(filled, wanted)?;
            Ok(len)
        })?;
        if len >= offset + wanted {
            Ok(())
        } else {
            let what = format!("expected {wanted} bytes, but the object ends at {len}");
            let error = onefold_io::Error::new("read", name, ErrorKind::Short, what);
            Err(error.at(offset).into())
        }
    }

    /// Returns the store's description of an object.
    pub fn head(&self, name: &str) -> Result<ObjectMeta> {
        let key = self.key(name);
        self.ask("stat", name, || self.attempt(name, self.store.head(&key)))
    }

    /// Removes an object; one that is not there is no error.
    pub fn delete(&self, name: &str) -> Result<()> {
        let key = self.key(name);
        let deleted = self.ask("remove", name, || {
            self.attempt(name, self.single.delete(&key))
        });
        match deleted {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// Removes many objects, a thousand a request; one by one where the store knows no such request.
    pub fn delete_all(&self, names: &[String]) -> Result<()> {
        for some in names.chunks(DELETES_A_REQUEST) {
            let deleted = self.ask("remove", &some[0], || {
                let keys: Vec<_> = some.iter().map(|name| Ok(self.key(name))).collect();
                let keys = futures_util::stream::iter(keys).boxed();
                let deleting = self.store.delete_stream(keys).try_collect::<Vec<_>>();
                self.attempt(&some[0], deleting)
            });
            match deleted {
                Err(Error::Io(error)) if error.kind == ErrorKind::Device => {
                    tracing::info!("{error}: objects are removed one by one");
                    some.iter().try_for_each(|name| self.delete(name))?;
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Lists the objects below a folder, or anywhere below the prefix where that is empty, in order of name, each with
    /// the store's description.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, ObjectMeta)>> {
        let below = match (&*self.prefix, folder) {
            ("", "") => None,
            (prefix, "") => Some(Path::from(prefix)),
            (_, folder) => Some(self.key(folder)),
        };
        let mut found: Vec<ObjectMeta> = Vec::new();
        self.ask("list", folder, || {
            // Objects that were listed before an answer failed to come are not asked for again.
            let last = found.last().map(|meta| meta.location.clone());
            let mut listing = match &last {
                Some(last) => self.store.list_with_offset(below.as_ref(), last),
                None => self.store.list(below.as_ref()),
            };
            self.attempt(folder, async {
                while let Some(meta) = listing.try_next().await? {
                    found.push(meta);
                }
                Ok(())
            })
        })?;
        let named = found.into_iter();
        let named = named.filter_map(|meta| Some((self.name_of(&meta.location)?, meta)));
        let mut named: Vec<_> = named.collect();
        named.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(named)
    }
}

/// Whether it is the name of a session or a lock, or the folder of these.
fn is_register(name: &str) -> bool {
    let folder = name.split('/').next().unwrap_or_default();
    [SESSION_FOLDER, LOCK_FOLDER].contains(&folder)
}

/// A body that ends early, though its connection does not say so, is no answer.
fn require_whole(came: usize, expected: u64) -> Attempt<()> {
    if came as u64 == expected {
        Ok(())
    } else {
        let words = format!("{came} of {expected} bytes came");
        Err((Failure::NoAnswer(0), words))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let counts = self.traffic.counts();
        tracing::info!(
            "{} requests that read and {} that write, {} bytes sent and {} received",
            counts.reads,
            counts.writes,
            counts.sent_bytes,
            counts.received_bytes
        );
        if let Some(runtime) = self.runtime.take() {
            // Nobody waits for a name that is being looked up.
            runtime.shutdown_background();
        }
    }
}
